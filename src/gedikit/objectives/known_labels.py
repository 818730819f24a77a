"""Labels that are known of some rows: their cross-entropy, beside what is learned without labels."""

from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gedikit.components import setting
from gedikit.errors import UsageError
from gedikit.objectives import batch
from gedikit.objectives.base import Memory, OfKnownRows, Outputs, Sizes, TrainingData, register_objective
from gedikit.objectives.loss import full_precision
from gedikit.randomness import integers, share_of


@full_precision
def known_label_loss(
    log_p: Float[Tensor, "*m n c"], labels: Int64[Tensor, "*m n"], whole: int | None = None
) -> Float[Tensor, "*m"]:
    """−mean log p(label|x), over `whole` rows where processes do not hold equally many."""
    return -batch.mean(log_p.gather(-1, labels[..., None])[..., 0], whole)


def known_label_loss_optimum() -> float:
    """0: every row has its label, with certainty."""
    return 0.0


@dataclass(frozen=True)
class _Labelled:
    points: Float[Tensor, "l d"]
    labels: Int64[Tensor, " l"]


@register_objective("known-labels")
@dataclass(frozen=True)
class KnownLabels(OfKnownRows):
    """The labels of `GEDI.fit(X, partial_labels=…)`; label c becomes cluster c.

    Labelled rows are looked at in every iteration, however few they are.
    """

    weight: float = setting(25.0, "weight in the sum that is minimised", at_least=0)
    rows: int = setting(128, "labelled rows an iteration, at most", above=0)
    _labelled: _Labelled | None = field(default=None, repr=False, compare=False, kw_only=True)

    summary: ClassVar[str] = "cross-entropy to labels that are known of some rows"
    reference: ClassVar[str] = "cf. Grandvalet & Bengio, 2005"
    needs_labels: ClassVar[bool] = True
    title: ClassVar[str] = "Loss of known labels"
    caption: ClassVar[str] = "0 when every labelled row is in the cluster of its label, with certainty."

    def __call__(self, out: Outputs, memory: Memory) -> tuple[Tensor, Memory]:
        assert self._labelled is not None, "bound before the training"
        points, labels = self._labelled.points, self._labelled.labels
        if len(points) > self.rows:
            some = integers(len(points), (self.rows,), out.generator, whole=True)
            points, labels = points[some], labels[some]
        here, whole = share_of(out.generator), labels.shape[-1]
        points, labels = points[..., here.part(whole), :], labels[..., here.part(whole)]
        log_p = torch.log_softmax(out.logits(points), dim=-1)
        return known_label_loss(log_p, labels.expand(log_p.shape[:-1]), whole), memory

    def optimum(self, sizes: Sizes) -> float:  # noqa: ARG002
        return known_label_loss_optimum()

    def bind(self, data: TrainingData) -> Self:
        if data.known is None or data.known.labels is None:
            raise UsageError("the objective 'known-labels' needs labels of some rows: fit(X, partial_labels=...)")
        rows: Int64[np.ndarray, " l"] = data.known.labelled
        labels = torch.from_numpy(data.known.labels[rows]).to(data.device)
        return replace(self, _labelled=_Labelled(data.points(torch.from_numpy(rows)).to(data.device), labels))
