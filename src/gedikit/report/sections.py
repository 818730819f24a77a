"""What the page shows of each kind of data: pictures with a caption."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gedikit.methods import get_method
from gedikit.report import plots
from gedikit.report.findings import Findings, plotted_rows
from gedikit.report.inputs import ReportData
from gedikit.report.mosaics import Darkroom, Mosaic
from gedikit.report.plane import Plane
from gedikit.report.style import cluster_color, png_uri

_SAMPLES = 500
_MAX_GALLERIES = 24
_EXTREMES = 18

_CURVES = {
    "invariance": ("Invariance loss", "0 when a point and its moved copy always get the same cluster."),
    "prior": ("Prior loss", "At its best when the clusters are as large as the prior expects."),
    "generative": ("Generative loss", "Lower fits the data better; it has no known optimum."),
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


@dataclass(frozen=True)
class Picture:
    title: str
    uri: str
    caption: str


@dataclass(frozen=True)
class Gallery:
    cluster: int
    color: str
    size: int
    share: float
    members: Mosaic | None
    generated: Mosaic | None


def density_name(data: ReportData) -> str:
    return "log-density" if data.fitted.log_normaliser is None else "log-density (normalised, nats)"


def curves(data: ReportData) -> list[Picture]:
    terms = get_method(data.fitted.method).terms
    described = {name: (f"Loss of {name}", "What the method minimises.") for name in terms} | _CURVES
    present = [name for name in described if any(name in row for row in data.history)]
    made = []
    for name in present:
        title, caption = described[name]
        if name == "generative" and data.fitted.info["sampler"] in ("mala", "sgld"):
            caption = "Minus the energy gap: it should end near 0 and need not fall on the way."
        panel = plots.loss_panel(data.history, name, data.optima.get(name))
        made.append(Picture(title, png_uri(panel), caption))
    return made


def plane_pictures(data: ReportData, found: Findings) -> list[Picture]:
    plane = Plane(data.fitted, data.names)
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
                "Further left is stranger.",
            )
        )
    return pictures


def _principal_axes(data: ReportData, rows: NDArray[np.int64]) -> tuple[NDArray[Any], list[str], float]:
    from sklearn.decomposition import PCA

    if data.fitted.n_features == 1:
        return np.asarray(data.x[rows]), [data.names[0]], 1.0
    scaled = data.fitted.scaler.transform(data.x[rows]).astype(np.float64)
    pca = PCA(2, svd_solver="full").fit(scaled)
    shares = pca.explained_variance_ratio_
    names = [f"principal component {i + 1} ({share:.0%})" for i, share in enumerate(shares)]
    return pca.transform(scaled), names, float(shares.sum())


def galleries(data: ReportData, found: Findings, darkroom: Darkroom) -> list[Gallery]:
    """Cluster by cluster; the largest ones where there are too many."""
    shown = np.sort(np.argsort(-found.sizes, kind="stable")[:_MAX_GALLERIES])
    made = []
    for k in map(int, shown):
        nearest = found.nearest(k, 20)
        generated = None
        if found.log_density is not None:
            generated = darkroom.mosaic(data.fitted.sample(10, cluster=k, seed=k)[0], 5)
        members = darkroom.mosaic(data.x[nearest], 10) if len(nearest) else None
        share = float(found.sizes[k] / len(data.x))
        made.append(Gallery(k, cluster_color(k), int(found.sizes[k]), share, members, generated))
    return made


def extremes(data: ReportData, found: Findings, darkroom: Darkroom) -> list[tuple[str, Mosaic]]:
    order = found.typical_first
    if not len(order):
        return []
    return [
        ("Most typical", darkroom.mosaic(data.x[order[:_EXTREMES]], 9)),
        ("Least typical", darkroom.mosaic(data.x[order[::-1][:_EXTREMES]], 9)),
    ]
