import warnings

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from gedikit.data.toy import circles, moons, rings
from gedikit.views.neighbours import _elimination_cost, neighbour_graph


def blobs(n: int, each: int, apart: float = 100.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(size=(each, 2)) + apart * i for i in range(n)]), np.repeat(np.arange(n), each)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("n", [900, 20_000])
@pytest.mark.parametrize(("make", "n_clusters"), [(moons, 2), (circles, 2), (rings, 3)])
def test_spectral_clusters_follow_the_data_where_no_centre_does(make, n_clusters, n, seed, generator):
    """Long chains of many points, too, where one of the two solvers gets nowhere; nobody is warned of that."""
    x, y = make(n, 0)
    graph = neighbour_graph(x.astype(np.float32), generator)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert adjusted_rand_score(y, graph.clusters(n_clusters, seed)) == 1


def test_rows_that_are_no_anchors_are_in_the_cluster_of_theirs(generator):
    x, y = moons(2000, 0)
    graph = neighbour_graph(x.astype(np.float32), generator, max_anchors=600)
    assert graph.weights.shape == (600, 600)
    clusters = graph.clusters(2, seed=0)
    assert clusters.shape == (2000,)
    assert adjusted_rand_score(y, clusters) > 0.99


def test_of_very_many_rows_some_are_candidates(generator):
    """Copies beside them are still one anchor."""
    x = np.repeat(np.arange(30.0), 40)[:, None]
    graph = neighbour_graph(x, generator, max_anchors=200)
    assert len(graph.rows) == 30
    assert (x[graph.rows][graph.anchor] == x).all()


def test_a_graph_in_more_parts_than_clusters_keeps_them_whole(generator):
    x, part = blobs(6, 40)
    graph = neighbour_graph(x, generator)
    assert adjusted_rand_score(part, graph.clusters(6, seed=0)) == 1
    coarse = graph.clusters(3, seed=0)
    assert len(np.unique(coarse)) == 3
    assert all(len(np.unique(coarse[part == i])) == 1 for i in range(6))


def test_heaps_of_near_copies_are_no_clusters(generator):
    """A burst of photographs is nearer to itself than to anything else."""
    x, part = blobs(3, 300, apart=4.0)
    rng = np.random.default_rng(1)
    bursts = np.concatenate([x[i] + 1e-4 * rng.normal(size=(14, 2)) for i in (10, 320, 650)])
    graph = neighbour_graph(np.concatenate([x, bursts]), generator)
    assert np.bincount(graph.clusters(3, seed=0)).min() == 15  # with the one they are copies of
    clusters = graph.clusters(3, seed=0, smallest=60)
    inside = clusters[:900] >= 0
    assert inside.mean() > 0.99
    assert adjusted_rand_score(part[inside], clusters[:900][inside]) > 0.99


def test_what_cannot_be_parted_has_no_clusters(generator):
    few = neighbour_graph(np.array([[0.0], [0.1], [5.0]]), generator)
    assert (few.clusters(2, seed=0) == -1).all()
    blob, _ = blobs(1, 100)
    assert (neighbour_graph(blob, generator).clusters(2, seed=0, smallest=60) == -1).all()


def test_one_cluster_is_everything(generator):
    assert (neighbour_graph(blobs(2, 20)[0], generator).clusters(1, seed=0) == 0).all()


def test_factorising_is_cheap_where_points_have_few_dimensions_and_not_where_they_have_many(generator):
    rng = np.random.default_rng(0)
    few, many = (neighbour_graph(rng.normal(size=(3000, d)), generator).weights for d in (2, 20))
    assert 20 * _elimination_cost(few) < _elimination_cost(many)
    chain = neighbour_graph(np.arange(3000.0)[:, None], generator).weights
    assert _elimination_cost(chain) < 3000 * 20**2  # at most 20 rows at once are linked
