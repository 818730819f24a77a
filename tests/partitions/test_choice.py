import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris, make_circles, make_moons
from sklearn.metrics import adjusted_rand_score

from gedikit.errors import DataError, UsageError
from gedikit.modalities.scaling import Scaler
from gedikit.partitions import choose_number, choose_partition
from gedikit.partitions.choice import agreements, mean_conductance
from gedikit.partitions.neighbourhood import Neighbourhood
from gedikit.views.neighbours import neighbour_graph


def unequal(d=2, outliers=True, seed=0):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(4), [360, 150, 78, 12])
    centres = np.zeros((4, d))
    centres[1, 0], centres[2, 1], centres[3, :2] = 8, 8, 8
    x = centres[y] + rng.standard_normal((600, d))
    if outliers:
        x = np.concatenate([x, rng.uniform(-40, 40, (6, d))])
        y = np.concatenate([y, np.full(6, -1)])
    return x.astype(np.float32), y


def test_agreements_are_adjusted_rand_indices():
    labels = np.random.default_rng(0).integers(0, 4, (5, 60))
    expected = [[adjusted_rand_score(a, b) for a in labels] for b in labels]
    np.testing.assert_allclose(agreements(labels, 4), expected, atol=1e-12)


def test_mean_conductance_of_a_graph_by_hand():
    from scipy import sparse

    weights = sparse.csr_matrix(np.array([[0, 2, 0, 0], [2, 0, 1, 0], [0, 1, 0, 3], [0, 0, 3, 0]], dtype=float))
    found = mean_conductance(weights, np.array([0, 0, 1, 1]), 2)
    assert found == pytest.approx((1 / 5 + 1 / 7) / 2)


@pytest.mark.parametrize("d", [2, 6])
@pytest.mark.parametrize("outliers", [False, True])
def test_small_groups_are_found_and_outliers_eat_none(d, outliers):
    x, y = unequal(d, outliers)
    known = y >= 0
    choice = choose_partition(x, 4, seed=0)
    assert adjusted_rand_score(y[known], choice.chosen.labels[known]) > 0.98
    assert np.bincount(choice.chosen.labels[known]).tolist() == pytest.approx([360, 150, 78, 12], abs=3)


def test_shapes_that_are_not_convex():
    for x, y in (
        make_moons(400, noise=0.06, random_state=0),
        make_circles(400, noise=0.04, factor=0.5, random_state=0),
    ):
        found = choose_number((x / x.std(0)).astype(np.float32), seed=0)
        assert found.n_clusters == 2
        assert adjusted_rand_score(y, found.choice.chosen.labels) == 1


def test_a_given_prior_decides_between_two_findings():
    """Four corners of a long rectangle, two groups: equal shares or one corner apart, as the prior says."""
    rng = np.random.default_rng(0)
    centres = np.array([[0, 0], [6, 0], [12.0, 0]])
    y = np.repeat([0, 1, 2], [100, 200, 300])
    x = (centres[y] + rng.standard_normal((600, 2)) * 0.5).astype(np.float32)
    left = choose_partition(x, 2, seed=0, prior=[1 / 6, 5 / 6]).chosen
    right = choose_partition(x, 2, seed=0, prior=[0.5, 0.5]).chosen
    assert adjusted_rand_score(y > 0, left.labels) == 1
    assert adjusted_rand_score(y > 1, right.labels) == 1


def test_a_graph_alone_is_enough():
    x, y = unequal(outliers=False)
    graph = neighbour_graph(x, torch.Generator().manual_seed(0))
    choice = choose_partition(None, 4, seed=0, graph=graph)
    assert adjusted_rand_score(y, choice.chosen.labels) > 0.98
    assert not any(p.name == "k-means" for p in choice.candidates)


def test_the_number_of_groups_has_its_evidence():
    x, _ = unequal()
    found = choose_number(x, seed=0)
    assert found.n_clusters == 4
    assert all(found.curve[k] >= found.threshold for k in (2, 3, 4))
    assert found.curve.get(5, 0.0) < found.threshold
    assert list(found.curve.values()) == sorted(found.curve.values(), reverse=True)
    assert found.runner_up in (3, 5)
    assert choose_number(x, seed=0, largest=3).n_clusters == 3


@pytest.mark.parametrize("law", ["gaussian", "uniform", "heavy"])
def test_one_group_is_one(law):
    rng = np.random.default_rng(7)
    x = {
        "gaussian": rng.standard_normal((600, 3)),
        "uniform": rng.uniform(-1, 1, (600, 3)),
        "heavy": rng.standard_t(3, (600, 3)),
    }[law].astype(np.float32)
    found = choose_number(x, seed=0)
    assert found.n_clusters == 1
    assert found.choice.chosen.labels.max() == 0


def test_the_same_seed_gives_the_same_partition():
    x, _ = unequal(6)
    first, second = (choose_partition(x, 4, seed=3) for _ in range(2))
    assert [p.name for p in first.candidates] == [p.name for p in second.candidates]
    assert all((a.labels == b.labels).all() for a, b in zip(first.candidates, second.candidates, strict=True))


def test_candidates_are_ranked_and_the_runner_up_is_another_finding():
    x, _ = make_moons(400, noise=0.06, random_state=0)
    choice = choose_partition(x.astype(np.float32), 2, seed=0)
    assert choice.chosen is choice.candidates[0]
    ranks = [p.agreement for p in choice.candidates]
    assert ranks == sorted(ranks, reverse=True)
    assert adjusted_rand_score(choice.chosen.labels, choice.runner_up.labels) < 0.95
    assert choice.margin == pytest.approx(choice.chosen.agreement - choice.runner_up.agreement)
    assert choice.chosen.shares.tolist() == sorted(choice.chosen.shares, reverse=True)


def test_every_row_has_a_group_where_only_some_are_anchors():
    x, y = unequal(outliers=False)
    near = Neighbourhood.of_points(np.concatenate([x, x, x]), 0, max_anchors=400)
    assert near.n_anchors <= 400
    assert near.anchor.shape == (1800,)
    assert (near.anchor[:600] == near.anchor[600:1200]).all()
    assert (y[near.rows % 600][near.anchor[:600]] == y).mean() > 0.99


def test_bad_input_is_named():
    x, _ = unequal()
    with pytest.raises(UsageError, match="at least 1, not 0"):
        choose_partition(x, 0, seed=0)
    with pytest.raises(UsageError, match="4 positive shares"):
        choose_partition(x, 4, seed=0, prior=[0.5, 0.5])
    with pytest.raises(DataError, match="3 clusters need as many different rows, and there are 2"):
        choose_partition(np.array([[0.0], [0.0], [1.0]], dtype=np.float32), 3, seed=0)
    with pytest.raises(DataError, match="points or a neighbour graph"):
        choose_partition(None, 2, seed=0)
    assert choose_number(np.zeros((10, 2), dtype=np.float32), seed=0).n_clusters == 1


def test_copies_of_few_points_are_as_many_groups():
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 3.0]], dtype=np.float32)
    y = np.repeat([0, 1, 2], [100, 60, 20])
    found = choose_number(points[y], seed=0)
    assert found.n_clusters == 3
    assert found.choice.chosen.labels.tolist() == y.tolist()


def test_a_single_row_is_no_group_where_others_are_as_good():
    """Of iris, expected agreement alone would cut off one row and leave two of the three species together."""
    x = load_iris().data
    choice = choose_partition(Scaler.fit(x).transform(x), 3, seed=0)
    cut_off = [p for p in choice.candidates if np.bincount(p.labels).min() == 1]
    assert max(p.agreement for p in cut_off) > choice.chosen.agreement, "one of these would have been chosen"
    assert np.bincount(choice.chosen.labels).min() > 1
    assert choice.chosen.criterion < min(p.criterion for p in cut_off)
