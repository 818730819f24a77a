"""A profile of every group: how many rows, what their values are, and what sets them apart."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float64, Int64, Real
from numpy.typing import NDArray

from gedikit.groups.cells import ColumnValues, column_values, typed
from gedikit.groups.contrasts import Contrast, Ranked, strongest
from gedikit.rows import StoredRows
from gedikit.tables import TableEncoding
from gedikit.tables.columns import Column

_MOST_COLUMNS = 200  # that a profile keeps: those by which some group is set apart most
_COMPARED = 10_000  # rows; more do not change what sets groups apart
_TOLD = 5  # contrasts of a group
_DIGITS = 10  # of what is kept: dates to the second
_QUARTILES = {"25%": 0.25, "median": 0.5, "75%": 0.75}
_DATES = {"earliest": 0.0, "median": 0.5, "latest": 1.0}
NOTHING, ONLY, EMPTY = "nothing in a single column", "there is no other cluster", "no row is in it"


@dataclass(frozen=True)
class ColumnProfile:
    """What is told of one column, for every group and last for all rows."""

    column: Column
    numbers: dict[str, Float64[np.ndarray, " groups"]]  # quartiles, or the range of dates
    shares: dict[str, Float64[np.ndarray, " groups"]]  # of categories, of what is true and what is missing


@dataclass(frozen=True)
class GroupProfiles:
    """What is known of each group when the rows are gone."""

    sizes: tuple[int, ...]
    columns: tuple[ColumnProfile, ...]
    contrasts: tuple[tuple[Contrast, ...], ...]  # of each group, the strongest first
    n_columns: int  # learned from; `columns` has the most telling where these are many

    @classmethod
    def of(
        cls,
        rows: Real[np.ndarray, "n d"] | StoredRows,
        groups: Int64[np.ndarray, " n"],
        n_groups: int,
        encoding: TableEncoding | None,
    ) -> "GroupProfiles":
        """Of rows of numbers that stand for a table; without an encoding, of their sizes alone."""
        sizes = tuple(np.bincount(groups, minlength=n_groups).tolist())
        if encoding is None:
            return cls(sizes, (), ((),) * n_groups, 0)
        some = np.arange(len(rows))
        if len(rows) > _COMPARED:
            some = np.sort(np.random.default_rng(0).choice(len(rows), _COMPARED, replace=False))
        compared: list[list[Ranked | None]] = [
            strongest(values, groups[some], n_groups) for values in column_values(encoding, rows[some])
        ]
        kept = _most_telling(compared)
        profiles = [
            _profile(values, groups, n_groups)
            for place, values in enumerate(column_values(encoding, rows[:]))
            if place in kept
        ]
        contrasts = []
        for group in range(n_groups):
            ranked = [found[group] for found in compared]
            best = sorted((r for r in ranked if r is not None), key=lambda r: r.rank)[:_TOLD]
            contrasts.append(tuple(r.contrast for r in best))
        return cls(sizes, tuple(profiles), tuple(contrasts), len(compared))

    @property
    def n_groups(self) -> int:
        return len(self.sizes)

    @property
    def shares(self) -> NDArray[np.float64]:
        return np.array(self.sizes) / max(sum(self.sizes), 1)

    def apart(self, group: int, most: int = _TOLD) -> list[str]:
        """What sets a group apart, in words, the strongest first."""
        known = {profile.column.name: profile.column for profile in self.columns}
        return [c.in_words(known[c.column]) for c in self.contrasts[group][:most]]

    def apart_if_at_all(self, group: int, most: int = _TOLD) -> list[str]:
        """The same, or why there is nothing to say."""
        if not self.sizes[group]:
            return [EMPTY]
        return self.apart(group, most) or [ONLY if max(self.sizes) == sum(self.sizes) else NOTHING]

    def frame(self) -> pd.DataFrame:
        """One row a group; columns are ("cluster", "rows" | "share" | "apart") and (column, what is told of it)."""
        told: dict[tuple[str, str], Any] = {
            ("cluster", "rows"): list(self.sizes),
            ("cluster", "share"): self.shares,
        }
        if self.n_columns:
            told["cluster", "apart"] = ["; ".join(self.apart_if_at_all(g, 3)) for g in range(self.n_groups)]
        for profile in self.columns:
            name = profile.column.name
            for what, numbers in profile.numbers.items():
                told[name, what] = typed(profile.column, numbers[:-1])
            for outcome, shares in profile.shares.items():
                told[name, outcome] = shares[:-1]
        index = pd.RangeIndex(self.n_groups, name="cluster")
        return pd.DataFrame(told, index=index).rename_axis(columns=["column", "value"])

    def tree(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "sizes": list(self.sizes),
            "n_columns": self.n_columns,
            "columns": [
                {"column": p.column.tree(), "numbers": _lists(p.numbers), "shares": _lists(p.shares)}
                for p in self.columns
            ],
            "contrasts": [[contrast.tree() for contrast in own] for own in self.contrasts],
        }

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> "GroupProfiles":
        columns = tuple(
            ColumnProfile(Column.from_tree(p["column"]), _arrays(p["numbers"]), _arrays(p["shares"]))
            for p in tree["columns"]
        )
        contrasts = tuple(tuple(Contrast(**contrast) for contrast in own) for own in tree["contrasts"])
        return cls(tuple(tree["sizes"]), columns, contrasts, tree["n_columns"])


def _most_telling(compared: list[list[Ranked | None]]) -> set[int]:
    """The columns to keep, by the strongest effect in any group."""
    effects = [max((r.contrast.effect for r in found if r is not None), default=0.0) for found in compared]
    order = np.argsort(-np.array(effects), kind="stable")
    return set(order[:_MOST_COLUMNS].tolist())


def _profile(values: ColumnValues, groups: Int64[np.ndarray, " n"], n_groups: int) -> ColumnProfile:
    column = replace(values.column, categories=(), rare=(), note="")  # what the shares say
    numbers: dict[str, NDArray[np.float64]] = {}
    if values.numbers is not None:
        told = _DATES if column.kind == "date" else _QUARTILES
        parts = [part[np.isfinite(part)] for part in _parts(values.numbers, groups, n_groups)]
        found = [_quantiles(part, list(told.values())) for part in parts]
        numbers = dict(zip(told, np.array(found).T, strict=True))
    shares = {
        name: np.array([_mean(part) for part in _parts(outcome, groups, n_groups)])
        for name, outcome in values.outcomes.items()
    }
    return ColumnProfile(column, numbers, shares)


def _parts(
    values: NDArray[np.float64], groups: Int64[np.ndarray, " n"], n_groups: int
) -> Iterator[NDArray[np.float64]]:
    """The values of every group, and of all rows."""
    yield from (values[groups == group] for group in range(n_groups))
    yield values


def _quantiles(part: NDArray[np.float64], levels: list[float]) -> NDArray[np.float64]:
    """Values that occur: half a child is no median."""
    if not len(part):
        return np.full(len(levels), np.nan)
    found: NDArray[np.float64] = np.quantile(part, levels, method="inverted_cdf")
    return found


def _mean(part: NDArray[np.float64]) -> float:
    known = part[np.isfinite(part)]
    return float(known.mean()) if len(known) else np.nan


def _lists(told: Mapping[str, NDArray[np.float64]]) -> dict[str, list[float | None]]:
    return {
        name: [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None for value in values]
        for name, values in told.items()
    }


def _arrays(told: Mapping[str, list[float | None]]) -> dict[str, NDArray[np.float64]]:
    return {name: np.array(values, dtype=np.float64) for name, values in told.items()}
