"""The entropy of the mean posterior, which keeps all classes in use (Manhaeve et al., 2021).

Where labels only have to satisfy a constraint, the same label for everything often does: 0 + 0 = 0.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gedikit.components import setting
from gedikit.objectives import batch
from gedikit.objectives.base import Memory, Objective, Outputs, Sizes, register_objective
from gedikit.objectives.loss import loss, times_log


@loss()
def entropy_of_mean(log_p: Float[Tensor, "*m n c"]) -> Float[Tensor, "*m"]:
    """−H(1/n Σ p(y|x_j)): −ln c where all classes are used equally often."""
    log_mean = batch.row_logsumexp(log_p) - math.log(batch.n_rows(log_p))
    return times_log(log_mean.exp(), log_mean).sum(-1)


def entropy_of_mean_optimum(n_classes: int) -> float:
    """−ln c."""
    return -math.log(n_classes)


@register_objective("uniformity")
@dataclass(frozen=True)
class Uniformity(Objective):
    """Minus the entropy of the mean posterior, in place of the prior."""

    weight: float = setting(400.0, "weight in the sum that is minimised", at_least=0)

    summary: ClassVar[str] = "all classes in use"
    reference: ClassVar[str] = "Manhaeve et al., 2021"
    standalone: ClassVar[bool] = False

    def __call__(self, out: Outputs, memory: Memory) -> tuple[Tensor, Memory]:
        return entropy_of_mean.formula(out.log_p), memory

    @property
    def n_views(self) -> int:
        return 0

    def optimum(self, sizes: Sizes) -> float:
        return entropy_of_mean_optimum(len(sizes.log_prior))
