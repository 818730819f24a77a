"""Examples packed into bundles of equally many rows, so that batches can draw them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from numpy.typing import NDArray
from torch import Tensor

from gedikit.symbolic.examples import NOTHING, Group, Placed, of_observed


@dataclass(frozen=True)
class Bundles:
    """Examples of one or several constraints, drawn bundle by bundle.

    Examples may have different numbers of images. A bundle has as many rows as the largest example; short examples
    share one, and what is left of it repeats its rows.
    """

    rows: Int64[np.ndarray, "m k"]
    kinds: Int64[np.ndarray, "m k"]  # which kind of symbols each row is of
    parts: tuple["_Part", ...]

    @classmethod
    def of(cls, placed: Sequence[Placed]) -> "Bundles":
        """All examples that count, each in one bundle."""
        groups = [(p, g) for p in placed for g in p.groups]
        counted = [p.examples.weights[g.numbers] > 0 for p, g in groups]
        sizes = [(g.rows != NOTHING).sum(1) for _, g in groups]
        bundle, first, shape = _packed(np.concatenate([s[c] for s, c in zip(sizes, counted, strict=True)]))
        rows, kinds = np.full(shape, NOTHING), np.zeros(shape, dtype=np.int64)
        parts, begun = [], 0
        for (p, g), which in zip(groups, counted, strict=True):
            ends = begun + int(which.sum())
            if ends > begun:
                part = _Part.of(p, g, which, bundle[begun:ends], first[begun:ends], len(rows))
                part.place(rows, kinds)
                parts.append(part)
            begun = ends
        filled = (rows != NOTHING).sum(1, keepdims=True)
        repeated = np.arange(shape[1]) % filled
        return cls(np.take_along_axis(rows, repeated, 1), np.take_along_axis(kinds, repeated, 1), tuple(parts))

    @property
    def several_kinds(self) -> bool:
        return any(part.placed.several for part in self.parts)

    def on(self, device: torch.device) -> "DrawnBundles":
        kinds = torch.from_numpy(self.kinds).to(device) if self.several_kinds else None
        return DrawnBundles(self.rows.shape[1], [part.on(device) for part in self.parts], kinds)


@dataclass(frozen=True)
class DrawnBundles:
    """Bundles as an iteration takes them: tensors on a device, all of the same shape whatever is drawn."""

    width: int
    parts: list["_PartTensors"]
    kinds: Int64[Tensor, "m k"] | None

    def log_probability(
        self, log_p: Float[Tensor, "*k b c"], drawn: Int[Tensor, "*m d"]
    ) -> tuple[Float[Tensor, "*k e"], Float[Tensor, "*m e"] | None]:
        """log P of the examples in the bundles drawn, whose rows `log_p` is of, and weights, if they differ."""
        begin = self.width * torch.arange(drawn.shape[-1], device=drawn.device)
        found = [part.log_probability(log_p, drawn, begin) for part in self.parts]
        if len(found) == 1 and self.parts[0].weights is None:
            return found[0], None
        weights = [part.weights_of(drawn) for part in self.parts]
        return torch.cat(found, dim=-1), torch.cat(weights, dim=-1)

    def log_kinds(self, log_p: Float[Tensor, "*k b c"], drawn: Int[Tensor, "*m d"]) -> Float[Tensor, "*k b"] | None:
        """log p(kind|x) of every row, which is of a known kind; None where there is one kind only."""
        if self.kinds is None:
            return None
        symbols = self.parts[0].part.placed.symbols
        each = [torch.logsumexp(log_p[..., kind.clusters], dim=-1) for kind in symbols.kinds]
        own = self.kinds[drawn].flatten(-2).expand(log_p.shape[:-1])
        return torch.stack(each, dim=-1).gather(-1, own[..., None])[..., 0]


@dataclass(frozen=True)
class _Part:
    """A group of examples: of each bundle as many places as any of them fills, most often one."""

    placed: Placed
    group: Group
    examples: Int64[np.ndarray, "m e"]  # which of the group; −1 for none
    slots: Int64[np.ndarray, "m e v"]  # where in the bundle the images are

    @classmethod
    def of(
        cls,
        placed: Placed,
        group: Group,
        counted: Bool[np.ndarray, " g"],
        bundle: Int64[np.ndarray, " e"],
        first: Int64[np.ndarray, " e"],
        n_bundles: int,
    ) -> "_Part":
        which = np.flatnonzero(counted)
        order = np.argsort(bundle, kind="stable")
        rank = np.arange(len(order)) - np.searchsorted(bundle[order], bundle[order])
        examples = np.full((n_bundles, int(rank.max()) + 1), NOTHING)
        examples[bundle[order], rank] = which[order]
        begin = np.zeros_like(examples)
        begin[bundle[order], rank] = first[order]
        is_image = group.rows != NOTHING
        within = np.where(is_image, is_image.cumsum(1) - 1, 0)
        return cls(placed, group, examples, np.where(examples == NOTHING, 0, begin)[..., None] + within[examples])

    def place(self, rows: NDArray[np.int64], kinds: NDArray[np.int64]) -> None:
        """Write the images of the examples, and their kinds, where they are in their bundles."""
        position = {kind.name: i for i, kind in enumerate(self.placed.symbols.kinds)}
        bundle, place = np.nonzero(self.examples != NOTHING)
        which = self.examples[bundle, place]
        for j, kind in enumerate(self.group.kinds):
            images = self.group.rows[which, j]
            shown = images != NOTHING
            if kind is not None:
                at = bundle[shown], self.slots[bundle, place, j][shown]
                rows[at], kinds[at] = images[shown], position[kind.name]

    def on(self, device: torch.device) -> "_PartTensors":
        none = self.examples == NOTHING
        is_image = (self.group.rows != NOTHING)[self.examples] & ~none[..., None]
        known = np.where(none[..., None], NOTHING, self.group.known[self.examples])
        of = self.placed.examples
        numbers = self.group.numbers[self.examples]
        weights = np.where(none, 0.0, of.weights[numbers])
        alike = bool((weights == 1).all())

        def tensor(values: NDArray[np.generic]) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(values)).to(device)

        return _PartTensors(
            self,
            tensor(self.slots),
            tensor(is_image),
            tensor(known),
            is_image.reshape(-1, is_image.shape[-1]).all(0).tolist(),
            None if alike else tensor(weights.astype(np.float32)),
            None if self.placed.certain else tensor(of.holds[numbers]),
            tensor(of.probability[numbers].astype(np.float32)),
        )


@dataclass(frozen=True)
class _PartTensors:
    part: _Part
    slots: Int64[Tensor, "m e v"]
    is_image: Bool[Tensor, "m e v"]
    known: Int64[Tensor, "m e v"]
    shown: list[bool]
    weights: Float[Tensor, "m e"] | None  # None: all alike
    holds: Bool[Tensor, "m e"] | None  # None: always
    probability: Float[Tensor, "m e"]

    def log_probability(
        self, log_p: Float[Tensor, "*k b c"], drawn: Int[Tensor, "*m d"], begin: Int[Tensor, " d"]
    ) -> Float[Tensor, "*k n"]:
        group = self.part.group
        places = (self.slots[drawn] + begin[:, None, None]).flatten(-3, -2)
        is_image, known = (part[drawn].flatten(-3, -2) for part in (self.is_image, self.known))
        within = self.part.placed.several
        found = group.constraint.log_probability(
            group.posteriors(log_p, places, is_image, known, shown=self.shown, within=within)
        )
        if self.holds is None:
            return found
        return of_observed(found, self.holds[drawn].flatten(-2), self.probability[drawn].flatten(-2).to(found))

    def weights_of(self, drawn: Int[Tensor, "*m d"]) -> Float[Tensor, "*m n"]:
        if self.weights is None:
            return torch.ones(*drawn.shape[:-1], drawn.shape[-1] * self.slots.shape[1], device=drawn.device)
        return self.weights[drawn].flatten(-2)


def _packed(
    sizes: Int64[np.ndarray, " e"],
) -> tuple[Int64[np.ndarray, " e"], Int64[np.ndarray, " e"], tuple[int, int]]:
    """Of every example its bundle and its first place there, and how many bundles of how many places there are.

    Examples of equal size are one bundle each, in their order; others by first fit, the largest first.
    """
    width = int(sizes.max())
    if (sizes == width).all():
        return np.arange(len(sizes)), np.zeros_like(sizes), (len(sizes), width)
    bundle, first = np.empty_like(sizes), np.empty_like(sizes)
    with_room: list[list[int]] = [[] for _ in range(width + 1)]  # bundles by the places left in them
    n_bundles = 0
    for i in np.argsort(-sizes, kind="stable"):
        size = int(sizes[i])
        room = next((left for left in range(size, width) if with_room[left]), width)
        if room == width:
            bundle[i], n_bundles = n_bundles, n_bundles + 1
        else:
            bundle[i] = with_room[room].pop()
        first[i] = width - room
        with_room[room - size].append(int(bundle[i]))
    return bundle, first, (n_bundles, width)
