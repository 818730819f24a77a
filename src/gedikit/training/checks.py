"""What cannot be trained on is refused before anything is computed."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gedikit.errors import DataError, UsageError
from gedikit.methods import Method
from gedikit.settings import Settings
from gedikit.training.rules import Rules
from gedikit.training.terms import TERMS


def check_prior(prior: NDArray[Any] | None, n_clusters: int) -> NDArray[np.float64]:
    if n_clusters < 1:
        raise UsageError(f"n_clusters must be at least 1, not {n_clusters}")
    if prior is None:
        return np.full(n_clusters, 1 / n_clusters)
    p = np.asarray(prior, dtype=np.float64)
    if p.shape != (n_clusters,):
        raise UsageError(f"prior must hold one probability for each of {n_clusters} clusters, not shape {p.shape}")
    if not np.all(np.isfinite(p)) or np.any(p <= 0) or not np.isclose(p.sum(), 1, atol=1e-6):
        raise UsageError(f"prior must be positive and sum to 1, not {p.tolist()}")
    return np.asarray(p / p.sum())


def check_rows(x: NDArray[Any], n_clusters: int) -> None:
    """Refuse data that nothing can be learned from."""
    if len(x) < 2:
        raise DataError(f"n_samples={len(x)}: at least two rows are needed")
    if len(x) < n_clusters:
        raise DataError(f"n_samples={len(x)} should be >= n_clusters={n_clusters}")
    if np.all(x == x[0]):
        raise DataError("all rows are the same: there is nothing to learn from constant columns")


def check_batch(method: Method, settings: Settings) -> None:
    """Refuse a batch of one for terms that compare rows with each other."""
    size = settings.batch_size
    alone = [name for name in method.terms if name in TERMS and TERMS[name].min_rows > size]
    if alone:
        raise UsageError(f"{alone[0]} looks at the whole batch and needs at least 2 rows, not batch_size={size}")


def check_rules(method: Method, rules: Rules | None, n_rows: int, n_clusters: int) -> None:
    if method.needs_rules and rules is None:
        raise UsageError(f"{method.name!r} learns from rules: give a constraint and examples of it")
    if rules is None:
        return
    if not method.needs_rules:
        raise UsageError(f"{method.name!r} has no term for rules: use 'gedi-symbols', 'gedi-nesy' or 'nesy'")
    rules.check(n_rows, n_clusters)
