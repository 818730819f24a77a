"""The batches of CIFAR-10 and CIFAR-100: rows of labels and colour planes, or pickles of arrays."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gedikit.data.unpickling import read_pickle
from gedikit.errors import DataError

_SIDE, _PIXELS = 32, 3 * 32 * 32
Batch = tuple[NDArray[np.uint8], NDArray[np.int64]]


def read_rows(paths: list[Path], label_bytes: int) -> Batch:
    """The binary version: each row is its labels, a byte each, and the image; the last label is the finest."""
    length = label_bytes + _PIXELS
    batches = []
    for path in paths:
        try:
            raw = np.fromfile(path, np.uint8)
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from error
        if len(raw) == 0 or len(raw) % length:
            raise DataError(
                f"{path} has {len(raw)} bytes, which is no whole number of rows of {length}: "
                "it is cut short or another file; get it again"
            )
        batches.append(raw.reshape(-1, length))
    rows = batches[0] if len(batches) == 1 else np.concatenate(batches)
    return _images(rows[:, label_bytes:]), rows[:, label_bytes - 1].astype(np.int64)


def read_pickles(paths: list[Path], label_key: str) -> Batch:
    """The Python version."""
    images, labels = zip(*(_unpickled(path, label_key) for path in paths), strict=True)
    return _images(np.concatenate(images)), np.concatenate(labels)


def _unpickled(path: Path, label_key: str) -> Batch:
    content = read_pickle(path)
    if not isinstance(content, dict):
        raise DataError(f"{path} holds a {type(content).__name__}, not a batch of images")
    named = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in content.items()}
    missing = [key for key in ("data", label_key) if key not in named]
    if missing:
        raise DataError(f"{path} has no {missing[0]!r}: it is no batch of this data set")
    images, labels = named["data"], _whole_numbers(named[label_key], path)
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != (_PIXELS,):
        raise DataError(f"{path} holds no rows of {_PIXELS} bytes under 'data'")
    if images.nbytes > path.stat().st_size:
        raise DataError(f"{path} announces {len(images)} images, more than it has bytes for: it is damaged")
    if len(images) != len(labels):
        raise DataError(f"{path} has {len(images)} images but {len(labels)} labels")
    return images, labels


def _whole_numbers(values: Any, path: Path) -> NDArray[np.int64]:
    flat = isinstance(values, np.ndarray) or (isinstance(values, list) and all(type(v) is int for v in values))
    try:
        labels = np.asarray(values if flat else None)  # lists within lists may be without end
    except OverflowError:
        labels = np.empty(0, object)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DataError(f"{path} holds labels that are not whole numbers")
    return labels.astype(np.int64)


def _images(planes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(planes.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1))
