"""Rules that read variables position by position and carry a small state along: a carry, a parity, an automaton."""

import inspect
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, SupportsIndex

import numpy as np
from jaxtyping import Float, Int64
from torch import Tensor

from gedikit.errors import UsageError
from gedikit.symbolic.budget import MAX_NODES, MAX_SECONDS, Budget
from gedikit.symbolic.compiled import Compiled
from gedikit.symbolic.diagram import DEAD, END, Diagram, from_steps
from gedikit.symbolic.formula import NEVER, TRUE, Choice, Formula, substituted
from gedikit.symbolic.table import Worlds
from gedikit.symbolic.variables import Domains, Variable, variables_over

MAX_CALLS = 2_000_000

Step = Callable[..., Any]
"""From a state and the values at a position to the next state, or None where they break the rule."""

Follows = list[Mapping[Any, Sequence[Hashable]]]
"""For every variable of a position, what follows on each of its values, by what went before."""


class Chain:
    """A diagram without facts and evidence, and the circuit that evaluates it."""

    limits = (MAX_SECONDS, MAX_NODES)
    has_facts = False

    def __init__(self, variables: Sequence[Variable], diagram: Diagram):
        self.variables, self.diagram = tuple(variables), diagram
        self.circuit = diagram.circuit(self.variables)

    @property
    def size(self) -> int:
        """How many numbers are computed for every column."""
        return self.circuit.size

    def log_joint(self, columns: Float[Tensor, "i n"]) -> Float[Tensor, " n"]:
        """log Σ Π p over the values that the rule allows, from one row for every value of every variable."""
        return self.circuit(columns)[0]

    log_probability = log_joint

    def worlds(self, columns: Float[Tensor, " i"], k: int) -> Worlds:
        """The k most probable values of the variables with their log-weights."""
        return self.diagram.worlds(self.variables, columns, k)

    def formula(self) -> tuple[Formula, Formula]:
        return self.diagram.formula(), TRUE

    def renamed(self, variables: Sequence[Variable], position: Sequence[int], name: str) -> "Chain | Compiled":
        """Over `variables`, of which the i-th of ours is number position[i]; compiled where two of ours are one."""
        new = {v: variables[i] for v, i in zip(self.variables, position, strict=True)}
        if len(variables) < len(self.variables):
            holds = substituted(self.diagram.formula(), {v.name: other for v, other in new.items()})
            return Compiled(variables, holds, TRUE, Budget(*self.limits), name)
        choices = tuple(new[v] for v in self._as_read)
        return Chain(variables, Diagram(choices, self.diagram.nodes, self.diagram.roots))

    def joined(self, other: "Chain", variables: Sequence[Variable], name: str) -> "Chain | None":
        """Both rules as one chain; None where they read variables that they share in different orders."""
        order = _merged(self._as_read, other._as_read)
        if order is None:
            return None
        budget = Budget(*self.limits)
        budget.doing = f"joining {name}"
        diagram = _both(self.diagram, other.diagram, order, budget)
        if diagram.roots[0] == DEAD:
            raise UsageError(f"{name} allow no values in common: no labels could ever satisfy both")
        return Chain(variables, diagram)

    @property
    def _as_read(self) -> list[Variable]:
        return [v for v in self.diagram.choices if isinstance(v, Variable)]


def chained(
    steps: Sequence[Step],
    variables: Sequence[Sequence[Variable]],
    start: Hashable,
    accept: Collection[Hashable] | None,
    name: str,
) -> Chain:
    """A step for every position, with the variables that it reads."""
    tabulated = _Tabulation(name)
    follows: Follows = []
    states: Sequence[Hashable] = [start]
    n_nodes = 0
    for position, (step, read) in enumerate(zip(steps, variables, strict=True)):
        found, states = tabulated(step, read, tuple(states), position)
        follows += found
        n_nodes += sum(map(len, found))
        if not states:
            raise UsageError(f"{name} {NEVER}: its step is None for all values at position {position}")
        if n_nodes > MAX_NODES:
            raise UsageError(
                f"{name} has {n_nodes} nodes up to position {position} and {len(states)} states there, about"
                f" {n_nodes * len(steps) // (position + 1):.1g} in all, more than {MAX_NODES}: carry fewer states"
                " along, such as a remainder rather than a whole number"
            )
    every = [v for read in variables for v in read]
    accepted = [i for i, state in enumerate(states) if accept is None or state in accept]
    diagram = from_steps(every, follows, 0, accepted)
    if diagram.roots[0] == DEAD:
        ends = ", ".join(map(repr, states[:5])) + ", …" * (len(states) > 5)
        raise UsageError(f"{name} {NEVER}; `accept` has none of the states that it ends in, {ends}")
    return Chain(every, diagram)


class _Tabulation:
    """What steps do for all states and values, each asked once."""

    def __init__(self, name: str):
        self.name = name
        self.calls = 0
        self.states_after: dict[Any, list[Hashable]] = {}
        self.positions: dict[Any, tuple[Follows, list[Hashable]]] = {}

    def __call__(
        self, step: Step, read: Sequence[Variable], states: tuple[Hashable, ...], position: int
    ) -> tuple[Follows, list[Hashable]]:
        """What follows at a position, first on the number of a state, and the states that it leads to."""
        key = (step, tuple(v.values for v in read), states)
        if key not in self.positions:
            after = [self._after(step, read, state, position) for state in states]
            reached = dict.fromkeys(s for row in after for s in row if s is not None)
            number = {state: i for i, state in enumerate(reached)}
            table = np.array([[number.get(s, DEAD) for s in row] for row in after])
            self.positions[key] = _by_variable(table, [v.size for v in read]), list(reached)
        return self.positions[key]

    def _after(self, step: Step, read: Sequence[Variable], state: Hashable, position: int) -> list[Hashable]:
        """The state after every tuple of values."""
        key = (step, tuple(v.values for v in read), state)
        if key in self.states_after:
            return self.states_after[key]
        n_tuples = prod(v.size for v in read)
        self.calls += n_tuples
        if self.calls > MAX_CALLS:
            raise UsageError(
                f"{self.name} would ask its step more than {MAX_CALLS:.3g} times: there are at least"
                f" {len(self.states_after) + 1} states up to position {position}, each with {n_tuples} tuples of"
                " values there; carry fewer states along, or read fewer variables at a position"
            )
        found = [self._next(step, state, values, position) for values in product(*(v.values for v in read))]
        self.states_after[key] = found
        return found

    def _next(self, step: Step, state: Hashable, values: tuple[Hashable, ...], position: int) -> Hashable:
        try:
            after: Hashable = step(state, *values)
            hash(after)
        except Exception as error:
            where = self._where(state, values, position)
            raise UsageError(f"{where}, fails: {type(error).__name__}: {error}") from error
        if isinstance(after, bool) and isinstance(state, int) and not isinstance(state, bool):
            raise UsageError(
                f"{self._where(state, values, position)}, gives {after}, which Python takes for the state"
                f" {int(after)}: give None where the rule is broken, and a state otherwise"
            )
        return after

    def _where(self, state: Hashable, values: tuple[Hashable, ...], position: int) -> str:
        return f"{self.name}, at position {position} in state {state!r} for {', '.join(map(repr, values))}"


def _by_variable(table: Int64[np.ndarray, "s t"], sizes: Sequence[int]) -> Follows:
    """From states and tuples of values to states, as one mapping for every variable that share equal ends."""
    layers: list[Int64[np.ndarray, "w d"]] = []
    for size in reversed(sizes[1:]):
        ends, place = np.unique(table.reshape(-1, size), axis=0, return_inverse=True)
        layers.append(ends)
        table = place.reshape(len(table), -1)
    return [dict(enumerate(layer.tolist())) for layer in (table, *reversed(layers))]


def positions_over(
    steps: Sequence[Step],
    domains: Sequence[SupportsIndex | Domains],
    names: Sequence[str | Sequence[str]] | None,
) -> list[tuple[Variable, ...]]:
    """The variables of every position, named after parameters of its step and its number unless names are given."""
    if len(steps) != len(domains) or not len(domains):
        raise UsageError(
            f"domains has {len(domains)} positions for {len(steps)} steps: give the domains of the variables that"
            " each step reads, and at least one"
        )
    read = [(d,) if isinstance(d, SupportsIndex) else tuple(d) for d in domains]
    for position, there in enumerate(read):
        if any(isinstance(d, str | bool) for d in there):
            raise UsageError(
                f"position {position} has the domains {there}: give one for each variable that it reads, such as"
                f" ({there},) for a single one"
            )
    if not all(read):
        raise UsageError(f"position {read.index(())} has no variables: give a domain for each that is read there")
    if names is None:
        called = [_parameters(step, len(d), i) for i, (step, d) in enumerate(zip(steps, read, strict=True))]
    else:
        called = [(n,) if isinstance(n, str) else tuple(n) for n in names]
        if [len(n) for n in called] != [len(d) for d in read]:
            raise UsageError("names must be shaped like domains: one for every variable of every position")
    made = iter(variables_over([x for d in read for x in d], lambda _: [x for n in called for x in n]))
    return [tuple(next(made) for _ in d) for d in read]


def _parameters(step: Step, n: int, position: int) -> tuple[str, ...]:
    """What a step calls the n values that it reads at a position."""
    unnamed = tuple(f"x{position}_{i}" for i in range(n))
    try:
        parameters = list(inspect.signature(step).parameters.values())
    except (TypeError, ValueError):
        return unnamed
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        return unnamed
    if len(parameters) != n + 1:
        raise UsageError(
            f"position {position} has {n} variables, so its step needs {n + 1} parameters, the state first: it has"
            f" {len(parameters)}"
        )
    return tuple(f"{p.name}{position}" for p in parameters[1:])


def _merged(ours: Sequence[Variable], theirs: Sequence[Variable]) -> list[Variable] | None:
    """An order that keeps both; None where there is none."""
    shared = set(ours) & set(theirs)
    if [v for v in ours if v in shared] != [v for v in theirs if v in shared]:
        return None
    merged: list[Variable] = []
    rest = iter(theirs)
    for v in ours:
        if v in shared:
            merged.extend(iter(rest.__next__, v))
        merged.append(v)
    return [*merged, *rest]


def _both(a: Diagram, b: Diagram, order: Sequence[Variable], budget: Budget) -> Diagram:
    """What the first roots of both accept. A pair of nodes reads what either reads; the other one waits."""
    start = (a.roots[0], b.roots[0])
    reached = {start: None}
    follows: Follows = []
    n_nodes = 0
    for choice in order:
        n_nodes += len(reached)
        budget.check(n_nodes)
        rows = {pair: _pairs(_after(a, pair[0], choice), _after(b, pair[1], choice)) for pair in reached}
        reached = dict.fromkeys(pair for row in rows.values() for pair in row if pair is not None)
        follows.append(rows)
    return from_steps(order, follows, start, [(END, END)])


def _after(diagram: Diagram, number: int, choice: Choice) -> list[int]:
    """The node after every value of a choice: the same one if it is for a later choice."""
    node = diagram.nodes[number]
    if number == END or diagram.choices[node.at] != choice:
        return [number] * choice.size
    found = [DEAD] * choice.size
    for values, after in node.branches:
        for value in values:
            found[value] = after
    return found


def _pairs(a: Sequence[int], b: Sequence[int]) -> list[tuple[int, int] | None]:
    return [None if DEAD in pair else pair for pair in zip(a, b, strict=True)]
