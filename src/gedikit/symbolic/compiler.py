"""From a formula to a diagram of choices, by way of a sentential decision diagram (Darwiche, 2011).

A choice among k values is k Booleans of which exactly one holds, and all of them lie together in the vtree. So a
diagram decides one choice after the other, in the order in which a proof meets them, and whatever it says about a
single choice is a set of values, however many Booleans it took. Every model gives every variable exactly one value,
so none is left out.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from math import log, prod
from pathlib import Path
from typing import Any

from gedikit.symbolic.budget import Budget, needs
from gedikit.symbolic.diagram import DEAD, END, Diagram, DiagramBuilder
from gedikit.symbolic.formula import All, Choice, Fact, Formula, Is, Not, Some, children, leaves

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


def compiled(roots: Sequence[Formula], budget: Budget) -> Diagram:
    """A diagram with a root for every formula."""
    return budget.spend_on(lambda: _by_choice(*sentential(roots, budget)))


def sentential(roots: Sequence[Formula], budget: Budget) -> tuple[list[Booleans], list[Node]]:
    """The choices of the formulas as Booleans, in the order of the vtree, and a diagram of every formula."""
    sdd = needs("pysdd.sdd", "pysdd")
    groups = _groups(roots)
    manager = sdd.SddManager.from_vtree(_vtree(sdd, groups))
    made = _Diagrams(manager, groups, roots, budget)
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

    def __init__(self, manager: Any, groups: list[Booleans], roots: Sequence[Formula], budget: Budget):
        self.manager, self.budget = manager, budget
        self.cells = {g.choice: (g, g.diagrams(manager)) for g in groups}
        self.roots, self.n_done = roots, 0
        budget.outlook = self._outlook

    def of(self, root: Formula) -> Node:
        done: dict[tuple[int, bool], Node] = {}
        for formula, positive in _signed(root):
            key, sign = (id(formula), positive), positive != isinstance(formula, Not)
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
        found = self.manager.true()
        for part in reversed(parts):
            found = self._step(self.manager.conjoin, part, found)
        return found

    def disjunction(self, parts: list[Node]) -> Node:
        """In pairs, so that no operand grows large before its time."""
        parts = parts or [self.manager.false()]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            parts = [self._step(self.manager.disjoin, a, b) for a, b in pairs] + parts[len(parts) // 2 * 2 :]
        return parts[0]

    def _step(self, operation: Callable[[Node, Node], Node], a: Node, b: Node) -> Node:
        self.budget.check(self.manager.size())
        self.n_done += 1
        return operation(a, b)

    def _outlook(self) -> str:
        """How large the diagrams would at least become if they went on to grow like this, and at most."""
        total = sum(self._n_operations(f, positive) for root in self.roots for f, positive in _signed(root))
        share = min(1.0, (self.n_done + 1) / (total + 1))
        choices = list(self.cells)
        at_once = _remembered(choices, self.roots)
        names = ", ".join(c.name for c in at_once[:4]) + ", …" * (len(at_once) > 4)
        return (
            f"; {share:.0%} of its steps were done, so that there would be {self.manager.size() / share:.1g} nodes"
            f" or more, at most {len(choices) * prod(float(c.size) for c in at_once):.1g}, because up to"
            f" {len(at_once)} values have to be remembered at once ({names})"
        )

    def _n_operations(self, formula: Formula, positive: bool) -> int:
        """Of diagrams, for a formula with parts that have theirs."""
        if isinstance(formula, Is):
            return 0 if positive else len(self.cells[formula.choice][1]) - 2
        return len(children(formula)) * (not isinstance(formula, Not))


def _signed(root: Formula) -> Iterator[tuple[Formula, bool]]:
    """Every formula after its parts, each once as it is and once negated where both are needed."""
    done: set[tuple[int, bool]] = set()
    stack = [(root, True, False)]
    while stack:
        formula, positive, expanded = stack.pop()
        key = (id(formula), positive)
        if key in done:
            continue
        if expanded:
            done.add(key)
            yield formula, positive
        else:
            sign = positive != isinstance(formula, Not)
            stack.append((formula, positive, True))
            stack.extend((c, sign, False) for c in children(formula))


@dataclass(frozen=True)
class _Set:
    """What a diagram says about a single choice: its value is among these; `none`: or not among this part's."""

    group: Booleans
    values: Cell
    none: bool


def _remembered(choices: Sequence[Choice], roots: Sequence[Formula]) -> list[Choice]:
    """The choices that a node may depend on, where these have most values.

    Between two choices, of those before all that occur in a part of a conjunction together with one behind.
    """
    at = {choice: i for i, choice in enumerate(choices)}
    is_open: list[set[int]] = [set() for _ in choices]
    for part in _conjuncts(roots):
        places = sorted({at[leaf.choice] for leaf in leaves(part)})
        for place in places:
            for cut in range(place, places[-1]):
                is_open[cut].add(place)
    widest = max(is_open, key=lambda places: sum(log(choices[i].size) for i in places))
    return [choices[i] for i in sorted(widest)]


def _conjuncts(roots: Sequence[Formula]) -> list[Formula]:
    found: list[Formula] = []
    stack, seen = list(roots), set()
    while stack:
        formula = stack.pop()
        if id(formula) in seen:
            continue
        seen.add(id(formula))
        if isinstance(formula, All):
            stack.extend(formula.parts)
        else:
            found.append(formula)
    return found


def _by_choice(groups: list[Booleans], roots: list[Node]) -> Diagram:
    """Decisions among values in place of those among Booleans."""
    builder = DiagramBuilder([g.choice for g in groups])
    at = {group: number for number, group in enumerate(groups)}
    sets = {literal: s for group in groups for literal, s in _literals(group).items()}
    done: dict[int, _Set | int] = {}  # a set of values of one choice, or a node of the diagram

    def node_of(meaning: _Set | int) -> int:
        return meaning if isinstance(meaning, int) else decision([(meaning, END)])

    def decision(options: list[tuple[_Set, int]]) -> int:
        group = options[0][0].group
        follows = [DEAD] * group.choice.size
        for allowed, after in options:
            for value in allowed.values:
                follows[value] = after
        return builder.node(at[group], follows)

    stack = [(root, False) for root in roots]
    while stack:
        node, expanded = stack.pop()
        if node.id in done:
            continue
        if not node.is_decision():
            done[node.id] = sets[node.literal] if node.is_literal() else END if node.is_true() else DEAD
            continue
        pairs = [(p, s) for p, s in node.elements() if not s.is_false()]
        if not expanded:
            stack.append((node, True))
            stack.extend((n, False) for pair in pairs for n in pair)
            continue
        parts = [(done[p.id], done[s.id]) for p, s in pairs]
        done[node.id] = _one_choice(parts) or decision(
            [(prime, node_of(sub)) for prime, sub in parts if isinstance(prime, _Set)]
        )
    return builder.diagram([node_of(done[root.id]) for root in roots])


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
