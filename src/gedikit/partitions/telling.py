"""Which columns tell groups apart: a category that the others say little of would cut every group in pieces."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

_ROWS = 1000  # looked at
_FEWEST = 30
_NEIGHBOURS = 5
_TOLD = 0.5  # agreement of neighbours beyond chance (Cohen's kappa) from which on a category goes with the others


def telling_columns(points: Float[np.ndarray, "n d"], codes: Sequence[int], seed: int) -> Int64[np.ndarray, " c"]:
    """All columns but those of categories that rows which are near by all others do not share.

    Between two codes there is nothing, so any category parts the graph. One that has to do with groups has nearly
    the same value all over a group. Where there are no numbers, all categories count.
    """
    everything = np.arange(points.shape[1])
    if len(codes) in (0, len(everything)) or len(points) < _FEWEST:
        return everything
    some = np.random.default_rng(seed).permutation(len(points))[:_ROWS]
    looked_at, aside = points[np.sort(some)], list[int]()
    for category in _categories(looked_at, codes):
        value = (looked_at[:, category] > 0) @ np.arange(1, len(category) + 1)
        near = NearestNeighbors(n_neighbors=_NEIGHBOURS).fit(np.delete(looked_at, category, axis=1))
        same = (value[near.kneighbors(return_distance=False)] == value[:, None]).mean()
        chance = np.square(np.bincount(value) / len(value)).sum()
        if same - chance < _TOLD * (1 - chance):
            aside += category
    return np.setdiff1d(everything, aside)


def _categories(points: NDArray[np.floating], codes: Sequence[int]) -> list[list[int]]:
    """Codes that stand side by side and of which a row has one at most are of one category."""
    found: list[list[int]] = []
    for code in codes:
        on = points[:, code] > 0
        side_by_side = found and found[-1][-1] == code - 1
        if side_by_side and not (on & (points[:, found[-1]] > 0).any(1)).any():
            found[-1].append(code)
        else:
            found.append([code])
    return found
