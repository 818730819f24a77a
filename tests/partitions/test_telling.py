"""Categories that have nothing to do with the groups do not part them."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from gedikit import GEDI
from gedikit.partitions.telling import telling_columns
from gedikit.starts import Starts

RNG = np.random.default_rng(0)
X, Y = make_blobs([150, 100, 50], centers=[[0, 0], [9, 0], [0, 9]], cluster_std=1.0, random_state=0)
X = X / X.std(0)


def coded(values: np.ndarray) -> np.ndarray:
    """Centred 1-of-n codes."""
    codes = 0.7 * (values[:, None] == np.unique(values)).astype(float)
    return codes - codes.mean(0)


def test_a_category_counts_where_neighbours_share_it():
    random, own = RNG.integers(4, size=len(X)), np.where(RNG.random(len(X)) < 0.95, Y, RNG.integers(3, size=len(X)))
    points = np.c_[X, coded(random), coded(own)]
    assert telling_columns(points, range(2, 9), 0).tolist() == [0, 1, 6, 7, 8], "the four codes of chance are aside"
    assert telling_columns(points[:, :2], (), 0).tolist() == [0, 1]


def test_rare_marks_of_chance_do_not_count_and_those_of_a_small_group_do():
    missing, small = RNG.random(len(X)) < 0.03, Y == 2
    points = np.c_[X, missing - missing.mean(), small - small.mean()]
    assert telling_columns(points, (2, 3), 0).tolist() == [0, 1, 3]


def test_without_numbers_all_categories_count():
    points = np.c_[coded(RNG.integers(3, size=100)), coded(RNG.integers(2, size=100))]
    assert telling_columns(points, range(5), 0).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("n_clusters", [None, 3])
def test_groups_are_those_of_the_other_columns(n_clusters):
    x = np.c_[X, 0.7 * (RNG.integers(4, size=len(X))[:, None] == np.arange(4))]
    starts = Starts(x, 0, range(2, 6))
    assert starts.aside("features").tolist() == [], "nothing was looked for"
    np.testing.assert_array_equal(starts.find(n_clusters, "features").labels, Y)
    assert starts.aside("features").tolist() == [2, 3, 4, 5]
    np.testing.assert_array_equal(starts.telling(x, "features"), X)


def test_the_plan_names_columns_that_groups_are_looked_for_without():
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(
        region=np.array(["n", "s", "e"])[RNG.integers(3, size=len(X))]
    )
    frame.loc[RNG.random(len(X)) < 0.05, "a"] = np.nan
    model = GEDI(random_state=0, max_iter=200)
    made = model.plan(frame)
    assert made.n_clusters == 3
    (said,) = [decision.choice for decision in made.decisions if decision.what == "groups"]
    assert said == "looked for without gaps of a, region"
    concerns = model.fit(frame).fitted_.info["concerns"]
    assert adjusted_rand_score(Y, model.labels_) > 0.9
    assert not [concern for concern in concerns if concern["kind"] == "several islands"]
