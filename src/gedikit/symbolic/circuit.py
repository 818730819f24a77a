"""Circuits of sums of products in log-space, all rows of a batch at once.

Row by row a circuit computes log Σ exp over products of two earlier rows. Sums that only need earlier levels make
a level: two gathers, an addition and a logsumexp, whatever the number of sums. The gradient walks the levels
backwards by hand, because what autograd would keep for it is several times the values themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Any, cast

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable

CPU = torch.device("cpu")
LOG2_E = 1 / log(2)


@dataclass(frozen=True)
class Sum:
    """log Σ exp(row_i + row_j) over pairs (i, j) of earlier rows.

    `decided`: the values of variables alone tell which of the products is not zero.
    """

    products: tuple[tuple[int, int], ...]
    decided: bool


@dataclass(frozen=True)
class _Level:
    """Sums that depend on earlier levels only: rows `first`, …, padded to the longest of them."""

    first: int
    left: Int64[Tensor, "s k"]
    right: Int64[Tensor, "s k"]
    decided: Tensor

    @property
    def last(self) -> int:
        return self.first + len(self.left)

    def products(self, values: Float[Tensor, "v n"]) -> Float[Tensor, "s k n"]:
        """In log-space; rows are gathered as a flat list, which takes a fraction of the time."""
        left, right = (values.index_select(0, i.flatten()) for i in (self.left, self.right))
        return left.add_(right).view(*self.left.shape, values.shape[1])

    def to(self, device: torch.device) -> "_Level":
        return _Level(self.first, self.left.to(device), self.right.to(device), self.decided.to(device))


@dataclass(frozen=True)
class _Parts:
    """The tensors a circuit consists of."""

    constants: Float[Tensor, "k 1"]
    levels: list[_Level]
    roots: Int64[Tensor, " r"]

    def leaves(self, inputs: Float[Tensor, "i n"]) -> Float[Tensor, "j n"]:
        return torch.cat([inputs, self.constants.to(inputs.dtype).expand(-1, inputs.shape[1])])

    def to(self, device: torch.device) -> "_Parts":
        return _Parts(self.constants.to(device), [x.to(device) for x in self.levels], self.roots.to(device))


class Circuit:
    """Rows are the inputs, then the constants, then the sums; `roots` are the rows of the results."""

    @torch.inference_mode(False)  # training needs these tensors too
    def __init__(self, n_inputs: int, constants: Sequence[float], sums: Sequence[Sum], roots: Sequence[int]):
        self.n_inputs = n_inputs
        self.n_products = sum(len(s.products) for s in sums)
        self.size = len(sums) + self.n_products
        zero = n_inputs + len(constants)  # pads sums to equal length
        levels, place = _levels(zero, sums)
        weights = torch.tensor([*constants, -inf], dtype=torch.float64)[:, None]
        self._parts = {CPU: _Parts(weights, levels, torch.tensor([place[r] for r in roots]))}

    def __call__(self, inputs: Float[Tensor, "i n"]) -> Float[Tensor, "r n"]:
        """The value of every root."""
        parts = self._on(inputs.device)
        leaves = parts.leaves(inputs)
        return cast(Tensor, _Evaluation.apply(leaves, parts.levels, parts.roots))  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def best(self, inputs: Float[Tensor, "i n"]) -> Float[Tensor, "r n"]:
        """An upper bound on the largest part of a root that one value for each variable accounts for.

        Sums that variables decide become maxima, others stay sums. It is exact where all sums are decided, and
        where the inputs leave each variable one value.
        """
        parts = self._on(inputs.device)
        return _forward(parts.leaves(inputs), parts.levels, best=True)[parts.roots]

    @torch.inference_mode(False)
    def _on(self, device: torch.device) -> _Parts:
        """A copy where the input is, made once and kept: a captured graph neither copies nor forgets."""
        if device not in self._parts:
            self._parts[device] = self._parts[CPU].to(device)
        return self._parts[device]


class CircuitBuilder:
    """Collects rows, each once; rows of constants have negative numbers until all are known."""

    ONE, ZERO = -1, -2

    def __init__(self, n_inputs: int):
        self.n_inputs = n_inputs
        self._constants: dict[float, int] = {0.0: self.ONE, -inf: self.ZERO}
        self._sums: dict[Sum, int] = {}

    def constant(self, value: float) -> int:
        return self._constants.setdefault(value, -1 - len(self._constants))

    def sum(self, products: Sequence[tuple[int, int]], decided: bool) -> int:
        if len(products) == 1 and self.ONE in products[0]:
            return products[0][products[0][0] == self.ONE]
        return self._sums.setdefault(Sum(tuple(products), decided), self.n_inputs + len(self._sums))

    def circuit(self, roots: Sequence[int]) -> Circuit:
        def final(row: int) -> int:
            return self.n_inputs - 1 - row if row < 0 else row + len(self._constants) * (row >= self.n_inputs)

        sums = [Sum(tuple((final(a), final(b)) for a, b in s.products), s.decided) for s in self._sums]
        return Circuit(self.n_inputs, list(self._constants), sums, [final(r) for r in roots])


def _levels(zero: int, sums: Sequence[Sum]) -> tuple[list[_Level], list[int]]:
    """Sums grouped by depth, and the row at which every row of the circuit ends up."""
    n_leaves = zero + 1
    depth = [0] * zero
    for s in sums:
        depth.append(1 + max(max(depth[i], depth[j]) for i, j in s.products))
    by_depth: list[list[int]] = [[] for _ in range(max(depth, default=0))]
    for i, d in enumerate(depth[zero:]):
        by_depth[d - 1].append(i)
    place = [*range(zero), *([0] * len(sums))]
    levels, first = [], n_leaves
    for members in by_depth:
        for row, i in enumerate(members, first):
            place[zero + i] = row
        width = max(len(sums[i].products) for i in members)
        pairs = torch.full((len(members), width, 2), zero)
        for row, i in enumerate(members):
            placed = [(place[a], place[b]) for a, b in sums[i].products]
            pairs[row, : len(placed)] = torch.tensor(placed)
        decided = torch.tensor([sums[i].decided for i in members])
        levels.append(_Level(first, pairs[..., 0].contiguous(), pairs[..., 1].contiguous(), decided))
        first += len(members)
    return levels, place


def _forward(leaves: Float[Tensor, "j n"], levels: list[_Level], best: bool) -> Float[Tensor, "v n"]:
    n_rows = levels[-1].last if levels else len(leaves)
    values = leaves.new_empty(n_rows, leaves.shape[1])
    values[: len(leaves)] = leaves
    for level in levels:
        products = level.products(values)
        largest = products.amax(1)
        reference = torch.where(largest == -inf, 0.0, largest)
        total = _exp_(products.sub_(reference[:, None])).sum(1).log_().add_(reference)
        values[level.first : level.last] = torch.where(level.decided[:, None], largest, total) if best else total
    return values


def _exp_(x: Tensor) -> Tensor:
    """In place, as a power of two: a fifth of the time in single precision, also for −inf."""
    return x.mul_(LOG2_E).exp2_()


class _Evaluation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, leaves: Tensor, levels: list[_Level], roots: Tensor) -> Tensor:
        values = _forward(leaves, levels, best=False)
        ctx.save_for_backward(values, roots)
        ctx.levels, ctx.n_leaves = levels, len(leaves)
        return values[roots]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        values, roots = ctx.saved_tensors
        flow = torch.zeros_like(values).index_add_(0, roots, gradient)
        for level in reversed(ctx.levels):
            own = values[level.first : level.last, None]
            share = _exp_(level.products(values).sub_(torch.where(own == -inf, 0.0, own)))
            share *= flow[level.first : level.last, None]
            share = share.flatten(0, 1)
            flow.index_add_(0, level.left.flatten(), share).index_add_(0, level.right.flatten(), share)
        return flow[: ctx.n_leaves], None, None
