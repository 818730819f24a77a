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
from scipy.sparse.csgraph import reverse_cuthill_mckee
from sklearn.cluster import SpectralClustering
from sklearn.neighbors import NearestNeighbors

from gedikit.rows import StoredRows

_CANDIDATES = 4  # rows an anchor
_ROUNDS = 8
_TOLERANCE = 1e-8
_FACTORISED = 2e9  # operations up to which eigenvectors by factorisation are the faster ones

# rows of anchors and a number of neighbours → distances to them, and their places among the anchors
Nearest = Callable[[NDArray[np.int64], int], tuple[NDArray[Any], NDArray[np.int64]]]
# rows, those of anchors and a number → for each row the places of so many anchors nearest to it
Likest = Callable[[NDArray[np.int64], NDArray[np.int64], int], NDArray[np.int64]]
# rows of anchors → for every row of the data the place of the anchor nearest to it
Closest = Callable[[NDArray[np.int64]], NDArray[np.int64]]


@dataclass(frozen=True)
class Likeness:
    """Which rows are most like others."""

    nearest: Nearest
    likest: Likest


@dataclass(frozen=True)
class NeighbourGraph:
    """Weights between anchors, which are some or all rows; every row has the anchor nearest to it."""

    weights: sparse.csr_matrix
    rows: Int64[np.ndarray, " a"]  # of the anchors
    anchor: Int64[np.ndarray, " n"]  # the place among them of each row's own

    def clusters(self, n_clusters: int, seed: int, smallest: float = 0) -> Int64[np.ndarray, " n"]:
        """The spectral clusters of all rows, through their anchors; −1 for rows that are in none.

        A few near copies are nearer to each other than to anything else, and so would be a cluster of their own.
        Clusters with fewer than `smallest` anchors are set aside and the rest is parted anew; if that leads
        nowhere, no row has a cluster.
        """
        kept = np.arange(len(self.rows))
        for _ in range(_ROUNDS):
            if len(kept) < 2 * n_clusters:
                break
            found = spectral_clusters(self.weights[kept][:, kept], n_clusters, seed)
            large = np.bincount(found, minlength=n_clusters) >= smallest
            if large.all():
                of_anchors = np.full(len(self.rows), -1)
                of_anchors[kept] = found
                return np.take(of_anchors, self.anchor)
            kept = kept[large[found]]
        return np.full(len(self.anchor), -1)


def neighbour_graph(
    points: Float[np.ndarray, "n d"] | UInt8[np.ndarray, "n d"] | StoredRows,
    generator: torch.Generator,
    *,
    n_neighbours: int = 10,
    max_anchors: int = 20_000,
    nearest: Nearest | None = None,
    closest: Closest | None = None,
) -> NeighbourGraph:
    """`nearest` finds the neighbours of anchors, given their rows, and `closest` the anchor of every row where not
    all are anchors; without them they are the nearest in space. Of very many rows only some are looked at twice.
    """
    candidates, some = np.arange(len(points)), len(points) > _CANDIDATES * max_anchors
    if some:
        drawn = torch.randperm(len(points), generator=generator)[: _CANDIDATES * max_anchors]
        candidates = np.sort(drawn.numpy())
    # copies of a point are one anchor: else each heap of copies would be a group of its own
    _, first, anchor = np.unique(
        points[candidates] if some else points[:], axis=0, return_index=True, return_inverse=True
    )
    rows = candidates[first]
    if len(rows) > max_anchors:
        rows = np.sort(rows[torch.randperm(len(rows), generator=generator)[:max_anchors].numpy()])
    if some or len(rows) < len(first):
        anchor = _nearest(points[:], points[rows]) if closest is None else closest(rows)
    k = min(n_neighbours, len(rows) - 1)
    distance, index = nearest_in_space(points[rows], k) if nearest is None else nearest(rows, k)
    return NeighbourGraph(affinity(distance, index), rows.astype(np.int64), anchor.ravel().astype(np.int64))


def nearest_in_space(points: NDArray[Any], k: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
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
    """Parts of a graph with little weight between them, numbered from 0."""
    if n_clusters == 1:
        return np.zeros(weights.shape[0], dtype=np.int64)

    def parts(solver: str) -> NDArray[np.int64]:
        model = SpectralClustering(
            n_clusters,
            affinity="precomputed",
            assign_labels="cluster_qr",
            eigen_solver=solver,
            eigen_tol=_TOLERANCE,
            random_state=seed,
        )
        found: NDArray[np.int32] = model.fit_predict(weights)
        return found.astype(np.int64)

    if _elimination_cost(weights) <= _FACTORISED:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that a graph is in several parts is no harm
            return parts("arpack")
    # LOBPCG is by far the faster one on graphs of many columns, and says so where it gets nowhere
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = parts("lobpcg")
        if any("Exited" in str(warning.message) for warning in said):
            found = parts("arpack")
    return found


def _elimination_cost(weights: sparse.csr_matrix) -> float:
    """Operations of factorising within the envelope of the order of Cuthill & McKee (1969).

    Neighbours of points in few dimensions are in narrow layers, however many points there are.
    """
    n = weights.shape[0]
    order = reverse_cuthill_mckee(weights, symmetric_mode=True)
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    row, col = place[np.repeat(np.arange(n), np.diff(weights.indptr))], place[weights.indices]
    first = np.arange(n)
    np.minimum.at(first, row, col)
    return float(((np.arange(n) - first).astype(np.float64) ** 2).sum())


def _nearest(points: NDArray[Any], anchors: NDArray[Any]) -> NDArray[np.int64]:
    nearest: NDArray[np.int64] = (
        NearestNeighbors(n_neighbors=1).fit(anchors).kneighbors(points, return_distance=False).ravel()
    )
    return nearest
