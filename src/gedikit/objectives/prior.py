"""L_PRIOR of Proposition 1: clusters are used as often as the prior says. Minimised, so this is −L_PRIOR/n."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.components import setting
from gedikit.errors import UsageError
from gedikit.objectives import batch
from gedikit.objectives.base import PAPER, Memory, Objective, Outputs, Sizes, both_views, register_objective
from gedikit.objectives.loss import full_precision, loss

Posteriors = Float[Tensor, "*m n c"]


@loss()
def prior(log_p: Posteriors, log_prior: Float[Tensor, "*m c"]) -> Float[Tensor, "*m"]:
    """CE(p(y), 1/n Σ p(y|x_j)): H(p(y)) where the clusters are used as often as the prior says."""
    if log_prior.shape[-1] != log_p.shape[-1]:
        raise UsageError(f"prior takes one share a cluster, {log_p.shape[-1]}, not {log_prior.shape[-1]}")
    return math.log(batch.n_rows(log_p)) - (log_prior.exp() * batch.row_logsumexp(log_p)).sum(-1)


def prior_optimum(log_prior: Float[Tensor, " c"]) -> float:
    """H(p(y)); ln c for the uniform prior."""
    return float(torch.special.entr(log_prior.exp()).sum())


@full_precision
def mutual_information(log_p: Posteriors) -> Float[Tensor, "*m"]:
    """I(x; y) = H(mean p(y|x)) − mean H(p(y|x)).

    0 exactly where the posterior ignores x, whatever the single losses say; H(p(y)) at the optimum.
    """
    log_mean = batch.row_logsumexp(log_p) - math.log(batch.n_rows(log_p))
    return batch.mean((log_p.exp() * (log_p - log_mean[..., None, :])).sum(-1))


@register_objective("prior")
@dataclass(frozen=True)
class Prior(Objective):
    """Balance of Proposition 1."""

    weight: float = setting(30.0, "weight in the sum that is minimised", at_least=0)
    symmetric: bool = setting(
        False, "of x′ as well as of x: of x alone, views of another kind could all fall into one cluster"
    )

    summary: ClassVar[str] = "clusters are used as often as the prior says"
    reference: ClassVar[str] = PAPER + "; cf. IMSAT (Hu et al., 2017)"
    standalone: ClassVar[bool] = False
    title: ClassVar[str] = "Prior loss"
    caption: ClassVar[str] = "At its optimum when the clusters are as large as the prior expects."

    def __call__(self, out: Outputs, memory: Memory) -> tuple[Tensor, Memory]:
        return both_views(self.symmetric, lambda log_p: prior.formula(log_p, out.log_prior), out), memory

    @property
    def n_views(self) -> int:
        return int(self.symmetric)

    def optimum(self, sizes: Sizes) -> float:
        return prior_optimum(sizes.log_prior)
