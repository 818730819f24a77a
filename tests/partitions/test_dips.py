import numpy as np
import pytest
from scipy import sparse

from gedikit.partitions.dips import crossing_weight, deepest_dip, splits
from gedikit.partitions.neighbourhood import Neighbourhood
from gedikit.partitions.number import DEEP


def wide_graph(points):
    return Neighbourhood.of_points(points.astype(np.float32), 0).wide


def test_crossing_weight_is_the_cut_at_each_place():
    rng = np.random.default_rng(0)
    dense = np.triu(rng.random((12, 12)) * (rng.random((12, 12)) < 0.5), 1)
    dense = dense + dense.T
    order = rng.permutation(12)
    expected = [dense[np.ix_(order[: i + 1], order[i + 1 :])].sum() for i in range(11)]
    np.testing.assert_allclose(crossing_weight(sparse.csr_matrix(dense), order), expected, atol=1e-12)


@pytest.mark.parametrize("shape", ["gaussian", "cube", "heavy", "ring"])
def test_one_group_has_no_deep_dip(shape):
    rng = np.random.default_rng(3)
    angle = rng.uniform(0, 2 * np.pi, 800)
    ring = np.stack([np.cos(angle), np.sin(angle)], 1) + 0.1 * rng.standard_normal((800, 2))
    points = {
        "gaussian": rng.standard_normal((800, 4)),
        "cube": rng.uniform(-1, 1, (800, 3)),
        "heavy": rng.standard_t(3, (800, 2)),
        "ring": ring,
    }[shape]
    assert deepest_dip(wide_graph(points), 8).depth < DEEP


def test_the_dip_lies_between_two_groups_that_touch():
    rng = np.random.default_rng(4)
    points = np.concatenate([rng.standard_normal((700, 2)), rng.standard_normal((70, 2)) + np.array([6, 0])])
    near = Neighbourhood.of_points(points.astype(np.float32), 0)
    dip = deepest_dip(near.wide, near.least)
    assert dip.depth > DEEP
    assert dip.ratio < 0.2
    small = dip.side if dip.side.sum() < len(dip.side) / 2 else ~dip.side
    truth = near.rows >= 700
    assert (small == truth).mean() > 0.99


def test_splits_number_the_parts_and_each_cuts_one_of_them():
    rng = np.random.default_rng(5)
    centres = np.array([[0, 0], [8, 0], [0, 8], [8, 8]])
    points = np.concatenate([rng.standard_normal((100, 2)) + c for c in centres])
    near = Neighbourhood.of_points(points.astype(np.float32), 0)
    made = splits(near.wide, near.least, 4)
    assert [len(np.unique(s.labels)) for s in made] == [2, 3, 4]
    before = np.zeros(near.n_anchors, dtype=int)
    for split in made:
        changed = split.labels != before
        assert len(np.unique(before[changed])) == 1
        before = split.labels
