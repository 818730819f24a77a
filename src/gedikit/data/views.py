"""Two views of a batch: x, and x′ ~ T(x′|x)."""

from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gedikit.data.geometry import NeighbourWalk


class Views(Protocol):
    """Rows of the data set to two tensors; `progress` runs from 0 to 1 over the training."""

    def __call__(
        self, rows: Int[Tensor, " b"], progress: float, generator: torch.Generator
    ) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b d"]]: ...


@dataclass(frozen=True)
class NoiseViews:
    """x as it is and x′ = x + σε: the paper's augmentation for vectors."""

    data: Float[Tensor, "n d"]
    sigma: float

    def __call__(
        self,
        rows: Int[Tensor, " b"],
        progress: float,  # noqa: ARG002
        generator: torch.Generator,
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
        self, rows: Int[Tensor, " b"], progress: float, generator: torch.Generator
    ) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b d"]]:
        reached = self.walk.step(rows, self.level(progress), generator)
        both = self.data[torch.cat([rows, reached])]
        both = both + self.sigma * _noise_like(both, generator)
        x, view = both.split(len(rows))
        return x, view


def _noise_like(x: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(x.shape, generator=generator, device=x.device)
