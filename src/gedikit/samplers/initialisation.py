"""Chain initialisation: where chains begin that have no earlier position."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from gedikit.randomness import Randomness, normal
from gedikit.samplers.domain import Box

Start = Callable[[int, Randomness], Float[Tensor, "*m n d"]]


@dataclass(frozen=True)
class Gaussian:
    """Noise with the mean and the covariance of some rows, kept in a box (after Yang and Ji, 2021).

    It resembles the data as far as two moments go: chains have less far to go than from uniform noise, and the
    energy less of the domain to get right.
    """

    rows: Float[Tensor, "*m r d"]
    box: Box

    def __call__(self, n: int, generator: Randomness) -> Float[Tensor, "*m n d"]:
        count = self.rows.shape[-2]
        mean = self.rows.mean(-2, keepdim=True)
        weights = normal((n, count), generator) / count**0.5
        return self.box.clip(mean + weights @ (self.rows - mean))


INITIALISATIONS = ("data", "noise", "gaussian")


def start(kind: str, rows: Float[Tensor, "*m r d"], box: Box) -> Start:
    """Where new chains begin: "gaussian" with two moments of the data, else uniformly in the box."""
    return Gaussian(rows, box) if kind == "gaussian" else box.uniform
