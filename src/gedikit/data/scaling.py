"""Bringing the data to unit size, and back."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gedikit.errors import UsageError

MODES = ("auto", "features", "global", "none")


@dataclass(frozen=True)
class Scaler:
    """z = (x − mean)/scale, feature by feature."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def fit(cls, x: NDArray[Any], mode: str = "auto") -> "Scaler":
        """`features`: each column by its own deviation; `global`: all by one, for columns of one unit.

        `auto` takes `global` when most columns have the same range, as the pixels of an image have and
        the columns of a table have not: dividing a pixel that is nearly always black by its own
        small deviation would make it the loudest of all.
        """
        if mode not in MODES:
            raise UsageError(f"scaling must be one of {', '.join(MODES)}, not {mode!r}")
        x = np.asarray(x, dtype=np.float64)
        n_features = x.shape[1]
        if mode == "none":
            return cls(np.zeros(n_features), np.ones(n_features))
        mean = x.mean(0)
        if mode == "auto":
            spread = np.ptp(x, axis=0)
            widest = spread.max()
            mode = "global" if n_features > 2 and np.mean(spread >= 0.9 * widest) > 0.5 else "features"
        common = np.full(n_features, np.sqrt(np.mean((x - mean) ** 2)))
        scale = common if mode == "global" else x.std(0)
        # below the rounding error of its own mean, a column's deviation is no deviation
        constant = scale <= 10 * np.finfo(np.float64).eps * np.abs(mean)
        return cls(mean, np.where(constant, 1.0, scale))

    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        return ((np.asarray(x, dtype=np.float64) - self.mean) / self.scale).astype(np.float32)

    def inverse(self, z: NDArray[Any]) -> NDArray[np.float64]:
        return np.asarray(z, dtype=np.float64) * self.scale + self.mean

    @property
    def log_jacobian(self) -> float:
        """log |dz/dx|: add it to a log-density of z to have that of x."""
        return float(-np.log(self.scale).sum())
