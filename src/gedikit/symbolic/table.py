"""Constraints small enough to list: the tuples they allow."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from itertools import accumulate, pairwise, product
from math import inf, log, prod
from typing import Any, TypeVar, cast

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable

from gedikit.errors import UsageError
from gedikit.symbolic.budget import MAX_NODES, MAX_SECONDS
from gedikit.symbolic.circuit import CPU, Circuit, CircuitBuilder
from gedikit.symbolic.formula import TRUE, All, Fact, Formula, Is, Some
from gedikit.symbolic.variables import Variable

MAX_WORLDS = 2_000_000
MAX_TUPLES = 200_000
# a circuit shares equal ends of tuples; it has to save that many entries of the table a product to be faster
LEVELS_COST, PRODUCT_COST = 1_500, 8
Worlds = list[tuple[tuple[int, ...], float]]
T = TypeVar("T")

_SMALLER = "state it as a program (Constraint.from_program), whose size does not grow with the number of tuples"


class Table:
    """Allowed tuples as positions of values, (tuples, variables), and log-weights, 0 unless given."""

    limits = (MAX_SECONDS, MAX_NODES)

    @torch.inference_mode(False)  # training needs these tensors too
    def __init__(
        self, variables: Sequence[Variable], rows: Int64[np.ndarray, "t v"], log_weights: Float[np.ndarray, " t"]
    ):
        order = np.lexsort(rows.T[::-1])
        self.variables, self.rows, self.log_weights = tuple(variables), rows[order], log_weights[order]
        first = np.array([*accumulate((v.size for v in variables), initial=0)][:-1])
        self._parts = {
            CPU: (torch.from_numpy((self.rows + first).T.copy()), torch.from_numpy(self.log_weights)[:, None])
        }
        self.circuit = self._shared() if self.rows.size > LEVELS_COST else None

    @property
    def size(self) -> int:
        """How many numbers are computed for every column."""
        return len(self.rows) if self.circuit is None else self.circuit.size

    def log_joint(self, columns: Float[Tensor, "i n"]) -> Float[Tensor, " n"]:
        """log Σ w Π p over allowed tuples, from one row for every value of every variable."""
        if self.circuit is not None:
            return self.circuit(columns)[0]
        rows, weights = self._on(columns.device)
        return cast(Tensor, _SumOfProducts.apply(columns, rows, weights.to(columns.dtype)))  # type: ignore[no-untyped-call]

    log_probability = log_joint

    def worlds(self, columns: Float[Tensor, " i"], k: int) -> Worlds:
        """The k most probable tuples with their log-weights."""
        weights = _products(columns[:, None].cpu(), *self._on(CPU))[:, 0]
        best, which = weights.topk(min(k, int((weights > -inf).sum())))
        return [(tuple(self.rows[i].tolist()), w) for i, w in zip(which.tolist(), best.tolist(), strict=True)]

    def formula(self) -> tuple[Formula, Formula]:
        """The table as decisions, variable by variable, that share equal ends; a weight is a fact of its own."""
        ends: list[Formula] = [
            TRUE if w == 0 else Is(Fact(f"weight of tuple {i}", (w, _log_rest(w))), 0)
            for i, w in enumerate(self.log_weights)
        ]

        def decision(v: int, options: list[tuple[int, Formula]]) -> Formula:
            return Some(tuple(All((Is(self.variables[v], value), rest)) for value, rest in options))

        return _from_the_end(self.rows, ends, decision), TRUE

    def renamed(self, variables: Sequence[Variable], position: Sequence[int], name: str) -> "Table":
        """Over `variables`, of which the i-th of ours is number position[i]."""
        rows = np.empty((len(self.rows), len(variables)), dtype=np.int64)
        rows[:, list(position)] = self.rows
        agree = (rows[:, list(position)] == self.rows).all(1)
        if not agree.any():
            raise UsageError(f"{name} allows nothing: no labels could ever satisfy it")
        return Table(variables, rows[agree], self.log_weights[agree])

    def joined(self, other: "Table", variables: Sequence[Variable], name: str) -> "Table | None":
        """Tuples that agree on shared variables; None where there are too many to list."""
        shared = [v for v in self.variables if v in other.variables]
        ours, theirs = ([t.variables.index(v) for v in shared] for t in (self, other))
        new = [other.variables.index(v) for v in variables if v not in self.variables]
        matching: dict[tuple[int, ...], list[int]] = {}
        for at, key in enumerate(map(tuple, other.rows[:, theirs].tolist())):
            matching.setdefault(key, []).append(at)
        found = [matching.get(key, []) for key in map(tuple, self.rows[:, ours].tolist())]
        if sum(map(len, found)) > MAX_TUPLES:
            return None
        i = np.repeat(np.arange(len(self.rows)), [len(f) for f in found])
        j = np.array([j for f in found for j in f], dtype=np.int64)
        if not len(j):
            raise UsageError(f"{name} allow no tuple of values in common: no labels could ever satisfy both")
        rows = np.concatenate([self.rows[i], other.rows[j][:, new]], axis=1)
        return Table(variables, rows, self.log_weights[i] + other.log_weights[j])

    @torch.inference_mode(False)
    def _on(self, device: torch.device) -> tuple[Int64[Tensor, "v t"], Float[Tensor, "t 1"]]:
        """A copy where the input is, made once and kept: a captured graph neither copies nor forgets."""
        if device not in self._parts:
            rows, weights = self._parts[CPU]
            self._parts[device] = rows.to(device), weights.to(device)
        return self._parts[device]

    def _shared(self) -> Circuit | None:
        """A circuit that decides variable by variable, where it is faster than going through the tuples."""
        first = [0, *accumulate(v.size for v in self.variables)]
        builder = CircuitBuilder(first[-1])

        def decision(v: int, options: list[tuple[int, int]]) -> int:
            return builder.sum([(first[v] + value, rest) for value, rest in options], decided=True)

        ends = [builder.constant(w) for w in self.log_weights.tolist()]
        circuit = builder.circuit([_from_the_end(self.rows, ends, decision)])
        return circuit if LEVELS_COST + PRODUCT_COST * circuit.n_products < self.rows.size else None


def _products(
    columns: Float[Tensor, "i n"], rows: Int64[Tensor, "v t"], weights: Float[Tensor, "t 1"]
) -> Float[Tensor, "t n"]:
    total = columns.index_select(0, rows[0]).add_(weights)
    for row in rows[1:]:
        total += columns.index_select(0, row)
    return total


class _SumOfProducts(torch.autograd.Function):
    """log Σ w Π p; by hand, because autograd would keep a number for every entry of the table and example."""

    @staticmethod
    def forward(ctx: Any, columns: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
        products = _products(columns, rows, weights)
        total = torch.logsumexp(products, 0)
        ctx.save_for_backward(products, total, rows)
        ctx.n_columns = len(columns)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        products, total, rows = ctx.saved_tensors
        share = (products - torch.where(total == -inf, 0.0, total)).exp_().mul_(gradient)
        found = share.new_zeros(ctx.n_columns, share.shape[1])
        for row in rows:
            found.index_add_(0, row, share)
        return found, None, None


def enumerated(variables: Sequence[Variable], predicate: Callable[..., Any], name: str) -> Table:
    """The tuples that satisfy a predicate, found by asking it about every one."""
    worlds = prod(v.size for v in variables)
    if worlds > MAX_WORLDS:
        raise UsageError(
            f"{name} would be asked about {worlds:.3g} tuples of values, more than {MAX_WORLDS:.3g}: {_SMALLER}"
        )
    allowed: list[tuple[int, ...]] = []
    for position in product(*(range(v.size) for v in variables)):
        values = [v.values[i] for v, i in zip(variables, position, strict=True)]
        try:
            holds = bool(predicate(*values))
        except Exception as error:
            raise UsageError(f"{name} fails for {values}: {type(error).__name__}: {error}") from error
        if holds:
            allowed.append(position)
        if len(allowed) > MAX_TUPLES:
            raise UsageError(
                f"{name} allows more than {MAX_TUPLES} of its {worlds:.3g} tuples, too many to list: {_SMALLER}"
            )
    if not allowed:
        raise UsageError(f"{name} allows none of its {worlds} tuples of values: no labels could ever satisfy it")
    return Table(variables, np.array(allowed), np.zeros(len(allowed)))


def listed(
    variables: Sequence[Variable],
    tuples: Sequence[Sequence[Hashable]] | Int64[np.ndarray, "t v"] | Int64[Tensor, "t v"],
    weights: Sequence[float] | None,
) -> Table:
    """Tuples as given, checked."""
    if isinstance(tuples, np.ndarray | Tensor):
        tuples = cast(list[list[int]], tuples.tolist())
    if not isinstance(tuples, Collection):
        raise UsageError(f"tuples is {tuples!r}: give a list with one tuple of values for everything allowed")
    if len(tuples) > MAX_TUPLES:
        raise UsageError(f"tuples has {len(tuples)} entries, more than {MAX_TUPLES}: {_SMALLER}")
    positions = [{value: i for i, value in enumerate(v.values)} for v in variables]
    rows = [_row(variables, positions, t) for t in tuples]
    row, count = Counter(rows).most_common(1)[0] if rows else ((), 1)
    if count > 1:
        raise UsageError(f"tuples has {tuple(tuples[rows.index(row)])} twice: list each allowed tuple once")
    w = np.ones(len(rows)) if weights is None else np.asarray(weights, dtype=np.float64)
    if w.shape != (len(rows),):
        raise UsageError(f"weights has shape {w.shape} for {len(rows)} tuples: give one number a tuple")
    if not ((w >= 0) & (w <= 1)).all():
        raise UsageError("weights must lie between 0 and 1: a weight is the probability that its tuple is allowed")
    kept = w > 0
    if not kept.any():
        raise UsageError("tuples allows nothing: give at least one tuple with a positive weight")
    return Table(variables, np.array(rows)[kept], np.log(w[kept]))


def _row(
    variables: Sequence[Variable], positions: list[dict[Hashable, int]], values: Sequence[Hashable]
) -> tuple[int, ...]:
    if not isinstance(values, Collection):
        raise UsageError(f"tuples has {values!r}, which is no tuple: give ({values!r},) for a single variable")
    if len(values) != len(variables):
        raise UsageError(f"tuples has {tuple(values)} for {len(variables)} variables: give one value for each")
    for variable, position, value in zip(variables, positions, values, strict=True):
        if value not in position:
            raise UsageError(f"tuples has {value!r} for {variable.name}, whose values are {variable.values}")
    return tuple(position[value] for position, value in zip(positions, values, strict=True))


def _from_the_end(
    rows: Int64[np.ndarray, "t v"], ends: list[T], decision: Callable[[int, list[tuple[int, T]]], T]
) -> T:
    """Fold sorted tuples variable by variable, the last first: tuples with the same beginning make one decision."""
    for v in reversed(range(rows.shape[1])):
        new = np.ones(len(rows), dtype=bool)
        new[1:] = (rows[1:, :v] != rows[:-1, :v]).any(1)
        starts = [*np.flatnonzero(new), len(rows)]
        values = rows[:, v].tolist()
        ends = [decision(v, list(zip(values[a:b], ends[a:b], strict=True))) for a, b in pairwise(starts)]
        rows = rows[new]
    return ends[0]


def _log_rest(log_weight: float) -> float:
    return log(-np.expm1(log_weight))
