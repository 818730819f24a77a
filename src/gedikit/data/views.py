"""Two views of a batch: x, and x′ ~ T(x′|x)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gedikit.data.geometry import NeighbourWalk
from gedikit.randomness import Randomness, member_shape, normal


class Views(Protocol):
    """Rows of the data set to two tensors; `progress` runs from 0 to 1 over the training."""

    @property
    def data(self) -> Float[Tensor, "*m n d"]: ...

    def __call__(
        self, rows: Int[Tensor, "*m b"], progress: float, generator: Randomness
    ) -> tuple[Float[Tensor, "*m b d"], Float[Tensor, "*m b d"]]: ...


@dataclass(frozen=True)
class NoiseViews:
    """x as it is and x′ = x + σε: the paper's augmentation for vectors."""

    data: Float[Tensor, "n d"]
    sigma: float

    def __call__(
        self,
        rows: Int[Tensor, " b"],
        progress: float,  # noqa: ARG002
        generator: Randomness,
    ) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b d"]]:
        x = self.data[rows]
        return x, x + self.sigma * _noise_like(x, generator)


@dataclass(frozen=True)
class WalkViews:
    """x′ is where a walk along the data's neighbours leads; both views carry a little noise.

    Walks start long, so that the first thing to be learned is which points hang together at all, and
    shorten to single steps, which then settle where exactly the border runs.
    """

    data: Float[Tensor, "n d"]
    walk: NeighbourWalk
    sigma: float
    hold: float
    end: float

    def level(self, progress: float) -> int:
        top = self.walk.n_levels - 1
        return round(top * min(1.0, max(0.0, (self.end - progress) / (self.end - self.hold))))

    def __call__(
        self, rows: Int[Tensor, " b"], progress: float, generator: Randomness
    ) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b d"]]:
        assert isinstance(generator, torch.Generator)
        reached = self.walk.step(rows, self.level(progress), generator)
        both = self.data[torch.cat([rows, reached])]
        both = both + self.sigma * _noise_like(both, generator)
        x, view = both.split(len(rows))
        return x, view


class StackedViews:
    """Views of several data sets with equally many rows, each drawn for itself."""

    def __init__(self, members: Sequence[Views]):
        self.members = members
        self.data = torch.stack([m.data for m in members])

    def __call__(
        self, rows: Int[Tensor, "m b"], progress: float, generator: Randomness
    ) -> tuple[Float[Tensor, "m b d"], Float[Tensor, "m b d"]]:
        assert not isinstance(generator, torch.Generator)
        each = zip(self.members, rows, generator, strict=True)
        x, view = zip(*(views(r, progress, g) for views, r, g in each), strict=True)
        return torch.stack(x), torch.stack(view)


def _noise_like(x: Tensor, generator: Randomness) -> Tensor:
    return normal(member_shape(x.shape, generator), generator)
