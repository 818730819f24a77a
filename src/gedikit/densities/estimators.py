"""L_GEN: estimators of the cross-entropy between the data and the model's density p(x) = exp f(x) / Γ.

Its gradient is −E_data[∇f] + E_model[∇f] (Eq. energy_gedi). Two estimators of the second expectation:
samples of the model (chains), or points of a known density q weighted by exp f / q. A density that is normalised
by itself needs neither.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.objectives import batch
from gedikit.objectives.loss import full_precision


@full_precision
def generative(
    data: Float[Tensor, "*m n"], model: Float[Tensor, "*m k"], largest_gap: float = 0.0
) -> Float[Tensor, "*m"]:
    """−mean f(x⁺) + mean f(x⁻), x⁻ drawn from the model.

    Its gradient is that of the cross-entropy; its value is not: it is 0 when data and samples look
    alike to f and has no lower bound where the samples fail to follow the model.

    largest_gap: samples this many nats less likely than the data is on average are no samples of the model but
    chains that are stuck; lowering f there for ever would be a way down without end. They count for nothing, those
    halfway there fully, and as much of the data is left out as of them. 0: all count.
    """
    if not largest_gap:
        return batch.mean(model) - batch.mean(data)
    behind = batch.mean(data)[..., None] - model
    trust = (2 * (1 - behind / largest_gap)).clamp(0, 1).detach()
    return batch.mean(trust * model) - batch.mean(trust) * batch.mean(data)


@full_precision
def log_normaliser(proposals: Float[Tensor, "*m k"], log_q: Float[Tensor, "*m k"]) -> Float[Tensor, "*m"]:
    """log Γ̂ = log 1/m Σ exp f(x_k)/q(x_k), x_k ~ q: importance sampling of Γ = ∫ exp f."""
    weights = (proposals - log_q)[..., None]
    return batch.row_logsumexp(weights)[..., 0] - math.log(batch.n_rows(weights))


@full_precision
def importance_generative(
    data: Float[Tensor, "*m n"], proposals: Float[Tensor, "*m k"], log_q: Float[Tensor, "*m k"]
) -> Float[Tensor, "*m"]:
    """−mean f(x⁺) + log Γ̂: the negative log-likelihood in nats, optimum the data's entropy.

    The gradient of log Γ̂ is Σ w_k ∇f(x_k) with w ∝ exp f/q, the self-normalised estimate of E_model[∇f].
    With few proposals it is a ranking loss (data against proposals), so it stays bounded below.
    """
    return log_normaliser(proposals, log_q) - batch.mean(data)


@full_precision
def likelihood_generative(data: Float[Tensor, "*m n"]) -> Float[Tensor, "*m"]:
    """−mean log p(x⁺) of a normalised density (Eq. generative_obj); optimum the data's entropy."""
    return -batch.mean(data)


@full_precision
def effective_sample_size(proposals: Float[Tensor, "*m k"], log_q: Float[Tensor, "*m k"]) -> Float[Tensor, "*m"]:
    """Share of the proposals that carry the weight: (Σw)²/(m Σw²), from 1/m to 1."""
    log_w = (proposals - log_q)[..., None]
    share = 2 * batch.row_logsumexp(log_w) - batch.row_logsumexp(2 * log_w)
    return torch.exp(share[..., 0]) / batch.n_rows(log_w)


@full_precision
def energy_l2(data: Float[Tensor, "*m n"], model: Float[Tensor, "*m k"]) -> Float[Tensor, "*m"]:
    """mean f(x⁺)² + mean f(x⁻)²: keeps the free constant of the energy, and runaway energies, in check."""
    return batch.mean(data.square()) + batch.mean(model.square())
