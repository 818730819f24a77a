"""Columns whose values lie on a grid: counts, rounded measurements, dates."""

import numpy as np
from numpy.typing import NDArray

_LOOKED_AT = 10_000  # values that the step is found from; all are checked against it
_MOST_STEPS = 1e7  # from zero to the largest value: beyond, rounding errors are as large as the grid
_TIED = 0.1  # share of values that must occur more than once


def grid_step(values: NDArray[np.floating] | NDArray[np.integer]) -> float:
    """The largest step such that all finite values are first + step·k; 0 where there is none worth the name.

    Whole numbers always have one. Other numbers have one if at least a tenth of them occur more than once: a value
    that is measured continuously does not repeat.
    """
    if values.dtype.kind in "iu":
        return float(np.gcd.reduce(values - values.min())) if len(values) else 0.0
    known = values[np.isfinite(values)]
    some = known[:: max(1, len(known) // _LOOKED_AT)]
    distinct, counts = np.unique(some, return_counts=True)
    if len(distinct) < 2 or counts[counts > 1].sum() < _TIED * len(some):
        return 0.0
    step = _common_step(distinct)
    if step and not _on_grid(known, float(distinct[0]), step):
        step = _common_step(np.unique(known))
        return step if _on_grid(known, float(known.min()), step) else 0.0
    return step


def _common_step(distinct: NDArray[np.floating]) -> float:
    """Euclid's algorithm on gaps between sorted values; a remainder below a tenth of a step is rounding."""
    gaps = np.diff(distinct.astype(np.float64))
    smallest = float(np.abs(distinct).max()) / _MOST_STEPS
    step = float(gaps.min())
    while step > smallest:
        rest = np.abs(gaps - step * np.rint(gaps / step))
        rest = rest[rest > 0.1 * step]
        if not len(rest):
            steps = float(np.rint(gaps / step).sum())
            return float(distinct[-1] - distinct[0]) / steps
        step = float(rest.min())
    return 0.0


def _on_grid(values: NDArray[np.floating], first: float, step: float) -> bool:
    """Whether all values are on the grid to within rounding."""
    if not step:
        return False
    exact = values.astype(np.float64)
    off = np.abs(exact - first - step * np.rint((exact - first) / step))
    return bool(off.max() <= 8 * np.finfo(values.dtype).eps * max(float(np.abs(exact).max()), step))
