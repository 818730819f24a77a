"""Constraints as ProbLog programs with neural predicates (De Raedt et al., 2007; Manhaeve et al., 2018).

ProbLog grounds the query and the evidence; probabilities stay out of it until a circuit is evaluated.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, log
from typing import Any

from gedikit.errors import UsageError
from gedikit.symbolic.budget import Budget, deep, needs
from gedikit.symbolic.confinement import bound_numbers, confined_engine
from gedikit.symbolic.formula import FALSE, NEVER, TRUE, All, Fact, Formula, Is, Not, Some, leaves
from gedikit.symbolic.grounding import Grounder, NotInFragmentError
from gedikit.symbolic.neural import NEURAL, Declaration, Term, clauses_of, items, refuse_above_one
from gedikit.symbolic.variables import Variable


@dataclass(frozen=True)
class Ground:
    """A query and the evidence as formulas, and the variables they are about in the order of the query."""

    variables: tuple[Variable, ...]
    holds: Formula
    given: Formula


def grounded(program: str, query: str, budget: Budget) -> Ground:
    """What has to hold for the query, as a formula over the inputs of neural predicates."""
    try:
        with deep():
            return budget.spend_on(lambda: _grounded(program, query, budget))
    except RecursionError:
        raise UsageError(
            "the terms of the program or the query are nested too deeply for ProbLog: give shorter lists, or state"
            " several constraints and join them with &"
        ) from None


def _grounded(program: str, query: str, budget: Budget) -> Ground:
    logic, errors = needs("problog.logic", "problog"), needs("problog.errors", "problog")
    bound_numbers()
    try:
        term = logic.Term.from_string(query)
    except errors.ProbLogError as error:
        raise UsageError(f"query {query!r} is not a term: {_said(error)}") from None
    if not term.is_ground():
        raise UsageError(f"query {query!r} has variables: name the inputs, as in addition(a, b, c)")
    try:
        clauses, declarations = clauses_of(program)
        ground = _by_tables(clauses, declarations, term, budget)
        if ground is None:
            ground = _Formulas(_ground_dag(clauses, term, budget), declarations).ground(term)
    except errors.ProbLogError as error:
        raise UsageError(_in_a_sentence(error, term)) from None
    if ground.holds is FALSE:
        raise UsageError(f"the query {query} {NEVER}")
    _check_used(ground, declarations, query)
    return ground


def _by_tables(clauses: Any, declarations: list[Declaration], query: Term, budget: Budget) -> Ground | None:
    """None for programs that need ProbLog."""
    try:
        grounder = Grounder(clauses, declarations, budget)
        return _ground(grounder.holds(query), TRUE, query, grounder.inputs)
    except NotInFragmentError:
        budget.outlook = str
        return None


def _ground(holds: Formula, given: Formula, query: Term, inputs: dict[Variable, list[str]]) -> Ground:
    found = {leaf.choice: None for leaf in leaves(All((holds, given))) if isinstance(leaf.choice, Variable)}
    return Ground(_as_in(query, list(found), inputs), holds, given)


def _ground_dag(clauses: Any, query: Term, budget: Budget) -> Any:
    engine = confined_engine()
    evaluate = engine.eval

    def guarded(*args: Any, **kwargs: Any) -> Any:
        budget.check(len(kwargs["target"]))
        return evaluate(*args, **kwargs)

    engine.eval = guarded
    found = engine.ground_all(engine.prepare(clauses), queries=[query])
    # ProbLog looks for cycles in time and memory that grow with the square of the depth
    cyclic = _parts_first(found) is None
    return needs("problog.formula", "problog").LogicDAG.create_from(found) if cyclic else found


def _parts_first(ground: Any) -> list[int] | None:
    """The nodes that query and evidence lead to, each after its parts; None where there is a cycle."""
    roots = [key for _, key in ground.queries()] + [key for _, key, sign in ground.evidence_all() if sign]
    order: list[int] = []
    begun: set[int] = set()
    ended: set[int] = set()
    stack = [(abs(key), False) for key in roots if key]
    while stack:
        key, expanded = stack.pop()
        if expanded:
            ended.add(key)
            order.append(key)
        elif key in begun:
            if key not in ended:
                return None
        else:
            begun.add(key)
            stack.append((key, True))
            parts = getattr(ground.get_node(key), "children", ())
            stack.extend((abs(part), False) for part in parts if part and abs(part) not in ended)
    return order


class _Formulas:
    """ProbLog's ground program as formulas over variables and facts."""

    def __init__(self, dag: Any, declarations: list[Declaration]):
        self.dag, self.declarations = dag, declarations
        self.nodes = {key: dag.get_node(key) for key in _parts_first(dag) or ()}
        self.choices = self._facts()

    def ground(self, query: Term) -> Ground:
        self.formulas: dict[int, Formula] = {}
        for key, node in self.nodes.items():
            match type(node).__name__:
                case "atom":
                    self.formulas[key] = self._atom(key, node)
                case "conj":
                    self.formulas[key] = All(tuple(map(self._formula, node.children)))
                case _:
                    self.formulas[key] = Some(tuple(map(self._formula, node.children)))
        ((_, holds),) = self.dag.queries()
        evidence = [(self._formula(key), sign) for _, key, sign in self.dag.evidence_all() if sign]
        given = All(tuple(f if sign > 0 else Not(f) for f, sign in evidence)) if evidence else TRUE
        return _ground(self._formula(holds), given, query, self.inputs)

    def _formula(self, key: int | None) -> Formula:
        if key is None:
            return FALSE
        if key == 0:
            return TRUE
        return self.formulas[key] if key > 0 else Not(self.formulas[-key])

    def _atom(self, key: int, node: Any) -> Formula:
        if key in self.choices:
            return Is(*self.choices[key])
        number, value, inputs = node.probability.args
        declaration = self.declarations[int(number)]
        names = [str(i) for i in items(inputs)]
        variable = Variable(f"{declaration.predicate}({','.join(names)})", declaration.values, declaration.network)
        self.inputs[variable] = names
        return Is(variable, int(value))

    def _facts(self) -> dict[int, tuple[Fact, int]]:
        """The fact of every atom with a fixed probability, and which of its alternatives the atom is."""
        self.inputs: dict[Variable, list[str]] = {}
        groups: dict[Any, list[tuple[int, float, Any]]] = {}
        for key, node, kind in self.dag:
            if kind == "atom" and not node.is_extra and node.probability.functor != NEURAL:
                share = _share(node.probability, _shown(node.name))
                groups.setdefault(node.group or key, []).append((key, share, node.name))
        choices: dict[int, tuple[Fact, int]] = {}
        for members in groups.values():
            name, rest = _shown(members[0][2]), 1 - sum(p for _, p, _ in members)
            refuse_above_one(name, 1 - rest)
            shares = [p for _, p, _ in members] + ([rest] if rest > 1e-12 else [])
            fact = Fact(name, tuple(log(p) if p > 0 else -inf for p in shares))
            choices |= {key: (fact, i) for i, (key, _, _) in enumerate(members)}
        return choices


def _as_in(query: Term, variables: list[Variable], inputs: dict[Variable, list[str]]) -> tuple[Variable, ...]:
    """Variables in the order in which the query names their inputs, others behind."""
    order = {name: i for i, name in reversed(list(enumerate(_constants(query))))}
    return tuple(sorted(variables, key=lambda v: order.get(inputs[v][0] if inputs[v] else "", len(order))))


def _constants(term: Term) -> Iterator[str]:
    if not term.args:
        yield str(term)
    for arg in term.args:
        yield str(arg)
        yield from _constants(arg)


def _check_used(ground: Ground, declarations: list[Declaration], query: str) -> None:
    used = {v.name.split("(", 1)[0] for v in ground.variables}
    for declaration in declarations:
        if declaration.predicate not in used:
            raise UsageError(
                f"the neural predicate {declaration.predicate} is never used: {query} does not depend on it"
            )
    if not ground.variables:
        raise UsageError(
            f"{query} depends on no neural predicate: declare one with nn(net, [X], Y, [values]) :: p(X, Y)"
        )


def _shown(name: Term) -> str:
    """Of an alternative that ProbLog calls choice(group, number, head, …), the head."""
    return str(name.args[2] if name.functor == "choice" else name)


def _share(probability: Term, name: str) -> float:
    try:
        share = float(probability.compute_value())
    except Exception:
        raise UsageError(f"the probability {probability} of {name} is not a number") from None
    if not 0 <= share <= 1:
        raise UsageError(f"the probability of {name} is {share:g}: give one between 0 and 1")
    return share


def _in_a_sentence(error: Any, query: Term) -> str:
    signature = getattr(error, "signature", None)
    if signature == query.signature:
        return f"the program has no clauses for {signature}, which is the query {query}: check name and arguments"
    if signature is not None:
        return f"the program has no clauses for {signature}, which {query} leads to{_where(error)}"
    if isinstance(error, needs("problog.errors", "problog").ParseError):
        return f"the program does not parse: {_said(error)}{_where(error)}"
    return f"ProbLog cannot ground the program: {_said(error)}{_where(error)}"


def _said(error: Any) -> str:
    return str(error.base_message).rstrip(".")


def _where(error: Any) -> str:
    location = error.location
    return (
        f", at line {location[1]}, column {location[2]}"
        if isinstance(location, tuple) and len(location) == 3
        else ""
    )
