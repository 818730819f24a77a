"""L_NESY, the cross-entropy of a constraint that is known to hold, and the uniformity it is trained with.

Where labels only have to satisfy a constraint, the same label for everything often does: 0 + 0 = 0. The entropy of
the mean posterior (Manhaeve et al., 2021) keeps all classes in use.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.errors import UsageError
from gedikit.objectives import batch
from gedikit.objectives.objective import full_precision, objective


@full_precision
def constraint_loss(
    log_probability: Float[Tensor, "*m n"], weights: Float[Tensor, "*m n"] | None = None
) -> Float[Tensor, "*m"]:
    """mean CE(1, P(constraint | x_i)) = −mean log P (Xu et al., 2018); weighted where weights are given."""
    if weights is None:
        return -batch.mean(log_probability)
    if weights.shape != log_probability.shape:
        raise UsageError(
            f"weights has shape {tuple(weights.shape)} and log_probability {tuple(log_probability.shape)}:"
            " give one weight an example"
        )
    total = batch.over_processes(_product(weights, log_probability).sum(-1))
    return -total / batch.over_processes(weights.sum(-1))


@full_precision
def reading_loss(log_p: Float[Tensor, "*m n c"], reading: Float[Tensor, "*m n c"]) -> Float[Tensor, "*m"]:
    """Mean cross-entropy to what is thought of some rows beforehand; others have zeros there and are left out."""
    total = batch.over_processes(_product(reading, log_p).sum((-2, -1)))
    return -total / batch.over_processes(reading.sum((-2, -1))).clamp(min=1)


def _product(p: Tensor, log_q: Tensor) -> Tensor:
    """p log q, which is 0 where p is, whatever q."""
    return p * torch.where(p == 0, 0.0, log_q)


def constraint_loss_optimum() -> float:
    """0: every example satisfies the constraint, with certainty."""
    return 0.0


@objective()
def entropy_of_mean(log_p: Float[Tensor, "*m n c"]) -> Float[Tensor, "*m"]:
    """−H(1/n Σ p(y|x_j)): −ln c where all classes are used equally often."""
    log_mean = batch.row_logsumexp(log_p) - math.log(batch.n_rows(log_p))
    return _product(log_mean.exp(), log_mean).sum(-1)


def entropy_of_mean_optimum(n_classes: int) -> float:
    """−ln c."""
    return -math.log(n_classes)
