"""Values of a table as they stand behind rows of numbers, and as they are written."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float64, Real
from numpy.typing import NDArray

from gedikit.tables import TableEncoding
from gedikit.tables.columns import Column

TRUE, MISSING, OTHER = "true", "missing", "other"
_DAY = 86_400.0


@dataclass(frozen=True)
class ColumnValues:
    """A column of a table, row by row: numbers, and what else a value can be.

    `outcomes` are 1 where a row has the category, is true or is missing, and 0 where it has not; where a boolean is
    missing, it is neither true nor false but NaN.
    """

    column: Column
    numbers: Float64[np.ndarray, " n"] | None  # dates in seconds since 1970; NaN where missing
    outcomes: dict[str, Float64[np.ndarray, " n"]]


def column_values(encoding: TableEncoding, rows: Real[np.ndarray, "n d"]) -> Iterator[ColumnValues]:
    """Every learned column of encoded rows; gaps that were too few to be learned are values like others."""
    start = 0
    for column in encoding.learned:
        part = np.asarray(rows[:, start : start + len(column.features)], dtype=np.float64)
        start += len(column.features)
        yield _categories(column, part) if column.kind == "category" else _numbers(column, part)


def numbered_columns(n_columns: int) -> TableEncoding:
    """What the columns of an array are called: x0, x1 ..."""
    return TableEncoding.of_numbers([f"x{i}" for i in range(n_columns)])


def _numbers(column: Column, part: NDArray[np.float64]) -> ColumnValues:
    values, outcomes = part[:, 0], {}
    if column.marks_gaps:
        gaps = part[:, 1] > 0
        values = np.where(gaps, np.nan, values)
        outcomes[MISSING] = gaps.astype(np.float64)
    if column.kind == "boolean":
        return ColumnValues(column, None, {TRUE: values, **outcomes})
    return ColumnValues(column, values, outcomes)


def _categories(column: Column, part: NDArray[np.float64]) -> ColumnValues:
    known = part.max(1) > 0  # a category that was never seen has no code
    codes = np.where(known, part.argmax(1), -1)
    names = category_names(column)
    outcomes = {name: (codes == i).astype(np.float64) for i, name in enumerate(names)}
    if not known.all():
        other = _free(OTHER, column.categories)
        outcomes[other] = outcomes.get(other, 0.0) + (codes == -1)
    return ColumnValues(column, None, outcomes)


def category_names(column: Column) -> list[str]:
    """What each value of the code of a category stands for."""
    missing = [_free(MISSING, column.categories)] if column.marks_gaps else []
    other = [_free(OTHER, column.categories)] if column.rare else []
    return [*column.categories, *missing, *other]


def _free(name: str, taken: tuple[str, ...]) -> str:
    while name in taken:
        name += "_"
    return name


def written(column: Column, value: float) -> str:
    """A number of a column as people write it: 81,000, 2024-01-31, 2 days 04:00:00."""
    if not np.isfinite(value):
        return "–"
    if column.kind == "date":
        stamp = pd.Timestamp(value, unit="s")
        return stamp.strftime("%Y-%m-%d" if column.step and column.step % _DAY == 0 else "%Y-%m-%d %H:%M")
    if column.dtype.startswith("timedelta"):
        return str(pd.Timedelta(value, unit="s").round("s"))
    return number(value)


def number(value: float) -> str:
    """Four digits or all before the point, in thousands from 10,000 on: 2024 is a year as it is."""
    if 1000 <= abs(value) < 1e15:
        return f"{value:,.0f}" if abs(value) >= 9999.5 else f"{value:.0f}"
    return f"{value:.4g}"


def typed(column: Column, numbers: NDArray[np.float64]) -> Any:
    """Numbers of a column as pandas has them: dates and durations are such again."""
    if column.kind == "date":
        return pd.to_datetime(numbers, unit="s")
    if column.dtype.startswith("timedelta"):
        return pd.to_timedelta(numbers, unit="s")
    return numbers


def percent(share: float) -> str:
    """A share as a whole number of per cent; what is not quite none or all is said so."""
    if 0 < share < 0.005:
        return "<1%"
    if 0.995 <= share < 1:
        return ">99%"
    return f"{share:.0%}"
