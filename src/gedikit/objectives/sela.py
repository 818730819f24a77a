"""SeLa: predict a balanced assignment of all rows at once (Asano et al., 2020)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.components import setting
from gedikit.objectives import batch
from gedikit.objectives.base import Memory, Objective, Outputs, Sizes, Training, register_objective
from gedikit.objectives.loss import loss
from gedikit.objectives.sinkhorn import Rows, sinkhorn


@loss(pair=True)
def sela(log_p: Rows, codes: Rows) -> Float[Tensor, "*m"]:
    """mean CE(q_i, p(y|x_i)), q the balanced assignment of all rows at once; optimum 0 (Asano et al., 2020)."""
    return batch.mean(-(codes * log_p).sum(-1))


@register_objective("sela")
@dataclass(frozen=True)
class SeLa(Objective):
    """Self-labelling by optimal transport."""

    every: int = setting(10, "iterations between two assignments", above=0)
    epsilon: float = setting(0.05, "of the assignment: smaller makes it sharper", above=0)
    iterations: int = setting(50, "of the balancing", above=0)

    summary: ClassVar[str] = "predict a balanced assignment of all rows"
    reference: ClassVar[str] = "Asano et al., 2020"

    def __call__(self, out: Outputs, memory: Memory) -> tuple[Tensor, Memory]:
        codes = torch.take_along_dim(memory["codes"], out.rows[..., None], dim=-2)
        return (sela.formula(out.log_p, codes) + sela.formula(out.view_log_p, codes)) / 2, memory

    def start(self, training: Training) -> Memory:
        shape = (*training.members, training.n_rows, training.n_clusters)
        return {"codes": torch.full(shape, 1 / shape[-1], device=training.device)}

    def refresh_every(self, iterations: int) -> int:  # noqa: ARG002
        return self.every

    def refresh(self, training: Training, memory: Memory) -> Memory:  # noqa: ARG002
        log_p = torch.log_softmax(training.average_logits(), dim=-1)
        return {"codes": sinkhorn(log_p, epsilon=self.epsilon, iterations=self.iterations)}

    def optimum(self, sizes: Sizes) -> float:  # noqa: ARG002
        return 0.0
