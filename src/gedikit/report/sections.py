"""What the page shows of the training and of rows that are no images: pictures with a caption."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gedikit.densities.base import GENERATIVE
from gedikit.report import plots
from gedikit.report.findings import Findings, plotted_rows
from gedikit.report.inputs import ReportData
from gedikit.report.plane import Plane
from gedikit.report.style import png_uri

_SAMPLES = 500

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
class Picture:
    title: str
    uri: str
    caption: str


def density_name(data: ReportData) -> str:
    return "log-density" if not data.fitted.normalised else "log-likelihood (nats)"


def curves(data: ReportData) -> list[Picture]:
    config = data.fitted.plan.config
    losses = {name: (o.title or f"Loss of {name}", o.caption) for name, o in config.objectives.items()}
    chains = config.sampler is not None and not config.sampler.weighted
    described = losses | {GENERATIVE: _OF_CHAINS if chains else _GENERATIVE} | _SIGNS
    present = [name for name in described if any(name in row for row in data.history)]
    made = []
    for name in present:
        title, caption = described[name]
        panel = plots.loss_panel(data.history, name, data.optima.get(name))
        made.append(Picture(title, png_uri(panel), caption))
    for name, what in _EVALUATED.items():
        if any(name in row for row in data.evaluations):
            panel = plots.loss_panel(data.evaluations, name, None)
            made.append(Picture(f"{what} on the test set", png_uri(panel), "Watched, not trained on."))
    return made


def plane_pictures(data: ReportData, found: Findings) -> list[Picture]:
    plane = Plane(data.fitted, data.column_names)
    rows = plotted_rows(len(data.x))
    pictures = [
        Picture(
            "The points",
            png_uri(plane.clusters(data.x[rows], found.clusters[rows])),
            "Each point has the colour of its cluster; thin lines are the borders between clusters.",
        )
    ]
    if found.log_density is not None:
        samples, _ = data.fitted.sample(_SAMPLES, seed=0)
        pictures.append(
            Picture(
                "Density and generated samples",
                png_uri(plane.density(samples, found.log_density, density_name(data))),
                f"Darker is denser. The orange dots are {_SAMPLES} points that the model generated: "
                "they should lie where the data lies.",
            )
        )
    return pictures


def table_pictures(data: ReportData, found: Findings) -> list[Picture]:
    rows = plotted_rows(len(data.x))
    points, axes, share = _principal_axes(data, rows)
    caption = "The only feature, coloured by cluster."
    if len(axes) > 1:
        caption = (
            f"The two directions in which the scaled data varies most ({share:.0%} of its variance), "
            "coloured by cluster. What overlaps here may be far apart in the other directions."
        )
    pictures = [
        Picture("The rows", png_uri(plots.projection(points, found.clusters[rows], axes)), caption),
        Picture(
            "Cluster sizes",
            png_uri(plots.size_bars(found.sizes, data.fitted.prior)),
            "Rows in each cluster; the dashed ticks are the sizes that the prior expects.",
        ),
    ]
    if found.log_density is not None:
        pictures.append(
            Picture(
                "How typical the rows are",
                png_uri(plots.density_histogram(found.log_density, density_name(data))),
                "Further left is less typical.",
            )
        )
    return pictures


def _principal_axes(data: ReportData, rows: NDArray[np.int64]) -> tuple[NDArray[Any], list[str], float]:
    from sklearn.decomposition import PCA

    if data.fitted.n_features == 1:
        return np.asarray(data.x[rows]), [data.column_names[0]], 1.0
    scaled = data.fitted.scaler.transform(data.x[rows]).astype(np.float64)
    pca = PCA(2, svd_solver="full").fit(scaled)
    shares = pca.explained_variance_ratio_
    names = [f"principal component {i + 1} ({share:.0%})" for i, share in enumerate(shares)]
    return pca.transform(scaled), names, float(shares.sum())
