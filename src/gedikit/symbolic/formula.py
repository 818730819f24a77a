"""Propositional formulas over choices: what a program is grounded to and circuits are compiled from."""

from collections.abc import Iterator
from dataclasses import dataclass

from gedikit.symbolic.variables import Variable


@dataclass(frozen=True, eq=False)
class Fact:
    """A choice with fixed probabilities, the same in every example; each is independent of all others."""

    name: str
    log_p: tuple[float, ...]

    @property
    def size(self) -> int:
        return len(self.log_p)


Choice = Variable | Fact


@dataclass(frozen=True, eq=False)
class Is:
    """A choice has this value, given by its position."""

    choice: Choice
    value: int


@dataclass(frozen=True, eq=False)
class All:
    parts: "tuple[Formula, ...]"


@dataclass(frozen=True, eq=False)
class Some:
    parts: "tuple[Formula, ...]"


@dataclass(frozen=True, eq=False)
class Not:
    part: "Formula"


Formula = Is | All | Some | Not

TRUE, FALSE = All(()), Some(())
NEVER = "is false whatever the values of its variables: no labels could ever satisfy it"


def children(formula: Formula) -> tuple[Formula, ...]:
    match formula:
        case Is():
            return ()
        case Not(part):
            return (part,)
        case All(parts) | Some(parts):
            return parts


def leaves(formula: Formula) -> Iterator[Is]:
    """The choices in the order in which a proof meets them."""
    seen, stack = set(), [formula]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Is):
            yield node
        stack.extend(reversed(children(node)))


def substituted(formula: Formula, names: dict[str, Variable]) -> Formula:
    """The formula with variables put in place of others: two that become one have the same value."""
    done: dict[int, Formula] = {}
    for node in bottom_up(formula):
        match node:
            case Is(Variable() as choice, value):
                new: Formula = Is(names.get(choice.name, choice), value)
            case Is():
                new = node
            case Not(part):
                new = Not(done[id(part)])
            case All(parts):
                new = All(tuple(done[id(p)] for p in parts))
            case Some(parts):
                new = Some(tuple(done[id(p)] for p in parts))
        done[id(node)] = new
    return done[id(formula)]


def bottom_up(formula: Formula) -> Iterator[Formula]:
    """Every formula after its parts, each once; without recursion, for programs that recur deeply."""
    done: set[int] = set()
    stack = [(formula, False)]
    while stack:
        node, expanded = stack.pop()
        if id(node) in done:
            continue
        if expanded:
            done.add(id(node))
            yield node
        else:
            stack.append((node, True))
            stack.extend((c, False) for c in reversed(children(node)))
