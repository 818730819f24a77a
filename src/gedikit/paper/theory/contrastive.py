"""Lemma 3: InfoNCE is the log-likelihood of a classifier that tells every instance from the others."""

import itertools
import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.objectives import infonce, similarities
from gedikit.paper.theory.check import Check, disagreement, largest, violation
from gedikit.paper.theory.draws import Draws
from gedikit.paper.theory.information_bounds import infonce_bound

SIMILARITIES = ("cosine", "euclidean", "dot")
ROWS = (2, 3, 6)
TEMPERATURES = (0.2, 0.5, 1.0)

Embeddings = Float[Tensor, "n l"]


def discriminative_term(
    z: Embeddings, view: Embeddings, *, temperature: float, similarity: str
) -> Float[Tensor, ""]:
    """L_CT = Σ_i log p(y_i = i|x_i) with Definition 2's softmax, written out row by row."""
    total = z.new_zeros(())
    for i, row in enumerate(z):
        scores = torch.stack([torch.exp(_similarity(row, other, similarity) / temperature) for other in view])
        total = total + torch.log(scores[i] / scores.sum())
    return total


def lemma_3(seed: int = 0) -> list[Check]:
    draws = Draws(seed)
    loss, information, signs = [], [], []
    for n, temperature, similarity in itertools.product(ROWS, TEMPERATURES, SIMILARITIES):
        z, view = draws.normal(n, 3), draws.normal(n, 3)
        settings: dict[str, Any] = {"temperature": temperature, "similarity": similarity}
        for other in (z, view):
            loss.append(disagreement(discriminative_term, _negated_loss, z, other, **settings))
            information.append(disagreement(discriminative_term, _information, z, other, **settings))
            signs.append(violation(discriminative_term(z, other, **settings), torch.zeros(())))
    return [
        Check("Lemma 3", "The bound's discriminative term L_CT is −n times the InfoNCE loss.", largest(loss)),
        Check("Lemma 3", "L_CT is n (I_NCE − ln n), I_NCE the bound on the information.", largest(information)),
        Check("Lemma 3", "L_CT is never positive: the bound lies below −H(x).", {"violation": max(signs)}),
    ]


def _negated_loss(z: Embeddings, view: Embeddings, *, temperature: float, similarity: str) -> Float[Tensor, ""]:
    return -len(z) * infonce(z, view, temperature=temperature, similarity=similarity)


def _information(z: Embeddings, view: Embeddings, *, temperature: float, similarity: str) -> Float[Tensor, ""]:
    return len(z) * (infonce_bound(similarities(z, view, similarity) / temperature) - math.log(len(z)))


def _similarity(a: Float[Tensor, " l"], b: Float[Tensor, " l"], kind: str) -> Float[Tensor, ""]:
    if kind == "euclidean":
        return -((a - b) ** 2).sum()
    inner = (a * b).sum()
    return inner if kind == "dot" else inner / torch.sqrt((a * a).sum() * (b * b).sum())
