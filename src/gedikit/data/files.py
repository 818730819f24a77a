"""Files of rows: arrays and tables, read whole or block by block."""

import importlib.util
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gedikit.data.sizes import check_archive, check_spreadsheet, parquet_bytes, refuse_beyond_memory
from gedikit.errors import DataError, GediError, UsageError
from gedikit.processes import WHOLE, Share
from gedikit.tables import LABEL_COLUMNS, ColumnOptions, TableEncoding, dialect_of
from gedikit.tables.inference import check_names, label_column

_BLOCK = 65_536


@dataclass(frozen=True)
class FileTable:
    """What a file holds: rows of numbers, and where it has them labels, names, ids and the shape of images."""

    x: Any
    y: NDArray[Any] | None = None
    columns: tuple[str, ...] = ()
    label_column: str | None = None
    image_shape: tuple[int, int, int] | None = None
    encoding: TableEncoding | None = None  # of a table
    ids: Any = None  # of the rows of a table: a frame of columns that are passed through


def read_file(
    path: Path,
    columns: tuple[str, ...] = (),
    *,
    options: ColumnOptions | None = None,
    encoding: TableEncoding | None = None,
) -> FileTable:
    """All rows as finite numbers.

    A table is encoded as a model knows it (its `encoding`, or the names of its columns), or as its columns look and
    `options` say.
    """
    _check(path)
    ending = path.suffix.lower()
    if ending in ARRAY_READERS:
        if options not in (None, ColumnOptions()):
            raise UsageError(f"{path} is an array without named columns: nothing can be said about them")
        table = _shaped(ARRAY_READERS[ending](path), path)
        if table.y is not None and len(table.y) != len(table.x):
            raise DataError(f"{path} has {len(table.x)} rows but {len(table.y)} labels")
        if encoding is None and not columns and table.image_shape is None and _has_gaps(table.x):
            encoding = TableEncoding.infer(_named(table.x), None, str(path))
        return _finite(table, encoding, path)
    text = encoding.text_columns if encoding else ()
    frame = next(_FRAME_READERS[ending](path, text, None), None)
    if frame is None:
        raise DataError(f"{path} has a header but no rows")
    return encoded(frame, encoding_of(frame, columns, options, encoding, str(path)), str(path))


def encoding_of(
    frame: Any,
    columns: tuple[str, ...],
    options: ColumnOptions | None,
    encoding: TableEncoding | None,
    name: str,
    *,
    numbers: bool = False,
) -> TableEncoding:
    """How a table is encoded: as it was, by the names of columns of numbers, or as it looks and `options` say.

    With `numbers`, all columns are numbers where nothing is known of them.
    """
    _check_header(frame, name)
    if encoding is None and (columns or numbers):
        return _of_numbers(frame, columns, name)
    return encoding or TableEncoding.infer(frame, options, name)


def file_blocks(
    path: Path, columns: tuple[str, ...] = (), *, encoding: TableEncoding | None = None, share: Share = WHOLE
) -> Iterator[FileTable]:
    """The rows piece by piece, for a trained model; a file larger than memory is never read whole.

    Several processes take pieces in turns.
    """
    _check(path)
    first, ending = 0, path.suffix.lower()
    if ending in ARRAY_READERS:
        for number, table in enumerate(_array_blocks(path)):
            if share.has(number):
                yield _finite(_shaped(table, path), encoding, path, first)
            first += len(table.x)
        return
    text = encoding.text_columns if encoding else ()
    for number, frame in enumerate(_FRAME_READERS[ending](path, text, _BLOCK)):
        if not first:
            encoding = encoding_of(frame, columns, None, encoding, str(path), numbers=True)
        assert encoding is not None
        if share.has(number):
            yield encoded(frame, encoding, str(path), first)
        first += len(frame)


def _check(path: Path) -> None:
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty")


@contextmanager
def reading(path: Path | str, kind: str) -> Iterator[None]:
    """Whatever a library raises over a damaged file (its own errors, zlib.error, KeyError ...), as a sentence."""
    try:
        yield
    except GediError:
        raise
    except MemoryError as error:
        raise DataError(f"{path} does not fit in memory, or is damaged and claims a wrong size: {error}") from error
    except Exception as error:
        why = str(error).strip() or type(error).__name__
        raise DataError(f"{path} is damaged, cut short or not a {kind} file: {why}") from error


def _read_npy(path: Path) -> FileTable:
    with reading(path, ".npy"):  # mapped, not read: a header that claims more than the file has is refused
        x = np.lib.format.open_memmap(path, mode="r")
    return FileTable(_array(x, path))


def _read_npz(path: Path) -> FileTable:
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path} is damaged, cut short or not a .npz file: it is no zip archive")
    with reading(path, ".npz"):
        check_archive(path)
    with reading(path, ".npz"), np.load(path, allow_pickle=False) as archive:
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
    x = ARRAY_READERS[path.suffix.lower()](path).x
    for start in range(0, max(len(x), 1), _BLOCK):
        yield FileTable(x[start : start + _BLOCK])


def _csv_frames(path: Path, text: tuple[str, ...], rows: int | None) -> Iterator[Any]:
    import pandas as pd

    with reading(path, path.suffix):
        options = {**dialect_of(path).options(text), "skipinitialspace": True, "index_col": False}
        if rows is None:
            with _none_lost(path):
                whole = pd.read_csv(path, low_memory=False, **options)
            yield whole
            return
        reader = pd.read_csv(path, chunksize=rows, **options)
    with reader:
        yield from _pieces(reader, path)


@contextmanager
def _none_lost(path: Path) -> Iterator[None]:
    """pandas drops values for which there is no name, with a warning."""
    import pandas as pd

    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            yield
        except pd.errors.ParserWarning:
            raise DataError(f"the rows of {path} have more values than its first line has names") from None


def _parquet_frames(path: Path, text: tuple[str, ...], rows: int | None) -> Iterator[Any]:  # noqa: ARG001
    try:
        import pyarrow.parquet
    except ImportError:
        raise UsageError("reading .parquet needs pyarrow: pip install 'gedikit[parquet]'") from None
    with reading(path, ".parquet"):
        file = pyarrow.parquet.ParquetFile(path, page_checksum_verification=True)
    with file:
        with reading(path, ".parquet"):
            # a value that is the same in a billion rows takes next to nothing in a file
            n = file.metadata.num_rows
            refuse_beyond_memory(path, parquet_bytes(file.metadata, n if rows is None else min(n, rows)))
        if rows is None:
            with reading(path, ".parquet"):
                whole = valid(file.read()).to_pandas()
            yield whole
            return
        yield from _pieces((valid(batch).to_pandas() for batch in file.iter_batches(rows)), path)


def valid(arrow: Any) -> Any:
    """A table of Arrow; by itself Arrow looks neither for text that is no UTF-8 nor for wrong places."""
    arrow.validate(full=True)
    return arrow


def _excel_frames(path: Path, text: tuple[str, ...], rows: int | None) -> Iterator[Any]:
    """The first sheet, which is read whole."""
    import pandas as pd

    if importlib.util.find_spec("openpyxl") is None:
        raise UsageError(f"reading {path.suffix} needs openpyxl: pip install 'gedikit[excel]'")
    with reading(path, path.suffix):
        check_spreadsheet(path)
        # cells have types of their own: text of digits, such as "007", stays text
        frame = pd.read_excel(path, engine="openpyxl", dtype=object).infer_objects()
        for name in set(text) & set(frame.columns):
            frame[name] = frame[name].map(str, na_action="ignore")
    for start in range(0, max(len(frame), 1), rows or max(len(frame), 1)):
        yield frame.iloc[start : start + rows] if rows else frame


def _pieces(frames: Iterator[Any], path: Path) -> Iterator[Any]:
    while True:
        with reading(path, path.suffix), _none_lost(path):
            frame = next(frames, None)
        if frame is None:
            return
        yield frame


def encoded(frame: Any, encoding: TableEncoding, name: str, first: int = 0) -> FileTable:
    """Rows of numbers, with labels and ids set aside."""
    return FileTable(
        encoding.encode(frame, name, first),
        encoding.labels(frame),
        encoding.features,
        encoding.label_column(frame),
        encoding=encoding,
        ids=encoding.ids(frame),
    )


def _check_header(frame: Any, name: str) -> None:
    if len(frame.columns) and all(_is_number(str(column)) for column in frame.columns):
        raise DataError(f"the first line of {name} holds numbers, not names: add a line of column names")
    if not len(frame):
        raise DataError(f"{name} has a header but no rows")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _of_numbers(frame: Any, columns: tuple[str, ...], name: str) -> TableEncoding:
    """For a model that knows the names of its columns at most; without, all are taken but labels."""
    names = [str(column) for column in frame.columns]
    check_names(names, name)
    if columns:
        return TableEncoding.of_numbers(columns)
    label = label_column(names)
    return TableEncoding.of_numbers([column for column in names if column != label])


def _finite(table: FileTable, encoding: TableEncoding | None, path: Path, first: int = 0) -> FileTable:
    """Rows of finite numbers, or a sentence; `first` is the number of the first row.

    The columns of an array are those of a table in the same order, where a model knows one.
    """
    if encoding is None:
        if table.x.dtype.kind == "f":
            _check_finite(table.x, path, first)
        return table
    n, learned = table.x.shape[1], encoding.learned
    if n not in (len(learned), len(encoding.columns)):
        raise DataError(f"{path} has {n} features; the model was trained on {len(learned)}")
    known = learned if n == len(learned) else encoding.columns
    rows = encoding.encode(_named(table.x, [column.name for column in known]), str(path), first)
    return replace(table, x=rows, columns=encoding.features, encoding=encoding)


def _named(x: NDArray[Any], names: list[str] | None = None) -> Any:
    import pandas as pd

    return pd.DataFrame(np.asarray(x), columns=names or [f"x{i}" for i in range(x.shape[1])])


def _has_gaps(x: NDArray[Any]) -> bool:
    return x.dtype.kind == "f" and any(np.isnan(x[i : i + _BLOCK]).any() for i in range(0, len(x), _BLOCK))


def _shaped(table: FileTable, path: Path) -> FileTable:
    """Rows of numbers, or a sentence."""
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


ARRAY_READERS: dict[str, Callable[[Path], FileTable]] = {".npy": _read_npy, ".npz": _read_npz}
# frames of a file: all rows at once, or so many at a time; some columns are text whatever they look like
_FRAME_READERS: dict[str, Callable[[Path, tuple[str, ...], int | None], Iterator[Any]]] = {
    ".csv": _csv_frames,
    ".tsv": _csv_frames,
    ".parquet": _parquet_frames,
    ".xlsx": _excel_frames,
}
ENDINGS = (*ARRAY_READERS, *_FRAME_READERS)
