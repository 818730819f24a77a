import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from gedikit.data.neighbours import neighbour_graph
from gedikit.data.toy import moons, rings


@pytest.mark.parametrize(("make", "n_clusters"), [(moons, 2), (rings, 3)])
def test_spectral_clusters_follow_the_data_where_no_centre_does(make, n_clusters, generator):
    x, y = make(900, 0)
    graph = neighbour_graph(torch.tensor(x, dtype=torch.float32), generator)
    assert adjusted_rand_score(y, graph.clusters(n_clusters, seed=0)) == 1


def test_rows_that_are_no_anchors_are_in_the_cluster_of_theirs(generator):
    x, y = moons(2000, 0)
    graph = neighbour_graph(torch.tensor(x, dtype=torch.float32), generator, max_anchors=600)
    assert graph.weights.shape == (600, 600)
    clusters = graph.clusters(2, seed=0)
    assert clusters.shape == (2000,)
    assert adjusted_rand_score(y, clusters) > 0.99


def test_a_graph_in_more_parts_than_clusters_is_no_failure(generator):
    rng = np.random.default_rng(0)
    x = torch.tensor(np.concatenate([rng.normal(size=(40, 2)) + 100 * i for i in range(6)]), dtype=torch.float32)
    graph = neighbour_graph(x, generator)
    whole = np.repeat(np.arange(6), 40)
    assert adjusted_rand_score(whole, graph.clusters(6, seed=0)) == 1
    coarse = graph.clusters(3, seed=0)
    assert len(np.unique(coarse)) == 3


def test_few_nodes_have_few_clusters(generator):
    graph = neighbour_graph(torch.tensor([[0.0], [0.1], [5.0]]), generator)
    assert (graph.clusters(2, seed=0) == 0).all()
