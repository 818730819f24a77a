"""The idx files of MNIST and Fashion-MNIST, gzipped or not."""

import gzip
import zlib
from io import BufferedReader
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gedikit.errors import DataError

_UNSIGNED_BYTES = b"\x00\x00\x08"
_SIDE = 28
_LARGEST = 2**30  # more values than any of these data sets has; a damaged header may announce anything


def read_images(path: Path) -> NDArray[np.uint8]:
    images = _read(path, dimensions=3)
    if images.shape[1:] != (_SIDE, _SIDE):
        raise DataError(
            f"{path} holds images of {images.shape[1]}×{images.shape[2]} pixels instead of {_SIDE}×{_SIDE}"
        )
    return images[..., None]


def read_labels(path: Path) -> NDArray[np.int64]:
    return _read(path, dimensions=1).astype(np.int64)


def _read(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """An array with its own header: two zeros, the type, the number of dimensions, and their lengths."""
    try:
        with _open(path) as file:
            start = file.read(4)
            if start != _UNSIGNED_BYTES + bytes([dimensions]):
                raise DataError(
                    f"{path} starts with {start.hex()}, not with {_magic(dimensions)}: it is another file"
                )
            lengths = file.read(4 * dimensions)
            if len(lengths) < 4 * dimensions:
                raise DataError(f"{path} ends within its header: get it again")
            shape = tuple(int(n) for n in np.frombuffer(lengths, ">u4"))
            expected = int(np.prod([int(n) for n in shape], dtype=object))
            if expected > _LARGEST:
                raise DataError(f"{path} announces {expected} values in its header: it is damaged; get it again")
            values = file.read(expected + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile, MemoryError) as error:
        raise DataError(f"{path} is damaged or cut short: {error}; get it again") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    if len(values) != expected:
        has = "more" if len(values) > expected else f"only {len(values)}"
        raise DataError(
            f"{path} announces {expected} values but has {has}: it is damaged or cut short; get it again"
        )
    return np.frombuffer(bytearray(values), np.uint8).reshape(shape)


def _open(path: Path) -> BufferedReader | gzip.GzipFile:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def _magic(dimensions: int) -> str:
    return (_UNSIGNED_BYTES + bytes([dimensions])).hex()
