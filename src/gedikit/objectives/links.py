"""Pairs of rows that are in one cluster, or in two: "a and b have the same symbol" or not, as a rule."""

from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from gedikit.components import setting
from gedikit.errors import UsageError
from gedikit.objectives.base import Memory, OfKnownRows, Outputs, Sizes, TrainingData, register_objective
from gedikit.objectives.constraint import constraint_loss
from gedikit.objectives.loss import full_precision
from gedikit.randomness import integers, share_of

_SMALLEST = 1e-6  # probability: the logarithm of less has no gradient that helps


@full_precision
def link_loss(
    log_p: Float[Tensor, "*m n c"],
    other_log_p: Float[Tensor, "*m n c"],
    same: Bool[Tensor, "*m n"],
    whole: int | None = None,
) -> Float[Tensor, "*m"]:
    """−mean log P(a = b) or log P(a ≠ b), with P(a = b) = Σ_y p(y|a) p(y|b).

    Over `whole` links where processes do not hold equally many.
    """
    together = torch.logsumexp(log_p + other_log_p, dim=-1)
    apart = torch.log((1 - together.exp()).clamp_min(_SMALLEST))
    return constraint_loss(torch.where(same, together, apart), whole=whole)


def link_loss_optimum() -> float:
    """0: every link holds, with certainty."""
    return 0.0


@dataclass(frozen=True)
class _Pairs:
    points: Float[Tensor, "k d"]  # the first of all pairs, then the second
    same: Bool[Tensor, " l"]


@register_objective("links")
@dataclass(frozen=True)
class Links(OfKnownRows):
    """The pairs of `GEDI.fit(X, must_link=…, cannot_link=…)`, looked at in every iteration."""

    weight: float = setting(25.0, "weight in the sum that is minimised", at_least=0)
    pairs: int = setting(64, "pairs an iteration, at most", above=0)
    _pairs: _Pairs | None = field(default=None, repr=False, compare=False, kw_only=True)

    summary: ClassVar[str] = "pairs of rows that are in one cluster, or in two"
    reference: ClassVar[str] = "Xu et al., 2018; cf. Wagstaff et al., 2001"
    title: ClassVar[str] = "Loss of links"
    caption: ClassVar[str] = "0 when every link between two rows holds, with certainty."

    def __call__(self, out: Outputs, memory: Memory) -> tuple[Tensor, Memory]:
        assert self._pairs is not None, "bound before the training"
        points, same = self._pairs.points, self._pairs.same
        count = same.shape[-1]
        if count > self.pairs:
            some = integers(count, (self.pairs,), out.generator, whole=True)
            points, same = points[torch.cat([some, count + some], dim=-1)], same[some]
        here, whole = share_of(out.generator), same.shape[-1]
        if here.count > 1:
            own = here.part(whole)
            points = torch.cat([side[..., own, :] for side in points.chunk(2, dim=-2)], dim=-2)
            same = same[..., own]
        log_p, other = torch.log_softmax(out.logits(points), dim=-1).tensor_split(2, dim=-2)
        return link_loss(log_p, other, same.expand(log_p.shape[:-1]), whole), memory

    def optimum(self, sizes: Sizes) -> float:  # noqa: ARG002
        return link_loss_optimum()

    def bind(self, data: TrainingData) -> Self:
        if data.known is None or not data.known.n_linked:
            raise UsageError("the objective 'links' needs pairs of rows: fit(X, must_link=..., cannot_link=...)")
        known = data.known
        pairs: Int64[np.ndarray, "l 2"] = np.concatenate([known.must_link, known.cannot_link])
        points = data.points(torch.from_numpy(pairs.T.flatten())).to(data.device)
        same = torch.arange(len(pairs), device=data.device) < len(known.must_link)
        return replace(self, _pairs=_Pairs(points, same))
