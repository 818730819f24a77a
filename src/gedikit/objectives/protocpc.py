"""ProtoCPC: prototypes instead of rows, with targets from the averaged network (Lee et al., 2022)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.components import setting
from gedikit.objectives import batch
from gedikit.objectives.base import CONTRASTIVE, Memory, Objective, Outputs, Sizes, register_objective
from gedikit.objectives.loss import loss


@loss(min_rows=2, pair=True)
def protocpc(
    student: Float[Tensor, "*m n c"], teacher_p: Float[Tensor, "*m n c"], *, temperature: float = 0.1
) -> Float[Tensor, "*m"]:
    """−mean_i [p_i·z_i/τ − log Σ_c q_c e^{z_ic/τ}], q the batch's mean teacher p (appendix D; Lee, 2022)."""
    scaled = student / temperature
    used = batch.row_mean(teacher_p)
    log_prototypes = used.clamp_min(torch.finfo(used.dtype).tiny).log().masked_fill(used == 0, -math.inf)
    norm = torch.logsumexp(scaled + log_prototypes[..., None, :], dim=-1)
    return batch.mean(norm - (teacher_p * scaled).sum(-1))


def protocpc_optimum(n_prototypes: int) -> float:
    """−ln c: the mutual information between a certain, balanced teacher's classes and the rows, negated."""
    return -math.log(n_prototypes)


@register_objective("protocpc")
@dataclass(frozen=True)
class ProtoCPC(Objective):
    """Prototypical contrastive predictive coding; the averaged network teaches, looking at the other view."""

    teacher_temperature: float = setting(0.04, "of the teacher's softmax", above=0)

    summary: ClassVar[str] = "prototypes instead of rows, targets from the averaged network"
    reference: ClassVar[str] = "Lee et al., 2022"
    family: ClassVar[str] = CONTRASTIVE
    changes: ClassVar[dict[str, object]] = {"head": {"cosine": True, "temperature": 0.1}}
    min_rows: ClassVar[int] = 2

    def __call__(self, out: Outputs, memory: Memory) -> tuple[Tensor, Memory]:
        student = out.x_logits * out.temperature
        teacher = out.teacher_logits(out.views[0]) * out.temperature
        p = torch.softmax(teacher / self.teacher_temperature, dim=-1)
        return protocpc.formula(student, p, temperature=out.temperature), memory

    def optimum(self, sizes: Sizes) -> float:
        return protocpc_optimum(len(sizes.log_prior))
