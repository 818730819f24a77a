"""How a text file writes its table: encoding, separator and decimal mark."""

import codecs
import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gedikit.errors import DataError

_SEPARATORS = ",;\t|"
_LOOKED_AT = 65_536  # characters
_READ_AT_ONCE = 1 << 20
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_COMMA = re.compile(r"[+-]?\d+,(\d+)([eE][+-]?\d+)?")
_CODE = re.compile(r"0\d+")
_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")


@dataclass(frozen=True)
class CsvDialect:
    """What a reader must know of a text file."""

    encoding: str = "utf-8"
    separator: str = ","
    decimal: str = "."
    codes: tuple[str, ...] = ()  # columns of text such as 007, whose zeros a number would lose

    def options(self, text: Iterable[str] = ()) -> dict[str, Any]:
        """For `pandas.read_csv`; some columns are text whatever they look like."""
        types = dict.fromkeys((*self.codes, *text), str)
        return {"encoding": self.encoding, "sep": self.separator, "decimal": self.decimal, "dtype": types}


def dialect_of(path: Path) -> CsvDialect:
    """Look at a file; what cannot be a table is refused."""
    encoding = _encoding(path)
    with path.open(encoding=encoding, newline="") as file:
        text = file.read(_LOOKED_AT)
    if not text.strip():
        raise DataError(f"{path} is empty")
    start = text.lstrip()[:100].lower()
    if start.startswith(("<!doctype", "<html", "<?xml", "{", "[{", "[[", "%pdf")):
        raise DataError(f"{path} is not a table of rows and columns: it begins with {start[:20]!r}")
    whole = text if len(text) < _LOOKED_AT else text[: text.rfind("\n") + 1] or text
    separator = _separator(whole)
    lines = _fields(whole, separator)
    return CsvDialect(encoding, separator, _decimal(lines, separator), _codes(lines))


def _encoding(path: Path) -> str:
    """UTF-8 or UTF-16 by its byte-order mark, UTF-8 if all bytes are, else that of Western Windows."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        chunk = file.read(_READ_AT_ONCE)
        for mark, name in _MARKS:
            if chunk.startswith(mark):
                return name
        if b"\0" in chunk:
            raise DataError(f"{path} is not a text file: it holds bytes that no text has")
        try:
            while chunk:
                decoder.decode(chunk)
                chunk = file.read(_READ_AT_ONCE)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return "cp1252"
    return "utf-8"


def _separator(text: str) -> str:
    """The one by which most lines have as many fields as the first, and among those the one with most fields."""
    best, chosen = (0.0, 1), ","
    for candidate in _SEPARATORS:
        widths = [len(fields) for fields in _fields(text, candidate)]
        if widths and widths[0] > 1:
            score = (sum(width == widths[0] for width in widths) / len(widths), widths[0])
            if score > best:
                best, chosen = score, candidate
    return chosen


def _decimal(lines: list[list[str]], separator: str) -> str:
    """A comma if numbers have it and none has a point; 1,234 in a file with commas may be a thousand."""
    fields = [field.strip() for line in lines for field in line]
    commas = [match for field in fields if (match := _COMMA.fullmatch(field))]
    points = sum(_POINT.fullmatch(field) is not None for field in fields)
    if separator == "," and all(len(match[1]) == 3 for match in commas):
        return "."
    return "," if len(commas) > points else "."


def _codes(lines: list[list[str]]) -> tuple[str, ...]:
    names, *rows = lines or [[]]
    found = {i for row in rows for i, field in enumerate(row) if _CODE.fullmatch(field.strip())}
    return tuple(name.lstrip() for i, name in enumerate(names) if i in found)


def _fields(text: str, separator: str) -> list[list[str]]:
    try:
        return [fields for fields in csv.reader(text.splitlines(), delimiter=separator) if fields]
    except csv.Error:
        return []
