"""The compact domain Ω of the paper: a box around the data, outside which the density is zero."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gedikit.randomness import Randomness, uniform

BOUNDS = ("none", "reflect", "reject", "clip")  # what a step that would leave the domain does


@dataclass(frozen=True)
class Box:
    """{x : low ≤ x ≤ high}; a stack of boxes has corners of shape (members, 1, d)."""

    low: Float[Tensor, "*m d"]
    high: Float[Tensor, "*m d"]

    @classmethod
    def around(cls, x: Float[Tensor, "n d"], margin: float) -> "Box":
        """The data's range, widened by `margin` on every side."""
        return cls(x.amin(0) - margin, x.amax(0) + margin)

    @classmethod
    def stacked(cls, boxes: Sequence["Box"]) -> "Box":
        return cls(torch.stack([b.low for b in boxes])[:, None], torch.stack([b.high for b in boxes])[:, None])

    @property
    def width(self) -> Float[Tensor, "*m d"]:
        return self.high - self.low

    @property
    def log_volume(self) -> float:
        return float(self.width.double().log().sum())

    def contains(self, x: Float[Tensor, "*m n d"]) -> Bool[Tensor, "*m n"]:
        return ((x >= self.low) & (x <= self.high)).all(-1)

    def clip(self, x: Float[Tensor, "*m n d"]) -> Float[Tensor, "*m n d"]:
        """The nearest point of the box."""
        return torch.clamp(x, self.low, self.high)

    def reflect(self, x: Float[Tensor, "*m n d"]) -> Float[Tensor, "*m n d"]:
        """Fold x back at the walls, as often as it takes."""
        folded = torch.remainder(x - self.low, 2 * self.width)
        return self.low + self.width - (folded - self.width).abs()

    def uniform(self, n: int, generator: Randomness) -> Float[Tensor, "*m n d"]:
        return self.low + uniform((n, self.low.shape[-1]), generator) * self.width

    def to(self, device: torch.device | str) -> "Box":
        return Box(self.low.to(device), self.high.to(device))
