"""Worlds, marginals and priors given a constraint: against going through all worlds."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from symbolic_cases import ADDITION, CARRY, addition, carry_query, draw, marginals, worlds

from gedikit.symbolic import Constraint

NOISY = ADDITION + "0.1::typo.\naddition(A, B, C) :- typo, digit(A, X), digit(B, X), digit(C, 0).\n"


def weight(a, b, c) -> float:
    return 1.0 if a + b == c else 0.0


def noisy_weight(a, b, c) -> float:
    return 1.0 if a + b == c else 0.1 * (a == b and c == 0)


KINDS = {
    "predicate": (addition, weight),
    "table": (
        lambda: Constraint.from_table(
            [(a, b, c) for a in range(10) for b in range(10) for c in range(10) if noisy_weight(a, b, c)],
            (10, 10, 10),
            [
                noisy_weight(a, b, c)
                for a in range(10)
                for b in range(10)
                for c in range(10)
                if noisy_weight(a, b, c)
            ],
        ),
        noisy_weight,
    ),
    "program": (lambda: Constraint.from_program(ADDITION, "addition(a, b, c)"), weight),
    "program with facts": (lambda: Constraint.from_program(NOISY, "addition(a, b, c)"), noisy_weight),
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    make, weight = KINDS[request.param]
    return make(), weight


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_the_most_probable_worlds_and_marginals_are_those_of_the_list(kind, seed):
    constraint, weight = kind
    log_p = draw((10, 10, 10), (), seed, scale=1.0)
    found = worlds(weight, log_p)
    total = sum(found.values())
    explained = constraint.explain(log_p, k=4)
    assert explained.log_probability == pytest.approx(torch.tensor(total).log().item())
    best = sorted(found.items(), key=lambda x: -x[1])[:4]
    assert [tuple(w.values.values()) for w in explained.worlds] == [t for t, _ in best]
    assert [w.probability for w in explained.worlds] == pytest.approx([p / total for _, p in best])
    for share, expected in zip(explained.marginals.values(), marginals(found, (10, 10, 10)), strict=True):
        torch.testing.assert_close(share, expected)


def test_marginals_are_the_gradients_of_the_log_probability(kind):
    constraint, _ = kind
    log_p = [x.requires_grad_() for x in draw((10, 10, 10))]
    gradients = torch.autograd.grad(constraint.log_probability(log_p), log_p)
    explained = constraint.explain(log_p)
    for variable, gradient in zip(constraint.variables, gradients, strict=True):
        torch.testing.assert_close(explained.marginals[variable.name], gradient)


def test_fewer_worlds_than_asked_for_are_all_there_are():
    equal = Constraint(lambda a, b: a == b, (3, 3))
    explained = equal.explain(draw((3, 3)), k=10)
    assert len(explained.worlds) == 3
    assert sum(w.probability for w in explained.worlds) == pytest.approx(1.0)
    certain = equal.explain([torch.tensor([0.0, -torch.inf, -torch.inf])] * 2, k=10)
    assert [w.values for w in certain.worlds] == [{"a": 0, "b": 0}]


def test_worlds_of_a_long_addition_are_found_without_listing_them():
    constraint = Constraint.from_program(CARRY, carry_query(3))
    explained = constraint.explain([torch.full((10,), 0.1).log()] * 10, k=3)
    assert [w.probability for w in explained.worlds] == pytest.approx([1e-6] * 3)
    for world in explained.worlds:
        a, b, c = (
            sum(10**i * world.values[f"digit({x}{i})"] for i in range(n)) for x, n in (("a", 3), ("b", 3), ("c", 4))
        )
        assert a + b == c


def test_evidence_is_part_of_what_a_world_is_given():
    program = ADDITION + "small :- digit(a, 0).\nsmall :- digit(a, 1).\nevidence(small)."
    explained = Constraint.from_program(program, "addition(a, b, c)").explain(draw((10, 10, 10)), k=100)
    assert {w.values["digit(a)"] for w in explained.worlds} == {0, 1}
    assert sum(w.probability for w in explained.worlds) == pytest.approx(1.0)
    found = worlds(lambda a, b, c: weight(a, b, c) * (a < 2), draw((10, 10, 10)))
    given_small = draw((10, 10, 10))[0].exp()[:2].sum().item()
    assert explained.log_probability == pytest.approx(
        torch.tensor(sum(found.values()) / given_small).log().item(), abs=1e-6
    )


def test_explanations_read_as_text():
    text = str(addition().explain([torch.eye(10)[d].log() for d in (2, 3, 5)], k=1))
    assert text == "log P = 0.0000\n1.0000  a=2, b=3, c=5"


@pytest.mark.parametrize("name", ["predicate", "program"])
def test_the_prior_that_addition_implies(name):
    prior = KINDS[name][0]().implied_prior()
    digit = torch.arange(10, dtype=torch.float64)
    a, b, c = prior.marginals.values()
    torch.testing.assert_close(a, (10 - digit) / 55)
    torch.testing.assert_close(b, (10 - digit) / 55)
    torch.testing.assert_close(c, (digit + 1) / 55)
    torch.testing.assert_close(prior.shared, (21 - digit) / 165)
    torch.testing.assert_close(prior.pooled[tuple(range(10))], (21 - digit) / 165)


def test_priors_of_different_domains_are_pooled_apart():
    prior = Constraint(lambda x, y, bit: (x + y) % 2 == bit and x < 2, (3, 3, 2)).implied_prior()
    torch.testing.assert_close(prior.marginals["x"], torch.tensor([0.5, 0.5, 0], dtype=torch.float64))
    assert set(prior.pooled) == {(0, 1, 2), (0, 1)}
    torch.testing.assert_close(prior.pooled[0, 1, 2], (prior.marginals["x"] + prior.marginals["y"]) / 2)
    with pytest.raises(ValueError, match="2 different domains: take one from pooled"):
        _ = prior.shared


def test_worlds_of_improbable_examples_share_what_there_is():
    """Log-probabilities of about −1000 have few digits left in single precision."""
    log_p = [x - 1000 for x in draw((10, 10, 10), scale=1.0)]
    explained = addition().explain(log_p, k=55)
    assert sum(w.probability for w in explained.worlds) == pytest.approx(1.0, abs=1e-9)
    certain = torch.eye(10).double().log() - 1000 / 3
    assert addition().explain([certain[d] for d in (2, 3, 5)]).worlds[0].probability == pytest.approx(1, abs=1e-9)
    near = [w.probability for w in addition().explain([x / 3 for x in log_p], k=55).worlds]
    assert max(near) <= 1
