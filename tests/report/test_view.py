"""What part of the plane is shown: all of it, unless far rows would squeeze the others."""

import numpy as np
import pytest

from gedikit.report.view import View


def blobs(*sizes, spread=1.0):
    r = np.random.default_rng(0)
    centres = 10.0 * np.array([[i, i % 2] for i in range(len(sizes))])
    points = [centre + spread * r.normal(size=(n, 2)) for centre, n in zip(centres, sizes, strict=True)]
    return np.concatenate(points), np.repeat(np.arange(len(sizes)), sizes)


def test_all_points_are_shown_where_none_is_far():
    points, groups = blobs(100, 60, 40)
    view = View.of(points, groups)
    held, beyond = view.held(points)
    assert not beyond.any()
    np.testing.assert_array_equal(held, points)
    assert (view.low < points.min(0)).all() and (view.high > points.max(0)).all()


def test_far_points_are_held_at_the_edge_they_lie_beyond():
    points, groups = blobs(100, 60, 40)
    inner = View.of(points, groups)
    far = np.array([[1e4, 3.0], [5.0, -1e4]])
    everything = np.concatenate([points, far])
    view = View.of(everything, np.concatenate([groups, [0, 1]]))
    held, beyond = view.held(everything)
    np.testing.assert_array_equal(np.flatnonzero(beyond), [200, 201])
    assert (view.high - view.low < 1.5 * (inner.high - inner.low)).all(), "as wide as without them"
    assert view.high[0] - 1 < held[200, 0] < view.high[0] and held[200, 1] == 3.0
    assert view.low[1] < held[201, 1] < view.low[1] + 1 and held[201, 0] == 5.0


def test_a_small_group_far_off_is_shown_and_a_few_stray_rows_of_its_size_are_not():
    points, groups = blobs(900, 88)
    small = np.array([200.0, 0.0]) + np.random.default_rng(1).normal(size=(12, 2))
    together = np.concatenate([points, small])
    as_group = View.of(together, np.concatenate([groups, np.full(12, 2)]))
    assert not as_group.held(together)[1].any(), "1.2 % of the rows are a group"
    as_strays = View.of(together, np.concatenate([groups, np.zeros(12, dtype=np.int64)]))
    assert as_strays.held(together)[1].sum() == 12


def test_a_column_that_hardly_varies_is_not_cut():
    points = np.zeros((100, 2))
    points[:40, 0] = np.arange(40)
    points[:, 1] = np.arange(100)
    view = View.of(points, np.zeros(100, dtype=np.int64))
    assert not view.held(points)[1].any()
    same = View.of(np.ones((5, 1)), np.zeros(5, dtype=np.int64))
    assert not same.held(np.ones((5, 1)))[1].any()


def test_the_domain_is_shown_where_no_point_is_far():
    points, groups = blobs(100, 60)
    domain = np.array([-20.0, -30.0]), np.array([40.0, 50.0])
    view = View.of(points, groups, domain)
    np.testing.assert_array_equal(view.low, domain[0])
    np.testing.assert_array_equal(view.high, domain[1])
    wide = np.array([-1e6, -30.0]), np.array([1e6, 50.0])
    far = View.of(np.concatenate([points, [[9e5, 5.0]]]), np.append(groups, 0), wide)
    assert far.high[0] < 20 and far.high[1] == pytest.approx(50.0)
