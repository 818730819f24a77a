"""L_INV of Proposition 1: the same label for x and x′, with certainty.

Log-posteriors log p(y|x) are normalised (log-softmax of the logits). The paper maximises a bound; here every loss
is minimised, so this is −L_INV/n.
"""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gedikit.components import setting
from gedikit.objectives import batch
from gedikit.objectives.base import PAPER, Memory, Objective, Outputs, Sizes, register_objective
from gedikit.objectives.loss import loss

Posteriors = Float[Tensor, "*m n c"]


@loss(pair=True)
def invariance(log_p: Posteriors, view_log_p: Posteriors) -> Float[Tensor, "*m"]:
    """mean CE(p(y|x′), p(y|x)): 0 where both views agree and are certain."""
    return batch.over_processes((view_log_p.exp() * log_p).sum((-1, -2))) / -batch.n_rows(log_p)


def invariance_optimum() -> float:
    """0: same label for x and x′, with certainty."""
    return 0.0


@register_objective("invariance")
@dataclass(frozen=True)
class Invariance(Objective):
    """Label invariance of Proposition 1."""

    weight: float = setting(10.0, "weight in the sum that is minimised", at_least=0)
    symmetric: bool = setting(False, "also with x and x′ exchanged")

    summary: ClassVar[str] = "equal and certain labels for two views"
    reference: ClassVar[str] = PAPER + "; cf. IMSAT (Hu et al., 2017)"
    standalone: ClassVar[bool] = False
    title: ClassVar[str] = "Invariance loss"
    caption: ClassVar[str] = "0 when a row and its view always get the same cluster, with certainty."

    def __call__(self, out: Outputs, memory: Memory) -> tuple[Tensor, Memory]:
        log_p, view = out.log_p, out.view_log_p
        value = invariance.formula(log_p, view)
        return (value + invariance.formula(view, log_p)) / 2 if self.symmetric else value, memory

    def optimum(self, sizes: Sizes) -> float:  # noqa: ARG002
        return invariance_optimum()
