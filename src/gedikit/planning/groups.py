"""How many groups the rows have, with which shares, and the partition of images that a fit starts from."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gedikit.errors import UsageError
from gedikit.methods import methods
from gedikit.planning.plans import ASKED, AUTO, GIVEN, UNIFORM, Asked, Decision, check_prior, split_execution
from gedikit.profile import DataProfile
from gedikit.starts import ImageStart, ImageStarts, Start, Starts

_IMAGE_CLUSTERS = 8
_SHOWN = 8  # shares in a sentence
_NEAR_DUPLICATES, _LOOKED_AT = "near-duplicates", "looked at for groups"


class GroupDecisions:
    """Decisions so far, and those about groups."""

    def __init__(self, data: DataProfile, asked: Asked, starts: Starts | None):
        self.data, self.asked, self.starts = data, asked, starts
        self.method = methods[asked.method]
        self.changes, _ = split_execution(asked.config)
        self.decisions: list[Decision] = []
        self.agreement: float | None = None
        self.faint = False  # whether the partition to start from was too faint to learn from

    def _given(self, section: str, name: str) -> Any:
        """What the user set, if anything."""
        return self.changes.get(section, {}).get(name)

    def _decide(self, what: str, choice: object, reason: str) -> None:
        """Note a decision; where the user named the component, it was theirs."""
        named = self._given(what, "name")
        if named is not None:
            choice, reason = named, ASKED
        self.decisions.append(Decision(what, str(choice), reason))

    def _decided(self, what: str) -> bool:
        return any(decision.what == what for decision in self.decisions)

    def _groups(self, image_shape: tuple[int, ...]) -> tuple[int, NDArray[np.float64], str]:
        """The number of clusters, their shares, and where these are from."""
        asked, examples = self.asked, self.asked.examples
        n_clusters = asked.n_clusters
        if examples is not None:
            n_clusters = n_clusters or len(examples.prior)
            self._decide("prior", "by the constraint", "how often its values occur in examples that satisfy it")
            return n_clusters, check_prior(np.array(examples.prior), n_clusters), GIVEN
        if n_clusters is None:
            n_clusters = self._number(image_shape)
        if not isinstance(asked.prior, str):
            self._decide("prior", GIVEN, ASKED)
            return n_clusters, check_prior(np.asarray(asked.prior), n_clusters), GIVEN
        uniform = check_prior(None, n_clusters)
        if asked.prior == UNIFORM:
            self._decide("prior", UNIFORM, ASKED)
            return n_clusters, uniform, UNIFORM
        if self.starts is None or self.method.recipe is not None or not self._aligns():
            why = "a published recipe" if self.method.recipe is not None else "the method looks for equal shares"
            self._decide("prior", UNIFORM, why)
            return n_clusters, uniform, UNIFORM
        start: Start | None
        if image_shape:
            start = self._image_start(image_shape, n_clusters)
            if start is None:
                self._decide("prior", UNIFORM, "no partition of the images is clear enough to take shares from")
                return n_clusters, uniform, UNIFORM
        else:
            start = self.starts.find(n_clusters, self._scaling())
            if start.faint and self.asked.known is None:
                why = "groups overlap so much that no partition is clear, and nothing speaks against equal shares"
                self._decide("prior", UNIFORM, why)
                self.faint = True
                return n_clusters, uniform, UNIFORM
        shares = start.shares
        said = ", ".join(f"{share:.0%}" for share in shares[:_SHOWN])
        more = "" if len(shares) <= _SHOWN else ", …"
        reason = f"shares of the starting partition ({start.choice.chosen.name}): {said}{more}"
        self._decide("prior", AUTO, reason)
        return n_clusters, shares, AUTO

    def _number(self, image_shape: tuple[int, ...]) -> int:
        """How many groups the rows have."""
        if self.starts is None:
            raise UsageError("n_clusters is looked for in the rows, and there are none here: give it")
        start: Start | None = (
            self._images(image_shape).find_number() if image_shape else self.starts.find(None, self._scaling())
        )
        n_labels = 0 if self.asked.known is None else self.asked.known.n_labels
        if start is None:
            n_clusters, reason = _IMAGE_CLUSTERS, "nothing in their pixels parts these images: give n_clusters"
        else:
            assert start.number is not None
            n_clusters, runner_up = start.number.n_clusters, start.number.runner_up
            reason = f"groups of neighbours with few links between them; next would be {runner_up}"
        if n_labels > n_clusters:
            n_clusters, reason = n_labels, f"the largest known label is {n_labels - 1}"
        self._decide("n_clusters", n_clusters, reason)
        return n_clusters

    def _images(self, image_shape: tuple[int, ...]) -> ImageStarts:
        """Where groups of images are looked for; copies among them are said in the plan."""
        assert self.starts is not None
        images = self.starts.of_images(image_shape, self.data.border)
        if images.n_looked_at < self.data.n_rows and not self._decided(_LOOKED_AT):
            why = f"drawn by the seed from {self.data.n_rows:,}, which memory cannot hold: others start in no group"
            self._decide(_LOOKED_AT, f"{images.n_looked_at:,} images", why)
        copies = images.graphs.near_duplicates
        if copies and not self._decided(_NEAR_DUPLICATES):
            why = "images that look the same as another one; they count once where groups are looked for"
            self._decide(_NEAR_DUPLICATES, copies, why)
        return images

    def _image_start(
        self, image_shape: tuple[int, ...], n_clusters: int, prior: NDArray[np.float64] | None = None
    ) -> ImageStart | None:
        """The partition of images that a fit can start from, if there is a clear one."""
        images = self._images(image_shape)
        if n_clusters < 2 or not images.can_be(n_clusters):
            return None
        start = images.find(n_clusters, prior)
        if start.believed:
            return start
        self.agreement = start.choice.chosen.agreement
        return None

    def _begun(
        self, image_shape: tuple[int, ...], n_clusters: int, prior: NDArray[np.float64], shares: str
    ) -> ImageStart | None:
        """What a fit of images starts from, where it does."""
        if not image_shape or shares == UNIFORM or self.starts is None or not self._can_start():
            return None
        return self._image_start(image_shape, n_clusters, None if shares == AUTO else prior)

    def _can_start(self) -> bool:
        """Whether a partition can be started from: a constraint names clusters its own way."""
        return self.asked.examples is None and self._aligns()

    def _aligns(self) -> bool:
        """Whether the method can start from a partition: it has both invariance and prior."""
        return any({"invariance", "prior"} <= {*stage.terms} for stage in self.method.stages)

    def _scaling(self) -> str:
        return str(self._given("data", "scaling") or AUTO)
