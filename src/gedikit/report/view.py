"""The part of a plane, or of an axis, that a picture shows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy.typing import NDArray

_INNER = (0.05, 0.25, 0.75, 0.95)  # quantiles of a group; what lies between the outer ones is shown
_FENCE = 3.0  # interquartile ranges beyond the quartiles: what Tukey (1977) calls far out lies outside
_LEAST_SHARE = 0.01  # of the rows, of a group that is shown whatever lies around it
_WORTH = 1.6  # how many times as wide all rows must lie before the farthest are left at the edge
_ROOM = 0.05


@dataclass(frozen=True)
class View:
    """From the lowest to the highest coordinates; points beyond are drawn at the edge."""

    low: Float64[np.ndarray, " axes"]
    high: Float64[np.ndarray, " axes"]

    @classmethod
    def of(
        cls,
        points: NDArray[Any],
        groups: Int64[np.ndarray, " n"],
        outer: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
    ) -> "View":
        """All points, unless a few far ones would squeeze the others: then nearly all of every group.

        `outer` is what is shown where no point is far.
        """
        lowest, highest = points.min(0).astype(np.float64), points.max(0).astype(np.float64)
        room = _ROOM * (highest - lowest)
        low, high = outer or (lowest - room, highest + room)
        sizes = np.bincount(groups)
        large = np.flatnonzero(sizes >= max(1.0, _LEAST_SHARE * len(points)))
        inner = np.array([_near(points[groups == k]) for k in large])
        inner_low, inner_high = inner[:, 0].min(0), inner[:, 1].max(0)
        width = inner_high - inner_low
        margin = 2 * _ROOM * width
        far = (highest - lowest > _WORTH * width) & (width > 0)
        return cls(
            np.where(far, np.maximum(low, inner_low - margin), low),
            np.where(far, np.minimum(high, inner_high + margin), high),
        )

    def held(self, points: NDArray[Any]) -> tuple[NDArray[np.float64], Bool[np.ndarray, " n"]]:
        """The points, with those beyond brought to the edge, and which these are."""
        inset = 0.008 * (self.high - self.low)
        beyond = np.any((points < self.low) | (points > self.high), axis=1)
        edge = np.clip(points, self.low + inset, self.high - inset)
        return np.where(beyond[:, None], edge, points), beyond


def _near(points: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The lowest and the highest coordinates of a group without what is far out."""
    first, lower, upper, last = np.quantile(points, _INNER, axis=0)
    reach = _FENCE * (upper - lower)
    inside = (points >= np.minimum(first, lower - reach)) & (points <= np.maximum(last, upper + reach))
    return np.where(inside, points, np.inf).min(0), np.where(inside, points, -np.inf).max(0)
