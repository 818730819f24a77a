import math

import numpy as np
import pytest
import torch
from drawing import SEEDS, array, positive, rotation, tensors, views
from hypothesis import given, settings
from hypothesis import strategies as st

from gedikit.objectives import (
    barlow_twins,
    corinfomax,
    corinfomax_optimum,
    mec,
    mec_optimum,
    running_covariance,
    vicreg,
    w_mse,
)

# more rows than columns, about as many, and fewer than half: sums are taken in different orders
SHAPES = st.sampled_from([(3, 1), (4, 3), (9, 4), (5, 5), (3, 7), (4, 9)])
SCALES = st.sampled_from([0.1, 1.0, 30.0])
few = settings(max_examples=40, deadline=None)


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def off_diagonal(matrix):
    return sum(matrix[i, j] ** 2 for i in range(len(matrix)) for j in range(len(matrix)) if i != j)


def written_out_w_mse(z, v, shrinkage):
    white = []
    for x in (z, v):
        covariance = np.atleast_2d(np.cov(x.T))
        root = np.linalg.cholesky((1 - shrinkage) * covariance + shrinkage * np.eye(x.shape[1]))
        white.append(unit((x - x.mean(0)) @ np.linalg.inv(root).T))
    return np.mean(np.sum((white[0] - white[1]) ** 2, -1))


def written_out_corinfomax(z, v, gamma, epsilon):
    z, v = unit(z), unit(v)
    logs = [
        np.linalg.slogdet(np.atleast_2d(np.cov(x.T, bias=True)) + epsilon * np.eye(x.shape[1]))[1] for x in (z, v)
    ]
    return gamma * np.mean(np.sum((z - v) ** 2, -1)) - 0.5 * sum(logs)


def evenly_spread(n, dims, seed=0):
    """Rows with mean 0 and covariance I, divided by n."""
    x = array(seed, n, dims)
    q = np.linalg.qr(x - x.mean(0))[0]
    return torch.tensor(q * math.sqrt(n))


@given(SEEDS, SHAPES, SCALES, st.floats(0, 0.1))
@few
def test_barlow_twins_agrees_with_the_correlation_matrix(seed, shape, scale, weight):
    z, v = views(seed, *shape, scale=scale)
    dims = shape[1]
    c = np.corrcoef(z.T, v.T)[:dims, dims:]
    expected = np.sum((1 - np.diag(c)) ** 2) + weight * off_diagonal(c)
    value = barlow_twins(*tensors(z, v), off_diagonal=weight, epsilon=0.0)
    assert value.item() == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_barlow_twins_default_standardises_as_batch_normalisation_does():
    z, v = views(0, 6, 4, scale=1e-2)  # small enough for ε = 10⁻⁵ to matter
    a, b = ((x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5) for x in (z, v))
    c = a.T @ b / 6
    expected = np.sum((1 - np.diag(c)) ** 2) + 0.0051 * off_diagonal(c)
    assert barlow_twins(*tensors(z, v)).item() == pytest.approx(expected, rel=1e-9)


@given(SEEDS, SHAPES, SCALES, st.tuples(*[st.floats(0, 30)] * 3))
@few
def test_vicreg_agrees_with_the_covariance_matrices(seed, shape, scale, weights):
    z, v = views(seed, *shape, scale=scale)
    dims = shape[1]
    terms = [np.mean((z - v) ** 2), 0.0, 0.0]
    for x in (z, v):
        covariance = np.atleast_2d(np.cov(x.T))
        terms[1] += sum(max(0.0, 1 - math.sqrt(c + 1e-4)) for c in np.diag(covariance)) / dims / 2
        terms[2] += off_diagonal(covariance) / dims
    names = dict(zip(("invariance", "variance", "covariance"), weights, strict=True))
    expected = sum(w * t for w, t in zip(weights, terms, strict=True))
    assert vicreg(*tensors(z, v), **names).item() == pytest.approx(expected, rel=1e-6, abs=1e-8)


def test_vicreg_defaults_are_those_of_the_paper():
    z, v = tensors(*views(0, 8, 5))
    assert vicreg(z, v) == vicreg(z, v, invariance=25.0, variance=25.0, covariance=1.0)


@given(SEEDS, st.sampled_from([(3, 1), (9, 4), (12, 6)]), SCALES, st.sampled_from([0.0, 1e-3, 0.3]))
@few
def test_w_mse_agrees_with_whitening_written_out(seed, shape, scale, shrinkage):
    z, v = views(seed, *shape, scale=scale)
    value = w_mse(*tensors(z, v), shrinkage=shrinkage)
    assert value.item() == pytest.approx(written_out_w_mse(z, v, shrinkage), rel=1e-6)


@given(SEEDS, SHAPES, SCALES, st.floats(0, 300), st.sampled_from([1e-3, 0.1]))
@few
def test_corinfomax_agrees_with_the_determinants(seed, shape, scale, gamma, epsilon):
    z, v = views(seed, *shape, scale=scale)
    value = corinfomax(*tensors(z, v), invariance=gamma, epsilon=epsilon)
    assert value.item() == pytest.approx(written_out_corinfomax(z, v, gamma, epsilon), rel=1e-6, abs=1e-8)


@given(SEEDS, SHAPES, st.floats(0, 1))
@few
def test_running_covariance_blends_the_batch_into_the_past(seed, shape, momentum):
    z, root = array(seed, *shape), array(seed + 1, shape[1], shape[1])
    past = root @ root.T
    expected = momentum * past + (1 - momentum) * np.atleast_2d(np.cov(z.T, bias=True))
    np.testing.assert_allclose(running_covariance(*tensors(z, past), momentum), expected, rtol=1e-9, atol=1e-12)


def test_corinfomax_uses_the_covariances_it_is_given():
    z, v = tensors(*views(0, 9, 3))
    z, v = (x / x.norm(dim=-1, keepdim=True) for x in (z, v))
    past = torch.diag(torch.tensor([0.5, 0.2, 0.1], dtype=torch.float64))
    logs = [torch.logdet(m + 1e-3 * torch.eye(3, dtype=torch.float64)) for m in (past, 2 * past)]
    expected = 250 * (z - v).square().sum(-1).mean() - 0.5 * (logs[0] + logs[1])
    torch.testing.assert_close(corinfomax(z, v, past, 2 * past), expected)
    fresh = [running_covariance(x, past, 0.0) for x in (z, v)]
    torch.testing.assert_close(corinfomax(z, v, *fresh), corinfomax(z, v))


@given(SEEDS, SHAPES.filter(lambda shape: shape[1] > 1), SCALES, st.floats(0.01, 1))
@few
def test_mec_agrees_with_the_determinant(seed, shape, scale, distortion):
    z, v = views(seed, *shape, scale=scale)
    n, dims = shape
    matrix = np.eye(dims) + dims / (n * distortion) * unit(z).T @ unit(v)
    value = mec(*tensors(z, v), distortion=distortion)
    assert value.item() == pytest.approx(-np.linalg.slogdet(matrix)[1] / dims, rel=1e-6, abs=1e-8)


@given(SEEDS, SHAPES)
@few
def test_lengths_do_not_matter_on_the_sphere(seed, shape):
    z, v = tensors(*views(seed, *shape))
    a, b = tensors(positive(seed + 1, shape[0], 1), positive(seed + 2, shape[0], 1))
    torch.testing.assert_close(corinfomax(a * z, b * v), corinfomax(z, v))
    torch.testing.assert_close(mec(a * z, b * v), mec(z, v))


@given(SEEDS, st.sampled_from([(4, 1), (9, 4), (4, 9)]))
@few
def test_units_of_each_coordinate_do_not_matter_to_correlations(seed, shape):
    z, v = tensors(*views(seed, *shape))
    a, b, c, d = tensors(*(positive(seed + i, shape[1]) for i in range(2)), *array(seed, 2, shape[1], scale=5))
    torch.testing.assert_close(
        barlow_twins(a * z + c, b * v + d, epsilon=0.0), barlow_twins(z, v, epsilon=0.0), rtol=1e-6, atol=1e-9
    )


@given(SEEDS)
@few
def test_lower_triangular_maps_of_a_view_do_not_matter_to_whitening(seed):
    """Cholesky whitening undoes them: scale, shift and shear of each view by itself."""
    z, v = tensors(*views(seed, 12, 4))
    a, b = (
        torch.tril(torch.tensor(array(seed + i, 4, 4)), -1) + torch.diag(*tensors(positive(seed + i, 4)))
        for i in (1, 2)
    )
    value = w_mse(z, v, shrinkage=0.0)
    torch.testing.assert_close(w_mse(z @ a.T + 3, v @ b.T - 2, shrinkage=0.0), value, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(w_mse(1e3 * z, 1e-3 * v, shrinkage=0.0), value, rtol=1e-6, atol=1e-8)


@given(SEEDS, SHAPES)
@few
def test_a_common_shift_does_not_matter_to_vicreg(seed, shape):
    z, v = tensors(*views(seed, *shape))
    torch.testing.assert_close(vicreg(z + 7, v + 7), vicreg(z, v), rtol=1e-7, atol=1e-8)


@given(SEEDS, SHAPES)
@few
def test_rotating_both_views_does_not_matter_to_determinants(seed, shape):
    z, v = tensors(*views(seed, *shape))
    turn = torch.tensor(rotation(seed, shape[1]))
    torch.testing.assert_close(corinfomax(z @ turn, v @ turn), corinfomax(z, v))
    torch.testing.assert_close(mec(z @ turn, v @ turn), mec(z, v))


def test_what_should_matter_does():
    z, v = tensors(*views(0, 12, 4))
    turn = torch.tensor(rotation(0, 4))
    for changed, loss in [
        ((2 * z, 2 * v), vicreg),  # lengths
        ((z + 1, v), vicreg),  # a shift of one view
        ((z @ turn, v @ turn), barlow_twins),  # axes
        ((z @ turn, v @ turn), vicreg),
        ((z @ turn, v @ turn), w_mse),  # the order in which Cholesky whitens
        ((z.flip(-1), v.flip(-1)), w_mse),
        ((2 * z, 2 * v), w_mse),  # shrinkage is in units of the variance
        ((z + 1, v + 1), corinfomax),
        ((z + 1, v + 1), mec),
    ]:
        assert not torch.isclose(loss(*changed), loss(z, v), rtol=1e-5), loss.__name__


@given(SEEDS, SHAPES)
@few
def test_order_of_coordinates_does_not_matter(seed, shape):
    z, v = tensors(*views(seed, *shape))
    order = torch.randperm(shape[1], generator=torch.Generator().manual_seed(seed))
    for loss in (barlow_twins, vicreg, corinfomax, mec):
        torch.testing.assert_close(loss(z[:, order], v[:, order]), loss(z, v), rtol=1e-7, atol=1e-9)


@given(SEEDS, SHAPES)
@few
def test_views_can_be_swapped(seed, shape):
    z, v = tensors(*views(seed, *shape))
    for loss in (barlow_twins, vicreg, w_mse, corinfomax, mec):
        torch.testing.assert_close(loss(v, z), loss(z, v), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("n", "dims"), [(9, 1), (12, 5), (40, 12)])
def test_equal_views_with_uncorrelated_coordinates_have_no_loss(n, dims):
    z = evenly_spread(n, dims)
    assert barlow_twins(z, z, epsilon=0.0).item() == pytest.approx(0.0, abs=1e-12)
    assert vicreg(1.1 * z, 1.1 * z).item() == pytest.approx(0.0, abs=1e-12)
    assert w_mse(z, z).item() == 0.0
    assert vicreg(0.5 * z, 0.5 * z).item() > 1.0  # too little variance


@pytest.mark.parametrize("dims", [1, 3, 8])
def test_axes_in_both_directions_reach_the_optimum_of_corinfomax(dims):
    z = torch.cat([torch.eye(dims, dtype=torch.float64), -torch.eye(dims, dtype=torch.float64)])
    assert corinfomax(z, 2 * z).item() == pytest.approx(corinfomax_optimum(dims), rel=1e-9)
    assert corinfomax(z, z, epsilon=0.2).item() == pytest.approx(corinfomax_optimum(dims, 0.2), rel=1e-9)


@pytest.mark.parametrize(("n", "dims"), [(8, 4), (3, 3), (3, 7)])
def test_rows_spread_over_all_directions_reach_the_optimum_of_mec(n, dims):
    z = torch.eye(min(n, dims), dims, dtype=torch.float64).repeat(-(-n // dims), 1)
    assert len(z) == n
    assert mec(z, 5 * z).item() == pytest.approx(mec_optimum(n, dims), rel=1e-9)
    assert mec(z, z, distortion=0.5).item() == pytest.approx(mec_optimum(n, dims, 0.5), rel=1e-9)


def test_noisy_views_find_the_optimum_of_mec():
    z, v = (x.requires_grad_() for x in tensors(*views(0, 32, 4, noise=1.5)))
    optimiser = torch.optim.Adam([z, v], lr=0.05)
    for _ in range(300):
        optimiser.zero_grad()
        loss = mec(z, v)
        loss.backward()
        optimiser.step()
    assert loss.item() == pytest.approx(mec_optimum(32, 4), abs=1e-3)
    assert torch.cosine_similarity(z, v).min() > 0.99


def test_one_reversed_direction_is_a_little_worse_than_the_optimum_of_mec():
    """|1 − λ n/l| in place of 1 + λ n/l."""
    z = torch.eye(4, dtype=torch.float64).repeat(2, 1)
    gap = (math.log(1 + 1 / 0.06) - math.log(1 / 0.06 - 1)) / 4
    value = mec(z, z * torch.tensor([-1.0, 1.0, 1.0, 1.0]))
    assert value.item() == pytest.approx(mec_optimum(8, 4) + gap, rel=1e-9)


def test_opposite_views_are_worse_than_equal_ones():
    z = torch.cat([torch.eye(4, dtype=torch.float64), -torch.eye(4, dtype=torch.float64)])
    assert mec(z, -z).item() > mec_optimum(8, 4) + 0.1
    assert corinfomax(z, -z).item() > corinfomax_optimum(4) + 100
    for loss in (barlow_twins, vicreg, w_mse):
        assert loss(z, -z).item() > 3.0


@given(SEEDS, SHAPES, st.floats(0, 1))
@few
def test_no_value_lies_below_the_known_optimum(seed, shape, noise):
    n, dims = shape
    z = np.eye(n, dims) + noise * array(seed, n, dims) + 1e-3 * array(seed + 1, n, dims)
    z, v = tensors(z, z + noise * array(seed + 2, n, dims))
    assert barlow_twins(z, v).item() >= -1e-9
    assert vicreg(z, v).item() >= -1e-9
    assert w_mse(z, v).item() >= 0
    assert corinfomax(z, v).item() >= corinfomax_optimum(dims) - 1e-9
    assert mec(z, v).item() >= mec_optimum(n, dims) - 1e-9


def test_whitening_of_nearly_collinear_coordinates_in_single_precision():
    """Two coordinates that agree to four digits: in float32 their covariance has no root, or a wrong one."""
    z, v = views(0, 50, 3)
    for x in (z, v):
        x[:, 1] = x[:, 0] + 1e-4 * x[:, 1]
    z, v = (torch.tensor(x, dtype=torch.float32) for x in (z, v))
    expected = written_out_w_mse(z.double().numpy(), v.double().numpy(), 0.0)
    assert w_mse(z, v, shrinkage=0.0).item() == pytest.approx(expected, rel=1e-2)
