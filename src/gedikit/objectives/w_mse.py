"""W-MSE: equal views after whitening (Ermolov et al., 2021)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gedikit.components import setting
from gedikit.objectives import batch
from gedikit.objectives.base import NEGATIVE_FREE, Memory, Objective, Outputs, Sizes, register_objective
from gedikit.objectives.loss import cholesky, loss
from gedikit.objectives.statistics import Embeddings, centred_rows


@loss(min_rows=2, pair=True)
def w_mse(z: Embeddings, view: Embeddings, *, shrinkage: float = 1e-3) -> Float[Tensor, "*m"]:
    """mean ‖v − v′‖², v the whitened embeddings on the unit sphere; optimum 0 (Ermolov et al., 2021)."""
    v, w = (F.normalize(_whitened(x, shrinkage), dim=-1) for x in (z, view))
    return batch.mean((v - w).square().sum(-1))


def _whitened(x: Embeddings, shrinkage: float) -> Embeddings:
    """L⁻¹(x − mean) with LLᵀ the covariance: mean 0, covariance I.

    The covariance is float64: rounded to float32 it need not have a root.
    """
    centred = centred_rows(x)
    exact = centred.double()
    covariance = batch.moment(exact, exact) / (batch.n_rows(x) - 1)
    eye = torch.eye(x.shape[-1], dtype=torch.float64, device=x.device)
    root = cholesky((1 - shrinkage) * covariance + shrinkage * eye)
    inverse: Tensor = torch.linalg.solve_triangular(root, eye, upper=False)
    return centred @ inverse.to(x.dtype).mT


@register_objective("w-mse")
@dataclass(frozen=True)
class WMSE(Objective):
    """Whitening and mean squared error."""

    shrinkage: float = setting(1e-3, "of the covariance towards the identity", at_least=0, at_most=1)

    summary: ClassVar[str] = "equal views after whitening"
    reference: ClassVar[str] = "Ermolov et al., 2021"
    family: ClassVar[str] = NEGATIVE_FREE
    labels: ClassVar[str] = "k-means"
    min_rows: ClassVar[int] = 2
    capturable: ClassVar[bool] = False

    def __call__(self, out: Outputs, memory: Memory) -> tuple[Tensor, Memory]:
        return w_mse.formula(out.z, out.view_z, shrinkage=self.shrinkage), memory

    def optimum(self, sizes: Sizes) -> float:  # noqa: ARG002
        return 0.0
