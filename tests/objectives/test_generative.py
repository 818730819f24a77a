import math

import numpy as np
import pytest
import torch
from drawing import SEEDS, array, rotation, tensors
from hypothesis import given, settings
from hypothesis import strategies as st

from gedikit.densities import (
    cluster_log_density,
    contrastive_log_density,
    effective_sample_size,
    energy_l2,
    generative,
    importance_generative,
    likelihood_generative,
    log_normaliser,
)


def test_generative_is_the_difference_of_means():
    assert generative(torch.tensor([1.0, 3.0]), torch.tensor([5.0])).item() == 3.0


def test_chains_that_are_stuck_teach_nothing_and_take_their_share_of_the_data_along():
    data = torch.tensor([1.0, 3.0], requires_grad=True)
    model = torch.tensor([5.0, 0.5, -1.0, -30.0], requires_grad=True)
    generative(data, model, largest_gap=4.0).backward()
    trust = torch.tensor([1.0, 1.0, 0.5, 0.0])  # 3 ahead, 1.5, 3 and 32 behind the mean of 2
    torch.testing.assert_close(model.grad, trust / 4)
    torch.testing.assert_close(data.grad, torch.full((2,), -trust.mean().item() / 2))


def test_chains_that_keep_up_all_count():
    data, model = torch.tensor([1.0, 3.0]), torch.tensor([5.0, 1.0, 2.0])
    assert generative(data, model, largest_gap=4.0) == generative(data, model)


def test_gradient_of_the_importance_loss_is_data_minus_weighted_proposals():
    torch.manual_seed(0)
    data = torch.randn(7, dtype=torch.float64, requires_grad=True)
    proposals = torch.randn(11, dtype=torch.float64, requires_grad=True)
    log_q = torch.randn(11, dtype=torch.float64)
    importance_generative(data, proposals, log_q).backward()
    weights = torch.exp(proposals.detach() - log_q)
    torch.testing.assert_close(proposals.grad, weights / weights.sum())
    torch.testing.assert_close(data.grad, torch.full_like(data, -1 / 7))


def test_importance_loss_of_a_normalised_gaussian_is_its_cross_entropy():
    """With f a normalised log-density, log Γ̂ estimates 0 and the loss the entropy of N(0,1)."""
    g = torch.Generator().manual_seed(0)
    normal = torch.distributions.Normal(0.0, 1.0)
    wide = torch.distributions.Normal(0.0, 2.0)
    x = torch.randn(200_000, generator=g, dtype=torch.float64)
    q = 2 * torch.randn(200_000, generator=g, dtype=torch.float64)
    loss = importance_generative(normal.log_prob(x), normal.log_prob(q), wide.log_prob(q))
    assert loss.item() == pytest.approx(0.5 * math.log(2 * math.pi * math.e), abs=0.01)


def test_log_normaliser_counts_cells_of_a_uniform_proposal():
    """∫ exp f over [0, 4] for f = ln 3 is 12, whatever the points."""
    f = torch.full((5,), math.log(3.0), dtype=torch.float64)
    log_q = torch.full((5,), -math.log(4.0), dtype=torch.float64)
    assert log_normaliser(f, log_q).item() == pytest.approx(math.log(12.0))


def test_adding_a_constant_to_the_log_density_changes_nothing():
    data, proposals, log_q = torch.randn(3, 50, dtype=torch.float64)
    before = importance_generative(data, proposals, log_q)
    after = importance_generative(data + 123.0, proposals + 123.0, log_q)
    torch.testing.assert_close(before, after)


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=20))
def test_effective_sample_size_lies_between_one_point_and_all(values):
    log_w = torch.tensor(values, dtype=torch.float64)
    share = effective_sample_size(log_w, torch.zeros_like(log_w)).item()
    w = torch.exp(log_w - log_w.max())
    assert share == pytest.approx((w.sum() ** 2 / (w**2).sum() / len(w)).item(), rel=1e-9)
    assert 1 / len(w) - 1e-9 <= share <= 1 + 1e-9


def test_huge_log_densities_do_not_overflow():
    loss = importance_generative(torch.tensor([1e4]), torch.tensor([1e4, -1e4]), torch.tensor([0.0, 0.0]))
    assert loss.item() == pytest.approx(-math.log(2), abs=1e-3)


def test_energy_l2_is_the_sum_of_mean_squares():
    assert energy_l2(torch.tensor([1.0, 3.0]), torch.tensor([2.0])).item() == 9.0


@given(SEEDS, st.integers(1, 6), st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_cluster_log_density_agrees_with_the_written_out_sum(seed, n, c):
    logits = array(seed, n, c, scale=5)
    expected = [math.log(math.fsum(math.exp(v) for v in row)) for row in logits]
    np.testing.assert_allclose(cluster_log_density(torch.tensor(logits)), expected, rtol=1e-9, atol=1e-12)


@given(SEEDS, st.integers(1, 6), st.integers(1, 7), st.integers(1, 4), st.floats(0.3, 3))
@settings(max_examples=40, deadline=None)
def test_contrastive_log_density_agrees_with_the_written_out_sum(seed, n, k, dims, temperature):
    z, bank = array(seed, n, dims), array(seed + 1, k, dims)
    expected = [math.log(math.fsum(math.exp(-np.sum((a - b) ** 2) / temperature) for b in bank)) for a in z]
    value = contrastive_log_density(*tensors(z, bank), temperature)
    np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-9)


def test_contrastive_log_density_does_not_depend_on_where_and_how_embeddings_lie():
    z, bank = tensors(array(0, 6, 3), array(1, 8, 3))
    turn = torch.tensor(rotation(2, 3))
    value = contrastive_log_density(z, bank, 0.5)
    torch.testing.assert_close(contrastive_log_density(z @ turn + 9, bank @ turn + 9, 0.5), value)
    torch.testing.assert_close(contrastive_log_density(z, bank.flip(0), 0.5), value)


def test_contrastive_log_density_far_from_the_origin_in_single_precision():
    z, bank = (1000 + x.float() for x in tensors(array(0, 6, 8), array(1, 9, 8)))
    exact = contrastive_log_density(z.double(), bank.double(), 0.5)
    torch.testing.assert_close(contrastive_log_density(z, bank, 0.5).double(), exact, rtol=1e-3, atol=1e-3)


def test_gradient_of_the_contrastive_log_density_points_to_the_nearest_of_the_bank():
    """Σ_k w_k 2(b_k − z)/τ with w the softmax of −‖z − b_k‖²/τ."""
    z, bank = tensors(array(0, 5, 3), array(1, 7, 3))
    z.requires_grad_()
    contrastive_log_density(z, bank, 0.5).sum().backward()
    weights = torch.softmax(-(z[:, None] - bank).square().sum(-1) / 0.5, -1)
    torch.testing.assert_close(z.grad, 2 / 0.5 * (weights @ bank - z.detach()))
    bank.requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: contrastive_log_density(a, b, 0.5), (z, bank))


def test_likelihood_is_the_negative_mean_of_a_log_density():
    data = torch.tensor([1.0, 2.0, 6.0], requires_grad=True)
    loss = likelihood_generative(data)
    loss.backward()
    assert loss.item() == -3.0
    torch.testing.assert_close(data.grad, torch.full((3,), -1 / 3))


def test_densities_and_normalisers_of_models_side_by_side_are_those_they_have_alone():
    z, bank, proposals, log_q = tensors(array(0, 3, 5, 4), array(1, 3, 7, 4), array(2, 3, 9), array(3, 3, 9))
    together = contrastive_log_density(z, bank, 0.5)
    alone = [contrastive_log_density(a, b, 0.5) for a, b in zip(z, bank, strict=True)]
    torch.testing.assert_close(together, torch.stack(alone), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(cluster_log_density(z), torch.stack([cluster_log_density(a) for a in z]))
    alone = [log_normaliser(p, q) for p, q in zip(proposals, log_q, strict=True)]
    torch.testing.assert_close(log_normaliser(proposals, log_q), torch.stack(alone), rtol=1e-12, atol=1e-12)
