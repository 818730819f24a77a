"""L_NESY: the cross-entropy of a constraint that is known to hold for some rows together (Xu et al., 2018)."""

from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.components import setting
from gedikit.errors import UsageError
from gedikit.objectives import batch
from gedikit.objectives.base import (
    Examples,
    Memory,
    Objective,
    Outputs,
    Sizes,
    Training,
    TrainingData,
    register_objective,
)
from gedikit.objectives.loss import full_precision, times_log
from gedikit.symbolic import best_relabelling


@full_precision
def constraint_loss(
    log_probability: Float[Tensor, "*m n"], weights: Float[Tensor, "*m n"] | None = None
) -> Float[Tensor, "*m"]:
    """mean CE(1, P(constraint | x_i)) = −mean log P; weighted where weights are given."""
    if weights is None:
        return -batch.mean(log_probability)
    if weights.shape != log_probability.shape:
        raise UsageError(
            f"weights has shape {tuple(weights.shape)} and log_probability {tuple(log_probability.shape)}:"
            " give one weight an example"
        )
    total = batch.over_processes(times_log(weights, log_probability).sum(-1))
    return -total / batch.over_processes(weights.sum(-1))


def constraint_loss_optimum() -> float:
    """0: every example satisfies the constraint, with certainty."""
    return 0.0


@register_objective("constraint")
@dataclass(frozen=True)
class ConstraintObjective(Objective):
    """The constraint of `GEDI.fit_examples`; the rows of an example lie together in the batch."""

    weight: float = setting(25.0, "weight in the sum that is minimised", at_least=0)
    symmetric: bool = setting(False, "of x′ as well as of x")
    relabellings: int = setting(
        20, "how often clusters may exchange their names where the constraint asks for it", at_least=0
    )
    _examples: Examples | None = field(default=None, repr=False, compare=False, kw_only=True)

    summary: ClassVar[str] = "labels that satisfy a constraint"
    reference: ClassVar[str] = "Manhaeve et al., 2018; Xu et al., 2018"
    standalone: ClassVar[bool] = False
    needs_examples: ClassVar[bool] = True

    def __call__(self, out: Outputs, memory: Memory) -> tuple[Tensor, Memory]:
        examples = self._bound
        posteriors = torch.stack([out.log_p, out.view_log_p] if self.symmetric else [out.log_p])
        together = posteriors.unflatten(-2, (-1, examples.n_variables))
        return constraint_loss(examples.constraint.log_probability(together.unbind(-2))).mean(0), memory

    @property
    def n_views(self) -> int:
        return int(self.symmetric)

    def optimum(self, sizes: Sizes) -> float | None:  # noqa: ARG002
        best: float = self._bound.constraint.least_loss()
        return best

    def bind(self, data: TrainingData) -> Self:
        return replace(self, _examples=data.examples)

    def refresh_every(self, iterations: int) -> int:
        return max(1, iterations // self.relabellings) if self.relabellings else 0

    def refresh(self, training: Training, memory: Memory) -> Memory:
        """Give clusters the names under which most examples satisfy the rule: gradients cannot exchange two."""
        examples = self._bound
        if training.iteration == 0 or not examples.constraint.few_tuples:
            return memory
        log_p = torch.log_softmax(training.average_logits(), dim=-1)
        found = best_relabelling([log_p[column] for column in examples.examples.T], examples.constraint)
        order = found.namings[0].argsort()
        if order.tolist() != [*range(len(order))]:  # names that are as good as any stay
            training.exchange_clusters(order, "clusters exchanged their names, as the constraint asks")
        return memory

    @property
    def _bound(self) -> Examples:
        assert self._examples is not None, "bound before the training"
        return self._examples
