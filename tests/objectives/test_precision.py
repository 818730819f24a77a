"""Half precision in, at least float32 out: losses are computed as if autocast were not there."""

import math

import numpy as np
import pytest
import torch
from drawing import array, tensors
from objective_cases import CASES

from gedikit import densities as d
from gedikit import objectives as o
from gedikit.paper.theory import information_bounds as bounds

HALF = [torch.bfloat16, torch.float16]
names = pytest.mark.parametrize("name", CASES)
# the first argument is what a network puts out, of any length
EMBEDDINGS = (
    *("infonce", "infonce euclidean", "infonce dot", "simclr", "cpc", "protocpc", "kscl", "barlow_twins", "vicreg"),
    *("w_mse", "corinfomax", "corinfomax running", "mec", "swav", "swav queue"),
)


def to(given, dtype):
    return [t.to(dtype) if t.is_floating_point() else t for t in given]


def gradient(objective, given):
    given = [t.clone().requires_grad_(t.is_floating_point()) for t in given]
    value = objective(*given)
    value.backward()
    return value.detach(), [t.grad for t in given if t.grad is not None]


def under_autocast(objective):
    def computed(*given):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert (given[0].new_ones(2, 2).float() @ given[0].new_ones(2, 2).float()).dtype == torch.bfloat16
            return objective(*given)

    return computed


def assert_near(value, exact, rtol=2e-5):
    assert value.dtype == torch.float32
    assert math.isfinite(value.item())
    assert value.item() == pytest.approx(exact.item(), rel=rtol, abs=rtol)


@names
@pytest.mark.parametrize("dtype", HALF)
def test_half_precision_input_is_computed_in_single_precision(name, dtype):
    """Compared with float64 on the same rounded numbers, so that only the computation differs."""
    case = CASES[name]
    given = to(case.prepare(*case.draw(0)), dtype)
    value, gradients = gradient(case.objective, given)
    exact, exact_gradients = gradient(case.objective, to(given, torch.float64))
    assert_near(value, exact)
    for g, e in zip(gradients, exact_gradients, strict=True):
        assert g.dtype == dtype
        torch.testing.assert_close(g.double(), e, rtol=2e-2, atol=2e-2 * e.abs().max().item())


@names
def test_autocast_does_not_reach_the_computation(name):
    """Products in bfloat16 would be wrong in the third digit."""
    case = CASES[name]
    given = to(case.prepare(*case.draw(0)), torch.float32)
    exact = case.objective(*to(given, torch.float64))
    value, gradients = gradient(under_autocast(case.objective), given)
    assert_near(value, exact)
    plain_value, plain = gradient(case.objective, given)
    assert value == plain_value
    for g, p in zip(gradients, plain, strict=True):
        assert torch.equal(g, p)


@pytest.mark.parametrize("name", EMBEDDINGS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_long_embeddings_in_short_numbers(name, dtype):
    """Norm 10³: squares do not fit into float16, sums of them not into a float32's digits without care."""
    case = CASES[name]
    given = list(case.prepare(*case.draw(1)))
    for i in range(1 if name == "protocpc" else 2):  # protocpc's teacher is a probability
        given[i] = 1e3 * given[i] / given[i].norm(dim=-1, keepdim=True)
    given = to(given, dtype)
    value, gradients = gradient(case.objective, given)
    exact, exact_gradients = gradient(case.objective, to(given, torch.float64))
    assert_near(value, exact, rtol=1e-4)
    for g, e in zip(gradients, exact_gradients, strict=True):
        fits = e.abs() < torch.finfo(dtype).max / 2
        torch.testing.assert_close(g.double()[fits], e[fits], rtol=2e-2, atol=2e-2 * e.abs().max().item())


OTHERS = {
    "contrastive_log_density": (lambda z, bank: d.contrastive_log_density(z, bank, 2.0), (6, 4), (9, 4)),
    "cluster_log_density": (d.cluster_log_density, (6, 4)),
    "similarities": (o.similarities, (6, 4), (9, 4)),
    "running_covariance": (lambda z, before: o.running_covariance(z, before, 0.5), (6, 4), (4, 4)),
    "log_normaliser": (d.log_normaliser, (9,), (9,)),
    "sinkhorn": (lambda s: o.sinkhorn(s, epsilon=1.0), (6, 4)),
    "uba_bound": (bounds.uba_bound, (6, 6)),
    "tuba_bound": (bounds.tuba_bound, (6, 6), (6,)),
    "nwj_bound": (bounds.nwj_bound, (6, 6)),
    "infonce_bound": (bounds.infonce_bound, (6, 6)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_objective_is_computed_in_single_precision_as_well(name):
    function, *shapes = OTHERS[name]
    given = tensors(*(array(i, *shape) for i, shape in enumerate(shapes)))
    for dtype in HALF:
        rounded = to(given, dtype)
        value, exact = function(*rounded), function(*to(rounded, torch.float64))
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-5)
    single = to(given, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(function(*single), function(*single))
        value = function(*single)
    torch.testing.assert_close(value.double(), function(*to(single, torch.float64)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("width", [40.0, 43.0, 46.0])
def test_sinkhorn_in_single_precision_on_both_sides_of_the_change_of_method(width):
    """Cosines over ε = 0.05 are at most 40 apart."""
    scores = array(0, 64, 16)
    scores = torch.tensor((scores - scores.min()) * 0.05 * width / np.ptp(scores), dtype=torch.float32)
    exact = o.sinkhorn(scores.double(), iterations=50)
    torch.testing.assert_close(o.sinkhorn(scores, iterations=50).double(), exact, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("width", [60.0, 150.0, 400.0])
def test_sinkhorn_in_single_precision_fills_a_prototype_far_from_all_rows(width):
    """e^−width and its square would be 0."""
    scores = torch.tensor(array(0, 64, 4), dtype=torch.float32)
    scores[:, 0] -= width
    exact = o.sinkhorn(scores.double(), epsilon=1.0, iterations=200)
    codes = o.sinkhorn(scores, epsilon=1.0, iterations=200)
    torch.testing.assert_close(codes.double(), exact, rtol=1e-4, atol=1e-6)
    assert codes.sum(0).tolist() == pytest.approx([16.0] * 4, rel=1e-3)


def test_sinkhorn_of_large_scores_in_single_precision_keeps_their_differences():
    """10⁴ over ε = 10⁻³ has no digit after the point in float32."""
    scores = torch.tensor(1e4 + 1e-3 * np.round(array(0, 12, 4, scale=3)), dtype=torch.float32)
    scores[0, 0] = -1e4
    exact = o.sinkhorn(scores.double(), epsilon=1e-3)
    torch.testing.assert_close(o.sinkhorn(scores, epsilon=1e-3).double(), exact, rtol=1e-5, atol=1e-6)


def test_double_precision_is_kept():
    for case in CASES.values():
        assert case.objective(*case.prepare(*case.draw(0))).dtype == torch.float64
