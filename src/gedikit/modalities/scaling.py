"""Bringing the data to unit size, and back."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gedikit.errors import UsageError

MODES = ("auto", "features", "global", "none")
_ROUNDING = 1e-9
_FARTHEST = 1e15  # its square is still a 32-bit float


@dataclass(frozen=True)
class Scaler:
    """z = (x − mean)/scale, feature by feature."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def fit(cls, x: NDArray[Any], mode: str = "auto", codes: Sequence[int] = ()) -> "Scaler":
        """`features`: each column by its own deviation; `global`: all by one, for columns of one unit.

        `auto` takes `global` when most columns have the same range, as the pixels of an image have and
        the columns of a table have not: dividing a pixel that is nearly always black by its own
        small deviation would make it the loudest of all. Columns of `codes` (booleans, categories, marks of gaps)
        have the size they are meant to have: they are centred only.
        """
        if mode not in MODES:
            raise UsageError(f"scaling must be one of {', '.join(MODES)}, not {mode!r}")
        x = np.asarray(x, dtype=np.float64)
        n_features = x.shape[1]
        if mode != "none" and len(codes):
            return cls._beside_codes(x, mode, np.asarray(codes))
        if mode == "none":
            return cls(np.zeros(n_features), np.ones(n_features))
        size = np.abs(x).max() or 1.0
        x = x / size  # squares of very large and very small numbers would leave the range of floats
        mean = x.mean(0)
        if mode == "auto":
            spread = np.ptp(x, axis=0)
            widest = spread.max()
            mode = "global" if n_features > 2 and np.mean(spread >= 0.9 * widest) > 0.5 else "features"
        deviation = _deviation(x)
        scale = np.full(n_features, np.sqrt(np.mean(deviation**2))) if mode == "global" else deviation
        # below the rounding error of its own mean, a column's deviation is no deviation
        constant = scale <= 10 * np.finfo(np.float64).eps * np.abs(mean)
        return cls(size * mean, np.where(constant, 1.0, size * scale))

    @classmethod
    def _beside_codes(cls, x: NDArray[np.float64], mode: str, codes: NDArray[np.int64]) -> "Scaler":
        mean, scale = x.mean(0), np.ones(x.shape[1])
        others = np.setdiff1d(np.arange(x.shape[1]), codes)
        if len(others):
            numbers = cls.fit(np.ascontiguousarray(x[:, others]), mode)
            mean[others], scale[others] = numbers.mean, numbers.scale
        return cls(mean, scale)

    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        z = (np.asarray(x, dtype=np.float64) - self.mean) / self.scale
        return np.clip(z, -_FARTHEST, _FARTHEST).astype(np.float32)

    def inverse(self, z: NDArray[Any]) -> NDArray[np.float64]:
        return np.asarray(z, dtype=np.float64) * self.scale + self.mean

    @property
    def log_jacobian(self) -> float:
        """log |dz/dx|: add it to a log-density of z to have that of x."""
        return float(-np.log(self.scale).sum())


def _deviation(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard deviation of each column with its extreme hundredths pulled in: one outlier sets no scale."""
    low, high = np.quantile(x, [0.01, 0.99], axis=0)
    inner: NDArray[np.float64] = np.clip(x, low, high).std(0)
    # nearly all values equal: what is left of them is rounding, and the few others set the scale
    robust: NDArray[np.float64] = np.where(inner > _ROUNDING * np.ptp(x, axis=0), inner, x.std(0))
    return robust
