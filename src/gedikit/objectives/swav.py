"""SwAV: each view predicts the balanced codes of the other (Caron et al., 2020)."""

from collections.abc import Hashable
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
from gedikit.randomness import share_of


@loss(min_rows=2, pair=True)
def swav(
    scores: Rows,
    view_scores: Rows,
    *,
    temperature: float = 0.1,
    epsilon: float = 0.05,
    iterations: int = 3,
    queue: Float[Tensor, "*m q c"] | None = None,
    view_queue: Float[Tensor, "*m q c"] | None = None,
) -> Float[Tensor, "*m"]:
    """½ mean [CE(q′, p) + CE(q, p′)]: each view predicts the other's codes; optimum 0 (Caron et al., 2020).

    The codes q carry no gradient. Scores of earlier rows in `queue` and `view_queue` take part in balancing them.
    """
    n = scores.shape[-2]
    loss: Tensor | float = 0.0
    for own, other, past in ((scores, view_scores, view_queue), (view_scores, scores, queue)):
        together, whole = other.detach(), None
        if past is not None:
            together = torch.cat([together, past.detach()], -2)
            whole = batch.count_rows(together)
        codes = sinkhorn(together, epsilon=epsilon, iterations=iterations, whole=whole)[..., :n, :]
        loss = loss - batch.mean((codes * torch.log_softmax(own / temperature, -1)).sum(-1)) / 2
    assert isinstance(loss, Tensor)
    return loss


@register_objective("swav")
@dataclass(frozen=True)
class SwAV(Objective):
    """Swapped assignments between views."""

    epsilon: float = setting(0.05, "of the codes: smaller makes them sharper", above=0)
    iterations: int = setting(3, "of the balancing", above=0)
    queue: int = setting(0, "earlier rows that take part in balancing", at_least=0)

    summary: ClassVar[str] = "each view predicts the balanced codes of the other"
    reference: ClassVar[str] = "Caron et al., 2020"
    changes: ClassVar[dict[str, object]] = {"head": {"cosine": True, "temperature": 0.1}}
    min_rows: ClassVar[int] = 2

    def __call__(self, out: Outputs, memory: Memory) -> tuple[Tensor, Memory]:
        queues: dict[str, Tensor | None] = {"queue": None, "view_queue": None}
        kept = dict(memory)
        if self.queue:
            for name, z in (("queue", out.z), ("view_queue", out.view_z)):
                if out.phases[self.name]:  # all processes have the whole queue, and balance a part of it each
                    own = memory[name][..., share_of(out.generator).part(self.queue), :]
                    queues[name] = out.cluster_logits(own) * out.temperature
                kept[name] = torch.cat([batch.all_rows(z.detach()), memory[name]], dim=-2)[..., : self.queue, :]
        value = swav.formula(
            out.x_logits * out.temperature,
            out.view_logits * out.temperature,
            temperature=out.temperature,
            epsilon=self.epsilon,
            iterations=self.iterations,
            queue=queues["queue"],
            view_queue=queues["view_queue"],
        )
        return value, kept

    def start(self, training: Training) -> Memory:
        if not self.queue:
            return {}
        shape = (*training.members, self.queue, training.n_embedding)
        return {name: torch.zeros(shape, device=training.device) for name in ("queue", "view_queue")}

    def phase(self, iteration: int, batch_size: int) -> Hashable:
        """Whether the queue is full."""
        return 0 < self.queue <= iteration * batch_size

    def optimum(self, sizes: Sizes) -> float:  # noqa: ARG002
        return 0.0
