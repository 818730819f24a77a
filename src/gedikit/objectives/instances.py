"""Telling rows of a batch apart: what contrastive losses share (Lemma 3).

Every row is a class of its own. z and z′ are embeddings of two views, rows match; the losses are cross-entropies of
a softmax over the batch.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gedikit.errors import UsageError
from gedikit.objectives import batch
from gedikit.objectives.loss import full_precision

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
