"""How much of a file there is to be read, asked before it is: small files can hold more than a machine has."""

import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.parsers import expat

from gedikit.errors import DataError

_CHUNK = 1 << 20
_PER_CELL = 64  # bytes of a cell of a spreadsheet as an object
_PER_LETTER = 8  # bytes that a letter of a spreadsheet's XML becomes at most while it is read
_CELL = "c"


def memory() -> int:
    """Bytes of memory of this machine, whoever uses them now."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def refuse_beyond_memory(path: Path, n_bytes: int) -> None:
    """Refuse what would not fit even if there was nothing else."""
    if n_bytes > memory():
        raise DataError(
            f"{path} announces {n_bytes / 1e9:.1f} GB and this machine has {memory() / 1e9:.1f} GB of memory: "
            "it is damaged, or made to be unreadable"
        )


def check_archive(path: Path, per_byte: int = 1) -> None:
    """Refuse an archive whose members are larger unpacked than memory; readers stop at the size it announces."""
    with zipfile.ZipFile(path) as archive:
        refuse_beyond_memory(path, per_byte * max((member.file_size for member in archive.infolist()), default=0))


def check_spreadsheet(path: Path) -> None:
    """Refuse sheets that are nearly all gaps and would fill memory with them, and documents with entities."""
    check_archive(path, _PER_LETTER)
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.startswith("xl/worksheets/") and name.endswith(".xml"):
                with _as_xml(path):
                    rows, columns = _extent(archive, name, path)
                refuse_beyond_memory(path, rows * columns * _PER_CELL)


def _extent(archive: zipfile.ZipFile, name: str, path: Path) -> tuple[int, int]:
    """The last row and column that a cell is in: a table has all cells up to there."""
    last = [0, 0]
    parser = expat.ParserCreate(namespace_separator=" ")

    def on_start(tag: str, attributes: dict[str, str]) -> None:
        if tag.rpartition(" ")[2] == _CELL and (place := attributes.get("r")):
            row, column = _place(place)
            last[:] = max(last[0], row), max(last[1], column)

    def on_doctype(*_: object) -> None:
        raise DataError(f"{path} declares entities, as no spreadsheet does: it is refused")

    parser.StartElementHandler = on_start
    parser.StartDoctypeDeclHandler = on_doctype
    with archive.open(name) as sheet:
        while chunk := sheet.read(_CHUNK):
            parser.Parse(chunk)
    return last[0], last[1]


def _place(reference: str) -> tuple[int, int]:
    """Row and column of a cell such as BC17, from 1 on; (0, 0) of what is none."""
    letters = reference.rstrip("0123456789").upper()
    digits = reference[len(letters) :]
    if not digits or len(digits) > 9 or not 1 <= len(letters) <= 3 or not letters.isascii():
        return 0, 0
    column = 0
    for letter in letters:
        column = 26 * column + ord(letter) - ord("A") + 1
    return int(digits), column


@contextmanager
def _as_xml(path: Path) -> Iterator[None]:
    try:
        yield
    except expat.ExpatError as error:
        raise DataError(f"{path} is damaged: a sheet of it is no XML ({error})") from error
