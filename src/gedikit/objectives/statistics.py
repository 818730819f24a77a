"""Means and covariances of embeddings over the whole batch: what negative-free losses share (Lemma 6)."""

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.objectives import batch

Embeddings = Float[Tensor, "*m n l"]


def centred_rows(x: Embeddings) -> Embeddings:
    """Rows minus the batch's mean."""
    return x - batch.row_mean(x)[..., None, :]


def standardised(x: Embeddings, epsilon: float) -> Embeddings:
    """Mean 0 and variance 1 in every coordinate, as batch normalisation does."""
    centred = centred_rows(x)
    return centred * torch.rsqrt(batch.row_mean(centred.square()) + epsilon)[..., None, :]


def product_norm(a: Embeddings, b: Embeddings) -> Float[Tensor, "*m"]:
    """‖aᵀb‖², from the rows' inner products where there are fewer rows than half the columns."""
    n, dims = a.shape[-2:]
    if batch.n_processes() == 1 and 2 * n < dims:
        gram = a @ a.mT
        return (gram * (gram if b is a else b @ b.mT)).sum((-1, -2))
    return batch.moment(a, b).square().sum((-1, -2))
