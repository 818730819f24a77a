"""Maximum entropy coding: the longest code that two views share (Liu et al., 2022)."""

import math
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
from gedikit.objectives.statistics import Embeddings


@loss(min_rows=2, pair=True)
def mec(z: Embeddings, view: Embeddings, *, distortion: float = 0.06) -> Float[Tensor, "*m"]:
    """−log|I + λ ZᵀZ′| / l with λ = l/(n ε²) on the unit sphere: maximum entropy coding (Liu et al., 2022).

    The coding length of the paper without its factor (n + l)/2 · l, and the determinant itself where the original
    sums four terms of its series. It is its absolute value: where views start so opposite that it is negative, one
    direction may end reversed, a little above the optimum.
    """
    dims, n = z.shape[-1], batch.n_rows(z)
    product = batch.moment(F.normalize(z, dim=-1), F.normalize(view, dim=-1))
    scaled = dims / (n * distortion) * product
    eye = torch.eye(dims, dtype=torch.float64, device=z.device)
    log_determinant: Tensor = torch.linalg.slogdet(eye + scaled.double()).logabsdet
    return -log_determinant.to(z.dtype) / dims


def mec_optimum(n: int, dims: int, distortion: float = 0.06) -> float:
    """Equal views spread evenly over as many directions as there are."""
    rank = min(n, dims)
    return -rank / dims * math.log1p(dims / (rank * distortion))


@register_objective("mec")
@dataclass(frozen=True)
class MEC(Objective):
    """Maximum entropy coding."""

    distortion: float = setting(0.06, "of the code: smaller tells finer differences apart", above=0)

    summary: ClassVar[str] = "the longest code the two views share"
    reference: ClassVar[str] = "Liu et al., 2022"
    family: ClassVar[str] = NEGATIVE_FREE
    labels: ClassVar[str] = "k-means"
    unit_length: ClassVar[bool] = True
    min_rows: ClassVar[int] = 2
    capturable: ClassVar[bool] = False

    def __call__(self, out: Outputs, memory: Memory) -> tuple[Tensor, Memory]:
        return mec.formula(out.z, out.view_z, distortion=self.distortion), memory

    def optimum(self, sizes: Sizes) -> float:
        return mec_optimum(sizes.batch, sizes.embedding, self.distortion)
