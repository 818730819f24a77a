"""Contrastive predictive coding: InfoNCE with a learned bilinear score (Hénaff et al., 2020)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gedikit.objectives import batch
from gedikit.objectives.base import CONTRASTIVE, Memory, Objective, Outputs, Sizes, register_objective
from gedikit.objectives.instances import instance_classification
from gedikit.objectives.loss import loss


@loss(min_rows=2, pair=True)
def cpc(
    z: Float[Tensor, "*m n l"], context: Float[Tensor, "*m n l"], bilinear: Float[Tensor, "*m l l"]
) -> Float[Tensor, "*m"]:
    """InfoNCE with the log-bilinear score z_iᵀ W c_k of contrastive predictive coding; infimum 0 (Hénaff, 2020)."""
    scores = z @ bilinear @ batch.all_rows(context).mT
    return instance_classification(scores, batch.first_row(context))


class Critic(nn.Module):
    """The matrix W of the score zᵀWc, at first a multiple of the identity."""

    def __init__(self, n_embedding: int):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(n_embedding) / n_embedding**0.5)


@register_objective("cpc")
@dataclass(frozen=True)
class CPC(Objective):
    """Contrastive predictive coding."""

    summary: ClassVar[str] = "InfoNCE with a learned bilinear score"
    reference: ClassVar[str] = "Hénaff et al., 2020"
    family: ClassVar[str] = CONTRASTIVE
    labels: ClassVar[str] = "k-means"
    min_rows: ClassVar[int] = 2

    def __call__(self, out: Outputs, memory: Memory) -> tuple[Tensor, Memory]:
        critic = out.module(self.name)
        assert isinstance(critic, Critic)
        return cpc.formula(out.z, out.view_z, critic.weight), memory

    def module(self, n_embedding: int) -> Critic:
        return Critic(n_embedding)

    def optimum(self, sizes: Sizes) -> float:  # noqa: ARG002
        return 0.0
