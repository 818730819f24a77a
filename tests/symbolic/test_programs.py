"""Constraints as programs: against going through all worlds, tables, and ProbLog's own answers."""

import math
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from problog import get_evaluatable
from problog.logic import Term
from problog.program import PrologString
from symbolic_cases import ADDITION, CARRY, DIGITS, NEURAL, addition, carry_query, draw, random_program
from symbolic_cases import with_probabilities as numbers

from gedikit.symbolic import Constraint, Examples, Known, Rows, Symbols
from gedikit.symbolic.budget import Budget
from gedikit.symbolic.formula import bottom_up
from gedikit.symbolic.neural import clauses_of
from gedikit.symbolic.program import _by_tables, grounded


def carried(n: int) -> Constraint:
    return Constraint.from_program(CARRY, carry_query(n))


def same_function(a: Constraint, b: Constraint, rows: int = 5) -> None:
    log_p = [x.requires_grad_() for x in draw([v.size for v in a.variables], (rows,))]
    values = [c.log_probability(log_p) for c in (a, b)]
    torch.testing.assert_close(*values, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(*(torch.autograd.grad(v.sum(), log_p) for v in values), rtol=1e-8, atol=1e-9)


def test_predicate_table_and_program_of_the_same_constraint_agree():
    tuples = [(a, b, a + b) for a in range(10) for b in range(10 - a)]
    program = Constraint.from_program(ADDITION, "addition(a, b, c)")
    same_function(addition(), Constraint.from_table(tuples, (10, 10, 10)))
    same_function(addition(), program)


def test_long_addition_agrees_with_the_list_of_its_sums():
    tuples = [
        (x % 10, x // 10, y % 10, y // 10, (x + y) % 10, (x + y) // 10 % 10, (x + y) // 100)
        for x in range(100)
        for y in range(100)
    ]
    same_function(carried(2), Constraint.from_table(tuples, (10,) * 7))


def test_three_digit_addition_compiles_to_a_small_circuit_that_counts_every_sum():
    began = time.process_time()
    constraint = carried(3)
    assert time.process_time() - began < 10
    assert constraint.body.circuit.n_products < 500
    ones = [torch.zeros(1, 10, dtype=torch.float64)] * 10
    assert constraint.log_probability(ones).exp().item() == pytest.approx(10**6)


def test_a_batch_of_three_digit_additions_takes_milliseconds():
    constraint, log_p = carried(3), [x.float() for x in draw((10,) * 10, (256,))]
    times = []
    for _ in range(10):
        began = time.process_time()
        constraint.log_probability(log_p)
        times.append(time.process_time() - began)
    assert min(times) < 0.02


def test_variables_come_in_the_order_of_the_query():
    names = [v.name for v in carried(2).variables]
    assert names == [f"digit({x})" for x in ("a0", "a1", "b0", "b1", "c0", "c1", "c2")]
    backwards = Constraint.from_program(ADDITION, "addition(z, y, a)")
    assert [v.name for v in backwards.variables] == ["digit(z)", "digit(y)", "digit(a)"]
    assert {v.network for v in backwards.variables} == {"digit"}
    assert backwards.variables[0].values == tuple(range(10))


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_have_the_probability_that_problog_gives(seed):
    program = random_program(seed)
    constraint = Constraint.from_program(NEURAL + program, "q")
    log_p = draw([v.size for v in constraint.variables], (), seed)
    p = {v.name: x.exp().tolist() for v, x in zip(constraint.variables, log_p, strict=True)}
    theirs = get_evaluatable().create_from(PrologString(f"{numbers(program, p)}\nquery(q).")).evaluate()
    assert constraint.log_probability(log_p).exp().item() == pytest.approx(next(iter(theirs.values())), abs=1e-8)


LEVELS = "nn(levels, [X], Y, [low, mid, high]) :: level(X, Y).\n"
BY_LEVEL = """
mixed :- q, \\+ level(s, low).
mixed :- level(s, high), shape(x, disc).
mixed :- level(s, low), bright(y), \\+ q.
"""


@pytest.mark.parametrize("seed", range(60, 72))
def test_examples_with_known_values_are_as_problog_has_them_given_evidence(seed):
    """Images of two kinds, a value of a third domain that is known, or a gap: then it is any, all alike."""
    program = random_program(seed) + BY_LEVEL
    columns = {
        "shape(x)": Rows([0, 1, 0, 1]),
        "shape(y)": Rows([1, 0, 1, 0]),
        "bright(x)": Rows([2, 3, 3, 2]),
        "bright(y)": Rows([3, 2, 2, 3]),
        "level(s)": Known(["low", "mid", "high", None]),
    }
    examples = Examples(Constraint.from_program(NEURAL + LEVELS + program, "mixed"), columns)
    symbols = Symbols.of({"shape": ("square", "disc", "star"), "light": (False, True)})
    shapes, lights = draw((3, 2), (4,), seed)
    found = examples.of(symbols).log_probability(torch.cat([shapes, lights], 1)).exp()
    for i, level in enumerate(columns["level(s)"].values):
        row = {name: column.numbers[i] for name, column in columns.items() if isinstance(column, Rows)}
        p = {n: (shapes if "shape" in n else lights)[at].exp() for n, at in row.items()}
        p = {n: (x * (1 - 1e-9)).tolist() for n, x in p.items()}  # rounded, they must not exceed 1
        known = "" if level is None else f"evidence(level(s,{level})).\n"
        alike = "; ".join(f"0.333333333333::level(s,{v})" for v in ("low", "mid", "high"))
        asked = f"{numbers(program, p)}\n{alike}.\n{known}query(mixed)."
        theirs = get_evaluatable().create_from(PrologString(asked)).evaluate()
        assert found[i].item() == pytest.approx(next(iter(theirs.values())), abs=1e-6)


@pytest.mark.parametrize("seed", range(0, 40, 8))
def test_gradients_of_random_programs_agree_with_finite_differences(seed):
    constraint = Constraint.from_program(NEURAL + random_program(seed), "q")
    log_p = [x.requires_grad_() for x in draw([v.size for v in constraint.variables], (2,), seed)]
    assert torch.autograd.gradcheck(lambda *x: constraint.log_probability(x), log_p)


def test_evidence_conditions_on_variables_and_facts_alike():
    """P(a = 1 | a ≥ 1 or noise) with P(noise) = 0.2."""
    program = """
        nn(net, [X], Y, [0, 1, 2]) :: a(X, Y).
        0.2::noise.
        seen :- a(x, Y), Y >= 1.
        seen :- noise.
        one :- a(x, 1).
        evidence(seen).
    """
    log_p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()
    found = Constraint.from_program(program, "one").log_probability([log_p]).exp().item()
    assert found == pytest.approx(0.3 / (0.5 + 0.5 * 0.2))


def test_values_that_rules_do_not_mention_count_as_one():
    constraint = Constraint.from_program(DIGITS + "small :- digit(x, 0).\nsmall :- digit(x, 3).", "small")
    log_p = draw((10,))
    p = log_p[0].exp()
    assert constraint.log_probability(log_p).exp().item() == pytest.approx((p[0] + p[3]).item())
    not_small = Constraint.from_program(DIGITS + "large :- \\+ digit(x, 0), \\+ digit(x, 3).", "large")
    assert not_small.log_probability(log_p).exp().item() == pytest.approx((1 - p[0] - p[3]).item())


def test_neural_predicates_may_be_true_or_false_or_have_conditions():
    program = "nn(light, [X]) :: bright(X).\nnn(net, [X], Y, [a, b]) :: kind(X, Y) :- bright(X).\nq :- kind(x, b)."
    constraint = Constraint.from_program(program, "q")
    assert {v.name: v.values for v in constraint.variables} == {"kind(x)": ("a", "b"), "bright(x)": (False, True)}
    log_p = draw([2, 2])
    assert constraint.log_probability(log_p).item() == pytest.approx((log_p[0][1] + log_p[1][1]).item())


def test_programs_may_use_libraries():
    program = ":- use_module(library(lists)).\n" + DIGITS + "q :- digit(x, D), member(D, [1, 4, 7])."
    p = draw((10,))[0].exp()
    found = Constraint.from_program(program, "q").log_probability(draw((10,)))
    assert found.exp().item() == pytest.approx(p[[1, 4, 7]].sum().item())


def test_a_query_may_be_negated():
    log_p = draw((10, 10, 10))
    negated = Constraint.from_program(ADDITION, "\\+ addition(a, b, c)").log_probability(log_p).exp().item()
    assert negated == pytest.approx(1 - addition().log_probability(log_p).exp().item())


LONG = """
nn(net, [X], Y, [0, 1, 2]) :: digit(X, Y).
nn(light, [X]) :: bright(X).
0.1::broken. 0.2::slip(X). 0.3::left(X); 0.6::right(X) :- bright(X).
walk([], S) :- S =:= 1.
walk([A|As], S) :-
    digit(A, X), (bright(A), \\+ slip(A), T is (S + X) mod 3 ; \\+ bright(A), T = S, X \\= 2, not(broken)),
    walk(As, T).
walk([A|As], S) :- left(A), S >= 1, T is S - 1, walk(As, T).
turn([A|_], B) :- right(A), pair(A, B).
turn([_|As], B) :- turn(As, B).
pair(x0, right). pair(x1, right). pair(x2, left).
q(L) :- walk(L, 0), D = right, turn(L, D).
"""


def by_problog(monkeypatch, program: str, query: str) -> Constraint:
    with monkeypatch.context() as patched:
        patched.setattr("gedikit.symbolic.program._by_tables", lambda *_: None)
        return Constraint.from_program(program, query)


def in_fragment(program: str, query: str) -> bool:
    clauses, declarations = clauses_of(program)
    budget = Budget(60, 10**6)
    return _by_tables(clauses, declarations, Term.from_string(query), budget) is not None


def test_programs_grounded_by_tables_are_those_that_problog_grounds(monkeypatch):
    """Recursion, facts, a disjunction with a body, negation, alternatives, arithmetic and unification."""
    assert in_fragment(LONG, "q([x0,x1,x2])")
    ours, theirs = Constraint.from_program(LONG, "q([x0,x1,x2])"), by_problog(monkeypatch, LONG, "q([x0,x1,x2])")
    assert ours.variables == theirs.variables
    same_function(ours, theirs)
    log_p = draw([v.size for v in ours.variables])
    explained = [c.explain(log_p, k=5).worlds for c in (ours, theirs)]
    assert [w.values for w in explained[0]] == [w.values for w in explained[1]]


@pytest.mark.parametrize("seed", range(40, 60))
def test_random_programs_are_grounded_alike(seed, monkeypatch):
    program = NEURAL + random_program(seed)
    ours, theirs = Constraint.from_program(program, "q"), by_problog(monkeypatch, program, "q")
    assert set(ours.variables) == set(theirs.variables)
    log_p = dict(zip(ours.variables, draw([v.size for v in ours.variables], (3,), seed), strict=True))
    values = (c.log_probability([log_p[v] for v in c.variables]) for c in (ours, theirs))
    torch.testing.assert_close(*values, rtol=1e-9, atol=1e-12)


def test_many_random_programs_are_grounded_by_tables():
    assert sum(in_fragment(NEURAL + random_program(seed), "q") for seed in range(40, 60)) >= 5


@pytest.mark.parametrize(
    "program",
    [
        "q :- r.\nr :- q.\nr :- digit(a, 1).",
        "q :- digit(a, 1).\nr :- digit(a, 2).\nevidence(\\+ r).",
        ":- use_module(library(lists)).\nq :- digit(a, X), member(X, [1]).",
        "p(X, X).\nq :- p(Y, Z), digit(a, Y), Z = 1.",
        "q :- digit(a, X), between(1, 1, X).",
        "p('b').\nq :- p('b'), digit(a, 1).",
        "q :- \\+ (digit(a, X), X =\\= 1).",
    ],
)
def test_what_tables_do_not_ground_is_left_to_problog(program):
    """All of them say that a is 1, the second one given that it is not 2."""
    assert not in_fragment(DIGITS + program, "q")
    log_p = draw((10,))
    p = log_p[0].exp()
    expected = p[1] / (1 - p[2]) if "evidence" in program else p[1]
    found = Constraint.from_program(DIGITS + program, "q").log_probability(log_p).exp().item()
    assert found == pytest.approx(expected.item())


def test_grounding_grows_with_the_length_of_lists(monkeypatch):
    """Also by ProbLog, whose own search for cycles takes the square of it."""

    def sizes(n: int) -> int:
        return sum(1 for _ in bottom_up(grounded(CARRY, carry_query(n), Budget(60, 10**6)).holds))

    assert sizes(6) - sizes(4) == sizes(4) - sizes(2)
    monkeypatch.setattr("gedikit.symbolic.program._by_tables", lambda *_: None)
    monkeypatch.setattr("problog.formula.LogicDAG.create_from", None)  # is not called for what has no cycle
    assert sizes(3) - sizes(2) == sizes(2) - sizes(1)


def test_the_same_image_twice_in_a_query_is_one_variable():
    doubled = Constraint.from_program(ADDITION, "addition(a, a, c)")
    p = [x.exp() for x in draw((10, 10))]
    expected = sum((p[0][d] * p[1][2 * d]).item() for d in range(5))
    assert doubled.log_probability(draw((10, 10))).item() == pytest.approx(math.log(expected))


def test_a_sum_of_two_hundred_digits_compiles():
    """Deeper than the stack that a process begins with; were it to overflow, this process would end."""
    script = """
import torch
from gedikit.symbolic import Constraint, Examples, Known, Rows, Symbols
program = '''
nn(net, [X], Y, [0, 1, 2]) :: digit(X, Y).
add([], 0).
add([A|As], S) :- digit(A, X), add(As, T), S is (X + T) mod 3.
'''
images = ",".join(f"x{i}" for i in range(200))
constraint = Constraint.from_program(program, f"add([{images}], 1)")
log_p = torch.tensor([0.996, 0.003, 0.001], dtype=torch.float64).log()
print(constraint.log_probability([log_p] * 200).exp().item())
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    expected, one = np.array([1.0, 0.0, 0.0]), (0.996, 0.003, 0.001)
    for _ in range(200):
        expected = sum(p * np.roll(expected, i) for i, p in enumerate(one))
    assert float(answer.stdout) == pytest.approx(expected[1])
