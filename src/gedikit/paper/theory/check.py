"""What a verified statement consists of, and how two formulas are compared."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Formula = Callable[..., Tensor]


@dataclass(frozen=True)
class Check:
    """A statement and the numbers behind it: it holds where every error is small and every margin is not.

    An error is the distance from an equality or the amount by which an inequality fails. A margin is a distance
    that must stay clear of zero, such as that of a formula known to be wrong.
    """

    name: str
    statement: str
    errors: Mapping[str, float] = field(default_factory=dict)
    margins: Mapping[str, float] = field(default_factory=dict)
    tolerance: float = 1e-9

    @property
    def holds(self) -> bool:
        small = all(error <= self.tolerance for error in self.errors.values())
        return small and all(margin > self.tolerance for margin in self.margins.values())

    @property
    def largest_error(self) -> float:
        return max(self.errors.values(), default=0.0)

    @property
    def smallest_margin(self) -> float:
        return min(self.margins.values(), default=math.inf)


def disagreement(left: Formula, right: Formula, *inputs: Tensor, **settings: Any) -> dict[str, float]:
    """How far two scalar formulas are apart, in value and in their gradients in the inputs."""
    value, gradient = _differentiated(left, inputs, settings)
    other_value, other_gradient = _differentiated(right, inputs, settings)
    slopes = (distance(a, b) for a, b in zip(gradient, other_gradient, strict=True))
    return {"value": distance(value, other_value), "gradient": max(slopes)}


def distance(a: Tensor, b: Tensor) -> float:
    """max |a − b|, relative to b where b is above one."""
    return float((a - b).abs().max() / b.abs().max().clamp_min(1.0))


def violation(small: Tensor, large: Tensor) -> float:
    """The most by which small ≤ large fails; 0 where it holds everywhere."""
    return float((small - large).max().clamp_min(0.0))


def largest(records: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The largest of each entry over records with the same entries."""
    kept = list(records)
    return {name: max(record[name] for record in kept) for name in kept[0]}


def _differentiated(
    formula: Formula, inputs: tuple[Tensor, ...], settings: Mapping[str, Any]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    value = formula(*leaves, **settings)
    gradients = torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)
    return value.detach(), gradients
