"""Raw columns as numbers, seconds or text, and which of their values could not be read."""

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

GAP, RARE = "\0gap", "\0rare"  # no text of a file has these
_GAP_MARKS = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none", "?", "-", "–", "."})
_MOSTLY = 0.5
_TRUTH = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "1": 1.0, "0": 0.0, "1.0": 1.0, "0.0": 0.0}


@dataclass(frozen=True)
class Values:
    """Numbers with NaN for gaps; `unreadable` marks what is neither a number nor a gap."""

    numbers: NDArray[np.float64]
    unreadable: NDArray[np.bool_]

    @property
    def known(self) -> int:
        return int(np.isfinite(self.numbers).sum())

    @property
    def mostly_read(self) -> bool:
        wrong = int(self.unreadable.sum())
        return self.known > 0 and self.known > _MOSTLY * (self.known + wrong)


def is_text(series: "pd.Series[Any]") -> bool:
    """Text, or objects of no single numeric type, such as text and numbers mixed."""
    return series.dtype.kind in "OUST" and not isinstance(series.dtype, pd.CategoricalDtype)


def present(series: "pd.Series[Any]") -> "pd.Series[Any]":
    """The values that are no gaps; blank text is one."""
    return series[as_categories(series) != GAP] if is_text(series) else series.dropna()


def content(series: "pd.Series[Any]") -> str:
    """What pandas calls the values: "boolean", "integer", "floating", "datetime", "string", "mixed" ..."""
    return str(pd.api.types.infer_dtype(series, skipna=True))


def as_numbers(series: "pd.Series[Any]") -> Values:
    """Numbers, truth values and durations (in seconds) as they are; text where it reads as a number."""
    if isinstance(series.dtype, pd.CategoricalDtype):
        series = series.astype(series.cat.categories.dtype)
    if series.dtype.kind == "m":
        return _all_read(series.dt.total_seconds().to_numpy(np.float64))
    if not is_text(series) and series.dtype.kind in "biuf":
        return _all_read(series.to_numpy(np.float64, na_value=np.nan))
    return _by_distinct(series, _numbers_of_text)


def has_leading_zeros(series: "pd.Series[Any]") -> bool:
    """Whether some text is a code such as 007, whose zeros a number would lose."""
    _, distinct = _factorised(series)
    return any(re.match(r"0\d", str(value).strip()) is not None for value in distinct)


def as_truth(series: "pd.Series[Any]") -> Values:
    """1 for true, 0 for false; numbers other than these are unreadable."""
    return as_numbers(series) if series.dtype.kind == "b" else _by_distinct(series, _truth_of_text)


def as_seconds(series: "pd.Series[Any]", date_format: str = "") -> Values:
    """Dates as seconds since 1970; text is read by its format."""
    if series.dtype.kind != "M":
        return _by_distinct(series, lambda distinct: _seconds_of_text(distinct, date_format))
    return _seconds(series, series.isna().to_numpy())


def _numbers_of_text(distinct: "pd.Series[Any]") -> Values:
    text, gaps = _stripped(distinct)
    numbers = pd.to_numeric(text, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    return Values(numbers, np.isnan(numbers) & ~gaps)


def _truth_of_text(distinct: "pd.Series[Any]") -> Values:
    text, gaps = _stripped(distinct)
    numbers = np.array([_TRUTH.get(value, np.nan) for value in text.str.lower()], dtype=np.float64)
    return Values(numbers, np.isnan(numbers) & ~gaps)


def _seconds_of_text(distinct: "pd.Series[Any]", date_format: str) -> Values:
    gaps = distinct.isna().to_numpy()
    if date_format or distinct.dtype.kind in "iuf":
        distinct, gaps = _stripped(distinct)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of formats that pandas finds odd
        stamps = pd.to_datetime(distinct, format=date_format or None, errors="coerce", utc=True)
    return _seconds(stamps, gaps)


def _seconds(series: "pd.Series[Any]", gaps: NDArray[np.bool_]) -> Values:
    if getattr(series.dt, "tz", None) is not None:
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    stamps = series.to_numpy("datetime64[us]")
    numbers = np.where(np.isnat(stamps), np.nan, stamps.astype(np.int64) / 1e6)
    return Values(numbers, np.isnan(numbers) & ~gaps)


def date_format(series: "pd.Series[Any]") -> str:
    """The format of dates written as text, the one that most values have; "" if they are no dates."""
    text, gaps = _stripped(series)
    distinct = text[~gaps].drop_duplicates()
    if distinct.empty:
        return ""
    some = distinct.iloc[:100]
    found: dict[str, int] = {}
    for candidate in _formats(str(some.iloc[0])):
        read = as_seconds(some, candidate)
        if read.mostly_read:
            found[candidate] = as_seconds(distinct, candidate).known
    return max(found, key=lambda name: found[name]) if found else ""


def _formats(text: str) -> list[str]:
    """Formats that a text may have; 1.2.2020 has its day first, 1/2/2020 its month unless that cannot be."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        both = [
            pd.tseries.api.guess_datetime_format(text, dayfirst=first)
            for first in ((True, False) if re.match(r"\d{1,2}\.", text) else (False, True))
        ]
    iso = ["ISO8601"] if re.match(r"\d{4}-\d{2}-\d{2}", text) else []
    return list(dict.fromkeys([name for name in both if name] + iso))


def as_categories(series: "pd.Series[Any]") -> NDArray[np.object_]:
    """One text for each value, the same for 1 and 1.0; gaps are GAP."""
    if isinstance(series.dtype, pd.CategoricalDtype):
        codes, distinct = series.cat.codes.to_numpy(), pd.Series(series.cat.categories)
    else:
        codes, distinct = _factorised(series)
    names = [*(_text(value) or GAP for value in distinct.tolist()), GAP]  # the code of gaps is −1
    return np.array(names, dtype=object)[codes]


def distinct_categories(series: "pd.Series[Any]") -> set[str]:
    """The different texts that `as_categories` has, without gaps."""
    _, distinct = _factorised(series)
    return {_text(value) for value in distinct.tolist()} - {""}


def _by_distinct(series: "pd.Series[Any]", read: Callable[["pd.Series[Any]"], Values]) -> Values:
    """Each different value is read once."""
    codes, distinct = _factorised(series)
    found = read(distinct)
    return Values(np.append(found.numbers, np.nan)[codes], np.append(found.unreadable, False)[codes])


def _factorised(series: "pd.Series[Any]") -> tuple[NDArray[np.int64], "pd.Series[Any]"]:
    try:
        codes, distinct = pd.factorize(series)
    except TypeError:  # lists and other values that have no hash
        codes, distinct = pd.factorize(series.astype(str).where(series.notna()))
    return codes, pd.Series(distinct)


def _text(value: Any) -> str:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return f"{value:.15g}" if abs(value) < 1e15 else str(value)
    return str(value).strip()


def _stripped(series: "pd.Series[Any]") -> tuple["pd.Series[Any]", NDArray[np.bool_]]:
    """Text without blanks around it, and where there is none or a mark for a gap."""
    if series.dtype.kind in "iuf":  # 20240131 may be a date
        series = pd.Series(as_categories(series), index=series.index).replace(GAP, "")
    text = series.astype(object).where(series.notna(), "").astype(str).str.strip()
    return text, text.str.lower().isin(_GAP_MARKS).to_numpy(bool)


def _all_read(numbers: NDArray[np.float64]) -> Values:
    return Values(numbers, np.zeros(len(numbers), dtype=bool))
