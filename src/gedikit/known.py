"""What is known of rows beside their values: how much each counts, labels of some, pairs that belong together."""

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from jaxtyping import Float, Int64
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from gedikit.errors import DataError, UsageError

UNKNOWN = -1


def _no_pairs() -> NDArray[np.int64]:
    return np.empty((0, 2), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Known:
    """Labels are numbers of clusters, −1 where unknown; rows that must be linked share them already."""

    n_rows: int
    weights: Float[np.ndarray, " n"] | None = None
    labels: Int64[np.ndarray, " n"] | None = None
    must_link: Int64[np.ndarray, "m 2"] = field(default_factory=_no_pairs)
    cannot_link: Int64[np.ndarray, "l 2"] = field(default_factory=_no_pairs)

    @classmethod
    def of(
        cls,
        n_rows: int,
        sample_weight: ArrayLike | None = None,
        partial_labels: ArrayLike | None = None,
        must_link: ArrayLike | None = None,
        cannot_link: ArrayLike | None = None,
    ) -> Self | None:
        """From what a user gives; None where that is nothing."""
        weights = None if sample_weight is None else _weights(sample_weight, n_rows)
        labels = None if partial_labels is None else _labels(partial_labels, n_rows)
        same, other = _pairs(must_link, n_rows, "must_link"), _pairs(cannot_link, n_rows, "cannot_link")
        if weights is None and labels is None and not len(same) and not len(other):
            return None
        found = cls(n_rows, weights, labels, same, other)
        return replace(found, labels=found._over_links())

    @property
    def n_labels(self) -> int:
        """The largest known label and one more: as many clusters there must be at least."""
        return 0 if self.labels is None else int(self.labels.max()) + 1

    @property
    def n_linked(self) -> int:
        return len(self.must_link) + len(self.cannot_link)

    @property
    def labelled(self) -> Int64[np.ndarray, " l"]:
        """Rows with a label."""
        return np.empty(0, dtype=np.int64) if self.labels is None else np.flatnonzero(self.labels != UNKNOWN)

    def agreeing(self, clusters: Int64[np.ndarray, " n"]) -> list[int]:
        """Labels that most of their rows have as their cluster too."""
        if self.labels is None:
            return []
        found = []
        for label in np.unique(self.labels[self.labelled]).tolist():
            if (clusters[self.labels == label] == label).mean() > 0.5:
                found.append(label)
        return found

    @property
    def guides(self) -> bool:
        """Whether it says anything about clusters."""
        return self.labels is not None or self.n_linked > 0

    @property
    def counted(self) -> Int64[np.ndarray, " k"]:
        """Rows that play a part."""
        return np.arange(self.n_rows) if self.weights is None else np.flatnonzero(self.weights > 0)

    def among(self, rows: Int64[np.ndarray, " k"]) -> "Known":
        """Of some of the rows, numbered anew; links to others are left out."""
        place = np.full(self.n_rows, -1)
        place[rows] = np.arange(len(rows))
        links = [place[pairs] for pairs in (self.must_link, self.cannot_link)]
        return Known(
            len(rows),
            None if self.weights is None else self.weights[rows],
            None if self.labels is None or (self.labels[rows] == UNKNOWN).all() else self.labels[rows],
            *(pairs[(pairs >= 0).all(1)] for pairs in links),
        )

    def shares(self, groups: Int64[np.ndarray, " n"], n_groups: int) -> Float[np.ndarray, " k"]:
        """How much of the weight each group has."""
        total = np.bincount(groups, self.weights, n_groups)
        shares: NDArray[np.float64] = total / total.sum()
        return shares

    def repeated(self, rows: Int64[np.ndarray, " k"], total: int, seed: int) -> Int64[np.ndarray, " r"]:
        """Some rows, `total` of them, each about as often as its weight says and never off by one or more.

        Systematic resampling: what is left of a count that is not whole is drawn, so that it is right in the mean.
        """
        if self.weights is None:
            return rows[:total]
        expected = np.cumsum(self.weights[rows]) * (total / self.weights[rows].sum())
        start = np.random.default_rng(seed).random()
        counts = np.diff(np.floor(np.concatenate([[0.0], expected]) + start)).astype(np.int64)
        return np.repeat(rows, counts)

    def drawn_from(self, resolution: int, seed: int) -> Int64[np.ndarray, "r 1"] | None:
        """Rows that batches are drawn from, as often as they count; None where all count alike.

        Whole weights are exact; others in parts of 1/`resolution` of the mean weight.
        """
        w = self.weights
        if w is None or (w == w[0]).all():
            return None
        whole = np.rint(w / w.min())
        if np.allclose(whole, w / w.min(), rtol=1e-9) and whole.sum() <= _MOST_REPEATED * len(w):
            return np.repeat(np.arange(len(w)), whole.astype(np.int64))[:, None]
        return self.repeated(np.arange(len(w)), resolution * len(w), seed)[:, None]

    def _over_links(self) -> NDArray[np.int64] | None:
        """Labels, also of rows that must be linked to a row with one; contradictions are refused."""
        part = self._linked_parts()
        inside = self.cannot_link[part[self.cannot_link[:, 0]] == part[self.cannot_link[:, 1]]]
        if len(inside):
            a, b = inside[0]
            raise DataError(f"rows {a} and {b} cannot be linked, and other links say that they must")
        if self.labels is None:
            return None
        known = self.labelled
        if not len(known):
            return None
        of_part = np.full(int(part.max()) + 1, UNKNOWN)
        of_part[part[known]] = self.labels[known]
        wrong = known[of_part[part[known]] != self.labels[known]]
        if len(wrong):
            other = known[(part[known] == part[wrong[0]]) & (self.labels[known] != self.labels[wrong[0]])][0]
            raise DataError(f"rows {wrong[0]} and {other} must be linked and have different labels")
        labels: NDArray[np.int64] = of_part[part]
        equal = self.cannot_link[
            (labels[self.cannot_link[:, 0]] == labels[self.cannot_link[:, 1]])
            & (labels[self.cannot_link[:, 0]] != UNKNOWN)
        ]
        if len(equal):
            a, b = equal[0]
            raise DataError(f"rows {a} and {b} cannot be linked and have the same label {labels[a]}")
        return labels

    def _linked_parts(self) -> NDArray[np.int64]:
        a, b = self.must_link.T
        joined = sparse.csr_matrix((np.ones(len(a)), (a, b)), shape=(self.n_rows, self.n_rows))
        part: NDArray[np.int64] = connected_components(joined, directed=False)[1].astype(np.int64)
        return part


_MOST_REPEATED = 64  # times the number of rows: beyond that, weights are resolved by a draw


def _weights(given: ArrayLike, n_rows: int) -> NDArray[np.float64]:
    weights = np.asarray(given, dtype=np.float64)
    if weights.shape != (n_rows,):
        raise DataError(f"sample_weight has shape {weights.shape}: give one weight for each of {n_rows} rows")
    if not np.isfinite(weights).all() or (weights < 0).any():
        bad = int((~(weights >= 0) | ~np.isfinite(weights)).argmax())
        raise DataError(f"sample_weight must be finite and not negative, not {weights[bad]} as in row {bad}")
    if not (weights > 0).sum() >= min(2, n_rows):
        raise DataError("sample_weight is zero for all rows but one or none: at least two must count")
    return weights


def _labels(given: ArrayLike, n_rows: int) -> NDArray[np.int64]:
    values: NDArray[Any] = np.asarray(given)
    if values.shape != (n_rows,):
        raise DataError(f"partial_labels has shape {values.shape}: give a label or -1 for each of {n_rows} rows")
    if values.dtype.kind == "f":  # gaps of a column are rows without a label
        values = np.where(np.isnan(values), UNKNOWN, values)
    if values.dtype.kind not in "iuf" or not (values == np.rint(values)).all():
        raise UsageError("partial_labels must be numbers of clusters from 0 on, and -1 where nothing is known")
    labels = values.astype(np.int64)
    if (labels < UNKNOWN).any():
        bad = int((labels < UNKNOWN).argmax())
        raise UsageError(f"partial_labels must be numbers of clusters or -1, not {labels[bad]} as in row {bad}")
    return labels


def _pairs(given: ArrayLike | None, n_rows: int, name: str) -> NDArray[np.int64]:
    if given is None:
        return _no_pairs()
    pairs: NDArray[Any] = np.asarray(given)
    if pairs.size == 0:
        return _no_pairs()
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise UsageError(f"{name} must be pairs of numbers of rows, such as [[0, 5], [2, 7]]")
    outside = pairs[(pairs < 0) | (pairs >= n_rows)]
    if outside.size:
        raise DataError(f"{name} names rows from 0 to {n_rows - 1}, not {outside[0]}")
    alone = pairs[pairs[:, 0] == pairs[:, 1]]
    if len(alone):
        raise DataError(f"{name} pairs row {alone[0, 0]} with itself")
    return pairs.astype(np.int64)
