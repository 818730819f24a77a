"""How much of a file there is to be read, asked before it is: small files can hold more than a machine has."""

import contextlib
import os
import zipfile
from pathlib import Path
from typing import Any
from xml.parsers import expat

from gedikit.errors import DataError

PER_VALUE = 8  # bytes of a number, a date or what points to text
_CHUNK = 1 << 20
_PER_CELL = 64  # bytes of a cell of a spreadsheet as an object
_PER_LETTER = 8  # bytes that a letter of a spreadsheet's XML becomes at most while it is read
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))  # of a container


def memory() -> int:
    """Bytes of memory of this machine, or of the container that this process is in, whoever uses them now."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in _LIMITS:
        with contextlib.suppress(OSError, ValueError):  # there is none, or it is "max"
            sizes.append(int(limit.read_text()))
    return min(sizes)


def refuse_beyond_memory(path: Path | str, n_bytes: int) -> None:
    """Refuse what would not fit even if there was nothing else."""
    if n_bytes > memory():
        raise DataError(
            f"{path} announces {n_bytes / 1e9:.1f} GB and this machine has {memory() / 1e9:.1f} GB of memory: "
            "it is damaged, or made to be unreadable"
        )


def parquet_bytes(parquet: Any, rows: int) -> int:
    """Bytes that the values of so many rows of a Parquet file take at most, by its metadata.

    A row may have lists of values, and one row all that there are. Chunks of columns without lists are not looked
    at: where they are damaged, that would end the process.
    """
    groups = [parquet.row_group(i) for i in range(parquet.num_row_groups)]
    lists = [i for i in range(parquet.num_columns) if parquet.schema.column(i).max_repetition_level]
    listed = sum(group.column(i).num_values for group in groups for i in lists)
    flat = rows * (parquet.num_columns - len(lists))
    return int(listed + flat) * PER_VALUE


def check_archive(path: Path, per_byte: int = 1) -> None:
    """Refuse an archive whose members are larger unpacked than memory; readers stop at the size it announces."""
    with zipfile.ZipFile(path) as archive:
        refuse_beyond_memory(path, per_byte * max((member.file_size for member in archive.infolist()), default=0))


def check_spreadsheet(path: Path) -> None:
    """Refuse sheets that are nearly all gaps and would fill memory with them, and documents with entities.

    Any part of the archive can be a sheet, whatever its name: all are looked at.
    """
    check_archive(path, _PER_LETTER)
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            rows, columns = _extent(archive, name, path)
            refuse_beyond_memory(path, rows * columns * _PER_CELL)


class _Extent:
    """The last row and column that a cell is in: a table has all cells up to there.

    Rows and cells may say where they are; else they follow those before.
    """

    def __init__(self, path: Path):
        self.path = path
        self.row = self.column = self.rows = self.columns = 0

    def on_start(self, tag: str, attributes: dict[str, str]) -> None:
        kind, place = tag.rpartition(" ")[2], attributes.get("r", "")
        if kind == "row":
            self.row, self.column = _number(place, self.row + 1), 0
        elif kind == "c":
            letters = place.rstrip("0123456789")
            self.column = _column(letters, self.column + 1)
            self.row = max(self.row, _number(place[len(letters) :], self.row))
            self.rows, self.columns = max(self.rows, self.row), max(self.columns, self.column)

    def on_doctype(self, *_: object) -> None:
        raise DataError(f"{self.path} declares entities, as no spreadsheet does: it is refused")


def _extent(archive: zipfile.ZipFile, name: str, path: Path) -> tuple[int, int]:
    """How many rows and columns a part of a spreadsheet has, as far as it is XML: no reader comes further."""
    extent = _Extent(path)
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = extent.on_start
    parser.StartDoctypeDeclHandler = extent.on_doctype
    with contextlib.suppress(expat.ExpatError), archive.open(name) as part:
        while chunk := part.read(_CHUNK):
            parser.Parse(chunk)
    return extent.rows, extent.columns


def _number(digits: str, otherwise: int) -> int:
    """A row, from 1 on; readers take 7.0 for 7."""
    try:
        return int(float(digits))
    except (ValueError, OverflowError):
        return otherwise


def _column(letters: str, otherwise: int) -> int:
    """Of A 1, of BC 55."""
    if not (letters.isascii() and letters.isalpha() and len(letters) <= 3):
        return otherwise
    column = 0
    for letter in letters.upper():
        column = 26 * column + ord(letter) - ord("A") + 1
    return column
