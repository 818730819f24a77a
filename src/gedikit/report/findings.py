"""What the model says about the rows of the report."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from gedikit.fitted import FittedModel, Predictions

_MAX_PLOTTED = 5000
_LISTED = 12  # sizes of groups in a sentence


@dataclass(frozen=True)
class Findings:
    clusters: NDArray[np.int64]
    membership: NDArray[np.float64]  # how strongly each row belongs to its own cluster
    log_density: NDArray[np.float64] | None  # normalised where the model can; None where none was learned
    outlier_score: NDArray[np.float64] | None
    sizes: NDArray[np.int64]

    def typical_first(self, cluster: int | None = None) -> NDArray[np.int64]:
        """Rows, of all clusters or of one, from the most to the least typical."""
        if self.log_density is None:
            return np.empty(0, dtype=np.int64)
        rows = np.flatnonzero(self.clusters == cluster) if cluster is not None else np.arange(len(self.clusters))
        return rows[np.argsort(-self.log_density[rows], kind="stable")]

    def strangest_first(self) -> NDArray[np.int64]:
        """Rows by falling outlier score; equal ones by their log-density."""
        if self.log_density is None or self.outlier_score is None:
            return np.empty(0, dtype=np.int64)
        return np.lexsort((self.log_density, -self.outlier_score))

    def nearest(self, cluster: int, n: int) -> NDArray[np.int64]:
        """The members of a cluster that belong to it most."""
        members = np.flatnonzero(self.clusters == cluster)
        return members[np.argsort(-self.membership[members], kind="stable")[:n]]


def find(fitted: FittedModel, predictions: Predictions) -> Findings:
    """What the page shows of predictions."""
    has_density = fitted.models_density
    p = predictions
    # log p(x, y); without a density only by how much the cluster leads
    membership = p.log_p + p.log_density if has_density else p.log_p - p.second_log_p
    return Findings(
        clusters=p.labels,
        membership=membership,
        log_density=p.log_density if has_density else None,
        outlier_score=p.outlier_score if has_density else None,
        sizes=np.bincount(p.labels, minlength=fitted.n_clusters),
    )


def plotted_rows(n: int) -> NDArray[np.int64]:
    """All rows, or as many as a plot can show, the same ones every time."""
    if n <= _MAX_PLOTTED:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, _MAX_PLOTTED, replace=False))


def on_grid(
    fitted: FittedModel, n: int, limits: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
) -> tuple[NDArray[np.float64], ...]:
    """Over a two-dimensional domain: x and y of the grid lines, scores [y, x, cluster], log-density [y, x]."""
    low, high = limits or fitted.bounds()
    xs, ys = (np.linspace(low[i], high[i], n) for i in (0, 1))
    points = np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2)
    scores, density = (torch.cat(parts).double().cpu() for parts in zip(*fitted.evaluate(points), strict=True))
    return xs, ys, scores.numpy().reshape(n, n, fitted.n_clusters), density.numpy().reshape(n, n)


def groups_in_words(sizes: NDArray[np.int64], what: str) -> str:
    """The result in a line: how many groups, and how large they are."""
    used = np.sort(sizes[sizes > 0])[::-1]
    listed = ", ".join(f"{size:,}" for size in used[:_LISTED])
    more = f" and {len(used) - _LISTED} smaller ones" if len(used) > _LISTED else ""
    return f"{len(used)} group{'' if len(used) == 1 else 's'}: {listed} {what}{more}"
