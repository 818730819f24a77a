"""One registry of built-in data sets, one reader for files."""

import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gedikit.data import toy
from gedikit.errors import DataError, UsageError

LABEL_COLUMNS = ("label", "labels", "target", "class", "y")
_BLOCK = 65_536
_TOY_SIZE = 1000


@dataclass(frozen=True)
class Dataset:
    """Rows of numbers; labels, where there are any, are for evaluation only."""

    name: str
    x: NDArray[Any]
    y: NDArray[Any] | None = None
    split: str = "all rows"
    image_shape: tuple[int, int] | None = None
    columns: tuple[str, ...] = ()
    label_column: str | None = None


@dataclass(frozen=True)
class Builtin:
    name: str
    description: str
    n_clusters: int
    load: Callable[[str, int], Dataset]


@dataclass(frozen=True)
class Table:
    """What a file holds: rows, labels if there are any, and names if it has them."""

    x: Any
    y: NDArray[Any] | None = None
    columns: tuple[str, ...] = ()
    label_column: str | None = None


def load(source: str, *, split: str = "train", seed: int = 0, columns: tuple[str, ...] = ()) -> Dataset:
    """A built-in name, or a .npy, .npz, .csv or .parquet file; with `columns`, those, in that order."""
    if source in BUILTIN:
        return BUILTIN[source].load(split, seed)
    path = _existing(source)
    table = _ordered(_READERS[path.suffix.lower()](path), columns, path)
    x = _numeric(table.x, path)
    if table.y is not None and len(table.y) != len(x):
        raise DataError(f"{path} has {len(x)} rows but {len(table.y)} labels")
    return Dataset(str(path), x, table.y, columns=table.columns, label_column=table.label_column)


def default_clusters(source: str) -> int | None:
    """How many clusters a built-in data set has."""
    return BUILTIN[source].n_clusters if source in BUILTIN else None


def blocks(
    source: str, *, split: str = "train", seed: int = 0, columns: tuple[str, ...] = ()
) -> Iterator[NDArray[Any]]:
    """The rows of `source` piece by piece; a file larger than memory is never read whole."""
    if source in BUILTIN:
        yield load(source, split=split, seed=seed).x
        return
    path = _existing(source)
    first = 0
    for table in _BLOCK_READERS[path.suffix.lower()](path):
        x = _numeric(_ordered(table, columns, path).x, path, first)
        yield x
        first += len(x)


def _toy(name: str) -> Callable[[str, int], Dataset]:
    def load_toy(split: str, seed: int) -> Dataset:
        x, y = toy.SHAPES[name](2 * _TOY_SIZE, seed)
        half = slice(0, _TOY_SIZE) if split == "train" else slice(_TOY_SIZE, None)
        return Dataset(
            name, x[half], y[half], f"{split}: {_TOY_SIZE} of {2 * _TOY_SIZE} points drawn with seed {seed}"
        )

    return load_toy


def _digits(split: str, seed: int) -> Dataset:  # noqa: ARG001
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return Dataset("digits", bunch.data, bunch.target, "all 1797 images, no split", image_shape=(8, 8))


BUILTIN: dict[str, Builtin] = {
    name: Builtin(
        name,
        (shape.__doc__ or f"scikit-learn's {name}, noise 0.05").rstrip("."),
        toy.N_CLASSES[name],
        _toy(name),
    )
    for name, shape in toy.SHAPES.items()
}
BUILTIN["digits"] = Builtin("digits", "scikit-learn's 1797 real handwritten digits, 8×8 pixels", 10, _digits)


def _existing(source: str) -> Path:
    path = Path(source)
    if path.suffix.lower() not in _READERS:
        raise UsageError(
            f"{source!r} is neither a built-in data set ({', '.join(BUILTIN)}) "
            f"nor a file ending in {', '.join(_READERS)}"
        )
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty")
    return path


def _read_npy(path: Path) -> Table:
    try:
        return Table(np.load(path, mmap_mode="r", allow_pickle=False))
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"{path} is not a readable .npy file of numbers: {error}") from error


def _read_npz(path: Path) -> Table:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is not a readable .npz file of numbers: {error}") from error
    wanted = [name for name in ("x", "X", "data") if name in arrays]
    if not wanted and len(arrays) == 1:
        wanted = list(arrays)
    if not wanted:
        raise DataError(f"{path} holds {', '.join(arrays) or 'nothing'}; the rows must be named x, X or data")
    label = next((name for name in LABEL_COLUMNS if name in arrays), None)
    return Table(arrays[wanted[0]], arrays[label] if label else None, label_column=label)


def _array_blocks(path: Path) -> Iterator[Table]:
    x = _READERS[path.suffix.lower()](path).x
    for start in range(0, max(len(x), 1), _BLOCK):
        yield Table(x[start : start + _BLOCK])


def _csv_blocks(path: Path, rows: int = _BLOCK) -> Iterator[Table]:
    import pandas as pd

    try:
        with pd.read_csv(path, chunksize=rows) as reader:
            for frame in reader:
                yield _table(frame, path)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a readable CSV file: {error}") from error


def _parquet_blocks(path: Path) -> Iterator[Table]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError("reading .parquet needs pyarrow: pip install 'gedikit[parquet]'") from None
    try:
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(_BLOCK):
            yield _table(batch.to_pandas(), path)
    except pyarrow.ArrowException as error:
        raise DataError(f"{path} is not a readable .parquet file: {error}") from error


def _whole(read: Callable[[Path], Iterator[Table]]) -> Callable[[Path], Table]:
    """Read all blocks of a file as one table."""

    def read_whole(path: Path) -> Table:
        parts = list(read(path))
        if not parts:
            raise DataError(f"{path} has a header but no rows")
        y = None if parts[0].y is None else np.concatenate([part.y for part in parts])
        return Table(np.concatenate([part.x for part in parts]), y, parts[0].columns, parts[0].label_column)

    return read_whole


def _table(frame: Any, path: Path) -> Table:
    """A data frame as rows of numbers; a label column is set aside, what cannot be meant is refused."""
    names = [str(c) for c in frame.columns]
    if names and all(_is_number(name) for name in names):
        raise DataError(f"the first line of {path} holds numbers, not names: add a line of column names")
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
    return Table(
        features.to_numpy(), y, tuple(str(c) for c in features.columns), None if label is None else str(label)
    )


def _ordered(table: Table, columns: tuple[str, ...], path: Path) -> Table:
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


def _numeric(x: Any, path: Path, first: int = 0) -> NDArray[Any]:
    """A two-dimensional array of finite numbers, or a sentence; `first` is the number of its first row."""
    if x.dtype.kind not in "biuf":
        raise DataError(f"{path} holds values of type {x.dtype}; only numbers can be used")
    if x.ndim == 3:
        x = x.reshape(len(x), -1)
    if x.ndim != 2:
        raise DataError(f"{path} has shape {x.shape}; rows of features (two dimensions) are needed")
    if x.size == 0:
        raise DataError(f"{path} has no values (shape {x.shape})")
    if x.dtype.kind == "f":
        for start in range(0, len(x), _BLOCK):
            bad = ~np.isfinite(x[start : start + _BLOCK])
            if bad.any():
                row, column = np.argwhere(bad)[0]
                raise DataError(
                    f"{path} has a value that is NaN or infinite in row {first + start + row}, column {column}; "
                    "fill or drop such rows first"
                )
    numeric: NDArray[Any] = x
    return numeric


_READERS: dict[str, Callable[[Path], Table]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".csv": _whole(_csv_blocks),
    ".parquet": _whole(_parquet_blocks),
}
_BLOCK_READERS: dict[str, Callable[[Path], Iterator[Table]]] = {
    ".npy": _array_blocks,
    ".npz": _array_blocks,
    ".csv": _csv_blocks,
    ".parquet": _parquet_blocks,
}
