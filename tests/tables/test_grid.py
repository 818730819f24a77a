"""The step of the grid that values lie on."""

import numpy as np
import pytest

from gedikit.tables import grid_step

RNG = np.random.default_rng(0)
K = RNG.integers(-40, 41, 3000)


@pytest.mark.parametrize("step", [1.0, 0.1, 0.25, 5.0, 1 / 3, 1e-3, 86400.0])
@pytest.mark.parametrize("offset", [0.0, 0.37, -1000.0])
def test_the_step_is_found_wherever_the_grid_begins(step, offset):
    assert grid_step(offset + step * K) == pytest.approx(step, rel=1e-9)


def test_the_step_is_a_common_divisor_and_not_the_smallest_gap():
    assert grid_step(RNG.choice([0.0, 0.4, 1.0], 100)) == pytest.approx(0.2)
    assert grid_step(RNG.choice([0, 4, 10], 100)) == 2


def test_standardised_counts_are_a_grid():
    counts = K.astype(float)
    assert grid_step((counts - counts.mean()) / counts.std()) == pytest.approx(1 / counts.std(), rel=1e-9)


def test_single_precision():
    assert grid_step((0.1 * K).astype(np.float32)) == pytest.approx(0.1, rel=1e-4)


def test_continuous_values_have_none():
    assert grid_step(RNG.normal(size=3000)) == 0
    assert grid_step(np.repeat(RNG.normal(size=300), 10)) == 0, "repeated rows are no grid"
    assert grid_step(np.where(RNG.random(3000) < 0.6, 0, RNG.normal(size=3000))) == 0, "zeros and a continuous part"


def test_values_that_hardly_repeat_have_none_unless_they_are_whole():
    distinct = RNG.permutation(10**6)[:1000]
    assert grid_step(distinct / 100) == 0
    assert grid_step(distinct) == 1


def test_a_value_off_the_grid_is_found_where_only_some_are_looked_at():
    many = 0.5 * RNG.integers(0, 9, 50_001)
    assert grid_step(many) == 0.5
    many[7] = 0.123456789
    assert grid_step(many) == 0
    many[7] = 0.25
    assert grid_step(many) == 0.25


def test_gaps_are_left_out_of_account():
    assert grid_step(np.where(RNG.random(3000) < 0.5, np.nan, 0.5 * K)) == pytest.approx(0.5)
    assert grid_step(np.full(10, np.nan)) == 0
    assert grid_step(np.full(10, 2.5)) == 0
