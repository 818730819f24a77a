"""From a formula to a circuit, by way of a sentential decision diagram (Darwiche, 2011).

A choice among k values is k Booleans of which exactly one holds, and all of them lie together in the vtree. So a
diagram decides one choice after the other, in the order in which a proof meets them, and whatever it says about a
single choice is a set of values: that is one row of the circuit, however many Booleans it took.
Every model gives every variable exactly one value, so no variable is left out of a product: gradients with
respect to log p are marginals without smoothing.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from math import exp, inf, log
from pathlib import Path
from typing import Any

from gedikit.symbolic.budget import Budget, needs
from gedikit.symbolic.circuit import Circuit, CircuitBuilder
from gedikit.symbolic.formula import All, Choice, Fact, Formula, Is, Not, Some, children, leaves
from gedikit.symbolic.variables import Variable

Node = Any  # pysdd has no types
Cell = frozenset[int]


class Booleans:
    """The Booleans of one choice: one for each value that the formulas tell apart, and one for all others.

    A fact between two alternatives is a single Boolean, whose two probabilities add up to one if it is left out.
    """

    def __init__(self, choice: Choice, mentioned: set[int], first: int):
        others = frozenset(range(choice.size)) - mentioned
        self.choice = choice
        self.cells: list[Cell] = [frozenset({v}) for v in sorted(mentioned)] + ([others] if others else [])
        self.single = isinstance(choice, Fact) and len(self.cells) == 2
        self.literals = [first, -first] if self.single else [first + i for i in range(len(self.cells))]
        self.n = 1 if self.single else len(self.cells)

    def diagrams(self, manager: Any) -> list[Node]:
        """The diagram of each cell: that it is chosen and no other."""
        if self.single:
            return [manager.literal(x) for x in self.literals]
        signed = [[x if x == chosen else -x for x in self.literals] for chosen in self.literals]
        return [reduce(manager.conjoin, map(manager.literal, reversed(s))) for s in signed]


def compiled(roots: Sequence[Formula], variables: Sequence[Variable], budget: Budget) -> Circuit:
    """A circuit of the log-probability of every formula, over the values of `variables`."""

    def circuit() -> Circuit:
        groups, nodes = diagrams(roots, budget)
        return _Rows(groups, variables).circuit(nodes)

    return budget.spend_on(circuit)


def diagrams(roots: Sequence[Formula], budget: Budget) -> tuple[list[Booleans], list[Node]]:
    """The choices of the formulas as Booleans, in the order of the vtree, and a diagram of every formula."""
    sdd = needs("pysdd.sdd", "pysdd")
    groups = _groups(roots)
    manager = sdd.SddManager.from_vtree(_vtree(sdd, groups))
    made = _Diagrams(manager, groups, budget)
    # a choice that a formula leaves open still has exactly one value
    valid = made.conjunction([made.one_of(g) for g in groups if not g.single])
    return groups, [made.conjunction([made.of(root), valid]) for root in roots]


def _groups(roots: Sequence[Formula]) -> list[Booleans]:
    mentioned: dict[Choice, set[int]] = {}
    for leaf in leaves(All(tuple(roots))):
        mentioned.setdefault(leaf.choice, set()).add(leaf.value)
    groups: list[Booleans] = []
    first = 1
    for choice, values in mentioned.items():
        groups.append(Booleans(choice, values, first))
        first += groups[-1].n
    return groups


def _vtree(sdd: Any, groups: list[Booleans]) -> Any:
    """A right-linear vtree whose left branches are the choices, right-linear themselves."""
    lines: list[str] = []

    def leaf(boolean: int) -> int:
        lines.append(f"L {len(lines)} {boolean}")
        return len(lines) - 1

    def joined(right: int, left: int) -> int:
        lines.append(f"I {len(lines)} {left} {right}")
        return len(lines) - 1

    def branch(group: Booleans) -> int:
        first = abs(group.literals[0])
        return reduce(joined, [leaf(b) for b in reversed(range(first, first + group.n))])

    reduce(joined, [branch(g) for g in reversed(groups)])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "vtree")
        path.write_text("\n".join([f"vtree {len(lines)}", *lines, ""]))
        return sdd.Vtree.from_file(str(path))


class _Diagrams:
    """Diagrams of formulas; negation is pushed to the choices, so that exactly one value holds throughout."""

    def __init__(self, manager: Any, groups: list[Booleans], budget: Budget):
        self.manager, self.budget = manager, budget
        self.cells = {g.choice: (g, g.diagrams(manager)) for g in groups}

    def of(self, root: Formula) -> Node:
        done: dict[tuple[int, bool], Node] = {}
        stack = [(root, True, False)]
        while stack:
            formula, positive, expanded = stack.pop()
            key = (id(formula), positive)
            if key in done:
                continue
            sign = positive != isinstance(formula, Not)
            if not expanded:
                stack.append((formula, positive, True))
                stack.extend((c, sign, False) for c in children(formula))
                continue
            parts = [done[id(c), sign] for c in children(formula)]
            match formula:
                case Is(choice, value):
                    done[key] = self.value(choice, value, positive)
                case Not():
                    done[key] = parts[0]
                case All() | Some():
                    conjoined = isinstance(formula, All) == positive
                    done[key] = self.conjunction(parts) if conjoined else self.disjunction(parts)
        return done[id(root), True]

    def value(self, choice: Choice, value: int, positive: bool) -> Node:
        group, diagrams = self.cells[choice]
        return self.disjunction([d for c, d in zip(group.cells, diagrams, strict=True) if (value in c) == positive])

    def one_of(self, group: Booleans) -> Node:
        return self.disjunction(self.cells[group.choice][1])

    def conjunction(self, parts: list[Node]) -> Node:
        # from the right: what a proof met last lies deepest
        return reduce(self._with(self.manager.conjoin), reversed(parts), self.manager.true())

    def disjunction(self, parts: list[Node]) -> Node:
        """In pairs, so that no operand grows large before its time."""
        parts = parts or [self.manager.false()]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            parts = [self._with(self.manager.disjoin)(a, b) for a, b in pairs] + parts[len(parts) // 2 * 2 :]
        return parts[0]

    def _with(self, operation: Callable[[Node, Node], Node]) -> Callable[[Node, Node], Node]:
        def guarded(a: Node, b: Node) -> Node:
            self.budget.check(self.manager.size())
            return operation(a, b)

        return guarded


@dataclass(frozen=True)
class _Set:
    """What a diagram says about a single choice: its value is among these; `none`: or not among this part's."""

    group: Booleans
    values: Cell
    none: bool


class _Rows:
    """The rows of a circuit, made from the nodes of diagrams."""

    def __init__(self, groups: list[Booleans], variables: Sequence[Variable]):
        starts = accumulate((v.size for v in variables), initial=0)
        self.first_column = dict(zip(variables, starts, strict=False))
        self.builder = CircuitBuilder(sum(v.size for v in variables))
        self.sets = {literal: s for g in groups for literal, s in _literals(g).items()}
        self.facts_in: dict[int, bool] = {}
        self.done: dict[int, _Set | int] = {}

    def circuit(self, roots: list[Node]) -> Circuit:
        for root in roots:
            self._translate(root)
        return self.builder.circuit([self._row(root) for root in roots])

    def _translate(self, root: Node) -> None:
        stack = [(root, False)]
        while stack:
            node, expanded = stack.pop()
            if node.id in self.done:
                continue
            if not node.is_decision():
                self._leaf(node)
                continue
            pairs = [(p, s) for p, s in node.elements() if not s.is_false()]
            if expanded:
                self._decision(node, pairs)
            else:
                stack.append((node, True))
                stack.extend((n, False) for pair in pairs for n in pair)

    def _leaf(self, node: Node) -> None:
        if node.is_literal():
            self.done[node.id] = self.sets[node.literal]
            self.facts_in[node.id] = isinstance(self.sets[node.literal].group.choice, Fact)
        else:
            self.done[node.id] = self.builder.ONE if node.is_true() else self.builder.ZERO
            self.facts_in[node.id] = False

    def _decision(self, node: Node, pairs: list[tuple[Node, Node]]) -> None:
        self.facts_in[node.id] = any(self.facts_in[n.id] for pair in pairs for n in pair)
        parts = [(self.done[p.id], self.done[s.id]) for p, s in pairs]
        self.done[node.id] = _one_choice(parts) or self.builder.sum(
            [(self._row(p), self._row(s)) for p, s in pairs],
            decided=not any(self.facts_in[p.id] for p, _ in pairs),
        )

    def _row(self, node: Node) -> int:
        meaning = self.done[node.id]
        if isinstance(meaning, int):
            return meaning
        choice, one = meaning.group.choice, [self.builder.ONE] * meaning.none
        if isinstance(choice, Fact):
            weight = sum(exp(choice.log_p[v]) for v in meaning.values) + meaning.none
            return self.builder.constant(log(weight) if weight else -inf)
        columns = [self.first_column[choice] + v for v in sorted(meaning.values)]
        return self.builder.sum([(row, self.builder.ONE) for row in columns + one], decided=True)


def _literals(group: Booleans) -> dict[int, _Set]:
    chosen = {x: _Set(group, cell, False) for x, cell in zip(group.literals, group.cells, strict=True)}
    return chosen if group.single else chosen | {-x: _Set(group, frozenset(), True) for x in group.literals}


def _one_choice(pairs: Sequence[tuple[_Set | int, _Set | int]]) -> _Set | None:
    """A decision within the Booleans of one choice, as the set of values it leaves."""
    values: set[int] = set()
    none, groups = False, set()
    for prime, sub in pairs:
        if isinstance(prime, int) or isinstance(sub, int):
            return None
        groups |= {prime.group, sub.group}
        values |= (prime.values if sub.none else frozenset()) | (sub.values if prime.none else frozenset())
        none |= prime.none and sub.none
    return _Set(groups.pop(), frozenset(values), none) if len(groups) == 1 else None
