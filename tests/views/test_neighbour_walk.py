import math

import numpy as np
import pytest
import torch
from sklearn.neighbors import KernelDensity

from gedikit.data.toy import circles, rings
from gedikit.views import Noise
from gedikit.views.base import ChangedRows
from gedikit.views.neighbour_walk import NeighbourWalk, kernel_bandwidth, neighbour_walk
from gedikit.views.neighbours import neighbour_graph
from gedikit.views.walk import WalkViews


def walk_along(x: torch.Tensor, n_clusters: int, generator: torch.Generator, **options) -> NeighbourWalk:
    return neighbour_walk(neighbour_graph(x.numpy(), generator, **options), n_clusters, generator)


def test_bandwidth_is_the_leave_one_out_optimum(generator):
    x = np.random.default_rng(0).normal(size=(120, 2))
    h = kernel_bandwidth(torch.tensor(x), generator)

    def leave_one_out(width):
        by_point = [
            KernelDensity(bandwidth=width).fit(np.delete(x, i, 0)).score_samples(x[i : i + 1])[0]
            for i in range(len(x))
        ]
        return np.mean(np.sort(by_point)[2:])  # the strangest 2 % have no say

    best = leave_one_out(h)
    assert best >= leave_one_out(0.8 * h)
    assert best >= leave_one_out(1.25 * h)


def test_bandwidth_of_copies_is_positive(generator):
    assert kernel_bandwidth(torch.ones(10, 3), generator) > 0
    two_values = torch.tensor([[0.0], [0.0], [1.0], [1.0]])
    assert kernel_bandwidth(two_values, generator) > 0


def test_long_walks_mix_within_a_ring_and_never_leave_it(generator):
    x, y = rings(1500, 0)
    walk = walk_along(torch.tensor(x, dtype=torch.float32), 3, generator)
    rows = torch.arange(1500).repeat(10)
    ends = walk.step(rows, walk.n_levels - 1, generator)
    assert (y[rows.numpy()] == y[ends.numpy()]).all()
    # mixed: the angle reached is nearly independent of the angle started from
    angle = np.arctan2(x[:, 1], x[:, 0])
    drift = np.cos(angle[rows.numpy()] - angle[ends.numpy()]).mean()
    assert abs(drift) < 0.15
    # while a single step stays near
    near = walk.step(rows, 0, generator)
    assert np.linalg.norm(x[rows.numpy()] - x[near.numpy()], axis=1).mean() < 0.3


def test_groups_estimate_the_trace_of_the_walk(generator):
    """Two far blobs: the number of groups falls to 2 and the walk ends there."""
    rng = np.random.default_rng(0)
    x = np.r_[rng.normal(size=(100, 2)), rng.normal(size=(100, 2)) + 30]
    walk = walk_along(torch.tensor(x, dtype=torch.float32), 2, generator)
    assert walk.groups[-1] == pytest.approx(2.0, abs=0.25)
    assert all(a > b for a, b in zip(walk.groups, walk.groups[1:], strict=False))


def test_anchors_stand_in_for_their_neighbours(generator):
    x, y = circles(2000, 0)
    walk = walk_along(torch.tensor(x, dtype=torch.float32), 2, generator, max_anchors=500)
    rows = torch.arange(2000)
    ends = walk.step(rows, 0, generator)
    assert (y[rows.numpy()] == y[ends.numpy()]).mean() > 0.995
    assert len(walk.anchor_rows) == 500
    assert set(ends.tolist()) <= set(walk.anchor_rows.tolist())


def test_walk_views_shorten_over_the_training(generator):
    x = torch.randn(50, 2, generator=generator)
    walk = walk_along(x, 1, generator)
    views = WalkViews(x, walk, 0.0, hold=0.3, end=0.8)
    top = walk.n_levels - 1
    assert [views.level(p) for p in (0.0, 0.3, 0.8, 1.0)] == [top, top, 0, 0]
    assert views.level(0.55) == round(top / 2)


def test_noise_views_have_the_asked_deviation(generator):
    data = torch.zeros(1, 3)
    x, view = ChangedRows(data, Noise().change, 0.03)((torch.zeros(50_000, dtype=torch.long),), 0, generator)
    assert (x == 0).all()
    assert view.std().item() == pytest.approx(0.03, rel=0.01)


def test_tiny_data_still_walks(generator):
    walk = walk_along(torch.tensor([[0.0], [1.0]]), 2, generator)
    assert walk.step(torch.tensor([0, 1]), 0, generator).shape == (2,)
    assert math.isfinite(walk.groups[0])


def test_one_far_outlier_sets_no_scale(generator):
    x = torch.tensor(circles(500, 0)[0])
    clean = kernel_bandwidth(x, generator)
    for far in (5.0, 100.0):
        with_outlier = torch.cat([x, torch.full((1, 2), far, dtype=x.dtype)])
        assert kernel_bandwidth(with_outlier, generator) == pytest.approx(clean, rel=0.25)


@pytest.mark.parametrize("d", [2, 64])
def test_copies_change_nothing(d, generator):
    x = torch.randn(300, d, generator=generator, dtype=torch.float64)
    assert kernel_bandwidth(x.repeat(3, 1), generator) == pytest.approx(kernel_bandwidth(x, generator))
    walk = walk_along(x.repeat(10, 1).float(), 1, generator)
    assert walk.groups[-1] < 1.2, "heaps of copies are not groups of their own"
    assert len(walk.anchor_rows) == 300
