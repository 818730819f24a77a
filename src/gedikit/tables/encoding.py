"""Tables as rows of numbers, and rows of numbers as tables."""

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Real
from numpy.typing import NDArray

from gedikit.errors import DataError, GediWarning, UsageError
from gedikit.tables import values
from gedikit.tables.columns import Column, ColumnOptions, some
from gedikit.tables.inference import Problems, check_names, infer_columns, label_column, said_of
from gedikit.tables.values import GAP, RARE, Values

# beside numbers of unit variance; louder codes cut neighbour graphs into one piece a category
_CATEGORY = math.sqrt(0.5)  # two rows of different categories are 1 apart
_MISSING = 0.5  # a row with a gap and one without are this far apart
_NULLABLE = ("Int", "UInt", "Float")  # types of pandas that have gaps: Int64, not int64
_TEXT = ("object", "str", "string")


@dataclass(frozen=True)
class TableEncoding:
    """The columns of a table and what stands for them in rows of numbers.

    Numbers and dates (in seconds since 1970) keep their units. Booleans are 0 and 1, categories a 1-of-n code, and
    one value more tells where others are missing; these codes are meant to stand as they are beside numbers of unit
    variance: two rows of different categories are then one standard deviation of a number apart.
    """

    columns: tuple[Column, ...]

    @classmethod
    def infer(
        cls, frame: pd.DataFrame, options: ColumnOptions | None = None, where: str = "the table"
    ) -> "TableEncoding":
        """Look at a table and decide; all that is wrong with it is said in one DataError."""
        return cls(infer_columns(frame, options or ColumnOptions(), where))

    @classmethod
    def of_numbers(cls, names: Sequence[str]) -> "TableEncoding":
        """Columns of numbers without gaps: what a model knows that was trained on an array."""
        return cls(tuple(Column(name, "number") for name in names))

    @property
    def learned(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.learned)

    @property
    def features(self) -> tuple[str, ...]:
        """A name for each number of a row."""
        return tuple(name for column in self.learned for name in column.features)

    @property
    def origins(self) -> tuple[str, ...]:
        """The column that each number of a row comes from."""
        return tuple(column.name for column in self.learned for _ in column.features)

    def parts(self, numbers: Iterable[int]) -> list[str]:
        """What some of the numbers of a row stand for, each once: columns, or whether values of them are there."""
        marks = {self._slice(c).stop - 1 for c in self.learned if c.kind in ("number", "date") and c.marks_gaps}
        return list(dict.fromkeys(f"gaps of {self.origins[i]}" if i in marks else self.origins[i] for i in numbers))

    @property
    def is_plain(self) -> bool:
        """Whether rows are the numbers of the table as they are."""
        return all(column.kind == "number" and not column.marks_gaps for column in self.learned)

    @property
    def codes(self) -> tuple[int, ...]:
        """Positions in a row that stand for booleans, categories and gaps, and must not be scaled."""
        units = {self._slice(c).start for c in self.learned if c.kind in ("number", "date")}
        return tuple(i for i in range(len(self.features)) if i not in units)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was decided about columns, where that is not obvious."""
        return tuple(said_of(self.columns))

    def summary(self) -> str:
        """The types of all columns in one line."""
        by_kind: dict[str, list[str]] = {}
        for column in self.columns:
            by_kind.setdefault(column.kind, []).append(column.name)
        return "; ".join(f"{_counted(kind, len(names))}: {some(names)}" for kind, names in by_kind.items())

    def encode(self, frame: pd.DataFrame, where: str = "the table", first: int = 0) -> NDArray[Any]:
        """Rows of finite numbers; `first` is the number of the first row in what is said of it.

        Gaps in columns that had none, and categories that were never seen, are warned of. All else that is wrong is
        said in one DataError.
        """
        by_name = self._found(frame, where)
        problems = Problems(where)
        if self.is_plain and all(_is_plain(by_name[column.name]) for column in self.learned):
            names = [column.name for column in self.learned]
            plain: NDArray[Any] = pd.DataFrame({name: by_name[name] for name in names}).to_numpy()
            if plain.dtype.kind != "f" or np.isfinite(plain).all():
                return np.ascontiguousarray(plain)  # sums over rows are rounded by their order in memory
        rows = np.zeros((len(frame), len(self.features)), dtype=np.float64, order="F")  # columns are written
        if not len(frame):
            return rows
        unseen: list[str] = []
        for column in self.learned:
            series, part = by_name[column.name], rows[:, self._slice(column)]
            if column.kind == "category":
                part[:] = _CATEGORY * _one_hot(column, series, unseen)
                continue
            read = read_column(column, series)
            problems.check(column.name, read, series, f"{column.kind}s", first)
            gaps = np.isnan(read.numbers) & ~read.unreadable
            if column.fill is None and gaps.any():
                problems.add(
                    f"column {column.name!r} has gaps, the first in row {first + int(gaps.argmax())}, "
                    "and the model was trained on an array without any"
                )
            elif not column.gaps and gaps.any():
                unseen.append(f"gaps in {column.name!r}")
            part[:, 0] = np.where(gaps, np.nan if column.fill is None else column.fill, read.numbers)
            if column.marks_gaps:
                part[:, 1] = _MISSING * gaps
        problems.raise_any()
        if unseen:
            warnings.warn(
                GediWarning(f"{where} has what the training data had not: {'; '.join(unseen)}"), stacklevel=2
            )
        return np.ascontiguousarray(rows)

    def decode(self, rows: Real[np.ndarray, "n d"]) -> pd.DataFrame:
        """A table with the columns and types of the input; ids, labels and what was dropped are not in it."""
        made: dict[str, Any] = {}
        for column in self.columns:
            if column.kind == "constant":
                made[column.name] = _typed([column.value] * len(rows), column)
            elif column.kind == "category":
                made[column.name] = _categories(column, rows[:, self._slice(column)])
            elif column.learned:
                part = rows[:, self._slice(column)]
                made[column.name] = _values(column, part[:, 0], self._missing(column, part))
        return pd.DataFrame(made)

    def ids(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The columns that are passed through to outputs, those of them that are there."""
        names = {column.name for column in self.columns if column.kind == "id"}
        return frame.loc[:, [name for name in frame.columns if str(name) in names]]

    def labels(self, frame: pd.DataFrame) -> NDArray[Any] | None:
        """The column that is kept for evaluation, where there is one."""
        name = self.label_column(frame)
        found = next((c for c in frame.columns if str(c) == name), None)
        return None if found is None else frame[found].to_numpy()

    def label_column(self, frame: pd.DataFrame) -> str | None:
        """The column that labels of the training had, else one with a name that labels have."""
        names = [str(name) for name in frame.columns]
        own = next((column.name for column in self.columns if column.kind == "label"), None)
        known = {column.name for column in self.columns}
        return own if own in names else label_column(names, known)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns whose values a reader of text files must not turn into numbers: 007 is not 7."""
        return tuple(c.name for c in self.columns if c.kind in ("category", "date", "id") and c.dtype in _TEXT)

    # what a log-likelihood is measured by

    @property
    def steps(self) -> Float[np.ndarray, " d"]:
        """Of the grid each number of a row lies on; 0 for continuous ones."""
        found = np.zeros(len(self.features))
        for column in self.learned:
            if column.kind != "category":
                found[self._slice(column).start] = column.step
        return found

    @property
    def log_cell(self) -> float:
        """log of the volume of a cell of the grid: add it to a log-density of dequantised rows.

        The sum is a log-probability of the values on grids, and a log-density of the continuous ones.
        """
        steps = self.steps
        return float(np.log(steps[steps > 0]).sum())

    def dequantise(self, rows: Real[np.ndarray, "n d"], generator: np.random.Generator) -> NDArray[np.float64]:
        """Rows spread evenly over the cells of their grids.

        By Jensen's inequality the mean log-density of such rows plus `log_cell` is at most the log-probability of
        the cell (Theis, van den Oord and Bethge, 2016).
        """
        return rows + self.steps * generator.uniform(-0.5, 0.5, rows.shape)

    @property
    def without_likelihood(self) -> tuple[str, ...]:
        """Columns whose codes have no density in the units of the table: categories, and what has gaps."""
        return tuple(c.name for c in self.learned if c.kind == "category" or c.gaps)

    def check_likelihood(self) -> None:
        """Raise where a log-density of rows is no log-likelihood of the table."""
        names = self.without_likelihood
        if names:
            raise UsageError(
                f"a table with categories or gaps has no log-likelihood in nats ({some(names)}): score_samples "
                "ranks its rows, and a model without these columns has one"
            )

    def tree(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"columns": [column.tree() for column in self.columns]}

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> "TableEncoding":
        return cls(tuple(Column.from_tree(column) for column in tree["columns"]))

    def _found(self, frame: pd.DataFrame, where: str) -> dict[str, "pd.Series[Any]"]:
        """Columns by name; additional ones are warned of."""
        check_names([str(name) for name in frame.columns], where)
        by_name = {str(name): frame.iloc[:, i] for i, name in enumerate(frame.columns)}
        missing = [column.name for column in self.learned if column.name not in by_name]
        if missing:
            lacks = f"the column {missing[0]!r}" if len(missing) == 1 else f"the columns {some(missing)}"
            raise DataError(f"{where} lacks {lacks} that the model was trained on")
        known = {*(column.name for column in self.columns), self.label_column(frame)}
        more = [name for name in by_name if name not in known]
        if more:
            text = f"{where} has columns that the model was not trained on, which are ignored: {some(more)}"
            warnings.warn(GediWarning(text), stacklevel=3)
        return by_name

    def _slice(self, wanted: Column) -> slice:
        return self._slices[wanted.name]

    @cached_property
    def _slices(self) -> dict[str, slice]:
        return dict(_places(self.learned))

    def _missing(self, column: Column, part: NDArray[Any]) -> NDArray[np.bool_]:
        return part[:, 1] > _MISSING / 2 if column.marks_gaps else np.zeros(len(part), dtype=bool)


def _counted(kind: str, n: int) -> str:
    plural = {"category": "categories", "dropped": "dropped"}.get(kind, f"{kind}s")
    return f"{n} {kind if n == 1 else plural}"


def read_column(column: Column, series: "pd.Series[Any]") -> Values:
    """Numbers, truth values or seconds, by the kind of the column."""
    if column.kind == "number":
        return values.as_numbers(series)
    if column.kind == "boolean":
        return values.as_truth(series)
    return values.as_seconds(series, column.date_format)


def _places(columns: Sequence[Column]) -> Iterator[tuple[str, slice]]:
    start = 0
    for column in columns:
        stop = start + len(column.features)
        yield column.name, slice(start, stop)
        start = stop


def _is_plain(series: "pd.Series[Any]") -> bool:
    return isinstance(series.dtype, np.dtype) and series.dtype.kind in "iuf"


def _coded(column: Column) -> NDArray[np.object_]:
    """What each value of a 1-of-n code stands for."""
    keys = [*column.categories, *([GAP] if column.marks_gaps else []), *([RARE] if column.rare else [])]
    return np.array(keys, dtype=object)


def _one_hot(column: Column, series: "pd.Series[Any]", unseen: list[str]) -> NDArray[np.float64]:
    """1-of-n codes, all zeros for what was never seen; what that is, is added to `unseen`."""
    from sklearn.preprocessing import OneHotEncoder

    keys = values.as_categories(series)
    known = {*column.categories, *column.rare, *([GAP] if column.marks_gaps else [])}
    strange = sorted(set(pd.unique(keys)) - known)
    if GAP in strange:
        unseen.append(f"gaps in {column.name!r}")
        strange.remove(GAP)
    if strange:
        unseen.append(f"{column.name!r} is {some([repr(value) for value in strange])}")
    rare = {*column.rare, *strange} if column.rare else set()
    if rare:  # a value that was never seen is as rare as can be
        keys = np.where(pd.Series(keys).isin(rare), RARE, keys)
    coded = _coded(column)
    encoder = OneHotEncoder(categories=[coded], handle_unknown="ignore", sparse_output=False)
    codes: NDArray[np.float64] = encoder.fit(coded[:, None]).transform(keys[:, None])
    return codes


def _categories(column: Column, part: NDArray[Any]) -> Any:
    """The category with the largest value; a rare one is decoded as the most frequent of the rare."""
    keys = _coded(column)[part.argmax(axis=1)]
    if column.rare:
        keys = np.where(keys == RARE, column.rare[0], keys)
    return _typed([None if key == GAP else key for key in keys], column)


def _values(column: Column, numbers: NDArray[Any], missing: NDArray[np.bool_]) -> Any:
    numbers = np.asarray(numbers, dtype=np.float64)
    if column.step:
        numbers = column.offset + column.step * np.rint((numbers - column.offset) / column.step)
        numbers = np.round(numbers, _decimals(column.step, column.offset))
    elif column.decimals is not None:
        numbers = np.round(numbers, column.decimals)
    if column.kind == "boolean":
        truth = pd.Series(np.clip(numbers, 0, 1) > 0.5, dtype=object).where(~missing, None)
        return truth if missing.any() else truth.astype(bool)
    if column.kind == "date":
        return _dates(column, np.where(missing, np.nan, numbers))
    if column.dtype.startswith("timedelta"):
        return pd.Series(pd.to_timedelta(np.where(missing, np.nan, numbers), unit="s"))
    dtype = _numeric_dtype(column.dtype)
    if missing.any():
        floats: Any = pd.Series(np.where(missing, np.nan, numbers))
        return floats.astype(column.dtype) if column.dtype.startswith(_NULLABLE) else floats
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        numbers = np.clip(np.rint(numbers), info.min, info.max)
    return pd.Series(numbers.astype(dtype))


def _dates(column: Column, seconds: NDArray[np.float64]) -> Any:
    micro = np.where(np.isnan(seconds), 0, np.rint(seconds * 1e6)).astype("datetime64[us]")
    stamps: Any = pd.Series(np.where(np.isnan(seconds), np.datetime64("NaT", "us"), micro))
    if column.date_format:
        form = "%Y-%m-%dT%H:%M:%S" if column.date_format == "ISO8601" else column.date_format
        return stamps.dt.strftime(form)
    zone = column.dtype.partition(",")[2].strip(" ]")
    return stamps.dt.tz_localize("UTC").dt.tz_convert(zone) if zone else stamps


def _typed(texts: Sequence[str | None], column: Column) -> Any:
    """Text as values of the column's type."""
    if column.dtype.startswith("category["):
        plain = replace(column, dtype=column.dtype[len("category[") : -1])
        return _typed(texts, plain).astype("category")
    kind = "O" if column.dtype in _TEXT else _numeric_dtype(column.dtype).kind
    if kind == "M":
        return pd.Series(pd.to_datetime([text or "" for text in texts]))
    if kind not in "biuf":
        return pd.Series(list(texts), dtype=object if column.dtype == "object" else "str")
    gaps = any(text is None for text in texts)
    if kind == "b":
        truth = pd.Series([None if text is None else text == "True" for text in texts], dtype=object)
        return truth if gaps else truth.astype(bool)
    numbers = pd.Series([np.nan if text is None else float(text) for text in texts])
    return numbers if gaps else numbers.astype(_numeric_dtype(column.dtype))


def _decimals(step: float, offset: float) -> int:
    """How many decimals values of the grid are written with; 15 where it is no decimal grid."""
    for decimals in range(10):
        scaled = np.array([step, offset]) * 10.0**decimals
        if np.allclose(scaled, np.rint(scaled), rtol=0, atol=1e-6):
            return decimals
    return 15


def _numeric_dtype(name: str) -> np.dtype[Any]:
    """numpy's type of that name; nullable types of pandas are named alike."""
    try:
        return np.dtype(name.lower().split("[", maxsplit=1)[0])
    except TypeError:
        return np.dtype(np.float64)
