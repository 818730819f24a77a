"""Two views of a batch: x, and x′ ~ T(x′|x)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gedikit.data.geometry import NeighbourWalk
from gedikit.randomness import Randomness, integers, member_shape, normal

Batch = tuple[Tensor, ...]  # what an iteration starts from; its first part are the rows


class Views(Protocol):
    """Batches of a data set as two tensors each.

    What `batch` returns is drawn outside, all else inside of an iteration that may be a captured graph: `level` is
    a number on the host by which an iteration may differ from the next.
    """

    @property
    def n_rows(self) -> int: ...

    def points(self, start: int, stop: int) -> Float[Tensor, "*m b d"]:
        """Some of the data as the network takes it, without augmentation."""
        ...

    def level(self, progress: float) -> int:
        """How far the augmentation has come; `progress` runs from 0 to 1 over the training."""
        ...

    def batch(self, size: int, iteration: int, level: int, generator: Randomness) -> Batch: ...

    def __call__(
        self, batch: Batch, level: int, generator: Randomness, number: int = 0
    ) -> tuple[Float[Tensor, "*m b d"], Float[Tensor, "*m b d"]]:
        """x and one x′; another `number`, another x′."""
        ...


@dataclass(frozen=True)
class _InMemory:
    """Rows on the device, drawn with replacement."""

    data: Float[Tensor, "n d"]
    examples: Int64[Tensor, "m v"] | None = field(default=None, kw_only=True)  # rows that are drawn together

    @property
    def n_rows(self) -> int:
        return self.data.shape[-2]

    def points(self, start: int, stop: int) -> Float[Tensor, "b d"]:
        return self.data[start:stop]

    def batch(self, size: int, iteration: int, level: int, generator: Randomness) -> Batch:  # noqa: ARG002
        if self.examples is None:
            return (integers(self.n_rows, (size,), generator),)
        count, together = self.examples.shape
        return (self.examples[integers(count, (size // together,), generator)].flatten(),)


@dataclass(frozen=True)
class NoiseViews(_InMemory):
    """x as it is and x′ = x + σε: the paper's augmentation for vectors."""

    sigma: float

    def level(self, progress: float) -> int:  # noqa: ARG002
        return 0

    def __call__(
        self,
        batch: Batch,
        level: int,  # noqa: ARG002
        generator: Randomness,
        number: int = 0,  # noqa: ARG002
    ) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b d"]]:
        x = self.data[batch[0]]
        return x, x + self.sigma * _noise_like(x, generator)


@dataclass(frozen=True)
class WalkViews(_InMemory):
    """x′ is where a walk along the data's neighbours leads; both views carry a little noise.

    Walks start long, so that the first thing to be learned is which points hang together at all, and
    shorten to single steps, which then settle where exactly the border runs.
    """

    walk: NeighbourWalk
    sigma: float
    hold: float
    end: float

    def level(self, progress: float) -> int:
        return walk_level(self.walk, progress, self.hold, self.end)

    def __call__(
        self,
        batch: Batch,
        level: int,
        generator: Randomness,
        number: int = 0,  # noqa: ARG002
    ) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b d"]]:
        assert isinstance(generator, torch.Generator)
        rows = batch[0]
        reached = self.walk.step(rows, level, generator)
        both = self.data[torch.cat([rows, reached])]
        both = both + self.sigma * _noise_like(both, generator)
        x, view = both.split(len(rows))
        return x, view


def walk_level(walk: NeighbourWalk, progress: float, hold: float, end: float) -> int:
    """The longest walks until `hold`, single steps from `end` on."""
    return round((walk.n_levels - 1) * min(1.0, max(0.0, (end - progress) / (end - hold))))


class StackedViews:
    """Views of several data sets with equally many rows, each drawn for itself."""

    def __init__(self, members: Sequence[Views]):
        self.members = members
        self.n_rows = members[0].n_rows

    def points(self, start: int, stop: int) -> Float[Tensor, "m b d"]:
        return torch.stack([m.points(start, stop) for m in self.members])

    def level(self, progress: float) -> int:
        """The members' levels, as the digits of one number: they may differ."""
        levels = [m.level(progress) for m in self.members]
        return sum(level * _LEVELS**place for place, level in enumerate(levels))

    def batch(self, size: int, iteration: int, level: int, generator: Randomness) -> Batch:
        assert not isinstance(generator, torch.Generator)
        each = enumerate(zip(self.members, generator, strict=True))
        drawn = [m.batch(size, iteration, _own(level, place), g) for place, (m, g) in each]
        return tuple(torch.stack(parts) for parts in zip(*drawn, strict=True))

    def __call__(
        self, batch: Batch, level: int, generator: Randomness, number: int = 0
    ) -> tuple[Float[Tensor, "m b d"], Float[Tensor, "m b d"]]:
        assert not isinstance(generator, torch.Generator)
        drawn = []
        for place, (views, g) in enumerate(zip(self.members, generator, strict=True)):
            drawn.append(views(tuple(part[place] for part in batch), _own(level, place), g, number))
        x, view = zip(*drawn, strict=True)
        return torch.stack(x), torch.stack(view)


_LEVELS = 64


def _own(level: int, place: int) -> int:
    return int(level // _LEVELS**place % _LEVELS)


def _noise_like(x: Tensor, generator: Randomness) -> Tensor:
    return normal(member_shape(x.shape, generator), generator)
