"""Lemma 6: CorInfoMax is minus two Kullback-Leibler divergences of Gaussians.

The objective that is maximised is log|Σ| − γ Σ ‖g(x_i) − g(x_i′)‖². The paper prints a plus before γ, and
+½ log|Σ| in the divergence where −½ log|Σ| is meant.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from gedikit.objectives import corinfomax
from gedikit.paper.theory.check import Check, Formula, disagreement, distance, largest, violation
from gedikit.paper.theory.draws import Draws

ROWS, DIMS = 9, 4
SETTINGS = ((0.5, 0.1), (2.0, 0.5), (1.0, 1.0))  # γ, β

Embeddings = Float[Tensor, "n l"]
Scalar = Float[Tensor, ""]


def scatter(g: Embeddings) -> Float[Tensor, "l l"]:
    """Σ_i (g_i − ḡ)(g_i − ḡ)ᵀ, a sum and not a mean."""
    centred = g - g.mean(0)
    return centred.mT @ centred


def sigma(g: Embeddings, beta: float) -> Float[Tensor, "l l"]:
    """Definition 5's Σ = scatter + βI."""
    return scatter(g) + beta * torch.eye(g.shape[-1], dtype=g.dtype)


def negative_free_bound(g: Embeddings, view: Embeddings, gamma: float, beta: float) -> Scalar:
    """L_NF = −KL(N(0, Σ) ‖ N(0, I)) − Σ_i KL(N(g_i − g_i′, I) ‖ N(0, I/γ))."""
    origin, eye = g.new_zeros(g.shape[-1]), torch.eye(g.shape[-1], dtype=g.dtype)
    spread = kl_divergence(MultivariateNormal(origin, sigma(g, beta)), MultivariateNormal(origin, eye))
    moved = kl_divergence(MultivariateNormal(g - view, eye), MultivariateNormal(origin, eye / gamma))
    return -spread - moved.sum()


def maximised_objective(g: Embeddings, view: Embeddings, gamma: float, beta: float) -> Scalar:
    """log|Σ| − γ Σ_i ‖g_i − g_i′‖²."""
    return torch.logdet(sigma(g, beta)) - gamma * (g - view).square().sum()


def printed_objective(g: Embeddings, view: Embeddings, gamma: float, beta: float) -> Scalar:
    """log|Σ| + γ Σ_i ‖g_i − g_i′‖², the sign as the paper prints it."""
    return torch.logdet(sigma(g, beta)) + gamma * (g - view).square().sum()


def constant(n: int, dims: int, gamma: float) -> float:
    """L_NF − ½ (maximised objective − Tr Σ) = l/2 − n l (γ − 1 − ln γ)/2."""
    return dims / 2 - n * dims * (gamma - 1 - math.log(gamma)) / 2


def without_trace(g: Embeddings, view: Embeddings, gamma: float, beta: float) -> Scalar:
    """L_NF with its trace term and its constant taken out: ½ (log|Σ| − γ Σ ‖g_i − g_i′‖²)."""
    n, dims = g.shape
    trace = torch.trace(sigma(g, beta))
    return negative_free_bound(g, view, gamma, beta) + trace / 2 - constant(n, dims, gamma)


def batch_normalised(g: Embeddings) -> Embeddings:
    return (g - g.mean(0)) / g.std(0, correction=0)


def lemma_6(seed: int = 0) -> list[Check]:
    draws = Draws(seed)
    cases = [(draws.normal(ROWS, DIMS), draws.normal(ROWS, DIMS), gamma, beta) for gamma, beta in SETTINGS]
    return [
        Check(
            "Lemma 6",
            "L_NF = −KL − ΣKL, trace and constant aside, is −½ the CorInfoMax loss at covariance Σ.",
            _compared(_bound_on_the_sphere, _loss_at_the_scatter, cases),
        ),
        Check(
            "Lemma 6",
            "With mean covariances of both views L_NF is ½ (l ln n − loss), the loss at weight γn and ε = β/n.",
            _compared(_both_bounds_on_the_sphere, _loss_at_mean_covariances, cases),
        ),
        Check(
            "Lemma 6",
            "Batch normalisation makes Tr Σ the constant (n + β) l; the unit sphere does not.",
            _compared(_bound_batch_normalised, _loss_batch_normalised, cases),
            {"gradient of Tr Σ on the sphere": min(_trace_slope(z, beta) for z, _, _, beta in cases)},
        ),
        _sign(cases),
    ]


Cases = list[tuple[Embeddings, Embeddings, float, float]]


def _compared(left: Formula, right: Formula, cases: Cases) -> dict[str, float]:
    return largest(disagreement(left, right, z, view, gamma=gamma, beta=beta) for z, view, gamma, beta in cases)


def _bound_on_the_sphere(z: Embeddings, view: Embeddings, gamma: float, beta: float) -> Scalar:
    return without_trace(_sphere(z), _sphere(view), gamma, beta)


def _loss_at_the_scatter(z: Embeddings, view: Embeddings, gamma: float, beta: float) -> Scalar:
    s = scatter(_sphere(z))
    return -corinfomax(z, view, s, s, invariance=len(z) * gamma, epsilon=beta) / 2


def _both_bounds_on_the_sphere(z: Embeddings, view: Embeddings, gamma: float, beta: float) -> Scalar:
    return (_bound_on_the_sphere(z, view, gamma, beta) + _bound_on_the_sphere(view, z, gamma, beta)) / 2


def _loss_at_mean_covariances(z: Embeddings, view: Embeddings, gamma: float, beta: float) -> Scalar:
    n, dims = z.shape
    return (dims * math.log(n) - corinfomax(z, view, invariance=n * gamma, epsilon=beta / n)) / 2


def _bound_batch_normalised(z: Embeddings, view: Embeddings, gamma: float, beta: float) -> Scalar:
    return negative_free_bound(batch_normalised(z), batch_normalised(view), gamma, beta)


def _loss_batch_normalised(z: Embeddings, view: Embeddings, gamma: float, beta: float) -> Scalar:
    n, dims = z.shape
    z, view = batch_normalised(z), batch_normalised(view)
    log_determinant = -corinfomax(z, view, scatter(z), scatter(z), invariance=0.0, epsilon=beta)
    moved = gamma * (z - view).square().sum()
    return (log_determinant - moved - (n + beta) * dims) / 2 + constant(n, dims, gamma)


def _trace_slope(z: Embeddings, beta: float) -> float:
    leaf = z.clone().requires_grad_()
    (slope,) = torch.autograd.grad(torch.trace(sigma(_sphere(leaf), beta)), leaf)
    return float(slope.abs().max())


def _sign(cases: Cases) -> Check:
    right = [distance(without_trace(*case), maximised_objective(*case) / 2) for case in cases]
    wrong = [distance(without_trace(*case), printed_objective(*case) / 2) for case in cases]
    positive = [violation(negative_free_bound(*case), torch.zeros(())) for case in cases]
    return Check(
        "Lemma 6",
        "L_NF is never positive; it goes with log|Σ| − γΣ‖·‖², a minus where the paper prints a plus.",
        {"with the minus": max(right), "violation": max(positive)},
        {"with the plus": min(wrong)},
    )


def _sphere(x: Embeddings) -> Embeddings:
    return F.normalize(x, dim=-1)
