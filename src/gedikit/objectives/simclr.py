"""SimCLR: InfoNCE over both views of a batch (Chen et al., 2020)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gedikit.components import setting
from gedikit.objectives import batch
from gedikit.objectives.base import CONTRASTIVE, Memory, Objective, Outputs, Sizes, register_objective
from gedikit.objectives.loss import loss


@loss(min_rows=2, pair=True)
def simclr(
    z: Float[Tensor, "*m n l"], view: Float[Tensor, "*m n l"], *, temperature: float = 0.2
) -> Float[Tensor, "*m"]:
    """NT-Xent: InfoNCE over the 2n views, where a view is not compared with itself (Chen et al., 2020)."""
    z, view = F.normalize(z, dim=-1), F.normalize(view, dim=-1)
    others, other_views = batch.all_rows(z), batch.all_rows(view)
    first = batch.first_row(z)
    itself = F.one_hot(torch.arange(z.shape[-2], device=z.device) + first, batch.n_rows(z)).bool()
    across = z @ other_views.mT
    back = across.mT if batch.n_processes() == 1 else view @ others.mT
    loss = z.new_zeros(())
    for own, other in ((z @ others.mT, across), (view @ other_views.mT, back)):
        own_norm = torch.logsumexp((own / temperature).masked_fill(itself, -math.inf), dim=-1)
        norm = torch.logaddexp(own_norm, torch.logsumexp(other / temperature, dim=-1))
        right = torch.diagonal(other[..., first : first + z.shape[-2]], dim1=-2, dim2=-1) / temperature
        loss = loss + batch.mean(norm - right) / 2
    return loss


def simclr_optimum(n: int, temperature: float = 0.2) -> float:
    """Equal views, instances at the corners of a regular simplex; a lower bound in fewer than n − 1 dimensions."""
    return math.log1p((2 * n - 2) * math.exp(-n / (n - 1) / temperature))


@register_objective("simclr")
@dataclass(frozen=True)
class SimCLR(Objective):
    """NT-Xent."""

    temperature: float = setting(0.5, "of the softmax", above=0)

    summary: ClassVar[str] = "InfoNCE over both views (NT-Xent)"
    reference: ClassVar[str] = "Chen et al., 2020"
    family: ClassVar[str] = CONTRASTIVE
    labels: ClassVar[str] = "k-means"
    changes: ClassVar[dict[str, object]] = {"encoder": {"projection": 32}}
    unit_length: ClassVar[bool] = True
    min_rows: ClassVar[int] = 2

    def __call__(self, out: Outputs, memory: Memory) -> tuple[Tensor, Memory]:
        return simclr.formula(out.z, out.view_z, temperature=self.temperature), memory

    def optimum(self, sizes: Sizes) -> float:
        return simclr_optimum(sizes.batch, self.temperature)
