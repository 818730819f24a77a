import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gedikit.errors import UsageError
from gedikit.objectives import (
    constraint_loss,
    constraint_loss_optimum,
    entropy_of_mean,
    entropy_of_mean_optimum,
    pseudo_label_loss,
)


def test_the_loss_is_the_cross_entropy_of_a_constraint_that_holds():
    p = torch.tensor([0.5, 1.0, 0.25], dtype=torch.float64)
    assert constraint_loss(p.log()).item() == pytest.approx(-(math.log(0.5) + math.log(0.25)) / 3)
    weights = torch.tensor([1.0, 0.0, 3.0], dtype=torch.float64)
    assert constraint_loss(p.log(), weights).item() == pytest.approx(-(math.log(0.5) + 3 * math.log(0.25)) / 4)


def test_equal_weights_are_no_weights():
    log_p = torch.log(torch.rand(4, 7, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(constraint_loss(log_p, torch.full((4, 7), 3.0)), constraint_loss(log_p))


def test_satisfied_constraints_are_the_optimum():
    assert constraint_loss(torch.zeros(5)).item() == constraint_loss_optimum()


def test_a_weight_for_every_example():
    with pytest.raises(UsageError, match=r"weights has shape \(2,\) and log_probability \(3,\)"):
        constraint_loss(torch.zeros(3), torch.ones(2))


@settings(max_examples=30)
@given(seed=st.integers(0, 2**31))
def test_the_entropy_of_the_mean_is_largest_where_classes_are_used_alike(seed):
    logits = 5 * torch.randn(6, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    mean = torch.softmax(logits, -1).mean(0)
    found = entropy_of_mean(torch.log_softmax(logits, -1)).item()
    assert found == pytest.approx((mean * mean.log()).sum().item())
    assert found >= entropy_of_mean_optimum(4) - 1e-12


def test_the_optimum_is_reached_by_certain_balanced_labels():
    log_p = torch.log_softmax(60 * torch.eye(4, dtype=torch.float64).repeat(3, 1), -1)
    assert entropy_of_mean(log_p).item() == pytest.approx(entropy_of_mean_optimum(4))


def test_classes_that_are_never_used_leave_values_and_gradients_finite():
    log_p = torch.tensor([[0.0, -1e4], [0.0, -1e4]], requires_grad=True)
    value = entropy_of_mean(log_p)
    value.backward()
    assert value.item() == 0.0
    assert torch.isfinite(log_p.grad).all()


def test_pseudo_labels_are_a_cross_entropy_over_the_rows_that_have_some():
    log_p = torch.log_softmax(torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0)), -1)
    targets = torch.zeros(2, 4, 3)
    targets[:, 1], targets[:, 3] = torch.tensor([1.0, 0, 0]), torch.tensor([0, 0.5, 0.5])
    expected = -(log_p[:, 1, 0] + 0.5 * log_p[:, 3, 1] + 0.5 * log_p[:, 3, 2]) / 2
    torch.testing.assert_close(pseudo_label_loss(log_p, targets), expected)
    assert (pseudo_label_loss(log_p, torch.zeros_like(targets)) == 0).all()


def test_what_has_no_weight_may_be_impossible():
    impossible = torch.tensor([-math.inf, -1.0], requires_grad=True)
    loss = constraint_loss(impossible, torch.tensor([0.0, 1.0]))
    loss.backward()
    assert loss.item() == 1.0
    assert impossible.grad.tolist() == [0.0, -1.0]
    certain = torch.tensor([[0.0, -math.inf]])
    assert pseudo_label_loss(certain, torch.tensor([[1.0, 0.0]])).item() == 0.0
    assert entropy_of_mean(certain).item() == 0.0
