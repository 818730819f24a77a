"""Who is near whom: what every candidate partition and its criterion are computed from."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from sklearn.neighbors import NearestNeighbors

from gedikit.errors import DataError
from gedikit.partitions.tree import SpanningTree
from gedikit.views.neighbours import NeighbourGraph, affinity, nearest_in_space

MAX_ANCHORS = 10_000
_CANDIDATES = 4  # rows an anchor that are looked at for copies
_NEIGHBOURS = 20
_GRAPH = 10  # of them are joined in the graph that is cut
_WIDE = 13  # in the one whose dips are looked for: with fewer, curves are torn at gaps that chance makes
_REACH = 5  # the neighbour whose distance is the reach of a point (Campello, Moulavi & Sander 2013)
_LOCAL = 7  # the neighbour whose distance is the local scale (Zelnik-Manor & Perona 2004)
_OUTLYING = 2.0  # times as far from its neighbours as they are from theirs
_MOST_OUTLYING = 0.1  # of the rows; more are no outliers
_FEW = 200


@dataclass(frozen=True)
class Neighbourhood:
    """Anchors, which are rows without copies and outliers, the graph over them, and each row's own anchor."""

    points: Float[np.ndarray, "a d"] | None
    weights: sparse.csr_matrix  # symmetric, nothing on the diagonal
    wide: sparse.csr_matrix  # the same of some more neighbours
    trees: dict[str, SpanningTree]
    rows: Int64[np.ndarray, " a"]
    anchor: Int64[np.ndarray, " n"]

    @property
    def n_anchors(self) -> int:
        return len(self.rows)

    @property
    def least(self) -> int:
        """The anchors that a group must have: a hundredth of all, and not a mere handful."""
        return max(5, self.n_anchors // 100)

    @property
    def sizes(self) -> Int64[np.ndarray, " a"]:
        """How many rows each anchor stands for."""
        return np.bincount(self.anchor, minlength=self.n_anchors).astype(np.int64)

    @classmethod
    def of_points(
        cls, points: Float[np.ndarray, "n d"], seed: int, max_anchors: int = MAX_ANCHORS
    ) -> "Neighbourhood":
        """In space: anchors hold their neighbours, other rows the number of their anchor."""
        rows = _without_copies(points, seed, max_anchors)
        if len(rows) > _NEIGHBOURS:
            outlying = _outlying(points[rows])
            if outlying.mean() <= _MOST_OUTLYING:
                rows = rows[~outlying]
        chosen = points[rows].astype(np.float64)
        k = min(_NEIGHBOURS, len(rows) - 1)
        if k == 0:
            empty = SpanningTree(np.zeros((0, 2), dtype=np.int64), np.zeros(0))
            anchor = np.zeros(len(points), dtype=np.int64)
            none = sparse.csr_matrix((1, 1))
            return cls(chosen, none, none, dict.fromkeys(("plain", "reach", "local"), empty), rows, anchor)
        distance, index = nearest_in_space(chosen, k)
        ends, lengths = _edges(chosen, distance, index)
        a, b = ends.T
        reach = distance[:, min(_REACH, k) - 1]
        local = np.maximum(distance[:, min(_LOCAL, k) - 1], np.finfo(np.float32).tiny)
        trees = {
            "plain": _tree(ends, lengths),
            "reach": _tree(ends, np.maximum(lengths, np.maximum(reach[a], reach[b]))),
            "local": _tree(ends, lengths / np.sqrt(local[a] * local[b])),
        }
        weights, wide = (_off_diagonal(affinity(distance[:, :m], index[:, :m])) for m in (_GRAPH, _WIDE))
        if len(rows) == len(points):
            anchor = np.empty(len(points), dtype=np.int64)
            anchor[rows] = np.arange(len(rows))
        else:
            nearest = NearestNeighbors(n_neighbors=1).fit(points[rows])
            anchor = nearest.kneighbors(points, return_distance=False).ravel().astype(np.int64)
        return cls(chosen, weights, wide, trees, rows, anchor)

    @classmethod
    def of_graph(cls, graph: NeighbourGraph) -> "Neighbourhood":
        """Along the edges of a graph alone; parts of it that nothing joins are as far from each other as can be."""
        weights = _off_diagonal(graph.weights)
        upper = sparse.triu(weights).tocoo()
        lengths = np.sqrt(np.maximum(-np.log(np.clip(upper.data, 1e-300, 1.0)), 0.0))
        n_parts, part = connected_components(weights, directed=False)
        first = np.unique(part, return_index=True)[1]
        a = np.concatenate([upper.row, first[:-1]])
        b = np.concatenate([upper.col, first[1:]])
        far = 2 * lengths.max(initial=1.0)
        tree = _tree(np.stack([a, b], axis=1), np.concatenate([lengths, np.full(n_parts - 1, far)]))
        return cls(None, weights, weights, {"local": tree}, graph.rows, graph.anchor)


def _without_copies(points: NDArray[Any], seed: int, max_anchors: int) -> NDArray[np.int64]:
    rng = np.random.default_rng(seed)
    rows = np.arange(len(points))
    if len(rows) > _CANDIDATES * max_anchors:
        rows = np.sort(rng.choice(rows, _CANDIDATES * max_anchors, replace=False))
    rows = np.sort(rows[np.unique(points[rows], axis=0, return_index=True)[1]])
    if len(rows) > max_anchors:
        rows = np.sort(rng.choice(rows, max_anchors, replace=False))
    return rows.astype(np.int64)


def _outlying(points: NDArray[Any]) -> NDArray[np.bool_]:
    """Points much farther from their neighbours than these are from theirs (Breunig, Kriegel, Ng & Sander 2000)."""
    distance, index = nearest_in_space(points, _GRAPH)
    reach = np.maximum(distance, distance[index, -1]).mean(1)
    factor: NDArray[Any] = (reach[:, None] / np.maximum(reach[index], np.finfo(np.float32).tiny)).mean(1)
    return factor > _OUTLYING


def _edges(
    points: NDArray[np.float64], distance: NDArray[Any], index: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Edges to neighbours, and the shortest ones between parts that these do not join."""
    n, k = index.shape
    ends = np.stack([np.repeat(np.arange(n), k), index.ravel()], axis=1)
    lengths = distance.ravel().astype(np.float64)
    in_space = None
    while True:
        joined = sparse.csr_matrix((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n, n))
        n_parts, part = connected_components(joined, directed=False)
        if n_parts == 1:
            return ends, lengths
        if in_space is None:
            in_space = NearestNeighbors().fit(points)
        sizes = np.bincount(part)
        bridges, spans = [], []
        for c in np.flatnonzero(np.arange(n_parts) != sizes.argmax()):
            inside = np.flatnonzero(part == c)
            if len(inside) <= _FEW:  # among one more neighbours than it has members, one is outside
                far, found = in_space.kneighbors(points[inside], n_neighbors=len(inside) + 1)
                far[part[found] == c] = np.inf
            else:
                outside = np.flatnonzero(part != c)
                far, found = NearestNeighbors(n_neighbors=1).fit(points[outside]).kneighbors(points[inside])
                found = outside[found]
            i, j = np.unravel_index(far.argmin(), far.shape)
            bridges.append((inside[i], found[i, j]))
            spans.append(far[i, j])
        ends = np.concatenate([ends, np.array(bridges, dtype=np.int64)])
        lengths = np.concatenate([lengths, spans])


def _tree(ends: NDArray[Any], lengths: NDArray[np.float64]) -> SpanningTree:
    ends = np.sort(ends.astype(np.int64), axis=1)
    n = int(ends.max()) + 1
    order = np.lexsort((lengths, ends[:, 1], ends[:, 0]))
    ends, lengths = ends[order], lengths[order]
    first = np.r_[True, (ends[1:] != ends[:-1]).any(1)]  # the shorter one of two
    return SpanningTree.of(sparse.csr_matrix((lengths[first], ends[first].T), shape=(n, n)))


def _off_diagonal(weights: sparse.csr_matrix) -> sparse.csr_matrix:
    without: sparse.csr_matrix = (weights - sparse.diags(weights.diagonal())).tocsr()
    without.eliminate_zeros()
    return without


def neighbourhood(
    points: Float[np.ndarray, "n d"] | None, graph: NeighbourGraph | None, seed: int
) -> Neighbourhood:
    """Of a graph where there is one, else of points in space."""
    if graph is not None:
        return Neighbourhood.of_graph(graph)
    if points is None:
        raise DataError("a partition needs points or a neighbour graph")
    return Neighbourhood.of_points(points, seed)
