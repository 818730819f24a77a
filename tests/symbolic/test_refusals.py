"""What cannot be meant is refused in a sentence that names it."""

import itertools
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from symbolic_cases import ADDITION, CARRY, DIGITS, addition, carry_query

from gedikit.errors import DataError, UsageError
from gedikit.symbolic import Constraint, Examples, best_relabelling, budget, name_clusters

NAIVE = DIGITS + (
    "number([], R, R).\n"
    "number([H|T], A, R) :- digit(H, D), B is D + 10 * A, number(T, B, R).\n"
    "add(X, Y, Z) :- number(X, 0, A), number(Y, 0, B), number(Z, 0, C), C is A + B.\n"
)


def different(n: int) -> str:
    """All of n variables with n values differ: a diagram has a node for every subset of the values."""
    pairs = ", ".join(f"apart(x{i}, x{j})" for i, j in itertools.combinations(range(n), 2))
    values = ", ".join(map(str, range(n)))
    return (
        f"nn(net, [X], Y, [{values}]) :: v(X, Y).\n"
        "same(X, Y) :- v(X, A), v(Y, A).\n"
        f"apart(X, Y) :- \\+ same(X, Y).\nq :- {pairs}."
    )


PROGRAMS = {
    "contradiction": (
        "q :- digit(a, 1), digit(a, 2).",
        r"the query q is false whatever the values.*ever satisfy it",
    ),
    "no proof": ("q :- digit(a, X), X > 10.", "the query q is false whatever the values"),
    "a fact that never holds": ("0.0::f.\nq :- digit(a, 1), f.", "the query q is false whatever the values"),
    "impossible evidence": (
        "q :- digit(a, 1).\ne :- digit(a, 1), digit(a, 2).\nevidence(e).",
        "the evidence for the query q cannot hold",
    ),
    "syntax": ("q :- digit(a, X, .", r"the program does not parse: Unmatched character '\(', at line 2, column 11"),
    "unknown predicate": (
        "q :- digit(a, X),\n  odd(X).",
        "no clauses for odd/1, which q leads to, at line 3, column 3",
    ),
    "unknown query": ("r(a) :- digit(a, 1).", "no clauses for q/0, which is the query q: check name and arguments"),
    "unused network": (
        "nn(net, [X], Y, [red, green]) :: colour(X, Y).\nq :- digit(a, 1).",
        "the neural predicate colour is never used: q does not depend on it",
    ),
    "a query of its own": ("q :- digit(a, 1).\nquery(q).", r"has query\(q\). of its own.*the argument query"),
    "no image named": (
        "q :- digit(X, 3).",
        "cannot ground the program: Encountered a non-ground.*line 1, column 45",
    ),
    "arithmetic": ("q :- digit(a, X), Y is foo + X.", "cannot ground the program.*Unknown function 'foo'/0"),
    "negative cycle": (
        "q :- \\+ r, digit(a, 1).\nr :- \\+ q.",
        "cannot ground the program: Negative cycle detected",
    ),
    "learned fact": ("t(_)::f.\nq :- f, digit(a, 1).", r"t\(_\)::f has a probability to be learned"),
    "too probable": (
        "0.7::f(1); 0.6::f(2).\nq :- f(1), digit(a, 1).\nq :- f(2).",
        r"of f\(1\).* add up to 1.3, not 1",
    ),
    "embedding": (
        "nn(net, [X], Y) :: e(X, Y).\nq :- e(a, Y).",
        r"nn\(net,\[X\],Y\) is not a neural predicate: write",
    ),
    "declared twice": (
        "nn(other, [X], Y, [1, 2]) :: digit(X, Y).\nq :- digit(a, 1).",
        "the neural predicate digit is declared twice: give each its own name",
    ),
    "values twice": ("nn(net, [X], Y, [1, 1]) :: e(X, Y).\nq :- e(a, 1).", "must list its values, each once"),
    "too probable with what does not matter": (
        "0.7::f(1); 0.6::f(2).\nq :- f(1), digit(a, 1).",
        r"of f\(1\) and its alternatives add up to 1.3, not 1",
    ),
    "too probable under a condition": (
        "0.7::f(1); 0.6::f(2) :- digit(a, 1).\nq :- f(1).",
        r"of f\(1\) and its alternatives add up to 1.3, not 1",
    ),
    "too probable when computed": (
        "P::f(1); 0.6::f(2) :- P is 0.7.\nq :- f(1), digit(a, 1).\nq :- f(2).",
        r"of f\(1\) and its alternatives add up to 1.3, not 1",
    ),
    "alternatives without probabilities": (
        "f(X) ; g(X) :- digit(X, 1).\nq :- f(a).",
        r"f\(X\) ; g\(X\) are alternatives without probabilities: give each of them one",
    ),
    "an alternative without a probability": ("0.3::f ; g.\nq :- f, digit(a, 1).", "alternatives without prob"),
    "negative probability": (
        "-0.5::f.\nq :- f, digit(a, 1).",
        "the probability of f is -0.5: give one between 0 and 1",
    ),
    "probability above one": (
        "1.5::f(X).\nq :- f(a), digit(a, 1).",
        r"the probability of f\(a\) is 1.5: give one between 0 and 1",
    ),
    "input without brackets": (
        "nn(net, X, Y, [1, 2]) :: e(X, Y).\nq :- e(a, 1).",
        r"nn\(net,X,Y,\[1, 2\]\) :: e has the input X, which is no list: write \[X\]",
    ),
    "inputs without an end": (
        "nn(net, [X|T]) :: e(X).\nq :- e(a).",
        r":: e has the input \[X \| T\], which is no list",
    ),
    "values without an end": (
        "nn(net, [X], Y, [1|T]) :: e(X, Y).\nq :- e(a, 1).",
        "must list its values, each once",
    ),
    "what the network does not see": (
        "nn(net, [X], Y, [1, 2]) :: e(X, Z, Y).\nq :- e(a, b, 1).",
        "e has Z in its head, which is neither an input nor the output",
    ),
    "what the network does not see, true or false": (
        "nn(net, [X]) :: e(X, _).\nq :- e(a, b).",
        "e has _ in its head, which is neither an input nor the output",
    ),
    "lost output": ("nn(net, [X], Z, [1, 2]) :: e(X, Y).\nq :- e(a, 1).", "must have its output Z as a variable"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    program, sentence = PROGRAMS[name]
    with pytest.raises(UsageError, match=sentence):
        Constraint.from_program(DIGITS + program, "q")


def test_queries():
    with pytest.raises(UsageError, match=r"query 'q\(X\)' has variables: name the inputs"):
        Constraint.from_program(DIGITS + "q(X) :- digit(X, 1).", "q(X)")
    with pytest.raises(UsageError, match=r"query 'q\(a' is not a term: Unmatched character"):
        Constraint.from_program(DIGITS + "q(X) :- digit(X, 1).", "q(a")
    with pytest.raises(UsageError, match="q depends on no neural predicate"):
        Constraint.from_program("0.3::f.\nq :- f.", "q")


@pytest.fixture
def usual_depth() -> Iterator[int]:
    """Python's own limit; tests that compare with ProbLog load it by themselves."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield 1000
    sys.setrecursionlimit(before)


@pytest.mark.usefixtures("usual_depth")
def test_terms_nested_too_deeply(monkeypatch):
    asked = (DIGITS + "q(_) :- digit(a, 1).", f"q([{','.join('x' * 2000)}])")
    assert [v.name for v in Constraint.from_program(*asked).variables] == [
        "digit(a)"
    ]  # deeper than Python goes by itself
    monkeypatch.setattr(budget, "DEPTH", 0)
    with pytest.raises(UsageError, match="nested too deeply for ProbLog: give shorter lists"):
        Constraint.from_program(*asked)


def test_how_deeply_python_calls_is_as_it_was(monkeypatch, usual_depth):
    """ProbLog sets it for the whole process when it is loaded, and C code that recurs would overflow its stack."""
    limit = usual_depth
    monkeypatch.delitem(sys.modules, "problog", raising=False)
    loaded = budget.needs("problog", "problog")
    assert "problog" in sys.modules and loaded.__name__ == "problog"
    assert sys.getrecursionlimit() == limit
    Constraint.from_program(DIGITS + "q :- digit(a, 1).", "q")
    assert sys.getrecursionlimit() == limit
    with pytest.raises(UsageError):
        Constraint.from_program(DIGITS + "q :- digit(a, 1).", "other")
    assert sys.getrecursionlimit() == limit


@pytest.mark.parametrize(
    "program, query, doing",
    [
        (NAIVE, "add([a,b,c], [d,e,f], [g,h,i,j])", "grounding the program"),
        (DIGITS + "up(X) :- Y is X + 1, up(Y).\nq :- up(0), digit(a, 1).", "q", "grounding the program"),
    ],
)
def test_grounding_stops_in_time(program, query, doing):
    began = time.process_time()  # its own: others share the machine
    with pytest.raises(UsageError, match=rf"{doing} stopped after \d+\.\d s at \d+ nodes, beyond max_seconds=0.5"):
        Constraint.from_program(program, query, max_seconds=0.5)
    assert time.process_time() - began < 2


def test_compiling_stops_in_time():
    with pytest.raises(
        UsageError, match=r"compiling the query q stopped after .* s at 2\d{4} nodes.*max_nodes=20000"
    ):
        Constraint.from_program(different(9), "q", max_nodes=20_000)


@pytest.mark.parametrize("library", ["problog", "pysdd"])
def test_libraries_that_are_not_installed(library, monkeypatch):
    for module in ("problog.logic", "problog.errors") if library == "problog" else ("pysdd.sdd",):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=rf"needs the {library} library: pip install 'gedikit\[symbolic\]'"):
        Constraint.from_program(ADDITION, "addition(a, b, c)")
    assert addition().log_probability([torch.zeros(1, 10)] * 3).exp().item() == pytest.approx(55)


TWO_NETWORKS = "nn(one, [X], Y, [0, 1]) :: p(X, Y).\nnn(two, [X], Y, [0, 1]) :: r(X, Y).\nq :- p(a, X), r(b, X)."

REFUSED = {
    "predicate without tuples": (
        lambda: Constraint(lambda a, b: a + b > 99, (10, 10)),
        r"the predicate <lambda>\(a, b\) allows none of its 100 tuples",
    ),
    "predicate of too much": (
        lambda: Constraint(lambda *x: True, (10,) * 8),  # noqa: ARG005
        r"asked about 1e\+08 tuples of values, more than 2e\+06: state it as a program",
    ),
    "predicate that allows too much": (
        lambda: Constraint(lambda *x: True, (10,) * 6),  # noqa: ARG005
        r"allows more than 200000 of its 1e\+06 tuples",
    ),
    "predicate that fails": (
        lambda: Constraint(lambda a, b: 1 / a > b, (10, 10)),
        r"<lambda>\(a, b\) fails for \[0, 0\]: ZeroDivisionError",
    ),
    "domains": (
        lambda: Constraint(lambda a, b: a < b, (2,)),
        "domains has 1 entries and the predicate 2 parameters",
    ),
    "domains as a number": (
        lambda: Constraint(lambda a: a, domains=3),
        r"domains is 3: give a domain for every variable, such as \(3,\) for one",
    ),
    "domains of a table as a number": (lambda: Constraint.from_table([(0,)], 3), "domains is 3: give a domain"),
    "domain that is no domain": (
        lambda: Constraint(lambda a: a, (2.5,)),
        "the domain of a is 2.5: give a number of values or the values themselves",
    ),
    "values that are no values": (lambda: Constraint(lambda a: a, ([[1], [2]],)), r"the domain of a is \[\[1\], "),
    "predicate without names": (
        lambda: Constraint(max, (2, 2)),
        "the predicate max does not say what its parameters are called: give names",
    ),
    "no predicate": (lambda: Constraint(3, (2, 2)), "the predicate given does not say what its parameters"),
    "no tuples": (lambda: Constraint.from_table([0, 1], (3,)), r"tuples has 0, which is no tuple: give \(0,\)"),
    "no list of tuples": (lambda: Constraint.from_table(iter([(0,)]), (3,)), "tuples is .*: give a list with"),
    "no domains": (lambda: Constraint.from_table([], ()), "domains is empty"),
    "empty domain": (lambda: Constraint(lambda a: a, (0,)), "the domain of a is empty"),
    "domain": (lambda: Constraint(lambda a: a, ((1, 1),)), r"the domain of a names a value twice: \(1, 1\)"),
    "names": (lambda: Constraint.from_table([(0, 1)], (2, 2), names=("a", "a")), "names must differ, not a, a"),
    "one name": (
        lambda: Constraint.from_table([(0, 1)], (2, 2), names=("a",)),
        "names has 1 entries for 2 domains",
    ),
    "empty table": (lambda: Constraint.from_table([], (2, 2)), "tuples allows nothing"),
    "weightless table": (lambda: Constraint.from_table([(0, 1)], (2, 2), [0.0]), "tuples allows nothing"),
    "value": (lambda: Constraint.from_table([(0, 2)], (2, 2)), r"tuples has 2 for x1, whose values are \(0, 1\)"),
    "length": (lambda: Constraint.from_table([(0,)], (2, 2)), r"tuples has \(0,\) for 2 variables"),
    "twice": (lambda: Constraint.from_table([(0, 1), (1, 1), (0, 1)], (2, 2)), r"tuples has \(0, 1\) twice"),
    "weight": (lambda: Constraint.from_table([(0, 1)], (2, 2), [1.5]), "weights must lie between 0 and 1"),
    "weights": (lambda: Constraint.from_table([(0, 1)], (2, 2), [1, 1]), r"weights has shape \(2,\) for 1 tuples"),
    "columns": (
        lambda: addition().log_probability([torch.zeros(2, c) for c in (10, 10, 9)]),
        "log_p of c has 9 columns and the variable 10 values",
    ),
    "no columns": (
        lambda: addition().log_probability(torch.zeros(3)),
        "log_p of a has 0 columns and the variable 10 values",
    ),
    "integers": (
        lambda: addition().log_probability([torch.zeros(2, 10).long()] * 3),
        r"log_p of a has numbers of type torch.int64: give log-probabilities",
    ),
    "rows": (
        lambda: addition().log_probability([torch.zeros(n, 10) for n in (2, 3, 2)]),
        r"log_p of b has rows \(3,\) and that of a \(2,\)",
    ),
    "tensors": (
        lambda: addition().log_probability([torch.zeros(2, 10)]),
        "log_p has 1 tensors for 3 variables: give one for each of a, b, c",
    ),
    "other values": (
        lambda: addition() & Constraint(lambda a: a > 1, (3,)),
        r"a has values \(0, 1, 2, .* in one constraint and \(0, 1, 2\) in the other",
    ),
    "nothing in common": (
        lambda: addition() & Constraint(lambda a, b: a + b > 9, (10, 10)),
        "allow no tuple of values in common: no labels could ever satisfy both",
    ),
    "unknown name": (
        lambda: addition().renamed({"z": "a"}),
        "names has 'z', which is none of the variables a, b, c",
    ),
    "one of two": (
        lambda: Constraint(lambda a, b: a > b, (3, 2)).renamed({"a": "b"}),
        "names makes one variable of two with different values",
    ),
    "never equal": (
        lambda: Constraint(lambda a, b: a < b, (3, 3)).renamed({"a": "b"}),
        "with b for a allows nothing: no labels could ever satisfy it",
    ),
    "several examples": (
        lambda: addition().explain([torch.zeros(2, 10)] * 3),
        r"log_p has rows \(2,\): explain takes",
    ),
    "no worlds": (lambda: addition().explain([torch.zeros(10)] * 3, k=0), "k must be at least 1, not 0"),
    "examples": (lambda: Examples(addition(), torch.zeros(2, 2).long()), r"has shape \(2, 2\): give a row"),
    "no examples": (lambda: Examples(addition(), torch.zeros(0, 3).long()), "examples has no rows: give those of"),
    "no examples to name": (
        lambda: best_relabelling([torch.zeros(0, 10)] * 3, addition()),
        "log_p has no rows: give those of at least one example",
    ),
    "smoothing": (
        lambda: name_clusters(addition(), torch.tensor([[0, 1, 2]]), 3, smoothing=float("nan")),
        "starts must be at least 1 and smoothing positive and finite, not 2000 and nan",
    ),
    "networks of examples": (
        lambda: Examples(Constraint.from_program(TWO_NETWORKS, "q"), torch.tensor([[0, 1]])).images,
        "Examples needs variables with the same values and the same network",
    ),
    "networks to relabel": (
        lambda: best_relabelling([torch.zeros(1, 2)] * 2, Constraint.from_program(TWO_NETWORKS, "q")),
        "best_relabelling needs variables with the same values and the same network",
    ),
    "networks to name": (
        lambda: name_clusters(Constraint.from_program(TWO_NETWORKS, "q"), torch.tensor([[0, 1]]), 2),
        "name_clusters needs variables with the same values and the same network",
    ),
    "images": (
        lambda: Examples(addition(), torch.tensor([[1, 2, 3]])).log_probability(torch.zeros(4, 10)),
        "log_p has 4 rows: give one for each of 3 images",
    ),
    "two networks": (
        lambda: Examples(Constraint(lambda a, b: a > b, (3, 2)), torch.tensor([[0, 1]])).images,
        "Examples needs variables with the same values",
    ),
    "two networks to name": (
        lambda: best_relabelling([torch.zeros(2, 3), torch.zeros(2, 2)], Constraint(lambda a, b: a > b, (3, 2))),
        "best_relabelling needs variables with the same values",
    ),
    "too many values to name": (
        lambda: best_relabelling([torch.zeros(2, 10)] * 7, Constraint.from_program(CARRY, carry_query(2))),
        r"has 1e\+07 tuples of values, more than the 200000 that can be enumerated",
    ),
    "starts": (
        lambda: best_relabelling([torch.zeros(2, 10)] * 3, addition(), starts=0),
        "starts and k must be at least 1, not 0 and 2",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_arguments(name):
    call, sentence = REFUSED[name]
    with pytest.raises(UsageError, match=sentence):
        call()


def test_an_example_that_cannot_satisfy_the_constraint_is_not_explained():
    with pytest.raises(DataError, match=r"<lambda>\(a, b, c\) has probability zero for this log_p"):
        addition().explain([torch.eye(10)[d].log() for d in (2, 3, 6)])


def test_what_can_be_meant_is_not_refused():
    constraint = Constraint(max, np.array([3, 2]), names=("a", "b"))
    assert [v.values for v in constraint.variables] == [(0, 1, 2), (0, 1)]
    log_p = [np.log(np.full(n, 1 / n)) for n in (3, 2)]
    assert constraint.log_probability(log_p).exp().item() == pytest.approx(5 / 6)
    numbers = np.array([[0, 1, 2], [2, 1, 0]])
    examples = Examples(addition(), numbers)
    assert examples.log_probability(np.full((3, 10), np.log(0.1))).exp().tolist() == pytest.approx([0.055] * 2)
    named, same = (name_clusters(addition(), x, 3, starts=5) for x in (numbers, torch.tensor(numbers)))
    torch.testing.assert_close(named.log_posterior, same.log_posterior)
