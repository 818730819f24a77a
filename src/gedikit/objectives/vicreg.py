"""VICReg: equal views, variance kept, covariance removed (Bardes et al., 2022)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gedikit.components import setting
from gedikit.objectives import batch
from gedikit.objectives.base import NEGATIVE_FREE, Memory, Objective, Outputs, Sizes, register_objective
from gedikit.objectives.loss import loss
from gedikit.objectives.statistics import Embeddings, centred_rows, product_norm


@loss(min_rows=2, pair=True)
def vicreg(
    z: Embeddings,
    view: Embeddings,
    *,
    invariance: float = 25.0,
    variance: float = 25.0,
    covariance: float = 1.0,
    epsilon: float = 1e-4,
) -> Float[Tensor, "*m"]:
    """λ MSE(z, z′) + μ Σ hinge(1 − std)/2l + ν Σ_{i≠j} Cov_ij²/l of both views; optimum 0 (Bardes et al., 2022)."""
    dims = z.shape[-1]
    loss = invariance * batch.mean((z - view).square().mean(-1))
    for centred in (centred_rows(z), centred_rows(view)):
        var = batch.row_sum(centred.square()) / (batch.n_rows(z) - 1)
        spread = F.relu(1 - torch.sqrt(var + epsilon)).mean(-1)
        shared = product_norm(centred, centred) / (batch.n_rows(z) - 1) ** 2 - var.square().sum(-1)
        loss = loss + variance * spread / 2 + covariance * shared / dims
    return loss


@register_objective("vicreg")
@dataclass(frozen=True)
class VICReg(Objective):
    """Variance, invariance and covariance."""

    invariance: float = setting(25.0, "weight of the distance between the views", at_least=0)
    variance: float = setting(25.0, "weight of deviations below 1", at_least=0)
    covariance: float = setting(1.0, "weight of the covariances of different coordinates", at_least=0)

    summary: ClassVar[str] = "equal views, variance kept, covariance removed"
    reference: ClassVar[str] = "Bardes et al., 2022"
    family: ClassVar[str] = NEGATIVE_FREE
    labels: ClassVar[str] = "k-means"
    min_rows: ClassVar[int] = 2

    def __call__(self, out: Outputs, memory: Memory) -> tuple[Tensor, Memory]:
        weights = {"invariance": self.invariance, "variance": self.variance, "covariance": self.covariance}
        return vicreg.formula(out.z, out.view_z, **weights), memory

    def optimum(self, sizes: Sizes) -> float:  # noqa: ARG002
        return 0.0
