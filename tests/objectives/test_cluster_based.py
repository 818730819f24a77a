import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from drawing import SEEDS, array, tensors, views
from hypothesis import given, settings
from hypothesis import strategies as st

from gedikit.errors import GediWarning
from gedikit.objectives import deepcluster, sela, sinkhorn, swav

ROWS, PROTOTYPES = st.integers(6, 10), st.integers(1, 6)
few = settings(max_examples=40, deadline=None)


def written_out_sinkhorn(scores, epsilon, iterations, shares=None):
    """On exponentials, as published: columns and rows in turn."""
    q = np.exp(scores / epsilon)
    q /= q.sum()
    n, c = q.shape
    shares = np.full(c, 1 / c) if shares is None else shares
    for _ in range(iterations):
        q = q / q.sum(0) * shares
        q = q / q.sum(1, keepdims=True) / n
    return q * n


def log_softmax(x):
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def written_out_swav(a, b, temperature, epsilon, iterations, past=None, view_past=None):
    n = len(a)
    loss = 0.0
    for own, other, queue in ((a, b, view_past), (b, a, past)):
        together = other if queue is None else np.concatenate([other, queue])
        codes = written_out_sinkhorn(together, epsilon, iterations)[:n]
        loss -= np.mean(np.sum(codes * log_softmax(own / temperature), -1)) / 2
    return loss


def of_width(seed, n, c, width):
    """Scores whose largest and smallest, over ε = 0.05, are this far apart."""
    scores = array(seed, n, c)
    return (scores - scores.mean()) * 0.05 * width / np.ptp(scores)


WIDTHS = st.sampled_from([1.0, 30.0, 500.0, 650.0])  # factors for the first two, logarithms for the others


@given(SEEDS, ROWS, PROTOTYPES, WIDTHS, st.integers(1, 5))
@few
def test_sinkhorn_agrees_with_exponentials_however_wide_the_scores(seed, n, c, width, iterations):
    scores = of_width(seed, n, c, width)
    expected = written_out_sinkhorn(scores, 0.05, iterations)
    codes = sinkhorn(torch.tensor(scores), iterations=iterations)
    np.testing.assert_allclose(codes, expected, rtol=1e-6, atol=1e-12)


@given(SEEDS, ROWS, PROTOTYPES, WIDTHS)
@few
def test_shares_given_to_sinkhorn_are_those_of_the_columns(seed, n, c, width):
    shares = np.exp(array(seed + 1, c))
    shares /= shares.sum()
    scores = of_width(seed, n, c, width)
    codes = sinkhorn(torch.tensor(scores), log_prior=torch.tensor(shares).log())
    np.testing.assert_allclose(codes, written_out_sinkhorn(scores, 0.05, 3, shares), rtol=1e-6, atol=1e-12)


@given(SEEDS, ROWS, PROTOTYPES)
@few
def test_many_iterations_give_clusters_their_shares(seed, n, c):
    scores = torch.tensor(array(seed, n, c))
    shares = np.exp(array(seed + 1, c, scale=0.5))
    shares /= shares.sum()
    codes = sinkhorn(scores, epsilon=1.0, iterations=500, log_prior=torch.tensor(shares).log())
    np.testing.assert_allclose(codes.sum(0), n * shares, rtol=1e-6)
    np.testing.assert_allclose(codes.sum(1), 1.0, rtol=1e-9)
    codes = sinkhorn(scores, epsilon=1.0, iterations=500)
    np.testing.assert_allclose(codes.sum(0), n / c, rtol=1e-6)
    np.testing.assert_allclose(codes.sum(1), 1.0, rtol=1e-9)


@pytest.mark.parametrize("spread", [1.0, 1000.0])
def test_a_cluster_without_a_share_gets_nothing(spread):
    scores = spread * torch.tensor(array(0, 8, 3))
    codes = sinkhorn(scores, epsilon=1.0, log_prior=torch.tensor([0.5, 0.5, 0.0]).log())
    torch.testing.assert_close(codes[:, :2], sinkhorn(scores[:, :2], epsilon=1.0))
    assert codes[:, 2].tolist() == [0.0] * 8


@given(SEEDS, st.sampled_from([1e-3, 1e-2, 0.05]), st.sampled_from([torch.float32, torch.float64]))
@few
def test_sinkhorn_survives_scores_of_ten_thousand(seed, epsilon, dtype):
    scores = torch.tensor(np.sign(array(seed, 12, 4)) * 1e4 + array(seed + 1, 12, 4), dtype=dtype)
    for codes in (sinkhorn(scores, epsilon=epsilon), sinkhorn(scores, epsilon=epsilon, iterations=100)):
        assert codes.dtype == dtype
        assert torch.isfinite(codes).all()
        torch.testing.assert_close(codes.sum(-1), torch.ones(12, dtype=dtype), rtol=1e-6, atol=1e-6)


def test_sinkhorn_balances_scores_of_ten_thousand_where_it_can():
    """Each row prefers one of four clusters by 2·10⁷ ε, three rows each: the codes are those preferences."""
    labels = torch.arange(12) % 4
    scores = 1e4 * (2 * torch.nn.functional.one_hot(labels).float() - 1)
    codes = sinkhorn(scores, epsilon=1e-3)
    assert codes.argmax(-1).tolist() == labels.tolist()
    torch.testing.assert_close(codes.sum(0), torch.full((4,), 3.0))


def test_sinkhorn_moves_rows_out_of_a_cluster_all_of_them_prefer():
    """Even by 10⁷ ε: only differences between rows count."""
    scores = torch.zeros(8, 2, dtype=torch.float64)
    scores[:, 0] = 1e4
    scores[:4, 1] = 1.0
    codes = sinkhorn(scores, epsilon=1e-3, iterations=200)
    assert codes.argmax(-1).tolist() == [1] * 4 + [0] * 4
    assert codes.sum(0).tolist() == pytest.approx([4.0, 4.0], rel=1e-2)


@pytest.mark.parametrize("epsilon", [1e-3, 0.05])
def test_loss_and_gradient_survive_scores_of_ten_thousand(epsilon):
    a, b = (torch.tensor(1e4 * np.sign(x), dtype=torch.float32, requires_grad=True) for x in array(0, 2, 12, 4))
    value = swav(a, b, epsilon=epsilon)
    value.backward()
    assert value.item() > 1e4  # random codes against certain predictions
    for x in (a, b):
        assert torch.isfinite(x.grad).all()
        assert x.grad.abs().max() > 1e-3


@given(SEEDS, ROWS, PROTOTYPES, st.floats(0.1, 1.0), st.floats(0.1, 1.0), st.integers(1, 4))
@few
def test_swav_agrees_with_the_written_out_sum(seed, n, c, temperature, epsilon, iterations):
    a, b = views(seed, n, c)
    value = swav(*tensors(a, b), temperature=temperature, epsilon=epsilon, iterations=iterations)
    expected = written_out_swav(a, b, temperature, epsilon, iterations)
    assert value.item() == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(SEEDS, ROWS, st.integers(2, 6), st.integers(1, 9))
@few
def test_queued_rows_take_part_in_the_codes_only(seed, n, c, queued):
    a, b = views(seed, n, c)
    past, view_past = array(seed + 1, 2, queued, c)
    queues = dict(zip(("queue", "view_queue"), tensors(past, view_past), strict=True))
    value = swav(*tensors(a, b), temperature=0.4, epsilon=0.3, **queues)
    assert value.item() == pytest.approx(written_out_swav(a, b, 0.4, 0.3, 3, past, view_past), rel=1e-6)
    assert value.item() != pytest.approx(written_out_swav(a, b, 0.4, 0.3, 3), rel=1e-9)


def test_codes_carry_no_gradient():
    """With the codes frozen the gradient is that of a cross-entropy: (p − q)/(2nτ)."""
    a, b = (x.requires_grad_() for x in tensors(*views(0, 8, 4)))
    past, view_past = (x.requires_grad_() for x in tensors(*array(1, 2, 5, 4)))
    swav(a, b, temperature=0.4, epsilon=0.3, queue=past, view_queue=view_past).backward()
    for own, other, queue in ((a, b, view_past), (b, a, past)):
        codes = sinkhorn(torch.cat([other, queue]), epsilon=0.3)[:8]
        assert not codes.requires_grad
        torch.testing.assert_close(own.grad, (torch.softmax(own / 0.4, -1) - codes) / (2 * 8 * 0.4))
        assert queue.grad is None


@given(SEEDS)
@few
def test_views_can_be_swapped_and_prototypes_renamed(seed):
    a, b = tensors(*views(seed, 8, 4))
    queue, view_queue = tensors(*array(seed + 1, 2, 5, 4))
    value = swav(a, b, queue=queue, view_queue=view_queue)
    torch.testing.assert_close(swav(b, a, queue=view_queue, view_queue=queue), value)
    order = torch.randperm(4, generator=torch.Generator().manual_seed(seed))
    renamed = swav(a[:, order], b[:, order], queue=queue[:, order], view_queue=view_queue[:, order])
    torch.testing.assert_close(renamed, value)


def test_a_score_added_to_all_prototypes_changes_only_how_much_a_row_counts_in_the_codes():
    a, b = tensors(*views(0, 8, 4))
    torch.testing.assert_close(swav(a + 3, b - 2), swav(a, b))
    rowwise = torch.tensor(array(1, 8, 1))
    assert not torch.isclose(swav(a + rowwise, b + rowwise, iterations=1), swav(a, b, iterations=1), rtol=1e-6)


@pytest.mark.parametrize("c", [2, 5])
def test_certain_balanced_labels_have_no_loss(c):
    labels = torch.arange(3 * c) % c
    classes = torch.nn.functional.one_hot(labels).double()
    log_p = torch.log_softmax(60 * classes, -1)
    assert swav(10 * classes, 10 * classes).item() == pytest.approx(0.0, abs=1e-12)
    assert deepcluster(log_p, labels).item() == pytest.approx(0.0, abs=1e-12)
    assert sela(log_p, sinkhorn(10 * classes)).item() == pytest.approx(0.0, abs=1e-12)


def test_one_cluster_for_all_does_not_get_away_in_swav():
    """Balanced codes against a constant prediction: ln c."""
    same = torch.zeros(12, 4, dtype=torch.float64)
    same[:, 0] = 1e-9
    assert swav(same, same).item() == pytest.approx(math.log(4), rel=1e-6)
    same[:, 0] = 10.0
    assert swav(same, same).item() > 10.0


@given(SEEDS, ROWS, st.integers(2, 6))
@few
def test_deepcluster_and_sela_agree_with_the_written_out_cross_entropy(seed, n, c):
    log_p = log_softmax(array(seed, n, c, scale=3))
    codes = np.exp(log_softmax(array(seed + 1, n, c)))
    labels = codes.argmax(-1)
    expected = -np.mean([log_p[i, labels[i]] for i in range(n)])
    value = deepcluster(torch.tensor(log_p), torch.tensor(labels)).item()
    assert value == pytest.approx(expected, rel=1e-9)
    assert value >= 0
    expected = -np.mean([sum(codes[i, k] * log_p[i, k] for k in range(c)) for i in range(n)])
    assert sela(*tensors(log_p, codes)).item() == pytest.approx(expected, rel=1e-9)
    torch.testing.assert_close(
        sela(torch.tensor(log_p), torch.nn.functional.one_hot(torch.tensor(labels), c).double()).item(), value
    )


@given(SEEDS, ROWS, st.integers(2, 6))
@few
def test_no_value_lies_below_zero(seed, n, c):
    a, b = tensors(*views(seed, n, c, scale=3))
    assert swav(a, b).item() >= 0
    assert sela(torch.log_softmax(a, -1), sinkhorn(b)).item() >= 0


def test_more_prototypes_than_rows_are_pointed_out():
    scores = torch.tensor(array(0, 3, 5))
    with pytest.warns(GediWarning, match="5 prototypes for 3 rows: some must stay empty"):
        sinkhorn(scores)
    with pytest.warns(GediWarning, match="5 prototypes for 3 rows"):
        swav(scores, scores)
    queue = torch.tensor(array(1, 2, 5))
    swav(scores, scores, queue=queue, view_queue=queue)  # with the queue there are enough


def test_the_warning_points_to_the_line_that_asked():
    """In a process of its own: where types are checked, calls of the check lie between."""
    code = "import torch\nfrom gedikit.objectives import sinkhorn\nsinkhorn(torch.eye(3, 5))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    assert said.startswith("<string>:3: GediWarning: 5 prototypes for 3 rows: some must stay empty")
