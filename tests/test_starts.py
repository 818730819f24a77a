"""Partitions that a fit starts from: of scaled rows, each found once, the same whoever asks."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from gedikit import starts
from gedikit.data.toy import moons
from gedikit.starts import Starts

SIZES = (120, 50, 20)


def blobs(scale=(1.0, 1.0), sizes=SIZES) -> tuple[np.ndarray, np.ndarray]:
    """Three round groups of unequal sizes."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(len(sizes)), sizes)
    centers = np.array([[0.0, 0.0], [12.0, 0.0], [0.0, 12.0]])[: len(sizes)]
    order = rng.permutation(len(y))
    return ((centers[y] + rng.normal(size=(len(y), 2))) * scale)[order], y[order]


def test_groups_are_those_of_the_rows_the_largest_first():
    x, y = blobs()
    start = Starts(x, 0).find(3, "auto")
    np.testing.assert_array_equal(start.labels, y)
    np.testing.assert_allclose(start.choice.chosen.shares, np.array(SIZES) / sum(SIZES))
    assert (start.n_clusters, start.number) == (3, None)


def test_the_number_of_groups_is_looked_for_where_none_is_given():
    x, y = blobs()
    start = Starts(x, 0).find(None, "auto")
    assert start.n_clusters == start.number.n_clusters == 3
    np.testing.assert_array_equal(start.labels, y)
    assert start.number.runner_up != 3


@pytest.mark.parametrize("n", [4, 16, 21])
def test_fewer_rows_than_columns(n):
    y = np.arange(n) % 2
    x = np.random.default_rng(0).normal(size=(n, 300)) + 3.0 * y[:, None]
    assert adjusted_rand_score(y, Starts(x, 0).find(2, "auto").labels) == 1


def test_one_group_is_a_start_too():
    start = Starts(np.random.default_rng(0).normal(size=(200, 3)), 0).find(None, "auto")
    assert start.n_clusters == 1
    assert not start.labels.any()


@pytest.mark.parametrize("rows", [blobs()[0], moons(200, 0)[0]])
def test_a_number_that_was_found_is_the_same_start_as_that_number_given(rows):
    """A run that goes on from a checkpoint knows the number only."""
    found = Starts(rows, 0).find(None, "auto")
    given = Starts(rows, 0).find(found.n_clusters, "auto")
    np.testing.assert_array_equal(found.labels, given.labels)
    assert found.choice.chosen.name == given.choice.chosen.name


def test_each_start_is_found_once(monkeypatch):
    calls = []
    choose, number = starts.choose_among, starts.choose_number_among

    def counted(near, n_clusters, **given):
        calls.append(n_clusters)
        return choose(near, n_clusters, **given)

    def counted_number(near, **given):
        calls.append(None)
        return number(near, **given)

    monkeypatch.setattr(starts, "choose_among", counted)
    monkeypatch.setattr(starts, "choose_number_among", counted_number)
    looked_at = Starts(blobs()[0], 0)
    found = looked_at.find(None, "auto")
    assert looked_at.find(None, "auto") is found
    assert looked_at.find(3, "auto") is found, "what was found is what is asked for"
    looked_at.find(2, "auto")
    looked_at.find(2, "auto")
    prior = [0.6, 0.3, 0.1]
    with_prior = looked_at.find(3, "auto", prior)
    assert with_prior is looked_at.find(3, "auto", np.array(prior)) is not found
    assert looked_at.find(3, "features") is not found
    assert calls == [None, 2, 3, 3]
    assert list(looked_at.near) == ["auto", "features"], "so is who is near whom"


def test_rows_are_scaled_as_asked_before_neighbours_are_looked_for():
    x, y = blobs(scale=(1.0, 1e-3))  # unscaled, the third group lies in the first
    assert adjusted_rand_score(y, Starts(x, 0).find(3, "features").labels) == 1
    assert adjusted_rand_score(y, Starts(x, 0).find(3, "none").labels) < 0.9


def test_columns_of_codes_are_not_scaled():
    x, y = blobs()
    codes = 0.5 * (y == 1)
    looked_at = Starts(np.column_stack([x, codes]), 0, codes=(2,))
    looked_at.find(3, "features")
    near = looked_at.near["features"]
    np.testing.assert_allclose(near.points[:, 2], (codes - codes.mean())[near.rows], rtol=1e-6)
    np.testing.assert_allclose(near.points[:, :2].std(0), 1, rtol=0.05)


@pytest.mark.parametrize("prior", [[0.25, 0.75], [0.5, 0.5]])
def test_a_given_prior_is_found_in_any_order(prior):
    """Three groups in a row, of 50, 50 and 100: two of them make up either share."""
    rng = np.random.default_rng(0)
    x = np.repeat([0.0, 9.0, 18.0], [50, 50, 100])[:, None] * [1.0, 0.0] + rng.normal(size=(200, 2))
    shares = Starts(x, 0).find(2, "none", prior).choice.chosen.shares
    np.testing.assert_allclose(shares, sorted(prior, reverse=True))


def test_the_same_seed_gives_the_same_start():
    x, _ = moons(200, 0)
    np.testing.assert_array_equal(Starts(x, 3).find(4, "auto").labels, Starts(x, 3).find(4, "auto").labels)
