"""x′ = x + σε: the paper's augmentation for vectors."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gedikit.components import setting
from gedikit.randomness import Randomness
from gedikit.views.base import RowViews, noise_like, register_views

UNITS = ("bandwidth", "absolute")


@register_views("noise")
@dataclass(frozen=True)
class Noise(RowViews):
    """Gaussian noise around x."""

    noise: float = setting(0.5, "standard deviation, in `unit`", at_least=0)
    unit: str = setting("bandwidth", "kernel bandwidths of the data, or absolute in scaled units", choices=UNITS)

    summary: ClassVar[str] = "Gaussian noise, for vectors"
    reference: ClassVar[str] = "Sansone & Manhaeve, appendix on synthetic data"

    def change(self, x: Float[Tensor, "*m b d"], sigma: float, generator: Randomness) -> Float[Tensor, "*m b d"]:
        return x + sigma * noise_like(x, generator)

    def sigma(self, bandwidth: float) -> float:
        return self.noise * (bandwidth if self.unit == "bandwidth" else 1.0)
