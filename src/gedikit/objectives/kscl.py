"""K-shot contrastive learning: a row is the subspace that several views of it span (Xu et al., 2022)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gedikit.components import setting
from gedikit.errors import UsageError
from gedikit.objectives import batch
from gedikit.objectives.base import CONTRASTIVE, Memory, Objective, Outputs, Sizes, register_objective
from gedikit.objectives.instances import instance_classification
from gedikit.objectives.loss import cholesky, loss


@loss(min_rows=2)
def kscl(
    z: Float[Tensor, "*m n l"],
    shots: Float[Tensor, "*m n k l"],
    *,
    temperature: float = 0.2,
    ridge: float = 1e-2,
) -> Float[Tensor, "*m"]:
    """InfoNCE where an instance is the subspace its k views span: sim(z_i, j) = ‖P_j z_i‖ (Xu et al., 2022).

    P_j projects on the span of the views of instance j; `ridge`, relative to the mean squared singular value,
    fades out directions in which they hardly vary, where the original cuts an eigenvalue decomposition off.
    """
    n, k, l = shots.shape[-3:]  # noqa: E741
    if n != z.shape[-2]:
        raise UsageError(f"kscl takes the views of each of the {z.shape[-2]} rows, not of {n}")
    q = F.normalize(z, dim=-1)
    a = F.normalize(shots, dim=-1)
    gram = a @ a.mT
    shrunk = gram + ridge * torch.eye(k, dtype=a.dtype, device=a.device)  # unit rows: mean eigenvalue 1
    root = cholesky(shrunk)
    basis = torch.linalg.solve_triangular(root, a, upper=False)  # nearly orthonormal: aᵀ(G + εI)⁻¹a = basisᵀbasis
    everyone = batch.all_rows(basis.reshape(*basis.shape[:-3], n, k * l))
    everyone = everyone.reshape(*everyone.shape[:-2], everyone.shape[-2] * k, l)
    along = (q @ everyone.mT).reshape(*q.shape[:-1], -1, k)
    lengths = torch.sqrt(along.square().sum(-1) + torch.finfo(a.dtype).eps)
    return instance_classification(lengths / temperature, batch.first_row(z))


def kscl_optimum(n: int, temperature: float = 0.2) -> float:
    """Orthogonal subspaces: similarity 1 with one's own and 0 with the others."""
    return math.log1p((n - 1) * math.exp(-1 / temperature))


@register_objective("kscl")
@dataclass(frozen=True)
class KSCL(Objective):
    """K-shot contrastive learning."""

    temperature: float = setting(0.5, "of the softmax", above=0)
    shots: int = setting(3, "views that an instance is made of", above=0)

    summary: ClassVar[str] = "a row is the subspace that several views of it span"
    reference: ClassVar[str] = "Xu et al., 2022"
    family: ClassVar[str] = CONTRASTIVE
    labels: ClassVar[str] = "k-means"
    changes: ClassVar[dict[str, object]] = {"encoder": {"projection": 32}}
    unit_length: ClassVar[bool] = True
    min_rows: ClassVar[int] = 2
    capturable: ClassVar[bool] = False

    def __call__(self, out: Outputs, memory: Memory) -> tuple[Tensor, Memory]:
        shots = torch.stack(out.all_view_z, dim=-2)
        return kscl.formula(out.z, shots, temperature=self.temperature), memory

    @property
    def n_views(self) -> int:
        return self.shots

    def optimum(self, sizes: Sizes) -> float:
        return kscl_optimum(sizes.batch, self.temperature)
