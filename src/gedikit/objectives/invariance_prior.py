"""L_INV and L_PRIOR of Proposition 1, and the mutual information that tells whether they were solved.

They take log-posteriors log p(y|x), rows that are normalised (log-softmax of the logits). Signs: the paper
maximises a bound; here every loss is minimised, so these are −L_INV/n and −L_PRIOR/n.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def invariance(log_p: Float[Tensor, "n c"], view_log_p: Float[Tensor, "n c"]) -> Float[Tensor, ""]:
    """mean CE(p(y|x′), p(y|x)): 0 where both views agree and are certain."""
    return (view_log_p.exp() * log_p).sum() / -len(log_p)


def invariance_optimum() -> float:
    """0: same label for x and x′, with certainty."""
    return 0.0


def prior(log_p: Float[Tensor, "n c"], log_prior: Float[Tensor, " c"]) -> Float[Tensor, ""]:
    """CE(p(y), 1/n Σ p(y|x_j)): H(p(y)) where the clusters are used as often as the prior says."""
    return math.log(len(log_p)) - log_prior.exp() @ torch.logsumexp(log_p, dim=0)


def prior_optimum(log_prior: Float[Tensor, " c"]) -> float:
    """H(p(y)); ln c for the uniform prior."""
    return float(torch.special.entr(log_prior.exp()).sum())


def mutual_information(log_p: Float[Tensor, "n c"]) -> Float[Tensor, ""]:
    """I(x; y) = H(mean p(y|x)) − mean H(p(y|x)).

    0 exactly where the posterior ignores x, whatever the single losses say; H(p(y)) at the optimum.
    """
    log_mean = torch.logsumexp(log_p, dim=0) - math.log(len(log_p))
    return (log_p.exp() * (log_p - log_mean)).sum(-1).mean()
