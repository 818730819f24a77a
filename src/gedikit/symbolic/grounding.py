"""Grounding by tables of answers, for programs without cycles.

Every call is proved once, and its answers are kept (Warren, 1992). A term is a number, equal terms the same one, so
that a call with the rest of a long list takes no longer than one with a short list. What is not in this fragment is
left to ProbLog, which grounds every program and takes ten times as long: cycles, evidence, libraries, control
predicates, and calls, answers or negations with variables in places where they would have to be unified.
"""

import operator
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Any

from gedikit.symbolic.budget import Budget, needs
from gedikit.symbolic.formula import FALSE, TRUE, All, Fact, Formula, Is, Not, Some
from gedikit.symbolic.neural import NEURAL, ROUNDING, Declaration, Term, items
from gedikit.symbolic.variables import Variable

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "'<'": operator.lt,
    "'>'": operator.gt,
    "'=<'": operator.le,
    "'>='": operator.ge,
    "'=:='": operator.eq,
    r"'=\='": operator.ne,
}
SAME = {"'='": True, "'=='": True, r"'\='": False, r"'\=='": False}
ANONYMOUS = "_ "  # no program can write this
RESERVED = ("query", "evidence", "_directive")

Predicate = tuple[Hashable, int]
"""Functor and arity."""

Call = tuple[Predicate, tuple[int | None, ...]]
"""A predicate and its arguments; None for those that are asked for."""

Bindings = list[int | None]
"""The term that each variable of a clause stands for."""

Proof = tuple[Bindings, tuple[Formula, ...]]
"""What the goals so far have bound, and what has to hold for them."""

Answers = dict[tuple[int, ...], Formula]


class NotInFragmentError(Exception):
    """The program needs ProbLog."""


@dataclass(frozen=True)
class Slot:
    """A variable of a clause."""

    number: int


@dataclass(frozen=True)
class Compound:
    """A term with variables."""

    functor: Hashable
    arguments: "tuple[Pattern, ...]"


Pattern = int | Slot | Compound
"""A term of a clause; without variables it is a number."""


@dataclass(frozen=True)
class Called:
    predicate: Predicate
    arguments: tuple[Pattern, ...]


@dataclass(frozen=True)
class Assigned:
    """left is right."""

    left: Pattern
    right: Pattern


@dataclass(frozen=True)
class Compared:
    holds: Callable[[Any, Any], bool]
    left: Pattern
    right: Pattern


@dataclass(frozen=True)
class Unified:
    left: Pattern
    right: Pattern
    same: bool
    binds: bool


@dataclass(frozen=True)
class Negated:
    goals: "tuple[Goal, ...]"
    slots: frozenset[int]


@dataclass(frozen=True)
class Either:
    options: "tuple[tuple[Goal, ...], ...]"


Goal = Called | Assigned | Compared | Unified | Negated | Either


@dataclass(frozen=True)
class Alternative:
    """One head of a disjunction: its number, its place, and the inputs of a network or fixed probabilities."""

    disjunction: int
    place: int
    neural: Declaration | None
    inputs: tuple[Pattern, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Rule:
    head: tuple[Pattern, ...]
    goals: tuple[Goal, ...]
    n_slots: int
    alternative: Alternative | None


class Terms:
    """Terms without variables, each once, by number."""

    def __init__(self) -> None:
        self.parts: list[tuple[Hashable, tuple[int, ...]]] = []
        self._numbers: dict[tuple[Hashable, tuple[int, ...]], int] = {}
        self._logic = needs("problog.logic", "problog")

    def number(self, functor: Hashable, arguments: tuple[int, ...] = ()) -> int:
        found = self._numbers.setdefault((functor, arguments), len(self.parts))
        if found == len(self.parts):
            self.parts.append((functor, arguments))
        return found

    def constant(self, value: Hashable) -> int:
        return self.number((type(value), value))  # 1 and 1.0 are two terms

    def pattern(self, term: Term, slots: dict[str, int]) -> Pattern:
        """A term of ProbLog; without recursion, for long lists. Variables that are not in `slots` get the next."""
        stack = [(term, False)]
        done: list[Pattern] = []
        while stack:
            part, expanded = stack.pop()
            if part.is_var():
                name = f"{ANONYMOUS}{len(slots)}" if part.name == "_" else part.name
                done.append(Slot(slots.setdefault(name, len(slots))))
            elif not part.arity:
                done.append(self._atom(part))
            elif not expanded:
                stack.append((part, True))
                stack.extend((argument, False) for argument in reversed(part.args))
            else:
                done[-part.arity :] = [self.joined(part.functor, tuple(done[-part.arity :]))]
        return done[0]

    def joined(self, functor: Hashable, arguments: "tuple[Pattern, ...]") -> Pattern:
        ground = tuple(a for a in arguments if isinstance(a, int))
        return self.number(functor, ground) if len(ground) == len(arguments) else Compound(functor, arguments)

    def term(self, number: int) -> Term:
        """As ProbLog has it."""
        functor, arguments = self.parts[number]
        if isinstance(functor, tuple):
            return self._logic.Constant(functor[1])
        return self._logic.Term(functor, *map(self.term, arguments))

    def _atom(self, term: Term) -> int:
        if term.is_constant():
            return self.constant(term.functor)
        if "'" in term.functor:
            raise NotInFragmentError  # what a quoted name is equal to, ProbLog knows
        return self.number(term.functor)


class _Reader:
    """Clauses of ProbLog as rules."""

    def __init__(self, terms: Terms, declarations: Sequence[Declaration]):
        self.terms, self.declarations = terms, declarations
        self.logic = needs("problog.logic", "problog")
        self.n_clauses = 0

    def rules(self, clause: Term) -> list[tuple[Predicate, Rule]]:
        self.n_clauses += 1
        logic = self.logic
        body = logic.Term("true")
        if isinstance(clause, logic.AnnotatedDisjunction):
            heads, body = clause.heads, clause.body
        elif isinstance(clause, logic.Clause):
            heads, body = [clause.head], clause.body
        else:
            heads = [clause]
        if isinstance(clause, logic.Or) or any(h.functor in RESERVED or "'" in h.functor for h in heads):
            raise NotInFragmentError
        slots: dict[str, int] = {}
        patterns = [tuple(self.terms.pattern(a, slots) for a in h.args) for h in heads]
        goals = self.goals(body, slots)
        alternatives = self._alternatives(heads, slots)
        return [
            ((h.functor, h.arity), Rule(pattern, goals, len(slots), alternative))
            for h, pattern, alternative in zip(heads, patterns, alternatives, strict=True)
        ]

    def _alternatives(self, heads: Sequence[Term], slots: dict[str, int]) -> list[Alternative | None]:
        annotations = [h.probability for h in heads]
        if annotations == [None]:
            return [None]
        if all(a is not None and a.functor == NEURAL for a in annotations):
            number, _, listed = annotations[0].args
            inputs = tuple(self.terms.pattern(i, slots) for i in items(listed))
            declaration = self.declarations[int(number)]
            return [Alternative(self.n_clauses, int(a.args[1]), declaration, inputs, ()) for a in annotations]
        if not all(a is not None and isinstance(a.functor, int | float) for a in annotations):
            raise NotInFragmentError
        shares = [float(a) for a in annotations]
        rest = 1 - sum(shares)
        if min(*shares, 0) < 0 or rest < -ROUNDING:
            raise NotInFragmentError
        shares += [rest] * (rest > ROUNDING)
        return [Alternative(self.n_clauses, i, None, (), tuple(shares)) for i in range(len(heads))]

    def goals(self, body: Term, slots: dict[str, int]) -> tuple[Goal, ...]:
        found: list[Goal] = []
        while isinstance(body, self.logic.And):
            found += self.goal(body.op1, slots)
            body = body.op2
        return (*found, *self.goal(body, slots))

    def goal(self, term: Term, slots: dict[str, int]) -> tuple[Goal, ...]:
        logic = self.logic
        if isinstance(term, logic.And):
            return self.goals(term, slots)
        if isinstance(term, logic.Or):
            return (Either((self.goals(term.op1, slots), self.goals(term.op2, slots))),)
        if isinstance(term, logic.Not) or (term.functor, term.arity) == ("not", 1):
            inner: dict[str, int] = {}
            child = term.args[0]
            self.terms.pattern(child, inner)
            if any(name.startswith(ANONYMOUS) for name in inner):
                raise NotInFragmentError
            goals = self.goals(child, slots)
            return (Negated(goals, frozenset(slots[name] for name in inner)),)
        if term.is_var():
            raise NotInFragmentError
        match term.functor, term.arity:
            case "true", 0:
                return ()
            case "fail" | "false", 0:
                return (Either(()),)
        arguments = tuple(self.terms.pattern(a, slots) for a in term.args)
        if term.arity == 2:
            if term.functor == "'is'":
                return (Assigned(*arguments),)
            if term.functor in COMPARISONS:
                return (Compared(COMPARISONS[term.functor], *arguments),)
            if term.functor in SAME:
                return (Unified(arguments[0], arguments[1], SAME[term.functor], term.functor == "'='"),)
        return (Called((term.functor, term.arity), arguments),)


class Grounder:
    """Answers to calls, each with the formula that has to hold for it."""

    def __init__(self, clauses: Any, declarations: Sequence[Declaration], budget: Budget):
        self.terms, self.budget = Terms(), budget
        self.rules: dict[Predicate, list[Rule]] = {}
        reader = _Reader(self.terms, declarations)
        for clause in clauses:
            for predicate, rule in reader.rules(clause):
                self.rules.setdefault(predicate, []).append(rule)
        self.inputs: dict[Variable, list[str]] = {}
        self._tables: dict[Call, Answers] = {}
        self._by_argument: dict[tuple[Predicate, int], dict[Predicate | None, list[Rule]]] = {}
        self._choices: dict[tuple[int, tuple[int, ...]], Variable | Fact] = {}
        self._values: dict[int, Any] = {}
        self._n_proofs = 0
        budget.outlook = self._outlook

    def holds(self, query: Term) -> Formula:
        arguments = tuple(self._instance(self.terms.pattern(a, {}), []) for a in query.args)
        return self._proved(((query.functor, query.arity), arguments)).get(arguments, FALSE)

    def _proved(self, call: Call) -> Answers:
        """Calls wait for those they lead to on a stack of our own, because lists are longer than Python recurs."""
        stack = [(call, self._answers(call))]
        waiting = {call}
        while stack:
            call, work = stack[-1]
            try:
                needed = next(work)
            except StopIteration as finished:
                self._tables[call] = finished.value
                waiting.remove(call)
                stack.pop()
                continue
            if needed in waiting:
                raise NotInFragmentError  # a cycle
            waiting.add(needed)
            stack.append((needed, self._answers(needed)))
        return self._tables[call]

    def _answers(self, call: Call) -> Generator[Call, None, Answers]:
        _, arguments = call
        found: dict[tuple[int, ...], list[Formula]] = {}
        for rule in self._candidates(call):
            bindings: Bindings = [None] * rule.n_slots
            if not all(a is None or self._match(p, a, bindings) for p, a in zip(rule.head, arguments, strict=True)):
                continue
            proofs = yield from self._after(rule.goals, [(bindings, ())])
            for bound, parts in proofs:
                chosen = () if rule.alternative is None else (self._chosen(rule.alternative, bound),)
                answer = tuple(self._instance(p, bound) for p in rule.head)
                found.setdefault(answer, []).append(_all(parts + chosen))
        return {answer: _some(formulas) for answer, formulas in found.items()}

    def _outlook(self) -> str:
        """Where most of the work was."""
        counts = Counter[Predicate]()
        for (predicate, _), answers in self._tables.items():
            counts[predicate] += len(answers)
        if not counts:
            return ""
        (functor, arity), n = counts.most_common(1)[0]
        return f"; {n} answers to {functor}/{arity} so far, the most of {len(counts)} predicates"

    def _candidates(self, call: Call) -> list[Rule]:
        """The rules that the first argument that is known may match."""
        predicate, arguments = call
        if predicate not in self.rules:
            raise NotInFragmentError
        at = next((i for i, a in enumerate(arguments) if a is not None), None)
        if at is None:
            return self.rules[predicate]
        if (predicate, at) not in self._by_argument:
            tops = [self._top(rule.head[at]) for rule in self.rules[predicate]]
            self._by_argument[predicate, at] = {
                top: [r for r, t in zip(self.rules[predicate], tops, strict=True) if t in (top, None)]
                for top in {*tops, None}
            }
        by_top = self._by_argument[predicate, at]
        return by_top.get(self._top(arguments[at]), by_top[None])

    def _top(self, pattern: Pattern | None) -> Predicate | None:
        """Functor and arity; None of a variable."""
        if isinstance(pattern, int):
            functor, arguments = self.terms.parts[pattern]
            return functor, len(arguments)
        return (pattern.functor, len(pattern.arguments)) if isinstance(pattern, Compound) else None

    def _after(self, goals: Sequence[Goal], proofs: list[Proof]) -> Generator[Call, None, list[Proof]]:
        for goal in goals:
            found: list[Proof] = []
            for bindings, parts in proofs:
                self.budget.check(self._n_proofs)
                more = yield from self._of_goal(goal, bindings)
                found += [(bound, (*parts, *extra)) for bound, extra in more]
                self._n_proofs += len(more)
            proofs = found
        return proofs

    def _of_goal(self, goal: Goal, bindings: Bindings) -> Generator[Call, None, list[Proof]]:
        match goal:
            case Called():
                call = goal.predicate, tuple(self._argument(p, bindings) for p in goal.arguments)
                if call not in self._tables:
                    yield call
                return self._with_answers(goal.arguments, self._tables[call], bindings)
            case Assigned(left, right):
                value = self.terms.constant(self._value(self._instance(right, bindings)))
                return self._if_matched(left, value, bindings)
            case Compared(holds, left, right):
                values = (self._value(self._instance(p, bindings)) for p in (left, right))
                return [(bindings, ())] if holds(*values) else []
            case Unified(left, right, same, binds):
                if binds and not self._is_ground(right, bindings):
                    left, right = right, left
                if binds:
                    return self._if_matched(left, self._instance(right, bindings), bindings)
                equal = self._instance(left, bindings) == self._instance(right, bindings)
                return [(bindings, ())] if equal == same else []
            case Either(options):
                found: list[Proof] = []
                for option in options:
                    found += yield from self._after(option, [(bindings, ())])
                return found
            case Negated(goals, slots):
                if any(bindings[i] is None for i in slots):
                    raise NotInFragmentError
                proofs = yield from self._after(goals, [(bindings, ())])
                if not proofs:
                    return [(bindings, ())]
                holds_if = _some([_all(parts) for _, parts in proofs])
                return [] if holds_if is TRUE else [(bindings, (Not(holds_if),))]

    def _with_answers(self, arguments: tuple[Pattern, ...], answers: Answers, bindings: Bindings) -> list[Proof]:
        slots = [(i, p.number) for i, p in enumerate(arguments) if isinstance(p, Slot)]
        free = [(i, number) for i, number in slots if bindings[number] is None]
        if len({slot for _, slot in free}) < len(free):
            raise NotInFragmentError  # one variable twice
        found: list[Proof] = []
        for answer, formula in answers.items():
            bound = bindings.copy() if free else bindings
            for i, slot in free:
                bound[slot] = answer[i]
            found.append((bound, () if formula is TRUE else (formula,)))
        return found

    def _if_matched(self, pattern: Pattern, number: int, bindings: Bindings) -> list[Proof]:
        bound = bindings.copy()
        return [(bound, ())] if self._match(pattern, number, bound) else []

    def _match(self, pattern: Pattern, number: int, bindings: Bindings) -> bool:
        """Whether a term is an instance of a pattern, whose variables it binds."""
        if isinstance(pattern, int):
            return pattern == number
        if isinstance(pattern, Slot):
            if bindings[pattern.number] is None:
                bindings[pattern.number] = number
            return bindings[pattern.number] == number
        functor, arguments = self.terms.parts[number]
        return (functor, len(arguments)) == (pattern.functor, len(pattern.arguments)) and all(
            self._match(p, a, bindings) for p, a in zip(pattern.arguments, arguments, strict=True)
        )

    def _argument(self, pattern: Pattern, bindings: Bindings) -> int | None:
        return bindings[pattern.number] if isinstance(pattern, Slot) else self._instance(pattern, bindings)

    def _instance(self, pattern: Pattern, bindings: Bindings) -> int:
        if isinstance(pattern, int):
            return pattern
        if isinstance(pattern, Slot):
            number = bindings[pattern.number]
            if number is None:
                raise NotInFragmentError
            return number
        return self.terms.number(pattern.functor, tuple(self._instance(p, bindings) for p in pattern.arguments))

    def _is_ground(self, pattern: Pattern, bindings: Bindings) -> bool:
        if isinstance(pattern, Compound):
            return all(self._is_ground(p, bindings) for p in pattern.arguments)
        return isinstance(pattern, int) or bindings[pattern.number] is not None

    def _value(self, number: int) -> Any:
        """Of an arithmetic term, as ProbLog computes it."""
        if number not in self._values:
            try:
                self._values[number] = self.terms.term(number).compute_value()
            except Exception:
                raise NotInFragmentError from None  # ProbLog says what is wrong
            if self._values[number] is None:
                raise NotInFragmentError
        return self._values[number]

    def _chosen(self, alternative: Alternative, bindings: Bindings) -> Formula:
        """That an alternative is chosen: anew for other inputs of a network, or other variables of the clause."""
        decisive = alternative.inputs if alternative.neural else [Slot(i) for i in range(len(bindings))]
        key = alternative.disjunction, tuple(self._instance(p, bindings) for p in decisive)
        if key not in self._choices:
            self._choices[key] = self._choice(alternative, key[1])
        return Is(self._choices[key], alternative.place)

    def _choice(self, alternative: Alternative, inputs: tuple[int, ...]) -> Variable | Fact:
        declared = alternative.neural
        if declared is None:
            log_p = tuple(log(p) if p > 0 else -inf for p in alternative.shares)
            return Fact(f"clause {alternative.disjunction}", log_p)
        names = [str(self.terms.term(number)) for number in inputs]
        variable = Variable(f"{declared.predicate}({','.join(names)})", declared.values, declared.network)
        self.inputs[variable] = names
        return variable


def _all(parts: tuple[Formula, ...]) -> Formula:
    return TRUE if not parts else parts[0] if len(parts) == 1 else All(parts)


def _some(formulas: list[Formula]) -> Formula:
    return TRUE if TRUE in formulas else formulas[0] if len(formulas) == 1 else Some(tuple(formulas))
