import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gedikit.objectives import (
    effective_sample_size,
    energy_l2,
    generative,
    importance_generative,
    log_normaliser,
)


def test_generative_is_the_difference_of_means():
    assert generative(torch.tensor([1.0, 3.0]), torch.tensor([5.0])).item() == 3.0


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
