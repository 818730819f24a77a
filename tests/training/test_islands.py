"""Clusters on the neighbour graph: what is one island, what is several, what was cut, and what is outliers."""

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs

from gedikit.data.toy import moons
from gedikit.partitions.neighbourhood import Neighbourhood
from gedikit.training.evidence import gain_over_gaussian
from gedikit.training.islands import Concern, look_at_islands


def groups():
    """Three groups far apart, 50, 30 and 20 % of 400 rows."""
    return make_blobs([200, 120, 80], centers=[[0, 0], [12, 0], [0, 12]], cluster_std=1.0, random_state=0)


def kinds(found):
    return {(concern.kind, concern.clusters) for concern in found.concerns if concern.sure}


def test_the_groups_themselves_raise_no_concern():
    x, y = groups()
    found = look_at_islands(x, y, 0)
    assert kinds(found) == set()
    assert found.agreement == 1
    assert found.n_islands == 3


def test_two_groups_in_one_cluster_are_several_islands():
    x, y = groups()
    found = look_at_islands(x, np.where(y == 2, 1, y), 0)
    assert kinds(found) == {("several islands", (1,))}
    (concern,) = found.concerns
    assert concern.share == pytest.approx(0.2, abs=0.01)
    assert set(y[list(concern.rows)]) == {2}, "rows of the smaller island are shown"
    assert found.n_islands == 3
    assert found.agreement < 0.8


def test_a_group_in_two_clusters_was_cut():
    x, y = groups()
    found = look_at_islands(x, np.where((y == 0) & (x[:, 0] > 0), 3, y), 0)
    assert kinds(found) == {("cut island", (0, 3))}
    (concern,) = found.concerns
    assert np.abs(x[list(concern.rows), 0]).max() < 0.6, "rows along the cut are shown"
    assert found.n_islands == 3


def test_curves_are_islands_whatever_their_shape():
    x, y = moons(600, 0)
    assert kinds(look_at_islands(x, y, 0)) == set()
    across = (x[:, 0] > x[:, 0].mean()).astype(np.int64)
    assert {kind for kind, _ in kinds(look_at_islands(x, across, 0))} == {"several islands", "cut island"}


def test_rows_far_from_everything_make_a_cluster_of_outliers():
    x, y = groups()
    rng = np.random.default_rng(0)
    far = rng.uniform(-40, 60, (6, 2)) + np.array([0, 90])
    found = look_at_islands(np.r_[x, far], np.r_[y, np.full(6, 3)], 0)
    assert ("outliers", (3,)) in kinds(found)
    small = rng.normal([30, 30], 0.5, (12, 2))
    assert kinds(look_at_islands(np.r_[x, small], np.r_[y, np.full(12, 3)], 0)) == set(), "a small group is a group"


def test_concerns_survive_a_file():
    concern = Concern("cut island", (0, 3), True, 0.7, 0.2, (5, 6))
    assert Concern.from_tree(concern.tree()) == concern


def test_the_gain_over_one_gaussian_is_in_nats():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(4000, 3, generator=generator)
    truth = torch.distributions.Normal(0, 1).log_prob(rows).sum(-1)
    found = gain_over_gaussian(truth, rows, rows, 0.0)
    assert found["gain_over_gaussian"] == pytest.approx(0, abs=0.01)
    assert found["gain_error"] < 0.01
    assert gain_over_gaussian(truth - 0.5, rows, rows, 0.0)["gain_over_gaussian"] == pytest.approx(-0.5, abs=0.01)
    noised = torch.distributions.Normal(0, 1.25).log_prob(rows).sum(-1)
    wide = gain_over_gaussian(noised, rows, rows, 0.75)
    assert wide["gain_over_gaussian"] == pytest.approx(0, abs=0.01), "1 + 0.75² = 1.25²"


def test_a_neighbourhood_of_the_same_rows_is_not_built_again(monkeypatch):
    x, y = groups()
    merged = np.where(y == 2, 1, y)
    built, other = Neighbourhood.of_points(x, 0), Neighbourhood.of_points(x[:, ::-1].copy(), 0)
    afresh = look_at_islands(x, merged, 0)
    assert look_at_islands(x, merged, 0, other) == afresh, "one of other rows is of no use"

    def again(*_: object) -> Neighbourhood:
        raise AssertionError("built again")

    monkeypatch.setattr(Neighbourhood, "of_points", again)
    assert look_at_islands(x, merged, 0, built) == afresh
