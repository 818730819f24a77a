import math

import numpy as np
import pytest
import torch
from drawing import SEEDS, array, tensors, views
from hypothesis import given, settings
from hypothesis import strategies as st

from gedikit.objectives import infonce, similarities
from gedikit.paper.theory.information_bounds import infonce_bound, nwj_bound, tuba_bound, uba_bound

few = settings(max_examples=40, deadline=None)
SIZES = st.integers(2, 4)


def joint(seed, n_x, n_z):
    """A table p(x, z), all its pairs as rows, their probabilities, and the mutual information."""
    p = np.exp(array(seed, n_x, n_z))
    p /= p.sum()
    pairs = [(x, z) for x in range(n_x) for z in range(n_z)]
    ratio = p / np.outer(p.sum(1), p.sum(0))
    return p, pairs, torch.tensor(p.flatten()), float(np.sum(p * np.log(ratio)))


def scores_of(critic, pairs):
    """scores[i, j] = f(x_j, z_i)."""
    return torch.tensor([[critic[x, z] for x, _ in pairs] for _, z in pairs])


@given(SEEDS, SIZES, SIZES)
@few
def test_uba_with_the_best_critic_is_the_mutual_information(seed, n_x, n_z):
    """f = log p(z|x), or anything else that differs by a function of z."""
    p, pairs, weights, information = joint(seed, n_x, n_z)
    critic = np.log(p / p.sum(1, keepdims=True))
    assert uba_bound(scores_of(critic, pairs), weights).item() == pytest.approx(information, rel=1e-9, abs=1e-12)
    shifted = scores_of(critic + array(seed + 1, n_z), pairs)
    assert uba_bound(shifted, weights).item() == pytest.approx(information, rel=1e-9, abs=1e-12)


@given(SEEDS, SIZES, SIZES)
@few
def test_nwj_with_the_best_critic_is_the_mutual_information(seed, n_x, n_z):
    """f = 1 + log p(x, z)/p(x)p(z)."""
    p, pairs, weights, information = joint(seed, n_x, n_z)
    critic = 1 + np.log(p / np.outer(p.sum(1), p.sum(0)))
    assert nwj_bound(scores_of(critic, pairs), weights).item() == pytest.approx(information, rel=1e-9, abs=1e-12)


@given(SEEDS, SIZES, SIZES)
@few
def test_no_bound_exceeds_the_mutual_information(seed, n_x, n_z):
    _, pairs, weights, information = joint(seed, n_x, n_z)
    scores = scores_of(array(seed + 1, n_x, n_z), pairs)
    log_eta = torch.tensor(array(seed + 2, n_z))[[z for _, z in pairs]]
    uba = uba_bound(scores, weights).item()
    assert nwj_bound(scores, weights).item() <= uba + 1e-12
    assert tuba_bound(scores, log_eta, weights).item() <= uba + 1e-12
    assert uba <= information + 1e-12


@given(SEEDS, st.integers(2, 7))
@few
def test_bounds_agree_with_the_written_out_sums(seed, n):
    f, log_eta = array(seed, n, n), array(seed + 1, n)
    z = [np.mean([math.exp(f[i, k]) for k in range(n)]) for i in range(n)]
    pairs = np.mean(np.diag(f))
    scores, eta = tensors(f, log_eta)
    assert uba_bound(scores).item() == pytest.approx(pairs - np.mean(np.log(z)), rel=1e-9, abs=1e-12)
    tuba = pairs - np.mean([z[i] / math.exp(log_eta[i]) + log_eta[i] - 1 for i in range(n)])
    assert tuba_bound(scores, eta).item() == pytest.approx(tuba, rel=1e-9, abs=1e-12)
    nwj = pairs - np.mean([z[i] / math.e for i in range(n)])
    assert nwj_bound(scores).item() == pytest.approx(nwj, rel=1e-9, abs=1e-12)
    nce = np.mean([math.log(math.exp(f[i, i]) / z[i]) for i in range(n)])
    assert infonce_bound(scores).item() == pytest.approx(nce, rel=1e-9, abs=1e-12)


@given(SEEDS, st.integers(2, 7))
@few
def test_tuba_is_tight_where_eta_is_the_normaliser(seed, n):
    scores = torch.tensor(array(seed, n, n))
    log_z = torch.logsumexp(scores, -1) - math.log(n)
    torch.testing.assert_close(tuba_bound(scores, log_z), uba_bound(scores))
    torch.testing.assert_close(nwj_bound(scores), tuba_bound(scores, torch.ones(n, dtype=torch.float64)))


@given(SEEDS, st.integers(2, 7), st.floats(0.1, 100))
@few
def test_the_infonce_bound_never_exceeds_the_logarithm_of_the_batch(seed, n, scale):
    assert infonce_bound(torch.tensor(array(seed, n, n, scale=scale))).item() <= math.log(n) + 1e-12
    certain = 100 * torch.eye(n, dtype=torch.float64)
    assert infonce_bound(certain).item() == pytest.approx(math.log(n), rel=1e-12)


@given(SEEDS, st.integers(2, 7))
@few
def test_the_infonce_loss_is_its_bound_below_the_logarithm_of_the_batch(seed, n):
    z, v = tensors(*views(seed, n, 3))
    bound = infonce_bound(similarities(z, v) / 0.3)
    torch.testing.assert_close(bound, math.log(n) - infonce(z, v, temperature=0.3))


def test_models_side_by_side_get_the_bounds_they_get_alone():
    scores, log_eta = tensors(array(0, 3, 5, 5), array(1, 3, 5))
    weights = torch.softmax(log_eta[0], -1)
    for bound in (uba_bound, nwj_bound):
        torch.testing.assert_close(bound(scores, weights), torch.stack([bound(s, weights) for s in scores]))
    torch.testing.assert_close(infonce_bound(scores), torch.stack([infonce_bound(s) for s in scores]))
    alone = [tuba_bound(s, e, weights) for s, e in zip(scores, log_eta, strict=True)]
    torch.testing.assert_close(tuba_bound(scores, log_eta, weights), torch.stack(alone))


def test_gradients_agree_with_finite_differences():
    scores, log_eta = (x.requires_grad_() for x in tensors(array(0, 5, 5), array(1, 5)))
    for bound in (uba_bound, nwj_bound, infonce_bound):
        assert torch.autograd.gradcheck(bound, scores)
    assert torch.autograd.gradcheck(tuba_bound, (scores, log_eta))


def test_scores_of_ten_thousand_stay_finite_where_a_logarithm_is_taken():
    scores = torch.tensor([[1e4, -1e4], [-1e4, 1e4]])
    assert uba_bound(scores).item() == pytest.approx(math.log(2), rel=1e-3)
    assert infonce_bound(scores).item() == pytest.approx(math.log(2), rel=1e-3)
