"""Cluster-based losses: the posterior follows an assignment that is kept balanced from outside (Lemma 9).

scores are the logits times the temperature, UᵀG of the paper; log_p are normalised log-posteriors.
"""

import math
import warnings

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gedikit.errors import GediWarning, UsageError
from gedikit.objectives import batch
from gedikit.objectives.objective import full_precision, objective

Rows = Float[Tensor, "*m n c"]


@full_precision
@torch.no_grad()
def sinkhorn(
    scores: Rows, *, epsilon: float = 0.05, iterations: int = 3, log_prior: Float[Tensor, " c"] | None = None
) -> Rows:
    """Codes q(y|x): exp(scores/ε) rescaled so that each cluster gets its share (Cuturi, 2013).

    Columns and rows are normalised in turn, rows last; equal shares unless `log_prior` says otherwise.
    """
    n, c = batch.n_rows(scores), scores.shape[-1]
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


@objective(min_rows=2, pair=True)
def swav(
    scores: Rows,
    view_scores: Rows,
    *,
    temperature: float = 0.1,
    epsilon: float = 0.05,
    iterations: int = 3,
    queue: Rows | None = None,
    view_queue: Rows | None = None,
) -> Float[Tensor, "*m"]:
    """½ mean [CE(q′, p) + CE(q, p′)]: each view predicts the other's codes; optimum 0 (Caron et al., 2020).

    The codes q carry no gradient. Scores of earlier rows in `queue` and `view_queue` take part in balancing them.
    """
    n = scores.shape[-2]
    loss: Tensor | float = 0.0
    for own, other, past in ((scores, view_scores, view_queue), (view_scores, scores, queue)):
        together = other.detach() if past is None else torch.cat([other.detach(), past.detach()], -2)
        codes = sinkhorn(together, epsilon=epsilon, iterations=iterations)[..., :n, :]
        loss = loss - batch.mean((codes * torch.log_softmax(own / temperature, -1)).sum(-1)) / 2
    assert isinstance(loss, Tensor)
    return loss


@objective()
def deepcluster(log_p: Rows, assignment: Int[Tensor, "*m n"]) -> Float[Tensor, "*m"]:
    """−mean log p(a_i|x_i), a_i the k-means cluster of the features of x_i; optimum 0 (Caron et al., 2018)."""
    if assignment.shape != log_p.shape[:-1]:
        shapes = f"{tuple(log_p.shape[:-1])}, not {tuple(assignment.shape)}"
        raise UsageError(f"deepcluster takes one cluster a row, {shapes}")
    return batch.mean(-log_p.gather(-1, assignment[..., None])[..., 0])


@objective(pair=True)
def sela(log_p: Rows, codes: Rows) -> Float[Tensor, "*m"]:
    """mean CE(q_i, p(y|x_i)), q the balanced assignment of all rows at once; optimum 0 (Asano et al., 2020)."""
    return batch.mean(-(codes * log_p).sum(-1))
