"""L_NESY: the cross-entropy of a constraint that is known to hold for some rows together (Xu et al., 2018)."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gedikit.components import setting
from gedikit.errors import UsageError
from gedikit.objectives import batch
from gedikit.objectives.base import (
    Memory,
    Objective,
    Outputs,
    Rules,
    Sizes,
    Training,
    TrainingData,
    register_objective,
)
from gedikit.objectives.loss import full_precision, times_log
from gedikit.symbolic import Namer, Placed
from gedikit.symbolic.bundles import DrawnBundles
from gedikit.symbolic.examples import NOTHING


@full_precision
def constraint_loss(
    log_probability: Float[Tensor, "*m n"],
    weights: Float[Tensor, "*m n"] | None = None,
    whole: int | None = None,
) -> Float[Tensor, "*m"]:
    """mean CE(1, P(constraint | x_i)) = −mean log P; weighted where weights are given.

    `whole` is the number of all examples, where processes do not hold equally many.
    """
    if weights is None:
        return -batch.mean(log_probability, whole)
    if weights.shape != log_probability.shape:
        raise UsageError(
            f"weights has shape {tuple(weights.shape)} and log_probability {tuple(log_probability.shape)}:"
            " give one weight an example"
        )
    total = batch.over_processes(times_log(weights, log_probability).sum(-1))
    return -total / batch.over_processes(weights.sum(-1))


def least_loss(placed: Sequence[Placed]) -> float | None:
    """The least mean of −log P that any labels reach; None where it is not known."""
    total = weight = 0.0
    for p in placed:
        best = p.constraint.least_loss()
        if best is None or (best > 0 and not p.plain) or ((p.rows == NOTHING) & (p.known == NOTHING)).any():
            return None
        said = np.where(p.examples.holds, np.exp(-best), 1.0)
        q, w = p.examples.probability, p.examples.weights
        total += float(-(np.log(q * said + (1 - q) * (1 - said)) * w).sum())
        weight += float(w.sum())
    return total / weight


def constraint_loss_optimum() -> float:
    """0: every example satisfies the constraint, with certainty."""
    return 0.0


@register_objective("constraint")
@dataclass(frozen=True)
class ConstraintObjective(Objective):
    """The rules of `GEDI.fit_examples`; the rows of an example lie together in the batch.

    Where there are symbols of several kinds, the kind of every row is learned beside the rules, by −mean log
    p(kind|x).
    """

    weight: float = setting(25.0, "weight in the sum that is minimised", at_least=0)
    symmetric: bool = setting(False, "of x′ as well as of x")
    relabellings: int = setting(
        20, "how often clusters may exchange their names where the constraint asks for it", at_least=0
    )
    _rules: Rules | None = field(default=None, repr=False, compare=False, kw_only=True)
    _bundles: DrawnBundles | None = field(default=None, repr=False, compare=False, kw_only=True)
    _namer: Namer | None = field(default=None, repr=False, compare=False, kw_only=True)
    _labels: Int64[Tensor, " n"] | None = field(default=None, repr=False, compare=False, kw_only=True)

    summary: ClassVar[str] = "labels that satisfy a constraint"
    reference: ClassVar[str] = "Manhaeve et al., 2018; Xu et al., 2018"
    standalone: ClassVar[bool] = False
    needs_examples: ClassVar[bool] = True

    def __call__(self, out: Outputs, memory: Memory) -> tuple[Tensor, Memory]:
        assert self._bundles is not None, "bound before the training"
        posteriors = torch.stack([out.log_p, out.view_log_p] if self.symmetric else [out.log_p])
        log_p, weights = self._bundles.log_probability(posteriors, out.drawn)
        loss = constraint_loss(log_p, None if weights is None else weights.expand(log_p.shape))
        log_kinds = self._bundles.log_kinds(posteriors, out.drawn)
        if log_kinds is not None:
            loss = loss - batch.mean(log_kinds)
        return loss.mean(0), memory

    @property
    def n_views(self) -> int:
        return int(self.symmetric)

    def optimum(self, sizes: Sizes) -> float | None:  # noqa: ARG002
        return least_loss(self._bound.placed)

    def bind(self, data: TrainingData) -> Self:
        if data.rules is None:
            return self
        bundles, namer = data.rules.bundles.on(data.device), Namer(data.rules.placed)
        known = None if data.known is None else data.known.labels
        labels = None if known is None else torch.from_numpy(known).to(data.device)
        return replace(self, _rules=data.rules, _bundles=bundles, _namer=namer, _labels=labels)

    def refresh_every(self, iterations: int) -> int:
        return max(1, iterations // self.relabellings) if self.relabellings else 0

    def refresh(self, training: Training, memory: Memory) -> Memory:
        """Give clusters the names under which most examples satisfy the rule: gradients cannot exchange two."""
        assert self._namer is not None, "bound before the training"
        if training.iteration == 0 or not self._namer.can:
            return memory
        found = self._namer.best(torch.log_softmax(training.average_logits(), dim=-1), self._labels)
        order = found.namings[0].argsort()
        if order.tolist() != [*range(len(order))]:  # names that are as good as any stay
            training.exchange_clusters(order, "clusters exchanged their names, as the constraint asks")
        return memory

    @property
    def _bound(self) -> Rules:
        assert self._rules is not None, "bound before the training"
        return self._rules
