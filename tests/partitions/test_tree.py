import numpy as np
import pytest
from scipy import sparse
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist, squareform
from sklearn.metrics import adjusted_rand_score

from gedikit.partitions.tree import SpanningTree, branches, genie, most_persistent, widest_parted


def full_tree(points):
    return SpanningTree.of(sparse.csr_matrix(squareform(pdist(points))))


def slow_genie(points, n_clusters, largest_gini):
    """Genie by its definition: all distances between clusters, the index from scratch at every merge."""
    distance = squareform(pdist(points))
    clusters = [[i] for i in range(len(points))]
    while len(clusters) > n_clusters:
        sizes = np.array([len(c) for c in clusters])
        gini = np.abs(sizes[:, None] - sizes).sum() / 2 / ((len(sizes) - 1) * len(points))
        pairs = [
            (distance[np.ix_(a, b)].min(), i, j)
            for i, a in enumerate(clusters)
            for j, b in enumerate(clusters)
            if i < j and (gini <= largest_gini or min(len(a), len(b)) == sizes.min())
        ]
        _, i, j = min(pairs)
        clusters[i] = clusters[i] + clusters.pop(j)
    labels = np.empty(len(points), dtype=int)
    for number, members in enumerate(clusters):
        labels[members] = number
    return labels


@pytest.mark.parametrize("largest_gini", [0.1, 0.3, 0.5, 0.8])
@pytest.mark.parametrize("seed", range(3))
def test_genie_is_the_linkage_of_its_definition(seed, largest_gini):
    points = np.random.default_rng(seed).standard_normal((45, 2))
    for k in (2, 4, 7):
        found = genie(full_tree(points), k, largest_gini)
        assert adjusted_rand_score(found, slow_genie(points, k, largest_gini)) == 1


def test_genie_without_a_limit_is_single_linkage():
    points = np.random.default_rng(5).standard_normal((80, 3))
    expected = fcluster(linkage(points, "single"), 6, "maxclust")
    assert adjusted_rand_score(genie(full_tree(points), 6, 1.0), expected) == 1


def test_points_far_off_are_no_branch():
    rng = np.random.default_rng(0)
    blobs = np.concatenate([rng.standard_normal((60, 2)) * 0.3 + c for c in ([0, 0], [4, 0], [0, 4])])
    points = np.concatenate([blobs, [[40, 40], [-50, 3], [7, -60]]])
    tree = full_tree(points)
    truth = np.repeat([0, 1, 2], 60)
    for parts in (widest_parted(branches(tree, 5), 3), most_persistent(branches(tree, 5), 3)):
        assert len(parts) == 3
        labels = np.full(len(points), -1)
        for number, members in enumerate(parts):
            labels[members] = number
        spread = tree.spread(labels)
        assert spread.min() >= 0
        assert adjusted_rand_score(spread[:180], truth) == 1
    assert adjusted_rand_score(genie(tree, 3, 1.0)[:180], truth) == 0  # single linkage spends its groups on them


def test_persistence_splits_what_is_dense_and_gaps_split_what_is_far():
    rng = np.random.default_rng(1)
    dense = [rng.standard_normal((50, 2)) * 0.02 + [c, 0] for c in (0, 1)]
    loose = [rng.standard_normal((50, 2)) * 0.6 + [c, 0] for c in (30, 38)]
    root = branches(full_tree(np.concatenate([*dense, *loose])), 10)
    assert sorted(m.min() // 50 for m in most_persistent(root, 3)) == [0, 1, 2]
    assert sorted(m.min() // 50 for m in widest_parted(root, 3)) == [0, 2, 3]


def test_spread_follows_the_shortest_edges():
    points = np.array([[0.0], [1.0], [2.1], [5.0], [6.0]])
    labels = np.array([0, -1, -1, -1, 1])
    assert full_tree(points).spread(labels).tolist() == [0, 0, 0, 1, 1]
