"""Balanced assignments by Sinkhorn and Knopp's iteration (Cuturi, 2013)."""

import math
import warnings

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.errors import GediWarning
from gedikit.objectives import batch
from gedikit.objectives.loss import full_precision

Rows = Float[Tensor, "*m n c"]


@full_precision
@torch.no_grad()
def sinkhorn(
    scores: Rows,
    *,
    epsilon: float = 0.05,
    iterations: int = 3,
    log_prior: Float[Tensor, " c"] | None = None,
    whole: int | None = None,
) -> Rows:
    """Codes q(y|x): exp(scores/ε) rescaled so that each cluster gets its share (Cuturi, 2013).

    Columns and rows are normalised in turn, rows last; equal shares unless `log_prior` says otherwise. `whole` is
    the number of all rows, where processes do not hold equally many.
    """
    n, c = whole or batch.n_rows(scores), scores.shape[-1]
    if c > n:
        warnings.warn(GediWarning(f"{c} prototypes for {n} rows: some must stay empty"), stacklevel=4)
    shares = scores.new_zeros(c) if log_prior is None else log_prior.to(scores.dtype)
    log_mass = torch.log_softmax(shares, -1) + math.log(n)  # rows have 1 each
    # looking stalls an accelerator, and several processes would have to agree on what they see
    if scores.device.type == "cpu" and batch.n_processes() == 1:
        highest = scores.amax((-1, -2), keepdim=True)
        spread = (highest - scores.amin((-1, -2), keepdim=True)).max() / epsilon
        if spread < math.log(torch.finfo(scores.dtype).max) / 2:  # the factors lie within n e^±spread
            return _sinkhorn_factors((scores - highest).div_(epsilon).exp_(), iterations, log_mass)
    return _sinkhorn_logs(scores.double() / epsilon, iterations, log_mass).to(scores.dtype)


def _sinkhorn_factors(kernel: Rows, iterations: int, log_mass: Float[Tensor, " c"]) -> Rows:
    """One factor a row and one a column, from one exponential of the scores. Overwrites the kernel."""
    mass = log_mass.exp()[:, None]
    rows = columns = kernel.new_ones(*kernel.shape[:-1], 1)
    for _ in range(iterations):
        columns = mass / (kernel.mT @ rows)
        rows = 1 / (kernel @ columns)
    return kernel.mul_(rows).mul_(columns.mT)


def _sinkhorn_logs(log_kernel: Rows, iterations: int, log_mass: Float[Tensor, " c"]) -> Rows:
    """The same with the factors' logarithms, where exponentials of the scores would vanish."""
    rows, columns = log_kernel.new_zeros(*log_kernel.shape[:-1], 1), log_kernel.new_zeros(1, log_kernel.shape[-1])
    for _ in range(iterations):
        columns = log_mass - batch.row_logsumexp(log_kernel + rows)[..., None, :]
        rows = -torch.logsumexp(log_kernel + columns, dim=-1, keepdim=True)
    return torch.softmax(log_kernel + columns, dim=-1)
