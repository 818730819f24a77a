"""Weights, labels and links of rows: what is refused, how batches and starts follow them, what a fit learns."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs

from gedikit import GEDI
from gedikit.callbacks import Callback
from gedikit.errors import DataError, UsageError
from gedikit.guidance import guided, log_evidence
from gedikit.known import Known
from gedikit.planning import Asked, plan
from gedikit.profile import DataProfile
from gedikit.starts import Starts
from gedikit.training.fit import fit, prepare
from gedikit.training.many import Task, fit_many
from gedikit.views.neighbours import neighbour_graph

QUICK = {"encoder.hidden": [32], "sampler.bank": 500, "sampler.samples": 32}


def cross(n=200, seed=0):
    """Two bars that cross: no partition without labels finds them."""
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.normal(0, [3, 0.2], (n, 2)), rng.normal(0, [0.2, 3], (n, 2))])
    return x, np.repeat([0, 1], n)


def some(y, per_class, seed=0):
    rng, known = np.random.default_rng(seed), np.full(len(y), -1)
    for c in np.unique(y):
        known[rng.choice(np.flatnonzero(y == c), per_class, replace=False)] = c
    return known


@pytest.mark.parametrize(
    ("given", "error", "word"),
    [
        (
            {"sample_weight": [1, 2]},
            DataError,
            r"sample_weight has shape \(2,\): give one weight for each of 4 rows",
        ),
        ({"sample_weight": [1, -1, 1, 1]}, DataError, "not negative, not -1.0 as in row 1"),
        ({"sample_weight": [1, 1, np.nan, 1]}, DataError, "finite and not negative, not nan as in row 2"),
        ({"sample_weight": [0, 0, 0, 1]}, DataError, "sample_weight is zero for all rows but one"),
        ({"partial_labels": [0, 1]}, DataError, "give a label or -1 for each of 4 rows"),
        ({"partial_labels": [0, 1, -2, 0]}, UsageError, "not -2 as in row 2"),
        ({"partial_labels": ["a", "b", "a", "b"]}, UsageError, "numbers of clusters from 0 on"),
        ({"partial_labels": [0.5, 1, -1, -1]}, UsageError, "numbers of clusters from 0 on"),
        ({"must_link": [[0, 4]]}, DataError, "must_link names rows from 0 to 3, not 4"),
        ({"must_link": [0, 1]}, UsageError, "must_link must be pairs"),
        ({"cannot_link": [[2, 2]]}, DataError, "cannot_link pairs row 2 with itself"),
        ({"must_link": [[0, 1], [1, 2]], "cannot_link": [[0, 2]]}, DataError, "rows 0 and 2 cannot be linked"),
        ({"partial_labels": [0, -1, 1, -1], "must_link": [[0, 1], [1, 2]]}, DataError, "have different labels"),
        ({"partial_labels": [0, -1, 0, -1], "cannot_link": [[0, 2]]}, DataError, "have the same label 0"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(given, error, word):
    with pytest.raises(error, match=word):
        Known.of(4, **given)


def test_labels_go_along_links_and_gaps_are_unknown():
    known = Known.of(6, None, [1, np.nan, -1, 0, np.nan, np.nan], [[0, 2], [2, 5]], [[0, 3]])
    assert known.labels.tolist() == [1, -1, 1, 0, -1, 1]
    assert known.n_labels == 2
    assert Known.of(3) is None
    assert Known.of(3, partial_labels=[-1, -1, -1], sample_weight=[1, 1, 1]).labels is None


def test_rows_without_weight_are_left_out_with_their_labels_and_links():
    known = Known.of(5, [1, 0, 2, 1, 1], [0, 1, -1, 1, -1], [[2, 4]], [[1, 2], [0, 4]])
    part = known.among(known.counted)
    assert part.n_rows == 4
    assert part.weights.tolist() == [1, 2, 1, 1]
    assert part.labels.tolist() == [0, -1, 1, -1]
    assert part.must_link.tolist() == [[1, 3]]
    assert part.cannot_link.tolist() == [[0, 3]], "the link to a row that does not count is gone"


def test_whole_weights_repeat_rows_exactly_and_others_in_the_mean():
    assert Known.of(3, [1, 3, 2]).drawn_from(8, 0).ravel().tolist() == [0, 1, 1, 1, 2, 2]
    assert Known.of(3, [0.5, 1.5, 1.0]).drawn_from(8, 0).ravel().tolist() == [0, 1, 1, 1, 2, 2]
    assert Known.of(3, [2, 2, 2]).drawn_from(8, 0) is None
    weights = np.array([0.137, 1.0, 2.31])
    known = Known.of(3, weights)
    counts = np.mean([np.bincount(known.repeated(np.arange(3), 10, seed), minlength=3) for seed in range(2000)], 0)
    np.testing.assert_allclose(counts, 10 * weights / weights.sum(), atol=0.05)


def test_batches_and_the_shares_of_the_start_follow_the_weights():
    x, y = make_blobs([100, 100], centers=[[0, 0], [9, 0]], random_state=0)
    known = Known.of(200, np.where(y == 0, 1, 3))
    starts = Starts(x, 0, (), known)
    made = plan(DataProfile.of(x), Asked(2, known=known, config=QUICK), starts)
    assert made.prior == pytest.approx((0.75, 0.25))
    ready = prepare(made, x, starts=starts, known=known)
    rows, _ = ready.views.batch(20_000, 0, 0, torch.Generator().manual_seed(0))
    assert float((torch.from_numpy(y)[rows] == 1).double().mean()) == pytest.approx(0.75, abs=0.01)
    targets = ready.step.objectives["pseudo-labels"]._targets
    assert (targets.argmax(1).numpy() == np.where(y == 1, 0, 1)).all(), "the group with the larger weight is first"


def test_a_weight_is_a_row_that_is_there_as_often():
    """The density of a model with weights is that of one with repeated rows, up to the draw."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-2, 0.5, (60, 1)), rng.normal(2, 0.5, (60, 1))])
    weight = np.repeat([1, 4], 60)
    given = {"method": "jem", "max_iter": 200, "random_state": 0, "config": {**QUICK, "views.name": "noise"}}
    weighted = GEDI(1, **given).fit(x, sample_weight=weight)
    repeated = GEDI(1, **given).fit(np.repeat(x, weight, axis=0))
    plain = GEDI(1, **given).fit(x)
    grid = np.linspace(-4, 4, 401)[:, None]
    right = [np.exp(m.score_samples(grid))[200:].sum() * 0.02 for m in (weighted, repeated, plain)]
    assert right[1] == pytest.approx(0.8, abs=0.03)
    assert right[0] == pytest.approx(right[1], abs=0.03)
    assert right[2] == pytest.approx(0.5, abs=0.03)


def test_a_row_without_weight_plays_no_part_and_has_a_label(moons_xy):
    x, _ = moons_xy
    weight = np.ones(len(x))
    weight[::5] = 0
    given = {"max_iter": 20, "random_state": 0, "config": QUICK}
    model = GEDI(2, **given).fit(x, sample_weight=weight)
    without = GEDI(2, **given).fit(x[weight > 0])
    assert np.array_equal(model.score_samples(x), without.score_samples(x)), "the same model, bit for bit"
    assert len(model.labels_) == len(x)
    assert np.array_equal(model.labels_, without.predict(x))


def test_a_few_labels_name_clusters_and_settle_what_neighbours_cannot():
    x, y = cross(100)
    known = some(y, 8)
    given = {"max_iter": 150, "random_state": 0}
    plain = GEDI(2, method="gedi-no-gen", **given).fit(x).labels_
    model = GEDI(2, method="gedi-no-gen", **given).fit(x, partial_labels=known)
    assert max((plain == y).mean(), (plain != y).mean()) < 0.75
    assert (model.labels_ == y).mean() > 0.85
    assert (model.labels_[known >= 0] == known[known >= 0]).all()
    assert model.history_[-1]["known-labels"] < 0.05
    assert "known-labels" in model.plan_.terms
    assert model.plan(x, partial_labels=known) == model.plan_


def test_labels_of_some_groups_leave_the_others_to_be_found():
    x, y = make_blobs([60, 120, 90], centers=[[0, 0], [9, 0], [0, 9]], random_state=0)
    known = np.full(len(x), -1)
    known[np.flatnonzero(y == 2)[:3]] = 0  # the first of the names for a group that is not the largest
    start = Starts(x, 0, (), Known.of(len(x), None, known)).find(3, "auto")
    assert (start.labels[y == 2] == 0).all()
    assert {*start.labels[y == 0]} | {*start.labels[y == 1]} == {1, 2}
    np.testing.assert_allclose(start.shares, np.bincount(start.labels) / len(x))
    found = GEDI(max_iter=5, random_state=0, config=QUICK).plan(x, partial_labels=np.where(known == 0, 4, -1))
    assert found.n_clusters == 5, "as many as the largest label asks for"
    with pytest.raises(UsageError, match="the largest known label is 4, which takes 5 clusters, not n_clusters=3"):
        GEDI(3).fit(x, partial_labels=np.where(known == 0, 4, -1))
    with pytest.raises(UsageError, match="'vicreg' reads clusters off by k-means"):
        GEDI(3, method="vicreg").fit(x, partial_labels=known)


def test_links_decide_between_partitions_that_are_as_good():
    """A square of four groups, two clusters: one link says which way to cut."""
    corners = [[0, 0], [0, 6], [6, 0], [6, 6]]
    x, y = make_blobs([50] * 4, centers=corners, cluster_std=0.7, random_state=0)
    first = [int(np.flatnonzero(y == c)[0]) for c in range(4)]
    graph = neighbour_graph(x, torch.Generator().manual_seed(0))
    upright, flat = (y // 2).astype(np.int64), (y % 2).astype(np.int64)
    for pair, expected in (([first[0], first[1]], upright), ([first[0], first[2]], flat)):
        known = Known.of(len(x), must_link=[pair])
        assert np.array_equal(guided(graph, [upright, flat], known, 2), expected)
        apart = Known.of(len(x), cannot_link=[pair])
        assert np.array_equal(guided(graph, [upright, flat], apart, 2), flat if expected is upright else upright)
    assert log_evidence(upright, Known.of(200, must_link=[[first[0], first[1]]]), 2) == pytest.approx(np.log(0.95))


def test_links_are_learned_from():
    x, y = cross(100)
    rng = np.random.default_rng(1)
    pairs = rng.integers(len(x), size=(120, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    same = y[pairs[:, 0]] == y[pairs[:, 1]]
    model = GEDI(2, method="gedi-no-gen", max_iter=150, random_state=0)
    model.fit(x, must_link=pairs[same], cannot_link=pairs[~same])
    labels = model.labels_
    held = (labels[pairs[:, 0]] == labels[pairs[:, 1]]) == same
    assert held.mean() > 0.95
    assert max((labels == y).mean(), (labels != y).mean()) > 0.85


def test_killed_and_resumed_is_uninterrupted_and_the_seed_decides(moons_xy):
    x, y = moons_xy
    known = Known.of(len(x), np.arange(len(x)) % 3 + 0.5, some(y, 200), [[0, 1]] if y[0] == y[1] else [], [])
    made = plan(DataProfile.of(x), Asked(2, known=known, config={**QUICK, "optimiser.iterations": 12}), None)
    kept = {}

    class Keep(Callback):
        def on_step(self, view):
            if view.iteration == 5:
                kept["at"] = ({k: t.clone() for k, t in view.state.tensors().items()}, view.state.meta())

    whole = fit(made, x, known=known, callbacks=[Keep()])
    again = fit(made, x, known=known, checkpoint=kept["at"])
    assert made.config.objectives["known-labels"].rows < 400, "labelled rows are drawn"
    assert torch.equal(whole.state.weights, again.state.weights)


def test_models_side_by_side_say_that_they_take_no_labels(moons_xy):
    x, y = moons_xy
    made = plan(DataProfile.of(x), Asked(2, prior="uniform", known=Known.of(len(x), None, some(y, 2))))
    with pytest.raises(UsageError, match="known-labels give every model targets of its own"):
        fit_many([Task(x, made)])
    with pytest.raises(UsageError, match="needs labels of some rows"):
        fit(made, x)


def test_routing_and_cloning_know_the_arguments(moons_xy):
    x, _ = moons_xy
    model = clone(GEDI(2, max_iter=2, random_state=0, config=QUICK))
    requested = model.set_fit_request if hasattr(model, "set_fit_request") else None
    assert requested is None or callable(requested)
    for name in ("sample_weight", "partial_labels", "must_link", "cannot_link"):
        assert name in model.get_metadata_routing().fit.requests
    labels = model.fit_predict(x, sample_weight=pd.Series(np.arange(len(x)) % 2))
    assert len(labels) == len(x)
    assert KMeans(2).get_metadata_routing().fit.requests.keys() >= {"sample_weight"}, "as scikit-learn's own"
