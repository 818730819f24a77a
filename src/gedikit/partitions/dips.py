"""Where a graph is thin: splits at which fewer edges cross than on both sides of them.

A part is swept along the slow directions of a random walk on it. The weight that crosses the sweep has one hill
where the part is one group: a ring, an arc, a cube or a heavy-tailed blob can be cut cheaply, but not more cheaply
here than there. Between two groups it has a valley. This is a test for several modes, in the spirit of Hartigan &
Hartigan's dip (1985), of a profile that knows no coordinates: shapes, scales and dimension do not matter.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

_DIRECTIONS = 4
_DENSE = 300
PARTED = 99.0  # the depth of a split that no edge crosses
DEEP = 6.0  # standard deviations, about: the deepest dip that one group has by chance
_THIN = 0.5  # of the weight beside it that crosses a split at most


@dataclass(frozen=True)
class Dip:
    """The deepest valley found in a part."""

    depth: float  # 2(√hill − √valley): about standard deviations, for weights that count edges
    ratio: float  # of the valley to the lower one of the hills
    side: Bool[np.ndarray, " m"] | None

    @property
    def strength(self) -> float:
        return _strength(self.depth, self.ratio)


@dataclass(frozen=True)
class Split:
    """One group made two."""

    depth: float
    ratio: float
    labels: Int64[np.ndarray, " a"]  # after it

    @property
    def strength(self) -> float:
        return _strength(self.depth, self.ratio)


def _strength(depth: float, ratio: float) -> float:
    """The depth of a valley that is thin as well."""
    return float(depth if ratio < _THIN else min(depth, DEEP * _THIN / ratio))


def splits(weights: sparse.csr_matrix, least: int, most: int) -> list[Split]:
    """Splits of the whole into `most` parts at most, the deepest dip first, each part with `least` nodes."""
    n = weights.shape[0]
    labels = np.zeros(n, dtype=np.int64)
    dips = [deepest_dip(weights, least)]
    made: list[Split] = []
    while len(dips) < most:
        part = int(np.argmax([dip.depth for dip in dips]))
        dip = dips[part]
        if dip.side is None:
            break
        labels = labels.copy()
        members = np.flatnonzero(labels == part)
        labels[members[~dip.side]] = len(dips)
        made.append(Split(dip.depth, dip.ratio, labels))
        for half in (members[dip.side], members[~dip.side]):
            found = deepest_dip(weights[half][:, half], least)
            if labels[half[0]] == part:
                dips[part] = found
            else:
                dips.append(found)
    return made


def deepest_dip(weights: sparse.csr_matrix, least: int) -> Dip:
    n = weights.shape[0]
    if n < 2 * least:
        return Dip(0.0, 1.0, None)
    _, component = connected_components(weights, directed=False)
    sizes = np.bincount(component)
    if len(sizes) > 1:
        main = component == sizes.argmax()
        if np.sort(sizes)[-2] >= least:
            return Dip(PARTED, 0.0, main)
        inner = deepest_dip(weights[main][:, main], least)
        if inner.side is None:
            return inner
        side = np.zeros(n, dtype=np.bool_)
        side[main] = inner.side
        return Dip(inner.depth, inner.ratio, side)
    best = Dip(0.0, 1.0, None)
    for direction in slow_directions(weights).T:
        order = np.argsort(direction, kind="stable")
        crossing = crossing_weight(weights, order)
        smooth = np.convolve(crossing, np.full(least, 1 / least), mode="same")
        hill = np.minimum(np.maximum.accumulate(smooth), np.maximum.accumulate(smooth[::-1])[::-1])
        depth = 2 * (np.sqrt(hill) - np.sqrt(crossing))
        depth[: least - 1] = 0
        depth[n - least :] = 0
        place = int(depth.argmax())
        if depth[place] > best.depth:
            side = np.zeros(n, dtype=np.bool_)
            side[order[: place + 1]] = True
            best = Dip(float(depth[place]), float(crossing[place] / hill[place]), side)
    return best


def slow_directions(weights: sparse.csr_matrix) -> NDArray[np.float64]:
    """Eigenvectors of the random walk with the largest eigenvalues below 1."""
    n = weights.shape[0]
    degree = np.asarray(weights.sum(1)).ravel()
    scale = 1 / np.sqrt(degree)
    walk = sparse.diags(scale) @ weights @ sparse.diags(scale)
    count = min(_DIRECTIONS + 1, n - 1)
    if n < _DENSE:
        vectors: NDArray[Any] = np.linalg.eigh(walk.toarray())[1]
        vectors = vectors[:, ::-1][:, :count]
    else:
        start = np.sqrt(degree) + 0.01 * np.random.default_rng(0).standard_normal(n)
        try:
            values, vectors = eigsh(walk + sparse.eye(n), k=count, which="LA", tol=1e-3, v0=start)
        except ArpackNoConvergence as partial:
            values, vectors = np.real(partial.eigenvalues), np.real(partial.eigenvectors)
        vectors = vectors[:, np.argsort(-values)]
    slow: NDArray[np.float64] = (vectors * scale[:, None])[:, 1:]
    return slow


def crossing_weight(weights: sparse.csr_matrix, order: NDArray[np.int64]) -> NDArray[np.float64]:
    """The weight between the first 1, 2, … nodes of an order and the rest."""
    n = len(order)
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    edges = weights.tocoo()
    a, b = place[edges.row], place[edges.col]
    forward = a < b
    opened = np.bincount(a[forward], edges.data[forward], n)
    closed = np.bincount(b[forward], edges.data[forward], n)
    crossing: NDArray[np.float64] = np.maximum(np.cumsum(opened - closed)[:-1], 0.0)
    return crossing
