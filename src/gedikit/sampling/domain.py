"""The compact domain Ω of the paper: a box around the data, outside which the density is zero."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True)
class Box:
    """{x : low ≤ x ≤ high}."""

    low: Float[Tensor, " d"]
    high: Float[Tensor, " d"]

    @classmethod
    def around(cls, x: Float[Tensor, "n d"], margin: float) -> "Box":
        """The data's range, widened by `margin` on every side."""
        return cls(x.amin(0) - margin, x.amax(0) + margin)

    @property
    def width(self) -> Float[Tensor, " d"]:
        return self.high - self.low

    @property
    def log_volume(self) -> float:
        return float(self.width.double().log().sum())

    def contains(self, x: Float[Tensor, "n d"]) -> Bool[Tensor, " n"]:
        return ((x >= self.low) & (x <= self.high)).all(-1)

    def clip(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """The nearest point of the box."""
        return torch.minimum(torch.maximum(x, self.low), self.high)

    def reflect(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Fold x back at the walls, as often as it takes."""
        folded = torch.remainder(x - self.low, 2 * self.width)
        return self.low + self.width - (folded - self.width).abs()

    def uniform(self, n: int, generator: torch.Generator) -> Float[Tensor, "n d"]:
        u = torch.rand(n, len(self.low), generator=generator, device=self.low.device)
        return self.low + u * self.width

    def to(self, device: torch.device | str) -> "Box":
        return Box(self.low.to(device), self.high.to(device))
