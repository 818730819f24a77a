"""The comparison that every check rests on finds what is wrong."""

import math

import pytest
import torch

from gedikit.paper.theory import Check, disagreement
from gedikit.paper.theory.check import distance, largest, violation
from gedikit.paper.theory.draws import Draws


def cubes(x: torch.Tensor) -> torch.Tensor:
    return (x**3).sum()


def test_equal_formulas_agree():
    x = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    assert disagreement(cubes, lambda x: (x * x * x).sum(), x) == pytest.approx(
        {"value": 0, "gradient": 0}, abs=1e-15
    )


def test_a_wrong_constant_shows_in_the_value_alone():
    found = disagreement(cubes, lambda x: cubes(x) + 0.25, torch.zeros(3, dtype=torch.float64))
    assert found == pytest.approx({"value": 0.25, "gradient": 0})


def test_a_detached_part_shows_in_the_gradient_alone():
    found = disagreement(cubes, lambda x: (x.detach() * x * x).sum(), torch.tensor([0.5], dtype=torch.float64))
    assert found == pytest.approx({"value": 0, "gradient": 0.25})


def test_an_input_that_plays_no_part_has_gradient_zero():
    x, y = torch.ones(2, 3, dtype=torch.float64)
    first = lambda x, _: x.sum()  # noqa: E731
    assert disagreement(first, lambda x, y: x.sum() + y.sum() * 0, x, y)["gradient"] == 0.0
    assert disagreement(first, lambda x, y: (x * y).sum(), x, y)["gradient"] == 1.0


def test_distance_is_relative_only_for_large_numbers():
    assert distance(torch.tensor(1e6 + 1), torch.tensor(1e6)) == pytest.approx(1e-6)
    assert distance(torch.tensor(1e-3), torch.tensor(0.0)) == pytest.approx(1e-3)


def test_violation_is_the_worst_excess():
    assert violation(torch.tensor([0.0, 3.0]), torch.tensor([1.0, 1.0])) == 2.0
    assert violation(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 1.0])) == 0.0


def test_largest_is_taken_entry_by_entry():
    assert largest([{"a": 1.0, "b": 5.0}, {"a": 2.0, "b": 3.0}]) == {"a": 2.0, "b": 5.0}


@pytest.mark.parametrize(
    ("errors", "margins", "holds"),
    [
        ({"e": 1e-12}, {}, True),
        ({"e": 1e-12}, {"m": 0.1}, True),
        ({"e": 1e-3}, {"m": 0.1}, False),
        ({"e": 1e-12}, {"m": 0.0}, False),
        ({"e": math.nan}, {}, False),
        ({}, {"m": math.nan}, False),
    ],
)
def test_a_check_holds_where_errors_are_small_and_margins_are_not(errors, margins, holds):
    assert Check("name", "statement", errors, margins).holds is holds


def test_the_same_seed_draws_the_same():
    torch.testing.assert_close(Draws(3).log_distributions(5, 4), Draws(3).log_distributions(5, 4), rtol=0, atol=0)
    assert not torch.equal(Draws(3).normal(5), Draws(4).normal(5))


def test_drawn_distributions_are_normalised_and_reach_from_flat_to_sharp():
    p = Draws(0).log_distributions(500, 3).exp()
    torch.testing.assert_close(p.sum(-1), torch.ones(500, dtype=torch.float64))
    assert p.max() > 0.999
    assert p.amax(-1).min() < 0.45
