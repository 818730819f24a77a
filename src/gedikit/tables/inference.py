"""What kind of data each column of a table holds."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gedikit.errors import DataError
from gedikit.tables import values
from gedikit.tables.columns import LABEL_COLUMNS, Column, ColumnOptions, some
from gedikit.tables.grid import grid_step
from gedikit.tables.values import GAP, Values

_MARKED_GAPS = 0.01  # share of gaps from which on they have a value of their own
_MOST_CATEGORIES = 20  # of a column; more are merged
_MOST_ONE_HOT = 1000  # of all columns together, which bounds memory
_DATES = ("datetime", "date", "datetime64")  # what pandas calls columns that hold dates and not text
_UNNAMED = "Unnamed:"  # what pandas calls a column of a text file that has no name
_MISTYPED = 0.1  # share of a column of numbers that may be text by mistake
_MOST_DECIMALS = 4  # of numbers that are rounded and not merely short
_SHOWN = 3  # rows and values named in a sentence
_ID_NAME = re.compile(r"(^|[_\W])(?i:id|uuid|guid|index)($|[_\W])|[a-z]I[Dd]$")  # customer_id, userId


@dataclass
class Problems:
    """Everything that is wrong with a table, said at once."""

    where: str
    sentences: list[str] = field(default_factory=list)

    def add(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def check(self, name: str, read: Values, series: "pd.Series[Any]", what: str, first: int = 0) -> None:
        """Collect infinite and unreadable values of a column; `first` is the number of its first row."""
        infinite = np.flatnonzero(np.isinf(read.numbers))
        if len(infinite):
            self.add(f"column {name!r} has {_counted(infinite, 'infinite value', first)}")
        wrong = np.flatnonzero(read.unreadable)
        if len(wrong):
            kinds = list(dict.fromkeys(str(v) for v in series.iloc[wrong[:1000]]))
            such = ", ".join(map(repr, kinds[:_SHOWN]))
            self.add(
                f"column {name!r} holds {what} except for {_counted(wrong, 'value', first)}, such as {such}: "
                f"correct them, or give the column another type"
            )

    def raise_any(self) -> None:
        if len(self.sentences) == 1:
            raise DataError(f"{self.where}: {self.sentences[0]}")
        if self.sentences:
            numbered = "; ".join(f"({i}) {sentence}" for i, sentence in enumerate(self.sentences, 1))
            raise DataError(f"{self.where} has {len(self.sentences)} problems: {numbered}")


def infer_columns(frame: pd.DataFrame, options: ColumnOptions, where: str) -> tuple[Column, ...]:
    """Every column with its kind; what cannot be used is said of all columns at once."""
    names = [str(name) for name in frame.columns]
    check_names(names, where)
    if not len(frame):
        raise DataError(f"{where} has a header but no rows")
    options.check(names, where)
    label = options.label
    if label is None:
        said = {name: kind for name in names if (kind := options.said_of(name))}
        label = next((name for name, kind in said.items() if kind == "label"), label_column(names, said))
    problems = Problems(where)
    found = [
        _column(frame.iloc[:, i], name, "label" if name == label else options.kind_of(name), problems)
        for i, name in enumerate(names)
    ]
    for column in found:
        if column.name.startswith(_UNNAMED) and column.learned:
            problems.add("a column has no name and looks like an index: drop it, or name it to use it")
    problems.raise_any()
    limit = _category_limit(sum(c.kind == "category" for c in found))
    columns = tuple(
        _limited(c, frame.iloc[:, i], limit, options.kind_of(c.name)) if c.kind == "category" else c
        for i, c in enumerate(found)
    )
    _check_something_is_left(columns, where)
    return columns


def check_names(names: Sequence[str], where: str) -> None:
    """Columns are found by their names, so each has one of its own."""
    repeated = pd.Index(names)[pd.Index(names).duplicated()].tolist()
    if repeated:
        raise DataError(f"{where} has more than one column called {repeated[0]!r}: rename or drop all but one")


def label_column(names: Sequence[str], others: Collection[str] = ()) -> str | None:
    """The column with a name that labels have, unless it is one of the others; y is a coordinate beside an x."""
    lower = [name.lower() for name in names]
    known = [name for name in LABEL_COLUMNS if name != "y" or "x" not in lower]
    candidates = [names[lower.index(name)] for name in known if name in lower]
    return next((name for name in candidates if name not in others), None)


def _column(series: "pd.Series[Any]", name: str, asked: str | None, problems: Problems) -> Column:
    dtype = str(series.dtype)
    if asked in ("label", "dropped"):
        return Column(name, asked, dtype)
    if asked == "id":
        return _id(name, dtype, "an id, as asked")
    if series.dtype.kind == "c":
        problems.add(f"column {name!r} holds complex numbers")
        return Column(name, "dropped", dtype)
    known = values.present(series)
    if known.empty:
        return Column(name, "constant", dtype, note="no values; left out")
    if asked is None and _same(known):
        value = values.as_categories(known.iloc[:1])[0]
        gaps = 1 - len(known) / len(series)
        if gaps < _MARKED_GAPS:
            return Column(name, "constant", dtype, value=value, note="one value only; left out")
        return Column(name, "category", dtype, gaps=gaps)  # whether there is a value is all that it tells
    return _by_kind(series, name, asked or _kind(known), asked is not None, problems)


def _kind(known: "pd.Series[Any]") -> str:
    """What values that are no gaps look like."""
    if isinstance(known.dtype, pd.CategoricalDtype):
        return "category"
    if known.dtype.kind == "b":
        return "boolean"
    if known.dtype.kind == "M":
        return "date"
    if not values.is_text(known) and known.dtype.kind in "iufm":
        return "number"
    words = values.content(known)
    if words in _DATES:
        return "date"
    if words == "boolean" or values.distinct_categories(known) <= {
        "true",
        "false",
        "True",
        "False",
        "TRUE",
        "FALSE",
    }:
        return "boolean"
    if _is_number_column(known):
        return "number"
    return "date" if values.date_format(known) else "text"


def _is_number_column(text: "pd.Series[Any]") -> bool:
    """Whether text is meant as numbers, some of which may be mistyped; 007 and 1, 2, x, x are codes."""
    read = values.as_numbers(text)
    if not read.mostly_read or values.has_leading_zeros(text):
        return False
    few_different = len(values.distinct_categories(text)) <= min(_MOST_CATEGORIES, len(text) / 2)
    return not (few_different and read.unreadable.mean() > _MISTYPED)


def _by_kind(series: "pd.Series[Any]", name: str, kind: str, asked: bool, problems: Problems) -> Column:
    dtype = str(series.dtype)
    if kind == "number":
        read = values.as_numbers(series)
        problems.check(name, read, series, "numbers")
        plain = dtype if series.dtype.kind in "biufm" else "float64"
        return _numeric(series, read, Column(name, "number", plain), asked)
    if kind == "boolean":
        read = values.as_truth(series)
        problems.check(name, read, series, "true and false")
        return _with_gaps(Column(name, "boolean", dtype, step=1.0), read)
    if kind == "date":
        form = "" if values.content(values.present(series)) in _DATES else values.date_format(series)
        read = values.as_seconds(series, form)
        problems.check(name, read, series, "dates")
        return _date(Column(name, "date", dtype, date_format=form), read)
    missing = float(series.isna().mean())
    if kind == "text" and _mostly_different(series):
        return _id(name, dtype, "text that hardly repeats")
    return Column(name, "category", dtype, gaps=missing)


def _numeric(series: "pd.Series[Any]", read: Values, column: Column, asked: bool) -> Column:
    exact = not values.is_text(series) and series.dtype.kind in "iu" and not series.isna().any()
    raw: NDArray[Any] = series.to_numpy() if exact else read.numbers
    if exact and not asked:
        if len(raw) > 2 and bool(np.all(np.diff(raw) == 1)):
            return _id(column.name, column.dtype, "counts the rows")
        if _looks_like_id(column.name) and len(np.unique(raw)) == len(raw):
            return _id(column.name, column.dtype, "named as an id, and no value occurs twice")
    if not exact and series.dtype == np.float32:
        raw = series.to_numpy()
    return _with_gaps(replace(column, step=grid_step(raw), decimals=_decimals(read.numbers)), read)


def _decimals(numbers: NDArray[np.float64]) -> int | None:
    """Of rounded numbers: cents have two."""
    known = numbers[np.isfinite(numbers)]
    rounded = (d for d in range(_MOST_DECIMALS + 1) if np.array_equal(np.round(known, d), known))
    return next(rounded, None) if len(known) else None


def _date(column: Column, read: Values) -> Column:
    stamps = np.rint(read.numbers[np.isfinite(read.numbers)] * 1e6).astype(np.int64)
    return _with_gaps(replace(column, step=grid_step(stamps) / 1e6), read)


def _with_gaps(column: Column, read: Values) -> Column:
    known = read.numbers[np.isfinite(read.numbers)]
    share = float(np.isnan(read.numbers).mean())
    if not len(known):
        return column
    fill = float(np.quantile(known, 0.5, method="lower"))  # a value that occurs
    marks = share >= _MARKED_GAPS
    note = ""
    if share:
        how = "whether there is a value is learned too" if marks else "they are too few to be learned"
        note = f"gaps are filled with the median; {how}"
    offset = float(known[0]) if column.step else 0.0
    return replace(column, fill=fill, gaps=share, marks_gaps=marks, offset=offset, note=note)


def _category_limit(n_columns: int) -> int:
    return min(_MOST_CATEGORIES, max(2, _MOST_ONE_HOT // max(n_columns, 1)))


def _limited(column: Column, series: "pd.Series[Any]", limit: int, asked: str | None) -> Column:
    """The categories that have values of their own, and those that share one."""
    counted = pd.Series(values.as_categories(series)).value_counts()
    count = {str(name): int(n) for name, n in counted.items()}
    missing = count.pop(GAP, 0)
    n_known = len(series) - missing
    frequent = sorted(count, key=lambda name: (-count[name], name))
    limit = limit - 1 if len(frequent) > limit else limit  # one for all that are merged
    kept, rare = sorted(frequent[:limit]), frequent[limit:]
    hidden = sum(count[name] for name in rare)
    dtype = column.dtype
    if asked is None and not dtype.startswith("category") and hidden > n_known / 2:
        return _id(column.name, dtype, f"text with more than {limit} values, none of them frequent")
    note = f"the {len(kept)} most frequent values are told apart, all others count as one" if rare else ""
    return replace(
        column,
        dtype=f"category[{series.cat.categories.dtype}]"
        if isinstance(series.dtype, pd.CategoricalDtype)
        else dtype,
        gaps=missing / len(series),
        marks_gaps=missing > 0,
        categories=tuple(kept),
        rare=tuple(rare),
        note=note,
    )


def _id(name: str, dtype: str, why: str) -> Column:
    return Column(name, "id", dtype, note=f"{why}; passed through and not trained on")


def _mostly_different(series: "pd.Series[Any]") -> bool:
    return len(values.distinct_categories(series)) > len(values.present(series)) / 2


def _same(known: "pd.Series[Any]") -> bool:
    first = known.iloc[0]
    try:
        return bool((known == first).all())
    except (TypeError, ValueError):  # objects that cannot be compared, such as arrays
        return False


def _looks_like_id(name: str) -> bool:
    return _ID_NAME.search(name) is not None


def _check_something_is_left(columns: Sequence[Column], where: str) -> None:
    if any(column.learned for column in columns):
        return
    if not columns:
        raise DataError(f"{where} has no columns")
    notes = "; ".join(said_of(columns))
    if any(column.kind == "constant" for column in columns):
        raise DataError(f"{where}: all rows are the same, there is nothing to learn: {notes}")
    raise DataError(f"{where} has no column to learn from: {notes or 'it has labels only'}")


def said_of(columns: Sequence[Column]) -> list[str]:
    """What was decided, each decision once with the columns it is about."""
    about: dict[str, list[str]] = {}
    for column in columns:
        about.setdefault(column.note, []).append(column.name)
    return [f"{some(names)}: {note}" for note, names in about.items() if note]


def _counted(rows: NDArray[np.int64], what: str, first: int) -> str:
    """For example "3 infinite values in rows 4, 8 and 15"."""
    n = len(rows)
    some = [str(first + row) for row in rows[:_SHOWN]]
    if n == 1:
        return f"1 {what} in row {some[0]}"
    listed = f"{', '.join(some[:-1])} and {some[-1]}" if n <= _SHOWN else f"{', '.join(some)} ..."
    return f"{n} {what}s in rows {listed}"
