"""Figures of two-dimensional data: where the clusters are, and how dense the model says it is."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from gedikit.fitted import FittedModel
from gedikit.report.findings import on_grid
from gedikit.report.plots import scatter
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
from gedikit.report.view import View

_GRID = 240
_WIDTH = 5.2  # inches
_LEFT, _RIGHT = 0.125, 0.02  # margins, as shares of the width
_BELOW = 1.0  # inches for the axis and the key under it
_ABOVE = 0.22  # for a remark
_LOWEST_SHOWN = 6.0  # nats below what all but the strangest data reaches
_MAX_NAMED = 12


class Plane:
    """The domain of a model of two features, evaluated once for all figures of it."""

    def __init__(self, fitted: FittedModel, names: Sequence[str], view: View | None = None):
        self.view = view or View(*fitted.bounds())
        self.xs, self.ys, self.logits, self.log_density = on_grid(fitted, _GRID, (self.view.low, self.view.high))
        self.names = names

    def clusters(self, points: NDArray[Any], clusters: NDArray[np.int64], ax: Axes | None = None) -> Axes:
        """Points in the colours of their clusters, and the borders between these."""
        figure, ax = self._canvas() if ax is None else (None, self._framed(ax))
        scatter(ax, points, clusters, self.view, named=False)
        self._borders(ax, MUTED)
        used = np.unique(clusters)
        if len(used) > _MAX_NAMED:
            return ax
        dots = [Line2D([], [], marker="o", linestyle="", markersize=5, color=cluster_color(int(k))) for k in used]
        look: dict[str, Any] = {"frameon": False, "fontsize": 8.5, "labelcolor": INK, "handletextpad": 0.1}
        named = [f"cluster {k}" for k in used]
        if figure is None:
            ax.legend(dots, named, **look)
            return ax
        below = (0.5 * (_LEFT + 1) - _RIGHT / 2, 0.0, 0.0, 2 * 0.28 / figure.get_figheight())
        figure.legend(dots, named, loc="center", bbox_to_anchor=below, ncols=4, **look)
        return ax

    def density(
        self, samples: NDArray[Any], data_density: NDArray[np.float64], name: str, ax: Axes | None = None
    ) -> Axes:
        """The log-density as colours, with points that the model generated."""
        figure, ax = self._canvas() if ax is None else (None, self._framed(ax))
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
        if figure is None:
            bar = ax.figure.colorbar(image, cax=ax.inset_axes((1.02, 0, 0.03, 1)), extendfrac=0.02)
        else:
            height = figure.get_figheight()
            strip = figure.add_axes((_LEFT, 0.40 / height, 1 - _LEFT - _RIGHT, 0.1 / height))
            bar = figure.colorbar(image, cax=strip, orientation="horizontal", extendfrac=0.02)
        bar.set_label(name, fontsize=8.5, color=INK, labelpad=1)
        bar.set_ticks(list(MaxNLocator(6, integer=True).tick_values(lowest, highest))[1:-1])
        bar.outline.set_visible(False)
        bar.ax.tick_params(labelsize=8, colors=MUTED, length=2)
        return ax

    @property
    def _comparable(self) -> bool:
        """Whether both axes may have one scale."""
        return 1 / 3 < float(np.ptp(self.ys) / np.ptp(self.xs)) < 3

    def _canvas(self) -> tuple[Figure, Axes]:
        """A new figure with room for a key below."""
        ratio = float(np.ptp(self.ys) / np.ptp(self.xs))
        share = min(max(ratio, 0.45), 1.15) if self._comparable else 0.75
        across = 1 - _LEFT - _RIGHT
        tall = _WIDTH * across * share
        height = tall + _BELOW + _ABOVE
        figure = new_figure(_WIDTH, height)
        figure.set_layout_engine("none")
        return figure, self._framed(figure.add_axes((_LEFT, _BELOW / height, across, tall / height)))

    def _framed(self, ax: Axes) -> Axes:
        quiet(ax)
        ax.set_xlim(self.xs[0], self.xs[-1])
        ax.set_ylim(self.ys[0], self.ys[-1])
        if self._comparable:
            ax.set_aspect("equal")
        for side in ("top", "right"):
            ax.spines[side].set_visible(True)
            ax.spines[side].set_color(HAIRLINE)
        label_axes(ax, self.names)
        return ax

    def _borders(self, ax: Axes, color: str) -> None:
        n_clusters = self.logits.shape[-1]
        for k in range(n_clusters if n_clusters > 1 else 0):
            lead = self.logits[..., k] - np.delete(self.logits, k, axis=-1).max(-1)
            if lead.min() < 0 < lead.max():
                ax.contour(self.xs, self.ys, lead, levels=[0], colors=color, linewidths=0.8)
