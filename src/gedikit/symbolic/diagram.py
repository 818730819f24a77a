"""Decision diagrams that take one choice after the other, and circuits from them.

A node says what follows for every value of its choice. So a diagram is an automaton that reads the choices in
order, and its node is all that needs to be known of those that were read. Evaluated from the end, a circuit has a
level of sums for every choice. Where few nodes lie between two choices, the diagram is cut there, and the parts are
evaluated side by side: each is a small matrix with an entry for every way to enter and to leave it, and matrices
are multiplied in pairs, the pairs in pairs (Ladner and Fischer, 1980), so that depth is the logarithm of length.
"""

import heapq
from bisect import bisect_right
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import exp, inf, log
from typing import Any

from jaxtyping import Float
from torch import Tensor

from gedikit.symbolic.circuit import Circuit, CircuitBuilder
from gedikit.symbolic.formula import FALSE, TRUE, All, Choice, Fact, Formula, Is, Some
from gedikit.symbolic.table import Worlds
from gedikit.symbolic.variables import Variable

DEAD, END = -1, 0  # in place of nodes: nothing is accepted, and everything that is left
LEVEL_COST = 250  # products that take as long as one more level, with 64 rows on one core
MAX_WAYS = 16  # of cutting a diagram that are compared


@dataclass(frozen=True)
class Node:
    """Which node follows on sets of values of choice number `at`; values in none of them are not accepted."""

    at: int
    branches: tuple[tuple[tuple[int, ...], int], ...]


@dataclass(frozen=True, eq=False)
class Diagram:
    """Nodes, each after those that follow on it, and which of them stand for the results.

    A node may be followed by one that is not of the next choice: facts that do not matter are left out, variables
    never are. So gradients with respect to log p are marginals without smoothing.
    """

    choices: tuple[Choice, ...]
    nodes: tuple[Node, ...]
    roots: tuple[int, ...]

    def circuit(self, variables: Sequence[Variable]) -> Circuit:
        """The log-probability of every root, over the values of `variables`."""
        entries = _Entries(self, variables)
        zero, of_roots = entries.builder.ZERO, entries.of_all()
        return entries.builder.circuit([zero if r == DEAD else of_roots[r][END] for r in self.roots])

    def formula(self) -> Formula:
        """That the first root accepts, as decisions that share equal ends."""
        if self.roots[0] == DEAD:
            return FALSE
        value_is = [[Is(choice, v) for v in range(choice.size)] for choice in self.choices]
        found: list[Formula] = [TRUE]
        for node in self.nodes[1:]:
            options = [
                All((Some(tuple(value_is[node.at][v] for v in values)), found[after]))
                for values, after in node.branches
            ]
            found.append(Some(tuple(options)))
        return found[self.roots[0]]

    def worlds(self, variables: Sequence[Variable], columns: Float[Tensor, " i"], k: int) -> Worlds:
        """The k most probable values of the variables that the first root accepts; only without facts.

        They are found from the k best ends of every node (Viterbi, 1967).
        """
        log_p = columns.tolist()
        starts = accumulate((v.size for v in variables), initial=0)
        first: dict[Choice, int] = dict(zip(variables, starts, strict=False))
        ends: list[list[tuple[float, int, int, int]]] = [[(0.0, 0, 0, 0)]]  # log-weight, value, node and its rank
        for node in self.nodes[1:]:
            column = first[self.choices[node.at]]
            options = (
                (log_p[column + v] + end[0], v, after, rank)
                for values, after in node.branches
                for v in values
                for rank, end in enumerate(ends[after])
                if log_p[column + v] > -inf
            )
            ends.append(heapq.nlargest(k, options, key=lambda option: option[0]))
        return [self._world(variables, ends, rank) for rank in range(len(ends[self.roots[0]]))]

    def _world(
        self, variables: Sequence[Variable], ends: list[list[tuple[float, int, int, int]]], rank: int
    ) -> tuple[tuple[int, ...], float]:
        node, values = self.roots[0], {}
        weight = ends[node][rank][0]
        while node != END:
            choice = self.choices[self.nodes[node].at]
            _, values[choice], node, rank = ends[node][rank]
        return tuple(values[v] for v in variables), weight


class DiagramBuilder:
    """Collects nodes from the last choice to the first, one for all that accept the same."""

    def __init__(self, choices: Sequence[Choice]):
        self.choices = tuple(choices)
        self._nodes = {Node(len(self.choices), ()): END}

    def __len__(self) -> int:
        return len(self._nodes)

    def node(self, at: int, follows: Sequence[int]) -> int:
        """What follows on each value of choice number `at`, DEAD for those that are not accepted."""
        values: dict[int, list[int]] = {}
        for value, after in enumerate(follows):
            if after != DEAD:
                values.setdefault(after, []).append(value)
        if not values:
            return DEAD
        node = Node(at, tuple((tuple(members), after) for after, members in values.items()))
        return self._nodes.setdefault(node, len(self._nodes))

    def diagram(self, roots: Sequence[int]) -> Diagram:
        return Diagram(self.choices, tuple(self._nodes), tuple(roots))


def from_steps(
    choices: Sequence[Choice],
    steps: Sequence[Mapping[Any, Sequence[Hashable]]],
    start: Hashable,
    accepted: Collection[Hashable],
) -> Diagram:
    """For every choice what follows on each value, by what went before; what is in no mapping is not accepted."""
    builder = DiagramBuilder(choices)
    nodes = dict.fromkeys(accepted, END)
    for at in reversed(range(len(choices))):
        nodes = {
            before: builder.node(at, [nodes.get(after, DEAD) for after in follows])
            for before, follows in steps[at].items()
        }
    return builder.diagram([nodes[start]])


class _Entries:
    """The rows of a circuit, made from parts of a diagram.

    A part is a matrix: for each node that it is entered at a row of the circuit, by the node that it is left for.
    """

    def __init__(self, diagram: Diagram, variables: Sequence[Variable]):
        starts = accumulate((v.size for v in variables), initial=0)
        self.first_column = dict(zip(variables, starts, strict=False))
        self.builder = CircuitBuilder(sum(v.size for v in variables))
        self.diagram, self.nodes = diagram, diagram.nodes

    def of_all(self) -> dict[int, dict[int, int]]:
        """Of the whole diagram: a row for every root."""
        shape = _Shape(self.diagram)
        cuts = _cuts(shape)
        parts = [
            _Part(self._part(nodes, entered, cut), any(map(self._is_fact, range(before, cut))))
            for nodes, entered, (before, cut) in zip(
                shape.inside(cuts), shape.frontiers(cuts), pairwise(cuts), strict=True
            )
        ]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            parts = [self._product(a, b) for a, b in pairs] + parts[len(parts) // 2 * 2 :]
        return parts[0].entries

    def _part(self, nodes: Sequence[int], entered: Sequence[int], cut: int) -> dict[int, dict[int, int]]:
        found: dict[int, dict[int, int]] = {}
        for number in nodes:
            node = self.nodes[number]
            choice = self.diagram.choices[node.at]
            products: dict[int, list[tuple[int, int]]] = {}
            for values, after in node.branches:
                chosen = self._one_of(choice, values)
                behind = {after: self.builder.ONE} if self.nodes[after].at >= cut else found[after]
                for end, row in behind.items():
                    products.setdefault(end, []).append((chosen, row))
            decided = not self._is_fact(node.at)
            found[number] = {end: self.builder.sum(p, decided) for end, p in products.items()}
        return {n: found.get(n, {n: self.builder.ONE}) for n in entered}

    def _product(self, left: "_Part", right: "_Part") -> "_Part":
        """What was read on the left decides which node lies between, unless facts do."""
        entries: dict[int, dict[int, int]] = {}
        for start, row in left.entries.items():
            products: dict[int, list[tuple[int, int]]] = {}
            for middle, before in row.items():
                for end, after in right.entries[middle].items():
                    products.setdefault(end, []).append((before, after))
            entries[start] = {end: self.builder.sum(p, not left.has_facts) for end, p in products.items()}
        return _Part(entries, left.has_facts or right.has_facts)

    def _is_fact(self, at: int) -> bool:
        return isinstance(self.diagram.choices[at], Fact)

    def _one_of(self, choice: Choice, values: tuple[int, ...]) -> int:
        """That the choice has one of these values."""
        if isinstance(choice, Fact):
            weight = 1.0 if len(values) == choice.size else sum(exp(choice.log_p[v]) for v in values)
            return self.builder.constant(log(weight) if weight else -inf)
        first = self.first_column[choice]
        return self.builder.sum([(first + v, self.builder.ONE) for v in values], decided=True)


@dataclass(frozen=True)
class _Part:
    entries: dict[int, dict[int, int]]
    has_facts: bool


class _Shape:
    """How many nodes and branches there are where. A cut before choice i has the nodes of i and later choices that
    earlier ones lead to, or that are results."""

    def __init__(self, diagram: Diagram):
        self.length = len(diagram.choices)
        self.nodes = diagram.nodes
        self.entered = {r: -1 for r in diagram.roots if r != DEAD}  # the first choice that leads to a node
        for number in reversed(range(len(self.nodes))):
            at = self.nodes[number].at
            for _, after in self.nodes[number].branches:
                self.entered[after] = min(self.entered.get(after, at), at)

    def widths(self) -> list[int]:
        """Of all cuts, that behind the last choice too."""
        change = [0] * (self.length + 2)
        for number, entered in self.entered.items():
            change[entered + 1] += 1
            change[self.nodes[number].at + 1] -= 1
        return list(accumulate(change))[:-1]

    def n_branches(self) -> list[int]:
        """Of the nodes of every choice."""
        found = [0] * (self.length + 1)
        for node in self.nodes:
            found[node.at] += len(node.branches)
        return found[:-1]

    def frontiers(self, cuts: Sequence[int]) -> list[list[int]]:
        """The nodes at every cut but the last."""
        found: list[list[int]] = [[] for _ in cuts]
        for number, entered in self.entered.items():
            for i in range(bisect_right(cuts, entered), bisect_right(cuts, self.nodes[number].at)):
                found[i].append(number)
        return found[:-1]

    def inside(self, cuts: Sequence[int]) -> list[list[int]]:
        """The nodes between every cut and the next, each after those that follow on it."""
        found: list[list[int]] = [[] for _ in cuts]
        for number in sorted(self.entered):
            found[bisect_right(cuts, self.nodes[number].at) - 1].append(number)
        return found[:-1]


def _cuts(shape: _Shape) -> list[int]:
    """Where to cut a diagram into parts that are evaluated side by side: the cheapest way among a few.

    Each of these cuts wherever there are at most so many nodes. Wide cuts are dear, because a product of matrices
    takes the cube of their width; no cut at all takes a level for every choice.
    """
    widths, n_branches = shape.widths(), shape.n_branches()
    ways = [
        [0, *(i for i in range(1, shape.length) if widths[i] <= widest), shape.length]
        for widest in sorted({0, *widths})[:MAX_WAYS]
    ]
    return min(ways, key=lambda cuts: _cost(cuts, widths, n_branches))


def _cost(cuts: Sequence[int], widths: Sequence[int], n_branches: Sequence[int]) -> float:
    """Products of the circuit and levels, these as so many products as take as long."""
    products = sum(sum(n_branches[a : b - 1]) * widths[b] + sum(n_branches[b - 1 : b]) for a, b in pairwise(cuts))
    levels = max(b - a for a, b in pairwise(cuts))
    ends = [widths[i] for i in cuts]
    while len(ends) > 2:
        products += sum(ends[i] * ends[i + 1] * ends[i + 2] for i in range(0, len(ends) - 2, 2))
        levels += 1
        ends = ends[::2] + ends[-1:] * (len(ends) % 2 == 0)
    return products + LEVEL_COST * levels
