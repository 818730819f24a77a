"""The paper's figures of the synthetic experiments."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from gedikit.paper.reproduce.fits import Picture, Result
from gedikit.paper.reproduce.paper import NAMES
from gedikit.report.style import (
    DENSITY_MAP,
    HAIRLINE,
    INK,
    MUTED,
    OPTIMUM,
    SAMPLE,
    cluster_color,
    new_figure,
    png,
    quiet,
)

Drawn = Mapping[tuple[str, str], Result]
_SIDE = 1.55  # inches of a panel
_SHOWN = 8.0  # nats below the densest point
_LOSSES = {"prior": (cluster_color(0), math.log(2)), "invariance": (cluster_color(2), 0.0)}  # colour, optimum


def labels(drawn: Drawn, shapes: Sequence[str], methods: Sequence[str], *, with_truth: bool) -> bytes:
    """Points coloured by cluster: a row a data set, a column a method."""
    columns = len(methods) + with_truth
    figure = new_figure(_SIDE * columns, (_SIDE + 0.12) * len(shapes))
    axes = figure.subplots(len(shapes), columns, squeeze=False)
    for row, shape in enumerate(shapes):
        if with_truth:
            known = next((r.picture for (s, _), r in drawn.items() if s == shape and r.picture), None)
            _points(axes[row, 0], known, truth=True)
            _title(axes[row, 0], "true labels", row)
        for column, method in enumerate(methods, start=int(with_truth)):
            _clusters(axes[row, column], drawn.get((shape, method)))
            _title(axes[row, column], NAMES[method], row)
    return png(figure)


def labels_and_densities(drawn: Drawn, shapes: Sequence[str], methods: Sequence[str]) -> bytes:
    """Clusters of all data sets, then densities with generated points."""
    n = len(shapes)
    figure = new_figure(_SIDE * len(methods), (_SIDE + 0.06) * 2 * n)
    axes = figure.subplots(2 * n, len(methods), squeeze=False)
    for row, shape in enumerate(shapes):
        for column, method in enumerate(methods):
            result = drawn.get((shape, method))
            _clusters(axes[row, column], result)
            _density(axes[n + row, column], result)
            _title(axes[row, column], NAMES[method], row)
    return png(figure)


def losses(drawn: Drawn, shapes: Sequence[str], methods: Sequence[str]) -> bytes:
    """L_INV and L_PRIOR over the training beside their optima."""
    figure = new_figure(2.7 * len(methods), 1.9 * len(shapes))
    axes = figure.subplots(len(shapes), len(methods), squeeze=False, sharey=True)
    for row, shape in enumerate(shapes):
        for column, method in enumerate(methods):
            ax = quiet(axes[row, column])
            _curves(ax, drawn.get((shape, method)))
            ax.set_title(f"{NAMES[method]}, {shape}", fontsize=9, color=INK)
            if row == len(shapes) - 1:
                ax.set_xlabel("iteration")
    handles = [Line2D([], [], color=color, linewidth=1.2, label=name) for name, (color, _) in _LOSSES.items()]
    handles.append(Line2D([], [], color=MUTED, linewidth=1.2, linestyle=":", label="not minimised"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8, labelcolor=INK)
    return png(figure)


def heat_maps(grids: Mapping[str, np.ndarray], weights: Sequence[int]) -> bytes:
    """Mean NMI for every pair of weights."""
    figure = new_figure(3.4 * len(grids) + 0.5, 3.1)
    axes = figure.subplots(1, len(grids), squeeze=False)[0]
    for ax, (shape, grid) in zip(axes, grids.items(), strict=True):
        image = ax.imshow(grid, origin="lower", vmin=0, vmax=1, cmap="cividis")
        for (i, j), value in np.ndenumerate(grid):
            ax.text(
                j, i, f"{value:.2f}", ha="center", va="center", fontsize=7, color="white" if value < 0.6 else INK
            )
        quiet(ax)
        ax.set_xticks(range(len(weights)), [str(w) for w in weights])
        ax.set_yticks(range(len(weights)), [str(w) for w in weights])
        ax.set_xlabel("weight of PRIOR")
        ax.set_ylabel("weight of INV")
        ax.set_title(shape, fontsize=10, color=INK)
    bar = figure.colorbar(image, ax=list(axes), shrink=0.85)
    bar.set_label("NMI", fontsize=9, color=MUTED)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, colors=MUTED)
    return png(figure)


def _curves(ax: Axes, result: Result | None) -> None:
    if result is None or not result.curve:
        _say(ax, _why(result))
        return
    for name, (color, optimum) in _LOSSES.items():
        ax.axhline(optimum, color=OPTIMUM, linewidth=0.8, linestyle="--")
        for key, line in ((name, "-"), (f"watched_{name}", ":")):
            rows = [(row["iteration"], row[key]) for row in result.curve if key in row]
            if rows:
                ax.plot(*zip(*rows, strict=True), color=color, linewidth=1.2, linestyle=line)
    ax.set_yscale("symlog", linthresh=1)  # a loss that is not minimised may be large
    ax.set_ylim(-0.1, 100)
    ax.set_yticks([0, 0.5, 1, 10, 100], ["0", "0.5", "1", "10", "100"])
    if result.failure is not None:
        ax.text(0.98, 0.95, "diverged", transform=ax.transAxes, ha="right", va="top", fontsize=8, color=OPTIMUM)


def _clusters(ax: Axes, result: Result | None) -> None:
    if result is None or result.picture is None:
        _blank(ax)
        _say(ax, _why(result))
        return
    _points(ax, result.picture, truth=False)


def _points(ax: Axes, picture: Picture | None, *, truth: bool) -> None:
    _blank(ax)
    if picture is None:
        return
    x = np.array(picture.points)
    names = np.array(picture.truth if truth else picture.clusters)
    colors = [cluster_color(int(k)) for k in names]
    ax.scatter(x[:, 0], x[:, 1], s=2, c=colors, linewidths=0)


def _density(ax: Axes, result: Result | None) -> None:
    _blank(ax)
    picture = None if result is None else result.picture
    if picture is None:
        _say(ax, _why(result))
        return
    if picture.log_density is None:
        _say(ax, "no density")
        return
    grid = np.maximum(np.array(picture.log_density), -_SHOWN)
    left, right, bottom, top = picture.extent
    extent = (left, right, bottom, top)
    ax.imshow(grid, origin="lower", extent=extent, aspect="auto", cmap=DENSITY_MAP, vmin=-_SHOWN, vmax=0)
    x = np.array(picture.samples)
    ax.scatter(x[:, 0], x[:, 1], s=1.5, color=SAMPLE, linewidths=0)
    ax.set_xlim(left, right)
    ax.set_ylim(bottom, top)


def _why(result: Result | None) -> str:
    return "not run" if result is None else "diverged"


def _blank(ax: Axes) -> None:
    ax.set_box_aspect(1)
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_color(HAIRLINE)


def _say(ax: Axes, text: str) -> None:
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", fontsize=9, color=MUTED)


def _title(ax: Axes, text: str, row: int) -> None:
    if row == 0:
        ax.set_title(text, fontsize=9, color=INK)
