"""Constraints that are listed: against going through all worlds."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from symbolic_cases import addition, draw, worlds

from gedikit.symbolic import Constraint
from gedikit.symbolic.table import LEVELS_COST


@st.composite
def tables(draw_):
    sizes = draw_(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    every = list(itertools.product(*map(range, sizes)))
    tuples = draw_(st.lists(st.sampled_from(every), min_size=1, unique=True))
    weights = draw_(st.none() | st.lists(st.floats(0.01, 1), min_size=len(tuples), max_size=len(tuples)))
    return sizes, tuples, weights


@settings(max_examples=60, deadline=None)
@given(table=tables(), seed=st.integers(0, 2**31))
def test_a_table_has_the_probability_of_its_tuples(table, seed):
    sizes, tuples, weights = table
    log_p = draw(sizes, (3,), seed)
    found = Constraint.from_table(tuples, sizes, weights).log_probability(log_p)
    weight = dict(zip(tuples, weights or [1.0] * len(tuples), strict=True))
    for row in range(3):
        expected = sum(worlds(lambda *t: weight.get(t, 0.0), [x[row] for x in log_p]).values())
        assert found[row].item() == pytest.approx(math.log(expected), abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(table=tables(), seed=st.integers(0, 2**31))
def test_gradients_of_tables_agree_with_finite_differences(table, seed):
    sizes, tuples, weights = table
    constraint = Constraint.from_table(tuples, sizes, weights)
    log_p = [x.requires_grad_() for x in draw(sizes, (2,), seed)]
    assert torch.autograd.gradcheck(lambda *x: constraint.log_probability(x), log_p)


def long_table() -> tuple[list[tuple[int, ...]], list[float]]:
    tuples = [t for t in itertools.product(range(6), repeat=5) if sum(t) % 7 == 0]
    return tuples, [1.0 if t[0] else 0.25 for t in tuples]


@pytest.mark.parametrize("weighted", [False, True])
def test_long_tables_are_shared_in_a_circuit_with_the_same_values_and_gradients(weighted, monkeypatch):
    tuples, weights = long_table()
    assert len(tuples) * 5 > LEVELS_COST
    shared = Constraint.from_table(tuples, (6,) * 5, weights if weighted else None)
    monkeypatch.setattr("gedikit.symbolic.table.LEVELS_COST", 10**9)
    listed = Constraint.from_table(tuples, (6,) * 5, weights if weighted else None)
    assert shared.body.circuit is not None
    assert listed.body.circuit is None
    log_p = [x.requires_grad_() for x in draw((6,) * 5, (4,))]
    values = [c.log_probability(log_p) for c in (shared, listed)]
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*(torch.autograd.grad(v.sum(), log_p) for v in values))
    explained = [c.explain([x[0] for x in log_p], k=5) for c in (shared, listed)]
    for a, b in zip(*(e.worlds for e in explained), strict=True):
        assert a.values == b.values
        assert a.probability == pytest.approx(b.probability)


def test_predicates_name_their_variables_and_see_the_values():
    bigger = Constraint(lambda size, limit: size > limit, domains=((1, 5, 9), (2, 6)))
    assert [(v.name, v.values, v.size) for v in bigger.variables] == [("size", (1, 5, 9), 3), ("limit", (2, 6), 2)]
    half = torch.full((2,), 0.5, dtype=torch.float64).log()
    third = torch.full((3,), 1 / 3, dtype=torch.float64).log()
    assert bigger.log_probability([third, half]).exp().item() == pytest.approx(3 / 6)


def test_predicates_of_any_number_of_values_are_numbered():
    even = Constraint(lambda *x: sum(x) % 2 == 0, domains=(2, 2, 2))
    assert [v.name for v in even.variables] == ["x0", "x1", "x2"]
    assert [v.name for v in Constraint(lambda *x: any(x), (2, 2), names=("l", "r")).variables] == ["l", "r"]


def test_tables_may_be_arrays_and_tensors():
    tuples = [(0, 1), (2, 0)]
    log_p = draw((3, 2), (4,))
    expected = Constraint.from_table(tuples, (3, 2)).log_probability(log_p)
    for given_as in (torch.tensor(tuples), np.array(tuples)):
        assert torch.equal(Constraint.from_table(given_as, (3, 2)).log_probability(log_p), expected)


def test_members_and_rows_are_kept_apart():
    log_p = draw((10, 10, 10), (2, 3, 4))
    found = addition().log_probability(log_p)
    assert found.shape == (2, 3, 4)
    one = addition().log_probability([x[1, 2, 3] for x in log_p])
    torch.testing.assert_close(found[1, 2, 3], one)


def test_half_precision_is_computed_in_single():
    log_p = [x.to(torch.bfloat16) for x in draw((10, 10, 10), (5,))]
    found = addition().log_probability(log_p)
    assert found.dtype == torch.float32
    assert torch.equal(found, addition().log_probability([x.float() for x in log_p]))


def test_single_precision_agrees_with_double_after_either_was_used():
    weighted = Constraint.from_table([(0, 1), (1, 0)], (2, 2), [0.3, 0.7])
    log_p = draw((2, 2), (8,))
    single = weighted.log_probability([x.float() for x in log_p])
    double = weighted.log_probability(log_p)
    torch.testing.assert_close(single.double(), double, rtol=1e-6, atol=1e-6)
    p = [x.exp() for x in log_p]
    expected = (0.3 * p[0][:, 0] * p[1][:, 1] + 0.7 * p[0][:, 1] * p[1][:, 0]).log()
    torch.testing.assert_close(double, expected, rtol=1e-12, atol=1e-12)
