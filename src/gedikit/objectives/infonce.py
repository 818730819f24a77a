"""InfoNCE: tell the view of a row from those of the others (van den Oord et al., 2018)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gedikit.components import setting
from gedikit.objectives import batch
from gedikit.objectives.base import CONTRASTIVE, Memory, Objective, Outputs, Sizes, register_objective
from gedikit.objectives.instances import SIMILARITIES, instance_classification, similarities
from gedikit.objectives.loss import loss


@loss(min_rows=2, pair=True)
def infonce(
    z: Float[Tensor, "*m n l"],
    view: Float[Tensor, "*m n l"],
    *,
    temperature: float = 0.2,
    similarity: str = "cosine",
) -> Float[Tensor, "*m"]:
    """−mean_i log e^{sim(z_i, z′_i)/τ} / Σ_k e^{sim(z_i, z′_k)/τ} (van den Oord et al., 2018)."""
    scores = similarities(z, batch.all_rows(view), similarity) / temperature
    return instance_classification(scores, batch.first_row(view))


def infonce_optimum(n: int, temperature: float = 0.2) -> float:
    """For the cosine: the corners of a regular simplex, a lower bound in fewer than n − 1 dimensions."""
    return math.log1p((n - 1) * math.exp(-n / (n - 1) / temperature))


@register_objective("infonce")
@dataclass(frozen=True)
class InfoNCE(Objective):
    """Instance discrimination with a softmax over the batch."""

    temperature: float = setting(0.5, "of the softmax", above=0)
    similarity: str = setting("cosine", "of two embeddings", choices=SIMILARITIES)

    summary: ClassVar[str] = "tell a row's view from those of others"
    reference: ClassVar[str] = "van den Oord et al., 2018"
    family: ClassVar[str] = CONTRASTIVE
    labels: ClassVar[str] = "k-means"
    changes: ClassVar[dict[str, object]] = {"encoder": {"projection": 32}}
    unit_length: ClassVar[bool] = True
    min_rows: ClassVar[int] = 2

    def __call__(self, out: Outputs, memory: Memory) -> tuple[Tensor, Memory]:
        z, view = out.z, out.view_z
        if self.similarity == "euclidean":  # distances on the unit sphere, as EBCLR measures them
            z, view = F.normalize(z, dim=-1), F.normalize(view, dim=-1)
        return infonce.formula(z, view, temperature=self.temperature, similarity=self.similarity), memory

    def optimum(self, sizes: Sizes) -> float:
        return infonce_optimum(sizes.batch, self.temperature) if self.similarity == "cosine" else 0.0
