"""CorInfoMax: equal views whose covariance has a large determinant (Ozsoy et al., 2022)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gedikit.components import setting
from gedikit.objectives import batch
from gedikit.objectives.base import NEGATIVE_FREE, Memory, Objective, Outputs, Sizes, Training, register_objective
from gedikit.objectives.loss import full_precision, loss
from gedikit.objectives.statistics import Embeddings, centred_rows

Square = Float[Tensor, "*m l l"]


@full_precision
def running_covariance(z: Embeddings, previous: Square | Float[Tensor, ""], momentum: float) -> Square:
    """μR + (1 − μ) Cov(z): the batch's covariance blended into what earlier batches said."""
    centred = centred_rows(z)
    return momentum * previous + (1 - momentum) * batch.moment(centred, centred) / batch.n_rows(z)


@loss(min_rows=2, pair=True)
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


@register_objective("corinfomax")
@dataclass(frozen=True)
class CorInfoMax(Objective):
    """Correlative information, with covariances that are carried from batch to batch."""

    invariance: float = setting(250.0, "weight of the distance between the views", at_least=0)
    momentum: float = setting(0.9, "share of the running covariance that is kept", at_least=0, at_most=1)

    summary: ClassVar[str] = "equal views, covariance of large determinant"
    reference: ClassVar[str] = "Ozsoy et al., 2022"
    family: ClassVar[str] = NEGATIVE_FREE
    labels: ClassVar[str] = "k-means"
    unit_length: ClassVar[bool] = True
    min_rows: ClassVar[int] = 2
    capturable: ClassVar[bool] = False

    def __call__(self, out: Outputs, memory: Memory) -> tuple[Tensor, Memory]:
        z, view = out.z, out.view_z
        covariances = {
            name: running_covariance(F.normalize(part, dim=-1), memory[name], self.momentum)
            for name, part in (("covariance", z), ("view_covariance", view))
        }
        value = corinfomax.formula(z, view, *covariances.values(), invariance=self.invariance)
        return value, {name: r.detach() for name, r in covariances.items()}

    def start(self, training: Training) -> Memory:
        width = training.n_embedding
        even = torch.eye(width, device=training.device) / width
        even = even.expand(*training.members, width, width).clone()
        return {"covariance": even, "view_covariance": even.clone()}

    def optimum(self, sizes: Sizes) -> float:
        return corinfomax_optimum(sizes.embedding)
