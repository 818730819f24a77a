"""Cluster-based losses: the posterior follows an assignment that is kept balanced from outside (Lemma 9).

scores are the logits times the temperature, UᵀG of the paper; log_p are normalised log-posteriors.
"""

import warnings

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gedikit.errors import GediWarning
from gedikit.objectives import batch
from gedikit.objectives.objective import objective

Rows = Float[Tensor, "*m n c"]


@torch.no_grad()
def sinkhorn(
    scores: Rows, *, epsilon: float = 0.05, iterations: int = 3, log_prior: Float[Tensor, " c"] | None = None
) -> Rows:
    """Codes q(y|x): softmax(scores/ε) rescaled so that each cluster gets its share (Cuturi, 2013), in log space.

    Columns and rows are normalised in turn, rows last; equal shares unless `log_prior` says otherwise.
    """
    n, c = batch.n_rows(scores), scores.shape[-1]
    if c > n:
        warnings.warn(GediWarning(f"{c} prototypes for {n} rows: some must stay empty"), stacklevel=2)
    log_q = scores.double() / epsilon
    share = 0.0 if log_prior is None else log_prior.double()
    for _ in range(iterations):
        log_q = log_q - batch.row_logsumexp(log_q)[..., None, :] + share
        log_q = torch.log_softmax(log_q, dim=-1)
    return log_q.exp().to(scores.dtype)


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
    return batch.mean(-log_p.gather(-1, assignment[..., None])[..., 0])


@objective(pair=True)
def sela(log_p: Rows, codes: Rows) -> Float[Tensor, "*m"]:
    """mean CE(q_i, p(y|x_i)), q the balanced assignment of all rows at once; optimum 0 (Asano et al., 2020)."""
    return batch.mean(-(codes * log_p).sum(-1))
