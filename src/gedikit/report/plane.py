"""Figures of two-dimensional data: where the clusters are, and how dense the model says it is."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from gedikit.fitted import FittedModel
from gedikit.report.findings import on_grid
from gedikit.report.style import (
    DENSITY_MAP,
    HAIRLINE,
    INK,
    MUTED,
    SAMPLE,
    cluster_color,
    label_axes,
    new_figure,
    quiet,
)

_GRID = 240
_WIDTH = 5.2  # inches
_LEFT, _RIGHT = 0.125, 0.02  # margins, as shares of the width
_BELOW = 1.0  # inches for the axis and the key under it
_LOWEST_SHOWN = 6.0  # nats below what all but the strangest data reaches
_MAX_NAMED = 12


class Plane:
    """The domain of a model of two features, evaluated once for all figures of it."""

    def __init__(self, fitted: FittedModel, names: Sequence[str]):
        self.xs, self.ys, self.logits, self.log_density = on_grid(fitted, _GRID)
        self.names = names

    def clusters(self, points: NDArray[Any], clusters: NDArray[np.int64]) -> Figure:
        figure, ax = self._canvas()
        size = float(np.clip(9000 / max(len(points), 1), 4, 26))
        for k in np.unique(clusters):
            x, y = points[clusters == k].T[:2]
            name, color = f"cluster {k}", cluster_color(int(k))
            ax.scatter(x, y, s=size, color=color, alpha=0.8, linewidths=0, label=name)
        self._borders(ax, MUTED)
        if len(np.unique(clusters)) <= _MAX_NAMED:
            figure.legend(
                *ax.get_legend_handles_labels(),
                loc="center",
                bbox_to_anchor=(0.5 * (_LEFT + 1) - _RIGHT / 2, 0.0, 0.0, 2 * 0.28 / figure.get_figheight()),
                ncols=4,
                frameon=False,
                fontsize=8.5,
                labelcolor=INK,
                markerscale=2,
                handletextpad=0.1,
            )
        return figure

    def density(self, samples: NDArray[Any], data_density: NDArray[np.float64], name: str) -> Figure:
        figure, ax = self._canvas()
        lowest = float(np.quantile(data_density, 0.01)) - _LOWEST_SHOWN
        highest = max(float(self.log_density.max()), lowest + 1e-6)
        image = ax.contourf(
            self.xs,
            self.ys,
            self.log_density,
            levels=np.linspace(lowest, highest, 22),
            cmap=colormaps[DENSITY_MAP].with_extremes(under="white"),
            extend="min",
        )
        self._borders(ax, INK)
        x, y = samples.T
        ax.scatter(x, y, s=7, color=SAMPLE, linewidths=0.3, edgecolors="white", zorder=4)
        height = figure.get_figheight()
        strip = figure.add_axes((_LEFT, 0.40 / height, 1 - _LEFT - _RIGHT, 0.1 / height))
        bar = figure.colorbar(image, cax=strip, orientation="horizontal", extendfrac=0.02)
        bar.set_label(name, fontsize=8.5, color=INK, labelpad=1)
        bar.set_ticks(list(MaxNLocator(6, integer=True).tick_values(lowest, highest))[1:-1])
        bar.outline.set_visible(False)
        bar.ax.tick_params(labelsize=8, colors=MUTED, length=2)
        return figure

    def _canvas(self) -> tuple[Figure, Axes]:
        ratio = float(np.ptp(self.ys) / np.ptp(self.xs))
        comparable = 1 / 3 < ratio < 3
        share = min(max(ratio, 0.45), 1.15) if comparable else 0.75
        across = 1 - _LEFT - _RIGHT
        tall = _WIDTH * across * share
        height = tall + _BELOW + 0.1
        figure = new_figure(_WIDTH, height)
        figure.set_layout_engine("none")
        ax = quiet(figure.add_axes((_LEFT, _BELOW / height, across, tall / height)))
        ax.set_xlim(self.xs[0], self.xs[-1])
        ax.set_ylim(self.ys[0], self.ys[-1])
        if comparable:
            ax.set_aspect("equal")
        for side in ("top", "right"):
            ax.spines[side].set_visible(True)
            ax.spines[side].set_color(HAIRLINE)
        label_axes(ax, self.names)
        return figure, ax

    def _borders(self, ax: Axes, color: str) -> None:
        n_clusters = self.logits.shape[-1]
        for k in range(n_clusters if n_clusters > 1 else 0):
            lead = self.logits[..., k] - np.delete(self.logits, k, axis=-1).max(-1)
            if lead.min() < 0 < lead.max():
                ax.contour(self.xs, self.ys, lead, levels=[0], colors=color, linewidths=0.8)
