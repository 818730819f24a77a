"""Barlow Twins: the cross-correlation of two views is near the identity (Zbontar et al., 2021)."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gedikit.components import setting
from gedikit.objectives import batch
from gedikit.objectives.base import NEGATIVE_FREE, Memory, Objective, Outputs, Sizes, register_objective
from gedikit.objectives.loss import loss
from gedikit.objectives.statistics import Embeddings, product_norm, standardised


@loss(min_rows=2, pair=True)
def barlow_twins(
    z: Embeddings, view: Embeddings, *, off_diagonal: float = 0.0051, epsilon: float = 1e-5
) -> Float[Tensor, "*m"]:
    """Σ_i (1 − C_ii)² + λ Σ_{i≠j} C_ij², C the cross-correlation of the views; optimum 0 (Zbontar et al., 2021)."""
    a, b = standardised(z, epsilon), standardised(view, epsilon)
    diagonal = batch.row_mean(a * b)
    n = batch.n_rows(z)
    others = product_norm(a, b) / n**2 - diagonal.square().sum(-1)
    return (1 - diagonal).square().sum(-1) + off_diagonal * others


@register_objective("barlow-twins")
@dataclass(frozen=True)
class BarlowTwins(Objective):
    """Redundancy reduction."""

    off_diagonal: float = setting(0.0051, "λ, weight of the correlations of different coordinates", at_least=0)

    summary: ClassVar[str] = "cross-correlation of two views near the identity"
    reference: ClassVar[str] = "Zbontar et al., 2021"
    family: ClassVar[str] = NEGATIVE_FREE
    labels: ClassVar[str] = "k-means"
    min_rows: ClassVar[int] = 2

    def __call__(self, out: Outputs, memory: Memory) -> tuple[Tensor, Memory]:
        return barlow_twins.formula(out.z, out.view_z, off_diagonal=self.off_diagonal), memory

    def optimum(self, sizes: Sizes) -> float:  # noqa: ARG002
        return 0.0
