"""One registry of built-in data sets, one reader for files."""

import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Builtin:
    name: str
    description: str
    n_clusters: int
    load: Callable[[str, int], Dataset]


def load(source: str, *, split: str = "train", seed: int = 0) -> Dataset:
    """A built-in name, or a .npy, .npz, .csv or .parquet file."""
    if source in BUILTIN:
        return BUILTIN[source].load(split, seed)
    path = _existing(source)
    x, y, columns = _READERS[path.suffix](path)
    return Dataset(str(path), _numeric(x, path), y, columns=columns)


def default_clusters(source: str) -> int | None:
    """How many clusters a built-in data set has."""
    return BUILTIN[source].n_clusters if source in BUILTIN else None


def blocks(source: str, *, split: str = "train", seed: int = 0) -> Iterator[NDArray[Any]]:
    """The rows of `source` piece by piece; a file larger than memory is never read whole."""
    if source in BUILTIN:
        yield load(source, split=split, seed=seed).x
        return
    path = _existing(source)
    if path.suffix == ".csv":
        import pandas as pd

        try:
            with pd.read_csv(path, chunksize=_BLOCK) as reader:
                for frame in reader:
                    yield _numeric(_split_frame(frame, path)[0], path)
        except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
            raise DataError(f"{path} is not a readable CSV file: {error}") from error
        return
    if path.suffix == ".parquet":
        import pyarrow.parquet

        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(_BLOCK):
            yield _numeric(_split_frame(batch.to_pandas(), path)[0], path)
        return
    x, _, _ = _READERS[path.suffix](path)
    for start in range(0, len(x), _BLOCK):
        yield _numeric(x[start : start + _BLOCK], path)


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
    kinds = ", ".join(_READERS)
    if path.suffix not in _READERS:
        raise UsageError(
            f"{source!r} is neither a built-in data set ({', '.join(BUILTIN)}) nor a file ending in {kinds}"
        )
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty")
    return path


def _read_npy(path: Path) -> tuple[Any, None, None]:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False), None, None
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"{path} is not a readable .npy file of numbers: {error}") from error


def _read_npz(path: Path) -> tuple[Any, NDArray[Any] | None, None]:
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
    y = next((arrays[name] for name in LABEL_COLUMNS if name in arrays), None)
    return arrays[wanted[0]], y, None


def _read_csv(path: Path) -> tuple[Any, NDArray[Any] | None, tuple[str, ...]]:
    import pandas as pd

    try:
        frame = pd.read_csv(path)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a readable CSV file: {error}") from error
    return _split_frame(frame, path)


def _read_parquet(path: Path) -> tuple[Any, NDArray[Any] | None, tuple[str, ...]]:
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
    except ImportError:
        raise UsageError("reading .parquet needs pyarrow: pip install 'gedikit[parquet]'") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not a readable .parquet file: {error}") from error
    return _split_frame(frame, path)


def _split_frame(frame: Any, path: Path) -> tuple[Any, NDArray[Any] | None, tuple[str, ...]]:
    labels = [c for c in frame.columns if str(c).lower() in LABEL_COLUMNS]
    y = frame[labels[0]].to_numpy() if labels else None
    features = frame.drop(columns=labels)
    for column in features.columns:
        if features[column].dtype.kind not in "biuf":
            seen = features[column].iloc[0] if len(features) else ""
            raise DataError(f"column {column!r} of {path} holds text such as {seen!r}; only numbers can be used")
    return features.to_numpy(), y, tuple(str(c) for c in features.columns)


def _numeric(x: Any, path: Path) -> NDArray[Any]:
    """A two-dimensional array of finite numbers, or a sentence."""
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
                    f"{path} has a value that is NaN or infinite in row {start + row}, column {column}; "
                    "fill or drop such rows first"
                )
    numeric: NDArray[Any] = x
    return numeric


_READERS: dict[str, Callable[[Path], tuple[Any, NDArray[Any] | None, tuple[str, ...] | None]]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
