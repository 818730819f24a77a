"""Negative-free losses: equal embeddings for two views, and coordinates that carry different things (Lemma 6).

z and z′ are embeddings of two views, rows match. Statistics are of the whole batch.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gedikit.objectives import batch
from gedikit.objectives.objective import cholesky, full_precision, objective

Embeddings = Float[Tensor, "*m n l"]
Square = Float[Tensor, "*m l l"]


@objective(min_rows=2, pair=True)
def barlow_twins(
    z: Embeddings, view: Embeddings, *, off_diagonal: float = 0.0051, epsilon: float = 1e-5
) -> Float[Tensor, "*m"]:
    """Σ_i (1 − C_ii)² + λ Σ_{i≠j} C_ij², C the cross-correlation of the views; optimum 0 (Zbontar et al., 2021)."""
    a, b = _standardised(z, epsilon), _standardised(view, epsilon)
    diagonal = batch.row_mean(a * b)
    n = batch.n_rows(z)
    others = _product_norm(a, b) / n**2 - diagonal.square().sum(-1)
    return (1 - diagonal).square().sum(-1) + off_diagonal * others


@objective(min_rows=2, pair=True)
def vicreg(
    z: Embeddings,
    view: Embeddings,
    *,
    invariance: float = 25.0,
    variance: float = 25.0,
    covariance: float = 1.0,
    epsilon: float = 1e-4,
) -> Float[Tensor, "*m"]:
    """λ MSE(z, z′) + μ Σ hinge(1 − std)/2l + ν Σ_{i≠j} Cov_ij²/l of both views; optimum 0 (Bardes et al., 2022)."""
    dims = z.shape[-1]
    loss = invariance * batch.mean((z - view).square().mean(-1))
    for centred in (_centred(z), _centred(view)):
        var = batch.row_sum(centred.square()) / (batch.n_rows(z) - 1)
        spread = F.relu(1 - torch.sqrt(var + epsilon)).mean(-1)
        shared = _product_norm(centred, centred) / (batch.n_rows(z) - 1) ** 2 - var.square().sum(-1)
        loss = loss + variance * spread / 2 + covariance * shared / dims
    return loss


@objective(min_rows=2, pair=True)
def w_mse(z: Embeddings, view: Embeddings, *, shrinkage: float = 1e-3) -> Float[Tensor, "*m"]:
    """mean ‖v − v′‖², v the whitened embeddings on the unit sphere; optimum 0 (Ermolov et al., 2021)."""
    v, w = (F.normalize(_whitened(x, shrinkage), dim=-1) for x in (z, view))
    return batch.mean((v - w).square().sum(-1))


@full_precision
def running_covariance(z: Embeddings, previous: Square, momentum: float) -> Square:
    """μR + (1 − μ) Cov(z): the batch's covariance blended into what earlier batches said."""
    centred = _centred(z)
    return momentum * previous + (1 - momentum) * batch.moment(centred, centred) / batch.n_rows(z)


@objective(min_rows=2, pair=True)
def corinfomax(
    z: Embeddings,
    view: Embeddings,
    covariance: Square | None = None,
    view_covariance: Square | None = None,
    *,
    invariance: float = 250.0,
    epsilon: float = 1e-3,
) -> Float[Tensor, "*m"]:
    """γ mean ‖z − z′‖² − ½ (log|R + εI| + log|R′ + εI|) on the unit sphere (Ozsoy et al., 2022; Lemma 6).

    R and R′ are the covariances of the normalised views, `running_covariance` where they are carried from batch to
    batch. The determinants are float64: their gradients are inverses.
    """
    z, view = F.normalize(z, dim=-1), F.normalize(view, dim=-1)
    logs = []
    for x, given in ((z, covariance), (view, view_covariance)):
        r = running_covariance(x, x.new_zeros(()), 0.0) if given is None else given
        shifted = r.double() + epsilon * torch.eye(x.shape[-1], dtype=torch.float64, device=x.device)
        logs.append(torch.logdet(shifted).to(x.dtype))
    return invariance * batch.mean((z - view).square().sum(-1)) - 0.5 * (logs[0] + logs[1])


def corinfomax_optimum(dims: int, epsilon: float = 1e-3) -> float:
    """−l log(1/l + ε): equal views spread evenly over the sphere."""
    return -dims * math.log(1 / dims + epsilon)


@objective(min_rows=2, pair=True)
def mec(z: Embeddings, view: Embeddings, *, distortion: float = 0.06) -> Float[Tensor, "*m"]:
    """−log|I + λ ZᵀZ′| / l with λ = l/(n ε²) on the unit sphere: maximum entropy coding (Liu et al., 2022).

    The coding length of the paper without its factor (n + l)/2 · l, and the determinant itself where the original
    sums four terms of its series. It is its absolute value: where views start so opposite that it is negative, one
    direction may end reversed, a little above the optimum.
    """
    dims, n = z.shape[-1], batch.n_rows(z)
    product = batch.moment(F.normalize(z, dim=-1), F.normalize(view, dim=-1))
    scaled = dims / (n * distortion) * product
    eye = torch.eye(dims, dtype=torch.float64, device=z.device)
    log_determinant: Tensor = torch.linalg.slogdet(eye + scaled.double()).logabsdet
    return -log_determinant.to(z.dtype) / dims


def mec_optimum(n: int, dims: int, distortion: float = 0.06) -> float:
    """Equal views spread evenly over as many directions as there are."""
    rank = min(n, dims)
    return -rank / dims * math.log1p(dims / (rank * distortion))


def _centred(x: Embeddings) -> Embeddings:
    return x - batch.row_mean(x)[..., None, :]


def _standardised(x: Embeddings, epsilon: float) -> Embeddings:
    """Mean 0 and variance 1 in every coordinate, as batch normalisation does."""
    centred = _centred(x)
    return centred * torch.rsqrt(batch.row_mean(centred.square()) + epsilon)[..., None, :]


def _whitened(x: Embeddings, shrinkage: float) -> Embeddings:
    """L⁻¹(x − mean) with LLᵀ the covariance: mean 0, covariance I.

    The covariance is float64: rounded to float32 it need not have a root.
    """
    centred = _centred(x)
    exact = centred.double()
    covariance = batch.moment(exact, exact) / (batch.n_rows(x) - 1)
    eye = torch.eye(x.shape[-1], dtype=torch.float64, device=x.device)
    root = cholesky((1 - shrinkage) * covariance + shrinkage * eye)
    inverse: Tensor = torch.linalg.solve_triangular(root, eye, upper=False)
    return centred @ inverse.to(x.dtype).mT


def _product_norm(a: Embeddings, b: Embeddings) -> Float[Tensor, "*m"]:
    """‖aᵀb‖², from the rows' inner products where there are fewer rows than half the columns."""
    n, dims = a.shape[-2:]
    if batch.n_processes() == 1 and 2 * n < dims:
        gram = a @ a.mT
        return (gram * (gram if b is a else b @ b.mT)).sum((-1, -2))
    return batch.moment(a, b).square().sum((-1, -2))
