"""The cropped digits of SVHN, stored for MATLAB."""

from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gedikit.errors import DataError

# asked before anything is read: cells and structures may be nested without end
_NAMES = ("X", "y")
_NESTED = ("cell", "struct", "object", "function", "opaque")
_LARGEST = 2**32  # values; the largest of these files has 1.6 billion


def read_mat(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """X is 32×32×3×n and y n×1, with digit 0 stored as 10."""
    from scipy.io import loadmat, whosmat

    try:
        for name, shape, kind in whosmat(path):
            if name in _NAMES and kind in _NESTED:
                raise DataError(f"{name} of {path} is of type {kind}: it is no file of cropped digits")
            if name in _NAMES and prod(shape) > _LARGEST:
                raise DataError(f"{name} of {path} has shape {shape}, more than all digits there are")
        content = loadmat(path, variable_names=list(_NAMES))
    except DataError:
        raise
    except Exception as error:  # damaged files make the reader raise nearly anything
        raise DataError(
            f"{path} is damaged or not a .mat file of version 4 to 7.2: {error}; get it again"
        ) from error
    missing = [key for key in _NAMES if key not in content]
    if missing:
        raise DataError(f"{path} has no {missing[0]}: it is no file of cropped digits")
    x, y = content["X"], content["y"].ravel()
    if x.ndim != 4 or x.shape[:3] != (32, 32, 3) or x.dtype != np.uint8:
        raise DataError(f"X of {path} is {x.dtype} of shape {x.shape} instead of uint8 of shape (32, 32, 3, n)")
    if x.shape[3] != len(y):
        raise DataError(f"{path} has {x.shape[3]} images but {len(y)} labels")
    if y.dtype.kind not in "iuf" or not np.isin(y, np.arange(1, 11)).all():
        raise DataError(f"{path} holds labels other than the whole numbers 1 to 10")
    return np.ascontiguousarray(x.transpose(3, 0, 1, 2)), y.astype(np.int64) % 10
