"""L_INV and L_PRIOR of Proposition 1, and the mutual information that tells whether they were solved.

They take log-posteriors log p(y|x), rows that are normalised (log-softmax of the logits). Signs: the paper
maximises a bound; here every loss is minimised, so these are −L_INV/n and −L_PRIOR/n.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.errors import UsageError
from gedikit.objectives import batch
from gedikit.objectives.objective import full_precision, objective

Posteriors = Float[Tensor, "*m n c"]


@objective(pair=True)
def invariance(log_p: Posteriors, view_log_p: Posteriors) -> Float[Tensor, "*m"]:
    """mean CE(p(y|x′), p(y|x)): 0 where both views agree and are certain."""
    return batch.over_processes((view_log_p.exp() * log_p).sum((-1, -2))) / -batch.n_rows(log_p)


def invariance_optimum() -> float:
    """0: same label for x and x′, with certainty."""
    return 0.0


@objective()
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
