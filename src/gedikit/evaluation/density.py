"""How good a density is: exactly by quadrature in two dimensions, against kernel estimates, by its samples."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from sklearn.neighbors import KernelDensity

from gedikit.errors import UsageError


def grid_log_normaliser(
    log_density: Callable[[NDArray[Any]], NDArray[Any]],
    low: NDArray[Any],
    high: NDArray[Any],
    resolution: int = 400,
) -> float:
    """log ∫ exp f over a box, by the midpoint rule on a grid; for one or two dimensions."""
    d = len(low)
    if d > 2:
        raise UsageError(f"grid quadrature is for one or two dimensions, not {d}")
    axes = [lo + (np.arange(resolution) + 0.5) * (hi - lo) / resolution for lo, hi in zip(low, high, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, d)
    log_cell = float(np.log((np.asarray(high) - np.asarray(low)) / resolution).sum())
    return float(logsumexp(log_density(grid).astype(np.float64))) + log_cell


def best_kde(train: NDArray[Any], test: NDArray[Any], n_bandwidths: int = 40) -> tuple[KernelDensity, float]:
    """The Gaussian kernel estimate with the bandwidth that is best *on the test data*: a bar set high.

    Returns it with its mean test log-likelihood.
    """
    spread = float(np.sqrt(train.var(0).mean()))
    scored = []
    for bandwidth in np.geomspace(0.01, 1.0, n_bandwidths) * spread:
        kde = KernelDensity(bandwidth=float(bandwidth)).fit(train)
        scored.append((float(kde.score_samples(test).mean()), kde))
    value, kde = max(scored, key=lambda pair: pair[0])
    return kde, value


def energy_distance(a: NDArray[Any], b: NDArray[Any]) -> float:
    """2E|a−b| − E|a−a′| − E|b−b′| over all pairs (Székely & Rizzo, 2013): never negative, 0 for equal samples."""
    return float(2 * cdist(a, b).mean() - cdist(a, a).mean() - cdist(b, b).mean())
