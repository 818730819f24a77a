"""Variational lower bounds on the mutual information I(X; Z), to be maximised (appendix B; Poole et al., 2019).

scores[i, j] = f̃(x_j, z_i) with z_i the code of x_i, so pairs lie on the diagonal. Expectations are over `weights`
on the rows, 1/n each for a batch; with the probabilities of a finite X they are exact.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.objectives.loss import full_precision

Scores = Float[Tensor, "*m n n"]
Weights = Float[Tensor, " n"]


@full_precision
def uba_bound(scores: Scores, weights: Weights | None = None) -> Float[Tensor, "*m"]:
    """E f̃(x, z) − E_z log E_x′ e^{f̃(x′, z)}: Barber & Agakov's bound with an unnormalised critic."""
    w = _weights(scores, weights)
    return ((_pairs(scores) - _log_z(scores, w)) * w).sum(-1)


@full_precision
def tuba_bound(
    scores: Scores, log_eta: Float[Tensor, "*m n"], weights: Weights | None = None
) -> Float[Tensor, "*m"]:
    """E f̃(x, z) − E_z [Z(z)/η(z) + log η(z) − 1]: tractable for any η > 0, equal to UBA at η = Z."""
    w = _weights(scores, weights)
    return ((_pairs(scores) - torch.exp(_log_z(scores, w) - log_eta) - log_eta + 1) * w).sum(-1)


@full_precision
def nwj_bound(scores: Scores, weights: Weights | None = None) -> Float[Tensor, "*m"]:
    """TUBA with η = e (Nguyen, Wainwright & Jordan, 2010)."""
    return tuba_bound(scores, torch.ones_like(_pairs(scores)), weights)


@full_precision
def infonce_bound(scores: Scores) -> Float[Tensor, "*m"]:
    """mean_i log e^{f(x_i, z_i)} / (1/n Σ_k e^{f(x_k, z_i)}): never above ln n."""
    log_mean = torch.logsumexp(scores, dim=-1) - math.log(scores.shape[-1])
    return (_pairs(scores) - log_mean).mean(-1)


def _pairs(scores: Scores) -> Float[Tensor, "*m n"]:
    return torch.diagonal(scores, dim1=-2, dim2=-1)


def _log_z(scores: Scores, weights: Weights) -> Float[Tensor, "*m n"]:
    return torch.logsumexp(scores + weights.log(), dim=-1)


def _weights(scores: Scores, weights: Weights | None) -> Weights:
    n = scores.shape[-1]
    return scores.new_full((n,), 1 / n) if weights is None else weights
