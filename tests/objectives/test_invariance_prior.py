import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gedikit.objectives import invariance, invariance_optimum, mutual_information, prior, prior_optimum

LOGITS = arrays(np.float64, (6, 3), elements=st.floats(-20, 20))


def log_p(a) -> torch.Tensor:
    return torch.log_softmax(torch.as_tensor(a), -1)


def softmax(a: np.ndarray) -> np.ndarray:
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@given(LOGITS, LOGITS)
@settings(max_examples=50)
def test_invariance_agrees_with_the_written_out_cross_entropy(a, b):
    expected = -np.mean(
        [sum(q * math.log(p) for q, p in zip(softmax(b)[i], softmax(a)[i], strict=True)) for i in range(6)]
    )
    assert invariance(log_p(a), log_p(b)).item() == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(LOGITS)
@settings(max_examples=50)
def test_prior_agrees_with_the_written_out_cross_entropy(a):
    p = np.array([0.5, 0.3, 0.2])
    expected = -np.sum(p * np.log(softmax(a).mean(0)))
    assert prior(log_p(a), torch.tensor(p).log()).item() == pytest.approx(expected, rel=1e-6)


@given(LOGITS)
@settings(max_examples=50)
def test_mutual_information_is_the_difference_of_entropies(a):
    p = softmax(a)
    entropy = lambda q: -np.sum(np.where(q > 0, q * np.log(np.maximum(q, 1e-300)), 0), -1)  # noqa: E731
    expected = entropy(p.mean(0)) - entropy(p).mean()
    assert mutual_information(log_p(a)).item() == pytest.approx(expected, abs=1e-9)


@given(LOGITS, LOGITS)
@settings(max_examples=50)
def test_no_value_lies_below_the_known_optimum(a, b):
    """Proposition 1: INV + PRIOR is at least H(p(y)), term by term."""
    log_prior = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64).log()
    assert invariance(log_p(a), log_p(b)).item() >= invariance_optimum() - 1e-12
    assert prior(log_p(a), log_prior).item() >= prior_optimum(log_prior) - 1e-9


def test_both_optima_are_attained_by_certain_balanced_labels():
    logits = log_p(60 * torch.eye(4, dtype=torch.float64).repeat(3, 1))
    log_prior = torch.full((4,), 0.25, dtype=torch.float64).log()
    assert invariance(logits, logits).item() == pytest.approx(invariance_optimum(), abs=1e-12)
    assert prior(logits, log_prior).item() == pytest.approx(math.log(4))
    assert prior_optimum(log_prior) == pytest.approx(math.log(4))
    assert mutual_information(logits).item() == pytest.approx(math.log(4))


def test_a_constant_posterior_carries_no_information_however_certain():
    logits = log_p(torch.tensor([[5.0, 0.0, 0.0]]).repeat(9, 1))
    assert mutual_information(logits).item() == pytest.approx(0.0, abs=1e-6)


def test_clusters_can_be_renamed():
    a, b = log_p(torch.randn(2, 8, 5, dtype=torch.float64))
    order = torch.randperm(5)
    log_prior = torch.full((5,), 0.2, dtype=torch.float64).log()
    torch.testing.assert_close(invariance(a, b), invariance(a[:, order], b[:, order]))
    torch.testing.assert_close(prior(a, log_prior), prior(a[:, order], log_prior))


def test_logits_of_ten_thousand_stay_finite():
    a = torch.tensor([[1e4, -1e4], [-1e4, 1e4]], requires_grad=True)
    loss = invariance(log_p(a), log_p(a.detach().flip(0))) + prior(log_p(a), torch.tensor([0.5, 0.5]).log())
    loss.backward()
    assert math.isfinite(loss.item())
    assert torch.isfinite(a.grad).all()


@pytest.mark.parametrize(
    "loss",
    [
        lambda a: invariance(log_p(a), log_p(a.flip(0))),
        lambda a: prior(log_p(a), torch.full((3,), 1 / 3, dtype=torch.float64).log()),
        lambda a: mutual_information(log_p(a)),
    ],
)
def test_gradients_agree_with_finite_differences(loss):
    torch.manual_seed(0)
    assert torch.autograd.gradcheck(loss, torch.randn(4, 3, dtype=torch.float64, requires_grad=True))
