"""Pictures that are there twice: saved again, scaled, or taken a moment later."""

import numpy as np
from jaxtyping import Float32, UInt8
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

_SIDE = 8  # of a sketch
_BLOCK = 1024
SAME = 4.0  # root mean square difference of sketches, in bytes: what saving again at half the size can make


def sketches(images: UInt8[np.ndarray, "n size size c"]) -> Float32[np.ndarray, "n d"]:
    """Each picture as the means of 8 × 8 fields in three colours."""
    edges = np.arange(_SIDE) * images.shape[1] // _SIDE
    counts = np.diff([*edges, images.shape[1]])
    made = []
    for start in range(0, len(images), _BLOCK):
        sums = images[start : start + _BLOCK].astype(np.float32)
        sums = np.add.reduceat(np.add.reduceat(sums, edges, axis=1), edges, axis=2)
        means = sums / (counts[:, None, None] * counts[:, None])
        made.append(np.broadcast_to(means, (*means.shape[:3], 3)).reshape(len(means), -1))
    if not made:
        return np.empty((0, _SIDE * _SIDE * 3), dtype=np.float32)
    return np.concatenate(made).astype(np.float32)


def near_duplicates(drawn: Float32[np.ndarray, "n d"], limit: float = SAME) -> tuple[tuple[int, ...], ...]:
    """Rows of pictures that look the same, in groups of two or more, the largest first.

    Two belong together if their sketches differ by at most `limit`, and so do chains of such pairs: a burst.
    """
    n, d = drawn.shape
    squares = np.einsum("ij,ij->i", drawn, drawn, dtype=np.float64)
    nearest, farthest = [], []
    for start in range(0, n, _BLOCK):
        some = slice(start, start + _BLOCK)
        distance = squares[some, None] + squares[start:] - 2.0 * (drawn[some] @ drawn[start:].T).astype(np.float64)
        i, j = np.nonzero(distance <= d * limit**2)
        nearest.append(i + start)
        farthest.append(j + start)
    a, b = (np.concatenate(parts) if parts else np.empty(0, np.int64) for parts in (nearest, farthest))
    joined = sparse.coo_matrix((np.ones(len(a), dtype=np.int8), (a, b)), shape=(n, n))
    return _groups(connected_components(joined, directed=False)[1]) if n else ()


def _groups(part: NDArray[np.int32]) -> tuple[tuple[int, ...], ...]:
    order = np.argsort(part, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(part[order]) > 0])
    groups = [tuple(map(int, rows)) for rows in np.split(order, starts[1:]) if len(rows) > 1]
    return tuple(sorted(groups, key=lambda rows: (-len(rows), rows)))
