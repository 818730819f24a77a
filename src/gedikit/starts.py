"""What a fit starts from: a partition of the rows, found before any network is trained."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray

from gedikit.guidance import guided
from gedikit.image_graphs import ALIKE, ImageGraphs, image_graphs
from gedikit.known import Known
from gedikit.modalities.scaling import Scaler
from gedikit.partitions import BALANCED, NumberChoice, PartitionChoice, choose_number, choose_partition
from gedikit.partitions.choice import choose_among
from gedikit.partitions.neighbourhood import Neighbourhood
from gedikit.partitions.number import choose_number_among
from gedikit.partitions.telling import telling_columns
from gedikit.rows import Rows, looked_at
from gedikit.views.image_similarity import MEASURES
from gedikit.views.neighbours import NeighbourGraph, neighbour_graph

_MAX_ANCHORS = 10_000
_CUT = 0.1  # the mean conductance up to which a partition cuts the graph little
_AGREED = 0.85  # from when on a partition of images is learned from: methods agree on it
_AGREED_ON_MORE = 0.95
_LARGEST = 20  # number of groups
_FEWEST = 20  # different images


@dataclass(frozen=True)
class Start:
    """A group for every row, the largest first, and the evidence for it."""

    choice: PartitionChoice
    number: NumberChoice | None = None  # where the number of groups was looked for
    guided: Int64[np.ndarray, " n"] | None = None  # where something is known of rows: a known label is its group
    known: Known | None = None
    rows: Int64[np.ndarray, " n"] | None = None  # where not all rows were looked at: those that were

    def of_all(self, n_rows: int) -> Int64[np.ndarray, " all"]:
        """A group for every row of the data; −1 for rows that were not looked at."""
        if self.rows is None:
            return self.labels
        groups = np.full(n_rows, -1, dtype=np.int64)
        groups[self.rows] = self.labels
        return groups

    def places(self, rows: Int64[np.ndarray, " r"]) -> Int64[np.ndarray, " _"]:
        """Where those of some rows that were looked at are among the labels, in the order of these rows."""
        if self.rows is None:
            return rows
        at = np.searchsorted(self.rows, rows).clip(max=len(self.rows) - 1)
        return np.asarray(at[self.rows[at] == rows])

    @property
    def labels(self) -> Int64[np.ndarray, " n"]:
        return self.choice.chosen.labels if self.guided is None else self.guided

    @property
    def n_clusters(self) -> int:
        return len(self.choice.chosen.shares)

    @property
    def faint(self) -> bool:
        """Whether balance is all there is to it, cut where many neighbours are: a network finds better groups."""
        chosen = self.choice.chosen
        return chosen.name == BALANCED and chosen.criterion > _CUT

    @property
    def shares(self) -> Float[np.ndarray, " k"]:
        """How much of the rows each group has, by their weights; a group that lost all keeps a trace."""
        if self.known is None:
            return self.choice.chosen.shares
        shares = np.maximum(self.known.shares(self.labels, self.n_clusters), 1 / (2 * len(self.labels)))
        return np.asarray(shares / shares.sum())


@dataclass(frozen=True)
class ImageStart(Start):
    """A partition of images, which means something only where images that are alike show the same kind of thing."""

    similarity: str = ""  # the measure by which it was found

    @property
    def walks(self) -> bool:
        """Whether views can be made of neighbours: those by descriptors are of one kind and look different."""
        return self.similarity in MEASURES

    @property
    def believed(self) -> bool:
        """Whether it is clear enough to be learned from; things in photographs are not told apart by pixels."""
        chosen = self.choice.chosen
        return self.n_clusters > 1 and chosen.agreement >= _AGREED and chosen.criterion <= _CUT


class Starts:
    """Partitions of one data set, each found once; `codes` are columns that are not scaled.

    `near` has who is near whom among the rows, by the way they are scaled, as far as partitions were looked for.
    """

    def __init__(self, x: Rows, seed: int, codes: Sequence[int] = (), known: Known | None = None):
        self._x, self._seed, self._codes, self._known = x, seed, codes, known
        self.near: dict[str, Neighbourhood] = {}
        self._columns: dict[str, Int64[np.ndarray, " c"]] = {}
        self._found: dict[tuple[int | None, str, tuple[float, ...]], Start] = {}
        self._of_images: dict[tuple[tuple[int, ...], float | None], ImageStarts] = {}

    def of_images(self, shape: tuple[int, ...], fill: float | None) -> "ImageStarts":
        """Partitions of the rows as images, which have the colour `fill` around them."""
        key = (shape, fill)
        if key not in self._of_images:
            self._of_images[key] = ImageStarts(self._x, shape, fill, self._seed, self._known)
        return self._of_images[key]

    def telling(self, rows: Float[np.ndarray, "n d"], scaling: str) -> Float[np.ndarray, "n c"]:
        """Columns of the rows, scaled as `scaling` says, that groups are looked for by."""
        if scaling not in self._columns:
            self._columns[scaling] = telling_columns(rows, self._codes, self._seed)
        columns = self._columns[scaling]
        return rows if len(columns) == rows.shape[1] else rows[:, columns]

    def aside(self, scaling: str) -> Int64[np.ndarray, " c"]:
        """Columns that play no part in that: categories that the others say little of. None before a search."""
        return np.setdiff1d(np.arange(self._x.shape[1]), self._columns.get(scaling, np.arange(self._x.shape[1])))

    def find(
        self, n_clusters: int | None, scaling: str, prior: Sequence[float] | NDArray[np.floating] | None = None
    ) -> Start:
        """Rows, scaled as `scaling` says, in `n_clusters` groups (None: as many as there are) of shares `prior`."""
        key = (n_clusters, scaling, () if prior is None else tuple(float(share) for share in prior))
        if key not in self._found:
            self._found[key] = self._search(n_clusters, scaling, prior)
        return self._found[key]

    def _search(
        self, n_clusters: int | None, scaling: str, prior: Sequence[float] | NDArray[np.floating] | None
    ) -> Start:
        def points() -> NDArray[np.float32]:
            x = self._x[:]
            return self.telling(Scaler.fit(x, scaling, self._codes).transform(x), scaling)

        def graph() -> NeighbourGraph:
            return neighbour_graph(points(), torch.Generator().manual_seed(self._seed), max_anchors=_MAX_ANCHORS)

        if scaling not in self.near:
            self.near[scaling] = Neighbourhood.of_points(points(), self._seed)
        near = self.near[scaling]
        if n_clusters is not None:
            choice = choose_among(near, n_clusters, seed=self._seed, prior=prior)
            return _guided(Start(choice), self._known, graph)
        number = choose_number_among(near, seed=self._seed)
        start = Start(number.choice, number)
        if self._known is not None:
            if number.n_clusters < self._known.n_labels:
                return start  # there are more labels than groups: partitions are looked for again
            start = _guided(start, self._known, graph)
        self._found[number.n_clusters, scaling, ()] = start
        return start


class ImageStarts:
    """Partitions of one set of images, each found once, by what parts them best: pixels, outlines, descriptors."""

    def __init__(self, x: Rows, shape: tuple[int, ...], fill: float | None, seed: int, known: Known | None):
        self._x, self._shape, self._fill, self._seed, self._known = x, shape, fill, seed, known
        self._rows = looked_at(x, seed)
        self._found: dict[tuple[int, tuple[float, ...]], ImageStart] = {}

    @property
    def n_looked_at(self) -> int:
        return len(self._x) if self._rows is None else len(self._rows)

    @cached_property
    def graphs(self) -> ImageGraphs:
        x = self._x[:] if self._rows is None else self._x[self._rows]
        return image_graphs(x, self._shape, self._fill, self._seed)

    def can_be(self, n_clusters: int) -> bool:
        """Whether there are enough different images to look for so many groups among them."""
        return len(self.graphs.rows) >= max(_FEWEST, 2 * n_clusters)

    def find_number(self) -> ImageStart | None:
        """As many groups as there are, by the measure that parts more of them; None where neither can tell.

        A dip of half the depth parts one more group where methods agree on the groups that it makes: of a few
        hundred images a kind may have so few that chance could have made its dip alone.
        """
        if not self.can_be(1):
            return None
        numbers = [
            choose_number(None, seed=self._seed, graph=graph, largest=_LARGEST) for graph in self.graphs.by.values()
        ]
        number = max(numbers, key=lambda found: (found.n_clusters, found.choice.chosen.agreement))
        for k in range(number.n_clusters + 1, _LARGEST + 1):
            deeper = max(numbers, key=lambda found: found.curve.get(k, 0.0))
            depth = deeper.curve.get(k, 0.0)
            if depth < deeper.threshold / 2 or not self.can_be(k):
                break
            choice = self.find(k).choice
            if choice.chosen.agreement < _AGREED_ON_MORE:
                break
            number = replace(deeper, n_clusters=k, threshold=depth, runner_up=k - 1, choice=choice)
        if number.n_clusters == 1 and self.graphs.likeness < ALIKE:
            return None
        start = replace(self.find(number.n_clusters), number=number)
        self._found[number.n_clusters, ()] = start
        return start

    def find(self, n_clusters: int, prior: Sequence[float] | NDArray[np.floating] | None = None) -> ImageStart:
        """The images in `n_clusters` groups of shares `prior`, by the measure on which methods agree more."""
        key = (n_clusters, () if prior is None else tuple(float(share) for share in prior))
        if key not in self._found:
            self._found[key] = self._search(n_clusters, prior)
        return self._found[key]

    def _search(self, n_clusters: int, prior: Sequence[float] | NDArray[np.floating] | None) -> ImageStart:
        found = {
            by: choose_partition(None, n_clusters, seed=self._seed, prior=prior, graph=graph)
            for by, graph in self.graphs.by.items()
        }
        by = max(found, key=lambda name: found[name].chosen.agreement)
        known = self._known
        if known is not None and self._rows is not None:
            known = known.among(self._rows)
        return _guided(ImageStart(found[by], rows=self._rows, similarity=by), known, lambda: self.graphs.by[by])


AnyStart = TypeVar("AnyStart", bound=Start)


def _guided(start: AnyStart, known: Known | None, graph: Callable[[], NeighbourGraph]) -> AnyStart:
    """The start as what is known of rows asks for."""
    if known is None:
        return start
    if not known.guides:
        return replace(start, guided=_by_weight(start.labels, known), known=known)
    found = [start.labels, *(candidate.labels for candidate in start.choice.candidates)]
    groups = guided(graph(), found, known, start.n_clusters)
    return replace(start, guided=groups if known.labels is not None else _by_weight(groups, known), known=known)


def _by_weight(groups: Int64[np.ndarray, " n"], known: Known) -> Int64[np.ndarray, " n"]:
    """The same groups, the one with the largest weight first."""
    shares = known.shares(groups, int(groups.max()) + 1)
    rank = np.empty(len(shares), dtype=np.int64)
    rank[np.argsort(-shares, kind="stable")] = np.arange(len(shares))
    return np.asarray(rank[groups])
