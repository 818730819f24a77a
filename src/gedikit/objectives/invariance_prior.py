"""L_INV and L_PRIOR of Proposition 1, and the mutual information that tells whether they were solved.

Signs: the paper maximises a bound; here every loss is minimised, so these are −L_INV/n and −L_PRIOR/n.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def invariance(logits: Float[Tensor, "n c"], view_logits: Float[Tensor, "n c"]) -> Float[Tensor, ""]:
    """mean CE(p(y|x′), p(y|x)): 0 where both views agree and are certain."""
    log_p = torch.log_softmax(logits, dim=-1)
    view_p = torch.softmax(view_logits, dim=-1)
    return -(view_p * log_p).sum(-1).mean()


def invariance_optimum() -> float:
    """0: same label for x and x′, with certainty."""
    return 0.0


def prior(logits: Float[Tensor, "n c"], log_prior: Float[Tensor, " c"]) -> Float[Tensor, ""]:
    """CE(p(y), 1/n Σ p(y|x_j)): H(p(y)) where the clusters are used as often as the prior says."""
    log_mean = torch.logsumexp(torch.log_softmax(logits, dim=-1), dim=0) - math.log(len(logits))
    weight = log_prior.exp()
    return -torch.where(weight > 0, weight * log_mean, 0.0).sum()


def prior_optimum(log_prior: Float[Tensor, " c"]) -> float:
    """H(p(y)); ln c for the uniform prior."""
    return float(torch.special.entr(log_prior.exp()).sum())


def mutual_information(logits: Float[Tensor, "n c"]) -> Float[Tensor, ""]:
    """I(x; y) = H(mean p(y|x)) − mean H(p(y|x)).

    0 exactly where the posterior ignores x, whatever the single losses say; H(p(y)) at the optimum.
    """
    log_p = torch.log_softmax(logits, dim=-1)
    log_mean = torch.logsumexp(log_p, dim=0) - math.log(len(logits))
    return (log_p.exp() * (log_p - log_mean)).sum(-1).mean()
