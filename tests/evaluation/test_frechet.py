import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gedikit.errors import DataError
from gedikit.evaluation import Statistics, frechet_distance
from gedikit.evaluation.fid import RunningMoments


def gaussian(mean, covariance, n=100_000):
    return Statistics(torch.as_tensor(mean).double(), torch.as_tensor(covariance).double(), n)


def random_covariance(d, seed, n=None):
    rows = np.random.default_rng(seed).normal(size=(n or 3 * d, d)) * np.geomspace(3, 0.03, d)
    return np.cov(rows.T)


variances = st.lists(st.floats(0, 100), min_size=4, max_size=4)
means = st.lists(st.floats(-10, 10), min_size=4, max_size=4)


@given(variances, variances, means, means)
def test_distance_of_diagonal_gaussians_is_the_closed_form(v, w, m, k):
    v, w, m, k = map(np.array, (v, w, m, k))
    expected = ((m - k) ** 2).sum() + ((np.sqrt(v) - np.sqrt(w)) ** 2).sum()
    assert frechet_distance(gaussian(m, np.diag(v)), gaussian(k, np.diag(w))) == pytest.approx(expected, abs=1e-5)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(2, 12))
def test_distance_agrees_with_the_matrix_root_of_scipy(seed, d):
    a, b = random_covariance(d, seed), random_covariance(d, seed + 1)
    root = scipy.linalg.sqrtm(a @ b).real
    expected = d * 0.25 + np.trace(a + b - 2 * root)
    ours = frechet_distance(gaussian(np.zeros(d), a), gaussian(np.full(d, 0.5), b))
    assert ours == pytest.approx(expected, rel=1e-7)
    assert frechet_distance(gaussian(np.full(d, 0.5), b), gaussian(np.zeros(d), a)) == pytest.approx(ours)


@pytest.mark.parametrize("n", [15, 40, 400])
def test_distance_to_itself_is_nothing_and_a_shift_counts_squared(n):
    covariance = random_covariance(200, 0, n)
    at_zero = gaussian(np.zeros(200), covariance, n)
    assert frechet_distance(at_zero, at_zero) == pytest.approx(0, abs=1e-5)
    shift = np.linspace(-1, 1, 200)
    moved = gaussian(shift, covariance, n)
    assert frechet_distance(at_zero, moved) == pytest.approx((shift**2).sum(), rel=1e-6)


def test_distance_of_singular_covariances_that_share_no_direction():
    a, b = np.diag([4.0, 9.0, 0, 0]), np.diag([0, 0, 1.0, 25.0])
    zero = np.zeros(4)
    assert frechet_distance(gaussian(zero, a), gaussian(zero, b)) == pytest.approx(39.0)
    assert frechet_distance(gaussian(zero, a), gaussian(zero, np.zeros((4, 4)), 2)) == pytest.approx(13.0)
    with pytest.raises(DataError, match="4 and 3 dimensions"):
        frechet_distance(gaussian(zero, a), gaussian(zero[:3], a[:3, :3]))


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.floats(-1e4, 1e4))
def test_moments_of_blocks_are_those_of_all_rows(sizes, offset):
    rows = np.random.default_rng(sum(sizes)).normal(offset, 1, size=(sum(sizes), 3))
    moments = RunningMoments()
    for block in torch.as_tensor(rows).split(sizes):
        moments.add(block)
    found = moments.statistics()
    np.testing.assert_allclose(found.mean, rows.mean(0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.covariance, np.cov(rows.T), rtol=1e-7, atol=1e-9)
    assert found.n == sum(sizes)


def test_float32_features_are_accumulated_in_float64():
    rows = np.random.default_rng(0).normal(1000, 1, size=(3000, 2)).astype(np.float32)
    moments = RunningMoments()
    for block in torch.as_tensor(rows).split(1000):
        moments.add(block)
    np.testing.assert_allclose(moments.statistics().covariance, np.cov(rows.T.astype(float)), rtol=1e-9)
