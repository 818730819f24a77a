"""What every measure of likeness must do. Rows are images here, which every measure takes."""

import numpy as np
import pytest
import torch

from contract_cases import SHAPE, each, seeded
from gedikit.modalities import Image
from gedikit.views import similarities
from gedikit.views.augmentation import Augmentation
from gedikit.views.neighbours import NeighbourGraph
from gedikit.views.similarity import Similarity, SimilarityContext

PAIRS = 15
every = pytest.mark.parametrize("similarity", each(similarities))


def pictures() -> np.ndarray:
    """Coarse patterns, each of them twice: row i and row i + PAIRS differ by a little noise."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 2, (PAIRS, 4, 4)).repeat(4, 1).repeat(4, 2) * 200
    both = np.concatenate([coarse, coarse]) + rng.integers(0, 20, (2 * PAIRS, *SHAPE[:2]))
    return both.astype(np.uint8).reshape(2 * PAIRS, -1)


def context() -> SimilarityContext:
    data = Image(shape=SHAPE).prepare(pictures(), seeded(0))
    moves = Augmentation(shift=1, noise=0.5)
    return SimilarityContext(data.all_rows, data.pixels, data.image_shape, moves, torch.device("cpu"))


@every
@pytest.mark.parametrize("k", [1, 4])
def test_the_nearest_come_first_and_a_row_is_not_its_own_neighbour(similarity, k):
    rows = np.arange(2 * PAIRS)
    distances, places = similarity.nearest(context())(rows, k)
    assert distances.shape == places.shape == (2 * PAIRS, k)
    assert np.issubdtype(places.dtype, np.integer)
    assert np.isfinite(distances).all()
    assert (distances >= 0).all()
    assert (np.diff(distances, axis=1) >= -1e-6).all()
    assert ((places >= 0) & (places < len(rows))).all()
    assert not (places == rows[:, None]).any()


@every
def test_the_nearest_of_a_picture_is_its_twin(similarity):
    rows = np.arange(2 * PAIRS)
    _, places = similarity.nearest(context())(rows, 1)
    assert np.mean(places[:, 0] == (rows + PAIRS) % len(rows)) > 0.9


@every
def test_places_are_among_the_rows_that_were_asked_for(similarity):
    rows = np.array([3, 7, 3 + PAIRS, 7 + PAIRS])
    _, places = similarity.nearest(context())(rows, 1)
    assert places[:, 0].tolist() == [2, 3, 0, 1]


@every
def test_the_graph_is_symmetric_and_knows_an_anchor_for_every_row(similarity):
    graph = small(similarity).graph(context(), seeded(0))
    assert isinstance(graph, NeighbourGraph)
    n = len(graph.rows)
    assert graph.anchor.shape == (2 * PAIRS,)
    assert graph.anchor.max() < n
    weights = graph.weights.toarray()
    assert weights.shape == (n, n)
    np.testing.assert_allclose(weights, weights.T)
    assert (weights >= 0).all()
    one, other = np.split(graph.anchor, 2)
    assert np.mean(weights[one, other] > 0) > 0.9, "twins are neighbours"
    assert (graph.rows[graph.anchor] == np.arange(2 * PAIRS)).all()


@every
def test_the_seed_sets_the_graph(similarity):
    one, same = (small(similarity).graph(context(), seeded(0)) for _ in range(2))
    assert (one.weights != same.weights).nnz == 0
    np.testing.assert_array_equal(one.rows, same.rows)


def small(similarity: Similarity) -> Similarity:
    return similarity.replace(neighbours=3)
