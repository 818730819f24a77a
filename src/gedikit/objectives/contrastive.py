"""Contrastive losses: every row is a class of its own, to be told from the others of the batch (Lemma 3).

z and z′ are embeddings of two views, rows match. All are cross-entropies of a softmax over the batch.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gedikit.errors import UsageError
from gedikit.objectives import batch
from gedikit.objectives.objective import cholesky, full_precision, objective

SIMILARITIES = ("cosine", "euclidean", "dot")


@full_precision
def similarities(
    a: Float[Tensor, "*m n l"], b: Float[Tensor, "*m k l"], kind: str = "cosine"
) -> Float[Tensor, "*m n k"]:
    """sim(a_i, b_k): the cosine, −‖a−b‖², or the inner product."""
    if kind == "cosine":
        return F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).mT
    if kind == "dot":
        return a @ b.mT
    if kind == "euclidean":
        origin = b.detach().mean(-2, keepdim=True)  # distances do not depend on it, their rounding does
        a, b = a - origin, b - origin
        return 2 * (a @ b.mT) - a.square().sum(-1)[..., None] - b.square().sum(-1)[..., None, :]
    raise UsageError(f"similarity must be one of {', '.join(SIMILARITIES)}, not {kind!r}")


def instance_classification(scores: Float[Tensor, "*m n k"], first: int = 0) -> Float[Tensor, "*m"]:
    """−mean log softmax of row i at column first + i."""
    right = torch.diagonal(scores[..., first : first + scores.shape[-2]], dim1=-2, dim2=-1)
    return batch.mean(torch.logsumexp(scores, dim=-1) - right)


@objective(min_rows=2, pair=True)
def infonce(
    z: Float[Tensor, "*m n l"],
    view: Float[Tensor, "*m n l"],
    *,
    temperature: float = 0.2,
    similarity: str = "cosine",
) -> Float[Tensor, "*m"]:
    """−mean_i log e^{sim(z_i, z′_i)/τ} / Σ_k e^{sim(z_i, z′_k)/τ} (van den Oord et al., 2018)."""
    scores = similarities(z, batch.all_rows(view), similarity) / temperature
    return instance_classification(scores, batch.first_row(view))


def infonce_optimum(n: int, temperature: float = 0.2) -> float:
    """For the cosine: the corners of a regular simplex, a lower bound in fewer than n − 1 dimensions."""
    return math.log1p((n - 1) * math.exp(-n / (n - 1) / temperature))


@objective(min_rows=2, pair=True)
def simclr(
    z: Float[Tensor, "*m n l"], view: Float[Tensor, "*m n l"], *, temperature: float = 0.2
) -> Float[Tensor, "*m"]:
    """NT-Xent: InfoNCE over the 2n views, where a view is not compared with itself (Chen et al., 2020)."""
    z, view = F.normalize(z, dim=-1), F.normalize(view, dim=-1)
    others, other_views = batch.all_rows(z), batch.all_rows(view)
    first = batch.first_row(z)
    itself = F.one_hot(torch.arange(z.shape[-2], device=z.device) + first, batch.n_rows(z)).bool()
    across = z @ other_views.mT
    back = across.mT if batch.n_processes() == 1 else view @ others.mT
    loss = z.new_zeros(())
    for own, other in ((z @ others.mT, across), (view @ other_views.mT, back)):
        own_norm = torch.logsumexp((own / temperature).masked_fill(itself, -math.inf), dim=-1)
        norm = torch.logaddexp(own_norm, torch.logsumexp(other / temperature, dim=-1))
        right = torch.diagonal(other[..., first : first + z.shape[-2]], dim1=-2, dim2=-1) / temperature
        loss = loss + batch.mean(norm - right) / 2
    return loss


def simclr_optimum(n: int, temperature: float = 0.2) -> float:
    """Equal views, instances at the corners of a regular simplex; a lower bound in fewer than n − 1 dimensions."""
    return math.log1p((2 * n - 2) * math.exp(-n / (n - 1) / temperature))


@objective(min_rows=2, pair=True)
def cpc(
    z: Float[Tensor, "*m n l"], context: Float[Tensor, "*m n l"], bilinear: Float[Tensor, "*m l l"]
) -> Float[Tensor, "*m"]:
    """InfoNCE with the log-bilinear score z_iᵀ W c_k of contrastive predictive coding; infimum 0 (Hénaff, 2020)."""
    scores = z @ bilinear @ batch.all_rows(context).mT
    return instance_classification(scores, batch.first_row(context))


@objective(min_rows=2, pair=True)
def protocpc(
    student: Float[Tensor, "*m n c"], teacher_p: Float[Tensor, "*m n c"], *, temperature: float = 0.1
) -> Float[Tensor, "*m"]:
    """−mean_i [p_i·z_i/τ − log Σ_c q_c e^{z_ic/τ}], q the batch's mean teacher p (appendix D; Lee, 2022)."""
    scaled = student / temperature
    used = batch.row_mean(teacher_p)
    log_prototypes = used.clamp_min(torch.finfo(used.dtype).tiny).log().masked_fill(used == 0, -math.inf)
    norm = torch.logsumexp(scaled + log_prototypes[..., None, :], dim=-1)
    return batch.mean(norm - (teacher_p * scaled).sum(-1))


def protocpc_optimum(n_prototypes: int) -> float:
    """−ln c: the mutual information between a certain, balanced teacher's classes and the rows, negated."""
    return -math.log(n_prototypes)


@objective(min_rows=2)
def kscl(
    z: Float[Tensor, "*m n l"],
    shots: Float[Tensor, "*m n k l"],
    *,
    temperature: float = 0.2,
    ridge: float = 1e-2,
) -> Float[Tensor, "*m"]:
    """InfoNCE where an instance is the subspace its k views span: sim(z_i, j) = ‖P_j z_i‖ (Xu et al., 2022).

    P_j projects on the span of the views of instance j; `ridge`, relative to the mean squared singular value,
    fades out directions in which they hardly vary, where the original cuts an eigenvalue decomposition off.
    """
    n, k, l = shots.shape[-3:]  # noqa: E741
    if n != z.shape[-2]:
        raise UsageError(f"kscl takes the views of each of the {z.shape[-2]} rows, not of {n}")
    q = F.normalize(z, dim=-1)
    a = F.normalize(shots, dim=-1)
    gram = a @ a.mT
    shrunk = gram + ridge * torch.eye(k, dtype=a.dtype, device=a.device)  # unit rows: mean eigenvalue 1
    root = cholesky(shrunk)
    basis = torch.linalg.solve_triangular(root, a, upper=False)  # nearly orthonormal: aᵀ(G + εI)⁻¹a = basisᵀbasis
    everyone = batch.all_rows(basis.reshape(*basis.shape[:-3], n, k * l))
    everyone = everyone.reshape(*everyone.shape[:-2], everyone.shape[-2] * k, l)
    along = (q @ everyone.mT).reshape(*q.shape[:-1], -1, k)
    lengths = torch.sqrt(along.square().sum(-1) + torch.finfo(a.dtype).eps)
    return instance_classification(lengths / temperature, batch.first_row(z))


def kscl_optimum(n: int, temperature: float = 0.2) -> float:
    """Orthogonal subspaces: similarity 1 with one's own and 0 with the others."""
    return math.log1p((n - 1) * math.exp(-1 / temperature))
