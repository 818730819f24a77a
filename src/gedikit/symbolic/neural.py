"""Neural predicates, as DeepProbLog writes them.

`nn(net, [X], Y, [v, …]) :: p(X, Y).` says that p(X, Y) holds for exactly one of the values, with the probabilities
a network gives for the input X; `nn(net, [X]) :: p(X).` that p(X) is true or false. To ProbLog they are annotated
disjunctions, whose probabilities are terms that name the predicate, the value and the input.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from gedikit.errors import UsageError
from gedikit.symbolic.budget import needs

Term = Any  # ProbLog has no types
NEURAL = "$neural"  # no program can write this
ROUNDING, WRITTEN = 1e-9, 1e-5  # errors of sums of probabilities: of those computed, and written with few digits


@dataclass(frozen=True)
class Declaration:
    """A neural predicate."""

    network: str
    predicate: str
    values: tuple[Hashable, ...]


def clauses_of(program: str) -> tuple[Any, list[Declaration]]:
    """The program with every neural predicate as an annotated disjunction."""
    library, logic = needs("problog.program", "problog"), needs("problog.logic", "problog")
    parsed = library.PrologString(program)
    clauses = library.SimpleProgram()
    declarations: list[Declaration] = []
    clauses.source_files, clauses.line_info = parsed.source_files, parsed.line_info
    for clause in parsed:
        head = clause.head if isinstance(clause, logic.Clause) else clause
        if head.functor == "query" and head.arity == 1:
            raise UsageError(f"the program has {head}. of its own: leave it out and pass it as the argument query")
        annotation = getattr(head, "probability", None)
        if annotation is not None and annotation.functor == "t":
            raise UsageError(
                f"{annotation}::{head.functor} has a probability to be learned: only networks learn here"
            )
        if annotation is None or annotation.functor != "nn":
            _check_shares(clause, logic)
            clauses += clause
            continue
        declaration, heads = _neural(head, annotation, len(declarations), logic)
        if declaration.predicate in {d.predicate for d in declarations}:
            raise UsageError(
                f"the neural predicate {declaration.predicate} is declared twice: give each its own name"
            )
        declarations.append(declaration)
        body = clause.body if isinstance(clause, logic.Clause) else logic.Term("true")
        clauses += logic.AnnotatedDisjunction(heads, body, location=clause.location)
    return clauses, declarations


def refuse_above_one(name: Term | str, total: float, error: float = ROUNDING) -> None:
    if total > 1 + error:
        raise UsageError(f"the probabilities of {name} and its alternatives add up to {total:g}, not 1")


def _check_shares(clause: Term, logic: Any) -> None:
    """Of an annotated disjunction as it is written: grounding leaves out alternatives that do not matter."""
    if isinstance(clause, logic.AnnotatedDisjunction):
        alternatives = clause.heads
    elif isinstance(clause, logic.Or):
        alternatives = clause.to_list()
    else:
        return
    if any(a.probability is None for a in alternatives):
        raise UsageError(
            f"{' ; '.join(map(str, alternatives))} are alternatives without probabilities: give each of them one,"
            " or write a clause for each if all of them follow"
        )
    shares = [a.probability for a in alternatives if a.probability.is_constant()]
    refuse_above_one(alternatives[0].with_probability(), sum(map(float, shares)), WRITTEN)


def _neural(head: Term, annotation: Term, number: int, logic: Any) -> tuple[Declaration, list[Term]]:
    if annotation.arity not in (2, 4):
        raise UsageError(
            f"{annotation} is not a neural predicate: write nn(net, [X], Y, [values]) :: p(X, Y)"
            " or nn(net, [X]) :: p(X)"
        )
    network, inputs = str(annotation.args[0]), annotation.args[1]
    if not _is_list(inputs):
        raise UsageError(f"{annotation} :: {head.functor} has the input {inputs}, which is no list: write [X]")
    if annotation.arity == 4 and not (annotation.args[2].is_var() and annotation.args[2] in head.args):
        raise UsageError(
            f"{annotation} :: {head.functor} must have its output {annotation.args[2]} as a variable of the head"
        )
    loose = {v for arg in head.args for v in arg.variables()} - {*inputs.variables(), *annotation.args[2:3]}
    if loose:
        raise UsageError(
            f"{annotation} :: {head.functor} has {min(map(str, loose))} in its head, which is neither an input nor"
            f" the output: {head.functor} can only depend on what the network sees"
        )

    def annotated(term: Term, value: int) -> Term:
        p = logic.Term(NEURAL, logic.Constant(number), logic.Constant(value), inputs)
        return logic.Term(term.functor, *term.args, p=p, location=head.location)

    if annotation.arity == 2:
        return Declaration(network, head.functor, (False, True)), [annotated(head, 1)]
    output, values = annotation.args[2], list(items(annotation.args[3]))
    if len(set(values)) != len(values) or not values or not _is_list(annotation.args[3]):
        raise UsageError(f"{annotation} must list its values, each once")
    heads = [
        annotated(logic.Term(head.functor, *(value if a == output else a for a in head.args)), i)
        for i, value in enumerate(values)
    ]
    return Declaration(network, head.functor, tuple(map(_value, values))), heads


def _is_list(term: Term) -> bool:
    while term.functor == "." and term.arity == 2:
        term = term.args[1]
    return bool(term.functor == "[]")


def items(term: Term) -> Iterator[Term]:
    while term.functor == "." and term.arity == 2:
        yield term.args[0]
        term = term.args[1]


def _value(term: Term) -> Hashable:
    value: Hashable = term.value if term.is_constant() and not isinstance(term.functor, str) else str(term)
    return value
