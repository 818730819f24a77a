"""The pictures of a model: clusters, density and training, on axes of their own or of the user."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Int64
from matplotlib.axes import Axes
from numpy.typing import NDArray

from gedikit.densities.base import GENERATIVE
from gedikit.errors import UsageError
from gedikit.fitted import FittedModel
from gedikit.planning import Plan
from gedikit.report import plots
from gedikit.report.findings import Findings, plotted_rows
from gedikit.report.plane import Plane
from gedikit.report.plots import Panel
from gedikit.report.view import View
from gedikit.tables import TableEncoding

SAMPLES = 500
_INNER = (0.01, 0.99)  # quantiles of columns between which principal components are looked for

_SIGNS = {
    "mutual_information": (
        "Mutual information",
        "What a cluster tells of its points, in nats; more is better.",
    ),
    "energy_gap": ("Energy gap", "Log-density of data minus that of model samples; it should end near 0."),
    "effective_samples": (
        "Effective samples",
        "Share of the proposals that count; it should stay far above 0.",
    ),
    "acceptance": ("Acceptance", "Share of the sampler's moves that were accepted; 0.57 suits MALA best."),
}
_GENERATIVE = ("Generative loss", "Lower fits the data better; it has no known optimum.")
_OF_CHAINS = (_GENERATIVE[0], "Minus the energy gap: it should end near 0 and need not fall on the way.")
_EVALUATED = {"nmi": "NMI", "acc": "Accuracy"}


@dataclass(frozen=True)
class Drawing:
    """Rows to draw, what the model says about them, and where they lie."""

    fitted: FittedModel
    encoding: TableEncoding
    x: NDArray[Any]
    found: Findings

    @property
    def in_plane(self) -> bool:
        """Whether the two axes are the two columns of the data."""
        return self.fitted.n_features == 2 and self.encoding.is_plain

    @cached_property
    def rows(self) -> Int64[np.ndarray, " r"]:
        """Those that are drawn where there are too many."""
        return plotted_rows(len(self.x))

    @cached_property
    def axes(self) -> "Directions":
        return Directions.of(self.fitted, self.encoding, self.x[self.rows])

    @cached_property
    def view(self) -> View:
        points = self.axes.points(self.x[self.rows])
        outer = self.fitted.bounds() if self.in_plane else None
        return View.of(points, self.found.clusters[self.rows], outer)

    @cached_property
    def plane(self) -> Plane:
        return Plane(self.fitted, self.encoding.features, self.view)

    @property
    def density_name(self) -> str:
        in_nats = self.fitted.normalised and not self.encoding.without_likelihood
        return "log-likelihood (nats)" if in_nats else "log-density"


@dataclass(frozen=True)
class Directions:
    """The directions rows are drawn in: their columns where these are two at most, else principal components."""

    fitted: FittedModel
    names: tuple[str, ...]
    share: float  # of the variance
    center: NDArray[np.float64] | None = None
    directions: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, fitted: FittedModel, encoding: TableEncoding, x: NDArray[Any]) -> "Directions":
        from sklearn.decomposition import PCA

        if fitted.n_features == 1 or (fitted.n_features == 2 and encoding.is_plain):
            return cls(fitted, encoding.features, 1.0)
        scaled = fitted.scaler.transform(x).astype(np.float64)
        # a few far rows must not decide what the others are seen from
        inner = np.clip(scaled, *np.quantile(scaled, _INNER, axis=0))
        pca = PCA(2, svd_solver="full").fit(inner)
        shares = pca.explained_variance_ratio_
        names = tuple(f"principal component {i + 1} ({share:.0%})" for i, share in enumerate(shares))
        return cls(fitted, names, float(shares.sum()), pca.mean_, pca.components_)

    @classmethod
    def between(cls, fitted: FittedModel, here: NDArray[Any], there: NDArray[Any]) -> "Directions":
        """From the middle of some rows to that of others, and where they vary most across that."""
        near, far = (fitted.scaler.transform(x).astype(np.float64) for x in (here, there))
        across = np.median(far, axis=0) - np.median(near, axis=0)
        across /= max(float(np.linalg.norm(across)), 1e-12)
        both = np.concatenate([near, far])
        both = np.clip(both, *np.quantile(both, _INNER, axis=0))
        center = both.mean(0)
        rest = (both - center) - np.outer((both - center) @ across, across)
        along = np.linalg.svd(rest, full_matrices=False)[2][0]
        return cls(fitted, ("from one to the other", "across"), 0.0, center, np.stack([across, along]))

    def points(self, x: NDArray[Any]) -> NDArray[np.float64]:
        if self.center is None or self.directions is None:
            return np.asarray(x, dtype=np.float64)
        scaled = self.fitted.scaler.transform(x).astype(np.float64)
        points: NDArray[np.float64] = (scaled - self.center) @ self.directions.T
        return points


def clusters(drawing: Drawing, ax: Axes | None = None) -> Axes:
    """Where the clusters lie: on the plane of the data, or along its principal components."""
    rows = drawing.rows
    points, own = drawing.axes.points(drawing.x[rows]), drawing.found.clusters[rows]
    if drawing.in_plane:
        return drawing.plane.clusters(points, own, ax)
    return plots.projection(points, own, drawing.axes.names, drawing.view, ax)


def density(drawing: Drawing, ax: Axes | None = None) -> Axes:
    """How dense the model says it is: a map with samples, a curve, or how typical the rows are."""
    fitted, found = drawing.fitted, drawing.found
    if found.log_density is None:
        raise UsageError(f"the model was trained with {fitted.method!r}, which learns no density to plot")
    if drawing.in_plane:
        samples, _ = fitted.sample(SAMPLES, seed=0)
        return drawing.plane.density(samples, found.log_density, drawing.density_name, ax)
    if fitted.n_features == 1 and fitted.normalised:
        values = drawing.axes.points(drawing.x)[:, 0]
        names = (*drawing.axes.names, "density")
        return plots.density_curve(values, fitted.log_density, names, drawing.view, ax)
    return plots.density_histogram(found.log_density, drawing.density_name, ax)


def panels(
    plan: Plan,
    history: Sequence[dict[str, float]],
    optima: dict[str, float],
    evaluations: Sequence[dict[str, float]] = (),
) -> list[Panel]:
    """What was measured over the training, in the order of the page."""
    config = plan.config
    losses = {name: (o.title or f"Loss of {name}", o.caption) for name, o in config.objectives.items()}
    chains = config.sampler is not None and not config.sampler.weighted
    described = losses | {GENERATIVE: _OF_CHAINS if chains else _GENERATIVE} | _SIGNS
    made = [
        Panel(title, caption, name, history, optima.get(name))
        for name, (title, caption) in described.items()
        if any(name in row for row in history)
    ]
    for name, what in _EVALUATED.items():
        if any(name in row for row in evaluations):
            made.append(Panel(f"{what} on the test set", "Watched, not trained on.", name, evaluations, None))
    return made


def training(measured: Sequence[Panel], ax: Axes | None = None) -> Axes:
    """All that was measured over the training, side by side."""
    if not measured:
        raise UsageError("no history of the training was kept with this model")
    return plots.loss_panels(measured, ax)
