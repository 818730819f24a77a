"""Where commands write: results to the file or stream that -o names, all that is said about them to stderr."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from rich.console import Console

from gedikit.cli.printing import printable
from gedikit.cli.spreadsheets import inert
from gedikit.storage import is_stream, writing, writing_text

STANDARD_OUTPUT = Path("-")


class _Console(Console):
    """Prints names of files and columns as they are, but for what terminals obey."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(printable(item) if isinstance(item, str) else item for item in objects), **options)


console = _Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)


@dataclass
class Verbosity:
    """How much is said."""

    details: bool = False


@dataclass
class Tables:
    """How CSV files are written."""

    spreadsheet_safe: bool = False


_verbosity = Verbosity()
_tables = Tables()


def set_verbosity(*, quiet: bool = False, verbose: bool = False) -> None:
    """Say nothing but errors, or details as well; progress lines on `console` follow."""
    console.quiet = quiet
    _verbosity.details = verbose and not quiet


def set_spreadsheet_safe(wanted: bool) -> None:
    """Whether text in CSV files that a spreadsheet would run as a formula is marked as text."""
    _tables.spreadsheet_safe = wanted


def cell(value: Any) -> Any:
    """A cell of a CSV file as it is written."""
    return inert(value) if _tables.spreadsheet_safe else value


def say(text: str) -> None:
    """Tell something worth knowing, unless asked to be quiet."""
    console.print(text)


def detail(text: str) -> None:
    """Tell something that only who asks for it wants to know."""
    if _verbosity.details:
        console.print(text)


def open_output(path: Path) -> AbstractContextManager[BinaryIO]:
    """Open what -o names; a file is there once it is whole, `-` (standard output) and pipes as it goes."""
    return writing(_place(path))


def open_text_output(path: Path) -> AbstractContextManager[TextIO]:
    """Open what -o names as text; see `open_output`."""
    return writing_text(_place(path))


def output_name(path: Path) -> str:
    """Name an output in a sentence."""
    return "standard output" if path == STANDARD_OUTPUT else str(path)


def output_format(path: Path) -> str:
    """Tell the format by the ending; standard output, pipes and devices that have none get CSV."""
    streamed = not path.suffix and (path == STANDARD_OUTPUT or is_stream(path))
    return ".csv" if streamed else path.suffix


def _place(path: Path) -> Path | int:
    return 1 if path == STANDARD_OUTPUT else path
