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


def _neural(head: Term, annotation: Term, number: int, logic: Any) -> tuple[Declaration, list[Term]]:
    if annotation.arity not in (2, 4):
        raise UsageError(
            f"{annotation} is not a neural predicate: write nn(net, [X], Y, [values]) :: p(X, Y)"
            " or nn(net, [X]) :: p(X)"
        )
    network, inputs = str(annotation.args[0]), annotation.args[1]

    def annotated(term: Term, value: int) -> Term:
        p = logic.Term(NEURAL, logic.Constant(number), logic.Constant(value), inputs)
        return logic.Term(term.functor, *term.args, p=p, location=head.location)

    if annotation.arity == 2:
        return Declaration(network, head.functor, (False, True)), [annotated(head, 1)]
    output, values = annotation.args[2], list(items(annotation.args[3]))
    if not output.is_var() or output not in head.args:
        raise UsageError(f"{annotation} :: {head.functor} must have its output {output} as a variable of the head")
    if len(set(values)) != len(values) or not values:
        raise UsageError(f"{annotation} must list its values, each once")
    heads = [
        annotated(logic.Term(head.functor, *(value if a == output else a for a in head.args)), i)
        for i, value in enumerate(values)
    ]
    return Declaration(network, head.functor, tuple(map(_value, values))), heads


def items(term: Term) -> Iterator[Term]:
    while term.functor == "." and term.arity == 2:
        yield term.args[0]
        term = term.args[1]


def _value(term: Term) -> Hashable:
    value: Hashable = term.value if term.is_constant() and not isinstance(term.functor, str) else str(term)
    return value
