"""Both constraints, constraints under other names, and images that examples share."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from symbolic_cases import ADDITION, addition, draw, worlds

from gedikit.errors import UsageError
from gedikit.symbolic import Constraint, Examples


def program() -> Constraint:
    named = Constraint.from_program(ADDITION, "addition(a, b, c)")
    return named.renamed({f"digit({x})": x for x in "abc"})


def smaller() -> Constraint:
    return Constraint(lambda b, d: b < d, (10, 10))


@pytest.mark.parametrize("first", [addition, program])
def test_both_hold_on_shared_variables(first):
    both = first() & smaller()
    assert [v.name for v in both.variables] == ["a", "b", "c", "d"]
    log_p = draw((10,) * 4)
    expected = sum(worlds(lambda a, b, c, d: float(a + b == c and b < d), log_p).values())
    assert both.log_probability(log_p).exp().item() == pytest.approx(expected)


def test_order_matters_to_the_variables_only():
    a, b = addition() & smaller(), smaller() & addition()
    log_p = dict(zip("abcd", draw((10,) * 4, (3,)), strict=True))
    values = [c.log_probability([log_p[v.name] for v in c.variables]) for c in (a, b)]
    torch.testing.assert_close(*values)


@pytest.mark.parametrize("first", [addition, program])
def test_constraints_without_shared_variables_are_independent(first):
    other = Constraint.from_table([(0, 1), (2, 2)], (3, 3), [0.5, 1.0], names=("s", "t"))
    log_p = draw((10, 10, 10, 3, 3), (4,))
    apart = first().log_probability(log_p[:3]) + other.log_probability(log_p[3:])
    torch.testing.assert_close((first() & other).log_probability(log_p), apart)


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_weighted_tables_multiply_their_weights_however_they_are_joined(data):
    every = list(itertools.product(range(3), repeat=2))
    tables = [
        {
            t: data.draw(st.floats(0.1, 1))
            for t in data.draw(st.lists(st.sampled_from(every), min_size=4, unique=True))
        }
        for _ in range(2)
    ]
    x, y = (
        Constraint.from_table(list(t), (3, 3), list(t.values()), names=n)
        for t, n in zip(tables, (("a", "b"), ("b", "c")), strict=True)
    )
    log_p = draw((3, 3, 3))
    found = worlds(lambda a, b, c: tables[0].get((a, b), 0.0) * tables[1].get((b, c), 0.0), log_p)
    if not found:
        return
    expected = pytest.approx(sum(found.values()))
    assert (x & y).log_probability(log_p).exp().item() == expected
    with pytest.MonkeyPatch.context() as patch:  # too long to list: by way of a circuit
        patch.setattr("gedikit.symbolic.table.MAX_TUPLES", 0)
        assert (x & y).log_probability(log_p).exp().item() == expected


def test_a_constraint_and_itself_is_itself_even_with_facts():
    noisy = Constraint.from_program(ADDITION + "0.5::seen.\nq :- seen, addition(a, b, c).", "q")
    log_p = draw((10, 10, 10))
    torch.testing.assert_close((noisy & noisy).log_probability(log_p), noisy.log_probability(log_p))


def test_evidence_of_both_counts():
    base = "nn(net, [X], Y, [0, 1, 2]) :: a(X, Y).\n"
    one = Constraint.from_program(base + "q :- a(x, 1).\nq :- a(x, 2).\ne :- \\+ a(x, 0).\nevidence(e).", "q")
    two = Constraint.from_program(base + "q :- a(x, 2).\ne :- \\+ a(x, 1).\nevidence(e).", "q")
    log_p = draw((3,))
    assert (one & two).log_probability(log_p).item() == pytest.approx(0.0, abs=1e-12)
    p = log_p[0].exp()
    assert two.log_probability(log_p).exp().item() == pytest.approx((p[2] / (p[0] + p[2])).item())


@pytest.mark.parametrize("first", [addition, program])
def test_variables_with_one_name_have_one_value(first):
    doubled = first().renamed({"b": "a"})
    assert [v.name for v in doubled.variables] == ["a", "c"]
    log_p = draw((10, 10))
    expected = sum(worlds(lambda a, c: float(2 * a == c), log_p).values())
    assert doubled.log_probability(log_p).exp().item() == pytest.approx(expected)


@pytest.mark.parametrize("first", [addition, program])
def test_an_image_counts_once_in_an_example_and_anew_in_the_next(first):
    numbers = torch.tensor([[30, 10, 20], [10, 10, 30], [20, 30, 10], [40, 40, 40]])
    examples = Examples(first(), numbers)
    assert examples.images.tolist() == [10, 20, 30, 40]
    (log_p,) = draw((10,), (2, 4))
    found = examples.log_probability(log_p)
    assert found.shape == (2, 4)
    p = log_p[1].exp()
    addition_of = lambda a, b, c: sum((a[i] * b[j] * c[i + j]).item() for i in range(10) for j in range(10 - i))  # noqa: E731
    expected = [
        addition_of(p[2], p[0], p[1]),
        sum((p[0][i] * p[2][2 * i]).item() for i in range(5)),
        addition_of(p[1], p[2], p[0]),
        p[3][0].item(),
    ]
    assert found[1].exp().tolist() == pytest.approx(expected)


def test_gradients_reach_every_image_of_an_example():
    examples = Examples(addition(), torch.tensor([[0, 1, 2], [3, 3, 1]]))
    (log_p,) = (x.requires_grad_() for x in draw((10,), (4,)))
    assert torch.autograd.gradcheck(examples.log_probability, log_p)


def test_all_values_can_be_looked_at_one_by_one():
    for constraint in (addition(), program()):
        dense = constraint.satisfaction()
        a, b, c = torch.meshgrid(*[torch.arange(10)] * 3, indexing="ij")
        torch.testing.assert_close(dense, (a + b == c).double())


def test_limits_of_both_count():
    def limited(seconds: float, nodes: int) -> Constraint:
        return Constraint.from_program(ADDITION, "addition(a, b, c)", max_seconds=seconds, max_nodes=nodes)

    assert (limited(20, 5000) & limited(30, 4000)).body.limits == (30, 5000)
    assert (limited(90, 5000) & smaller()).body.limits == (90, 4_000_000)


def test_variables_of_two_networks_are_not_of_one_domain():
    base = "nn(one, [X], Y, [0, 1]) :: p(X, Y).\nnn({}, [X], Y, [0, 1]) :: r(X, Y).\nq :- p(a, X), r(b, X)."
    one, two = (Constraint.from_program(base.format(network), "q") for network in ("one", "two"))
    assert one.one_domain
    assert not two.one_domain
    assert (one & Constraint(lambda c: c, (2,))).one_domain


def test_what_two_networks_label_is_not_one_variable():
    base = "nn(one, [X], Y, [0, 1]) :: p(X, Y).\nnn(two, [X], Y, [0, 1]) :: r(X, Y).\nq :- p(a, X), r(b, X)."
    q = Constraint.from_program(base, "q")
    with pytest.raises(UsageError, match="labelled by two networks, one and two"):
        q.renamed({"p(a)": "r(b)"})
    other = Constraint.from_program(base.replace("one", "three"), "q")
    with pytest.raises(UsageError, match=r"p\(a\) would be labelled by two networks, one and three"):
        q & other
    assert len((q & q.renamed({"p(a)": "p(c)"})).variables) == 3
    nobodys = Constraint(lambda a, b: a <= b, (2, 2), names=("p(a)", "r(b)"))
    assert [v.network for v in (q & nobodys).variables] == ["one", "two"]


FACTS = "nn(net, [X], Y, [0, 1, 2]) :: d(X, Y).\n0.3::f.\n0.8::g.\n"


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (addition, 1.0),
        (program, 1.0),
        (lambda: Constraint.from_table([(0, 0), (1, 1)], (2, 2), [0.5, 0.25]), 0.5),
        (lambda: Constraint.from_program(FACTS + "q :- f, d(a, 1).\nq :- g, d(a, 2).", "q"), 0.8),
        (lambda: Constraint.from_program(FACTS + "q :- f, d(a, 1).\nq :- g, d(a, 1).", "q"), 1 - 0.7 * 0.2),
        (lambda: Constraint.from_program(FACTS + "evidence(f).\nq :- f, g, d(a, 1).", "q"), 0.8),
    ],
)
def test_the_least_loss_is_that_of_the_best_values(made, expected):
    constraint = made()
    assert math.exp(-constraint.least_loss()) == pytest.approx(expected)
    assert constraint.satisfaction().max().item() == pytest.approx(expected)


def test_where_values_cannot_be_tried_one_by_one_the_least_loss_is_open():
    inputs = ", ".join(f"d(x{i}, 1)" for i in range(14))
    constraint = Constraint.from_program(FACTS + f"q :- f, {inputs}.", "q")
    assert constraint.least_loss() is None
