"""Which rows are neighbours of which: a graph over all of them, or over some that stand for the rest."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from numpy.typing import NDArray
from scipy import sparse
from sklearn.cluster import SpectralClustering
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

# rows of anchors and a number of neighbours → distances to them, and their places among the anchors
Nearest = Callable[[NDArray[np.int64], int], tuple[NDArray[Any], NDArray[np.int64]]]
# rows of anchors → for every row of the data the place of the anchor nearest to it
Closest = Callable[[NDArray[np.int64]], NDArray[np.int64]]


@dataclass(frozen=True)
class NeighbourGraph:
    """Weights between anchors, which are some or all rows; every row has the anchor nearest to it."""

    weights: sparse.csr_matrix
    rows: Int64[np.ndarray, " a"]  # of the anchors
    anchor: Int64[np.ndarray, " n"]  # the place among them of each row's own

    def clusters(self, n_clusters: int, seed: int) -> Int64[np.ndarray, " n"]:
        """Of all rows: the anchors' spectral clusters."""
        found: NDArray[np.int64] = spectral_clusters(self.weights, n_clusters, seed)[self.anchor]
        return found


def neighbour_graph(
    x: Float[Tensor, "n d"] | UInt8[Tensor, "n d"],
    generator: torch.Generator,
    *,
    n_neighbours: int = 10,
    max_anchors: int = 20_000,
    nearest: Nearest | None = None,
    closest: Closest | None = None,
) -> NeighbourGraph:
    """`nearest` finds the neighbours of anchors, given their rows, and `closest` the anchor of every row where not
    all are anchors; without them they are the nearest in space.
    """
    points = x.cpu().numpy()
    # copies of a point are one anchor: else each heap of copies would be a group of its own
    _, rows, anchor = np.unique(points, axis=0, return_index=True, return_inverse=True)
    if len(rows) > max_anchors:
        rows = np.sort(rows[torch.randperm(len(rows), generator=generator)[:max_anchors].numpy()])
        anchor = _nearest(points, points[rows]) if closest is None else closest(rows)
    k = min(n_neighbours, len(rows) - 1)
    distance, index = nearest_in_space(points[rows], k) if nearest is None else nearest(rows, k)
    return NeighbourGraph(affinity(distance, index), rows.astype(np.int64), anchor.ravel().astype(np.int64))


def nearest_in_space(points: NDArray[np.float32], k: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    distance, index = NearestNeighbors(n_neighbors=k).fit(points).kneighbors()
    return distance, index


def affinity(distance: NDArray[Any], index: NDArray[np.int64]) -> sparse.csr_matrix:
    """Self-tuned Gaussian weights (Zelnik-Manor & Perona, 2004) on the union of k-neighbourhoods, lazily walked."""
    n, k = index.shape
    local = np.maximum(distance[:, min(7, k) - 1].astype(np.float64), np.finfo(np.float32).tiny)
    row = np.repeat(np.arange(n), k)
    col = index.ravel()
    weight = np.exp(-(distance.ravel() ** 2) / (local[row] * local[col]))
    graph = sparse.csr_matrix((np.maximum(weight, 1e-12), (row, col)), shape=(n, n))
    graph = graph.maximum(graph.T)
    normalised: sparse.csr_matrix = (graph + sparse.diags(np.asarray(graph.sum(1)).ravel())).tocsr()
    return normalised


def spectral_clusters(weights: sparse.csr_matrix, n_clusters: int, seed: int) -> Int64[np.ndarray, " a"]:
    """Parts of a graph with little weight between them, numbered from 0; fewer than asked for if nodes are few."""
    n_clusters = min(n_clusters, weights.shape[0] // 2)
    if n_clusters < 2:
        return np.zeros(weights.shape[0], dtype=np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a graph in several parts is no harm: parts are clusters
        found: NDArray[np.int32] = SpectralClustering(
            n_clusters, affinity="precomputed", assign_labels="cluster_qr", eigen_solver="lobpcg", random_state=seed
        ).fit_predict(weights)
    return found.astype(np.int64)


def _nearest(points: NDArray[np.float32], anchors: NDArray[np.float32]) -> NDArray[np.int64]:
    nearest: NDArray[np.int64] = (
        NearestNeighbors(n_neighbors=1).fit(anchors).kneighbors(points, return_distance=False).ravel()
    )
    return nearest
