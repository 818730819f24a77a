"""L_GEN: cross-entropy between the data and the model's density p(x) = exp f(x) / Γ.

Its gradient is −E_data[∇f] + E_model[∇f] (Eq. energy_gedi). Two estimators of the second expectation:
samples of the model (chains), or points of a known density q weighted by exp f / q.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def generative(data: Float[Tensor, " n"], model: Float[Tensor, " m"]) -> Float[Tensor, ""]:
    """−mean f(x⁺) + mean f(x⁻), x⁻ drawn from the model.

    Its gradient is that of the cross-entropy; its value is not: it is 0 when data and samples look
    alike to f and has no lower bound where the samples fail to follow the model.
    """
    return model.mean() - data.mean()


def log_normaliser(proposals: Float[Tensor, " m"], log_q: Float[Tensor, " m"]) -> Float[Tensor, ""]:
    """log Γ̂ = log 1/m Σ exp f(x_k)/q(x_k), x_k ~ q: importance sampling of Γ = ∫ exp f."""
    return torch.logsumexp(proposals - log_q, dim=0) - math.log(len(proposals))


def importance_generative(
    data: Float[Tensor, " n"], proposals: Float[Tensor, " m"], log_q: Float[Tensor, " m"]
) -> Float[Tensor, ""]:
    """−mean f(x⁺) + log Γ̂: the negative log-likelihood in nats, optimum the data's entropy.

    The gradient of log Γ̂ is Σ w_k ∇f(x_k) with w ∝ exp f/q, the self-normalised estimate of E_model[∇f].
    With few proposals it is a ranking loss (data against proposals), so it stays bounded below.
    """
    return log_normaliser(proposals, log_q) - data.mean()


def effective_sample_size(proposals: Float[Tensor, " m"], log_q: Float[Tensor, " m"]) -> Float[Tensor, ""]:
    """Share of the proposals that carry the weight: (Σw)²/(m Σw²), from 1/m to 1."""
    log_w = torch.log_softmax(proposals - log_q, dim=0)
    return torch.exp(-torch.logsumexp(2 * log_w, dim=0)) / len(proposals)


def energy_l2(data: Float[Tensor, " n"], model: Float[Tensor, " m"]) -> Float[Tensor, ""]:
    """mean f(x⁺)² + mean f(x⁻)²: keeps the free constant of the energy, and runaway energies, in check."""
    return data.square().mean() + model.square().mean()
