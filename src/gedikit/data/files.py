"""Files of rows: .npy, .npz, .csv and .parquet, read whole or block by block."""

import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gedikit.errors import DataError, UsageError

LABEL_COLUMNS = ("label", "labels", "target", "class", "y")
_BLOCK = 65_536


@dataclass(frozen=True)
class FileTable:
    """What a file holds: rows, and where it has them labels, names and the shape of images."""

    x: Any
    y: NDArray[Any] | None = None
    columns: tuple[str, ...] = ()
    label_column: str | None = None
    image_shape: tuple[int, int, int] | None = None


def read_file(path: Path, columns: tuple[str, ...] = ()) -> FileTable:
    """All rows, checked to be finite numbers; with `columns`, those, in that order."""
    _check(path)
    table = _numeric(_ordered(READERS[path.suffix.lower()](path), columns, path), path)
    if table.y is not None and len(table.y) != len(table.x):
        raise DataError(f"{path} has {len(table.x)} rows but {len(table.y)} labels")
    return table


def file_blocks(path: Path, columns: tuple[str, ...] = ()) -> Iterator[FileTable]:
    """The rows piece by piece; a file larger than memory is never read whole."""
    _check(path)
    first = 0
    for table in _BLOCK_READERS[path.suffix.lower()](path):
        yield _numeric(_ordered(table, columns, path), path, first)
        first += len(table.x)


def _check(path: Path) -> None:
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty")


@contextmanager
def _reading(path: Path, kind: str) -> Iterator[None]:
    """Whatever a library raises over a damaged file (its own errors, zlib.error, KeyError ...), as a sentence."""
    try:
        yield
    except MemoryError as error:
        raise DataError(f"{path} does not fit in memory, or is damaged and claims a wrong size: {error}") from error
    except Exception as error:
        why = str(error).strip() or type(error).__name__
        raise DataError(f"{path} is damaged, cut short or not a {kind} file of numbers: {why}") from error


def _read_npy(path: Path) -> FileTable:
    with _reading(path, ".npy"):  # mapped, not read: a header that claims more than the file has is refused
        x = np.lib.format.open_memmap(path, mode="r")
    return FileTable(_array(x, path))


def _read_npz(path: Path) -> FileTable:
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path} is damaged, cut short or not a .npz file: it is no zip archive")
    with _reading(path, ".npz"), np.load(path, allow_pickle=False) as archive:
        names = list(archive.files)
        rows = next((name for name in ("x", "X", "data") if name in names), names[0] if len(names) == 1 else None)
        label = next((name for name in LABEL_COLUMNS if name in names), None)
        x = None if rows is None else archive[rows]
        y = None if label is None else archive[label]
    if rows is None:
        raise DataError(f"{path} holds {', '.join(names) or 'nothing'}; the rows must be named x, X or data")
    return FileTable(_array(x, path), None if label is None else _array(y, path), label_column=label)


def _array(value: Any, path: Path) -> NDArray[Any]:
    """An array with rows: a .npz file may also hold a single number, or bytes that are no array."""
    if not isinstance(value, np.ndarray):
        raise DataError(f"{path} holds something else than arrays of numbers")
    if value.ndim == 0:
        raise DataError(f"{path} holds a single value where rows or labels are needed")
    return value


def _array_blocks(path: Path) -> Iterator[FileTable]:
    x = READERS[path.suffix.lower()](path).x
    for start in range(0, max(len(x), 1), _BLOCK):
        yield FileTable(x[start : start + _BLOCK])


def _csv_blocks(path: Path) -> Iterator[FileTable]:
    import pandas as pd

    with _reading(path, ".csv"):
        reader = pd.read_csv(path, chunksize=_BLOCK)
    with reader:
        yield from _tables(reader, path, ".csv")


def _parquet_blocks(path: Path) -> Iterator[FileTable]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise UsageError("reading .parquet needs pyarrow: pip install 'gedikit[parquet]'") from None
    with _reading(path, ".parquet"):
        file = pyarrow.parquet.ParquetFile(path)
    with file:
        yield from _tables((batch.to_pandas() for batch in file.iter_batches(_BLOCK)), path, ".parquet")


def _tables(frames: Iterator[Any], path: Path, kind: str) -> Iterator[FileTable]:
    while True:
        with _reading(path, kind):
            frame = next(frames, None)
        if frame is None:
            return
        yield _table(frame, path)


def _whole(read: Callable[[Path], Iterator[FileTable]]) -> Callable[[Path], FileTable]:
    """Read all blocks of a file as one table."""

    def read_whole(path: Path) -> FileTable:
        parts = list(read(path))
        if not parts:
            raise DataError(f"{path} has a header but no rows")
        y = None if parts[0].y is None else np.concatenate([part.y for part in parts])
        return FileTable(np.concatenate([part.x for part in parts]), y, parts[0].columns, parts[0].label_column)

    return read_whole


def _table(frame: Any, path: Path) -> FileTable:
    """A data frame as rows of numbers; a label column is set aside, what cannot be meant is refused."""
    names = [str(c) for c in frame.columns]
    if names and all(_is_number(name) for name in names):
        raise DataError(f"the first line of {path} holds numbers, not names: add a line of column names")
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise DataError(f"{path} has more than one column called {repeated!r}: rename or drop all but one")
    unnamed = [name for name in names if name.startswith("Unnamed:")]
    if unnamed:
        raise DataError(f"a column of {path} has no name and looks like an index: drop it, or name it to use it")
    lower = [name.lower() for name in names]
    known = [name for name in LABEL_COLUMNS if name != "y" or "x" not in lower]  # x and y are coordinates
    label = next((frame.columns[lower.index(name)] for name in known if name in lower), None)
    features = frame if label is None else frame.drop(columns=[label])
    for column in features.columns:
        if features[column].dtype.kind not in "biuf":
            seen = features[column].iloc[0] if len(features) else ""
            raise DataError(f"column {column!r} of {path} holds text such as {seen!r}; only numbers can be used")
    y = None if label is None else frame[label].to_numpy()
    return FileTable(
        features.to_numpy(), y, tuple(str(c) for c in features.columns), None if label is None else str(label)
    )


def _ordered(table: FileTable, columns: tuple[str, ...], path: Path) -> FileTable:
    """The columns a model was trained on, in its order; files without names are taken as they are."""
    if not columns or not table.columns or table.columns == columns:
        return table
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise DataError(f"{path} lacks the column {missing[0]!r} that the model was trained on")
    order = [table.columns.index(name) for name in columns]
    return replace(table, x=table.x[:, order], columns=columns)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numeric(table: FileTable, path: Path, first: int = 0) -> FileTable:
    """Rows of finite numbers, or a sentence; `first` is the number of the first row."""
    x = table.x
    if x.dtype.kind not in "biuf":
        raise DataError(f"{path} holds values of type {x.dtype}; only numbers can be used")
    if x.size == 0:
        raise DataError(f"{path} has no values (shape {x.shape})")
    image_shape = _image_shape(x)
    if x.ndim == 3 or image_shape is not None:
        x = x.reshape(len(x), -1)
    if x.ndim == 4:
        raise DataError(
            f"{path} has shape {x.shape} and type {x.dtype}; images are uint8 of shape (n, height, width, 1 or 3)"
        )
    if x.ndim != 2:
        raise DataError(f"{path} has shape {x.shape}; rows of features (two dimensions) are needed")
    if x.dtype.kind == "f":
        _check_finite(x, path, first)
    return replace(table, x=x, image_shape=image_shape)


def _image_shape(x: NDArray[Any]) -> tuple[int, int, int] | None:
    """Bytes in three dimensions are grey images, in four dimensions images with their channels last."""
    if x.dtype != np.uint8 or x.ndim not in (3, 4):
        return None
    height, width, channels = (*x.shape[1:], 1)[:3]
    return (height, width, channels) if channels in (1, 3) else None


def _check_finite(x: NDArray[Any], path: Path, first: int) -> None:
    for start in range(0, len(x), _BLOCK):
        bad = ~np.isfinite(x[start : start + _BLOCK])
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise DataError(
                f"{path} has a value that is NaN or infinite in row {first + start + row}, column {column}; "
                "fill or drop such rows first"
            )


READERS: dict[str, Callable[[Path], FileTable]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".csv": _whole(_csv_blocks),
    ".parquet": _whole(_parquet_blocks),
}
_BLOCK_READERS: dict[str, Callable[[Path], Iterator[FileTable]]] = {
    ".npy": _array_blocks,
    ".npz": _array_blocks,
    ".csv": _csv_blocks,
    ".parquet": _parquet_blocks,
}
