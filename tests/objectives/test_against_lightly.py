"""Same values and gradients as lightly, an implementation of others."""

import pytest
import torch
from drawing import SEEDS, tensors, views
from hypothesis import given, settings
from hypothesis import strategies as st
from lightly_oracle import lightly_loss

from gedikit import objectives as o

pytest.importorskip("lightly")
theirs = lightly_loss()
from lightly.loss.swav_loss import sinkhorn as their_sinkhorn  # noqa: E402

few = settings(max_examples=15, deadline=None)
SHAPES = st.sampled_from([(8, 3), (16, 16), (12, 40)])


def value_and_gradients(loss, *given):
    given = [x.clone().requires_grad_() for x in given]
    value = loss(*given).squeeze()
    return value.detach(), *torch.autograd.grad(value, given)


def assert_same(ours, others, *given):
    for a, b in zip(value_and_gradients(ours, *given), value_and_gradients(others, *given), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-8)


@given(SEEDS, SHAPES, st.floats(0.1, 1.0))
@few
def test_simclr(seed, shape, temperature):
    ours = lambda a, b: o.simclr(a, b, temperature=temperature)  # noqa: E731
    assert_same(ours, theirs.NTXentLoss(temperature=temperature), *tensors(*views(seed, *shape)))


@given(SEEDS, SHAPES, st.floats(1e-3, 0.1))
@few
def test_barlow_twins(seed, shape, weight):
    ours = lambda a, b: o.barlow_twins(a, b, off_diagonal=weight)  # noqa: E731
    assert_same(ours, theirs.BarlowTwinsLoss(lambda_param=weight), *tensors(*views(seed, *shape)))


@given(SEEDS, SHAPES, st.sampled_from([0.3, 1.0, 5.0]))
@few
def test_vicreg(seed, shape, scale):
    assert_same(o.vicreg, theirs.VICRegLoss(), *tensors(*views(seed, *shape, scale=scale)))
    ours = lambda a, b: o.vicreg(a, b, invariance=3.0, variance=2.0, covariance=0.5, epsilon=1e-2)  # noqa: E731
    other = theirs.VICRegLoss(lambda_param=3.0, mu_param=2.0, nu_param=0.5, eps=1e-2)
    assert_same(ours, other, *tensors(*views(seed, *shape, scale=scale)))


@given(SEEDS, st.sampled_from([(16, 3), (20, 8)]), st.sampled_from([0.0, 1e-3, 0.2]))
@few
def test_w_mse(seed, shape, shrinkage):
    other = theirs.WMSELoss(embedding_dim=shape[1], eps=shrinkage, w_size=shape[0], track_running_stats=False)
    ours = lambda a, b: o.w_mse(a, b, shrinkage=shrinkage)  # noqa: E731
    assert_same(ours, lambda a, b: other(torch.cat([a, b])).double(), *tensors(*views(seed, *shape)))


@given(SEEDS, st.sampled_from([0.05, 0.3]), st.integers(1, 5))
@few
def test_sinkhorn(seed, epsilon, iterations):
    scores = torch.tanh(torch.tensor(views(seed, 20, 6)[0]))
    other = their_sinkhorn(scores.clone(), iterations=iterations, epsilon=epsilon)
    codes = o.sinkhorn(scores, epsilon=epsilon, iterations=iterations)
    torch.testing.assert_close(codes, other, rtol=1e-6, atol=1e-12)


@given(SEEDS, st.booleans())
@few
def test_swav(seed, queued):
    a, b = (torch.tanh(x) for x in tensors(*views(seed, 20, 6)))
    queues = [torch.tanh(x) for x in tensors(*views(seed + 1, 30, 6))] if queued else [None, None]
    ours = lambda x, y: o.swav(x, y, queue=queues[0], view_queue=queues[1])  # noqa: E731
    other = theirs.SwaVLoss()
    assert_same(ours, lambda x, y: other([x, y], [], queues if queued else None), a, b)


def test_single_precision_agrees_as_well():
    a, b = (torch.tanh(x).float() for x in tensors(*views(0, 64, 32)))
    swav = theirs.SwaVLoss()
    w_mse = theirs.WMSELoss(embedding_dim=32, eps=1e-3, w_size=64, track_running_stats=False)
    for ours, other in [
        (o.simclr, theirs.NTXentLoss(temperature=0.2)),
        (o.barlow_twins, theirs.BarlowTwinsLoss(lambda_param=0.0051)),
        (o.vicreg, theirs.VICRegLoss()),
        (o.swav, lambda x, y: swav([x, y], [])),
        (o.w_mse, lambda x, y: w_mse(torch.cat([x, y]))),
    ]:
        for mine, his in zip(value_and_gradients(ours, a, b), value_and_gradients(other, a, b), strict=True):
            torch.testing.assert_close(mine, his, rtol=1e-4, atol=1e-5 * his.abs().max().item())
