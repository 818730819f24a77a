"""The figures of the page. Matplotlib objects only: no pyplot, no global state."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from gedikit.report.style import (
    ACCENT,
    HAIRLINE,
    INK,
    MUTED,
    OPTIMUM,
    cluster_color,
    label_axes,
    new_figure,
    quiet,
)

_MAX_NAMED = 20


def loss_panel(history: Sequence[dict[str, float]], name: str, optimum: float | None) -> Figure:
    """One measurement over the training, with a dashed line where it would be at its best."""
    figure = new_figure(3.4, 2.3)
    ax = quiet(figure.add_subplot())
    rows = [row for row in history if name in row]
    iterations = np.array([row["iteration"] for row in rows])
    values = np.array([row[name] for row in rows])
    ax.plot(iterations, values, color=ACCENT, linewidth=1.6, marker="o" if len(rows) == 1 else "", zorder=3)
    if optimum is not None:
        ax.axhline(optimum, color=OPTIMUM, linewidth=1.2, linestyle="--", zorder=2)
        ax.annotate(
            f"best {optimum:.4g}",
            (1, optimum),
            xycoords=("axes fraction", "data"),
            xytext=(0, _label_offset(values, optimum)),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=8,
            color=OPTIMUM,
        )
    ax.set_ylim(*_limits(values, optimum))
    ax.set_xlabel("iteration")
    ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(4))
    ax.grid(axis="y", color=HAIRLINE, linewidth=0.5, alpha=0.7)
    return figure


def _limits(values: NDArray[np.float64], optimum: float | None) -> tuple[float, float]:
    """The whole curve, unless a few points of it would flatten all others."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return (0.0, 1.0)
    low, high = np.quantile(finite, (0.02, 0.98))
    if len(finite) < 20 or np.ptp(finite) < 25 * (high - low):
        low, high = finite.min(), finite.max()
    if optimum is not None:
        low, high = min(low, optimum), max(high, optimum)
        # a hair's breadth from the optimum must not look like a mile
        spare = max(0.0, 0.15 * abs(optimum) - (high - low))
        low, high = (low, high + spare) if low >= optimum else (low - spare, high)
    room = 0.14 * (high - low) or 0.1 * max(abs(high), 1.0)
    return float(low - room), float(high + room)


def _label_offset(values: NDArray[np.float64], optimum: float) -> int:
    """Points above or below the dashed line: the side where the curve is not."""
    return 7 if np.nansum(values - optimum) < 0 else -7


def _scatter(ax: Axes, points: NDArray[Any], clusters: NDArray[np.int64]) -> None:
    size = float(np.clip(6000 / max(len(points), 1), 4, 26))
    colors = [cluster_color(int(k)) for k in clusters]
    ax.scatter(points[:, 0], points[:, 1], s=size, c=colors, alpha=0.8, linewidths=0, zorder=3)
    used = np.unique(clusters)
    if len(used) > _MAX_NAMED:
        return
    for k in used:
        members = points[clusters == k]
        middle = np.median(members, axis=0)
        # the member nearest the middle: the middle of a crescent lies outside it
        at = members[np.argmin(np.square((members - middle) / (np.ptp(points, axis=0) + 1e-300)).sum(1))]
        ax.text(
            at[0],
            at[1],
            str(k),
            ha="center",
            va="center",
            fontsize=9,
            fontweight="bold",
            color="white",
            zorder=5,
            bbox={"boxstyle": "circle,pad=0.3", "facecolor": cluster_color(int(k)), "edgecolor": "white"},
        )


def projection(points: NDArray[Any], clusters: NDArray[np.int64], names: Sequence[str]) -> Figure:
    """Rows on two axes, or the histogram of the only one, coloured by cluster."""
    figure = new_figure(5.2, 4.0)
    ax = quiet(figure.add_subplot())
    if points.shape[1] == 1:
        used = [int(k) for k in np.unique(clusters)]
        ax.hist(
            [points[clusters == k, 0] for k in used],
            bins=40,
            stacked=True,
            color=[cluster_color(int(k)) for k in used],
            label=[f"cluster {k}" for k in used],
        )
        ax.set_ylabel("rows")
        ax.legend(frameon=False, fontsize=8, labelcolor=INK)
    else:
        _scatter(ax, points, clusters)
    label_axes(ax, names)
    return figure


def size_bars(sizes: NDArray[np.int64], prior: NDArray[np.float64]) -> Figure:
    """Rows a cluster, with a tick where the prior expects the bar to end."""
    figure = new_figure(5.2, float(np.clip(0.9 + 0.32 * len(sizes), 2.0, 9.0)))
    ax = quiet(figure.add_subplot())
    where, expected = np.arange(len(sizes)), prior * sizes.sum()
    ax.barh(where, sizes, color=[cluster_color(int(k)) for k in where], height=0.68)
    ax.vlines(expected, where - 0.42, where + 0.42, color=INK, linewidth=1.2, linestyles=(0, (2, 1.5)))
    if len(sizes) <= _MAX_NAMED:
        for k, size in enumerate(sizes):
            ax.annotate(
                f"{size}",
                (max(size, expected[k]), k),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=INK,
            )
        ax.set_yticks(where)
    ax.invert_yaxis()
    ax.set_xlim(0, 1.12 * max(sizes.max(), expected.max()))
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    label_axes(ax, ("rows", "cluster"))
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return figure


def density_histogram(log_density: NDArray[np.float64], name: str) -> Figure:
    """How typical the rows are; the least typical twentieth stands out."""
    figure = new_figure(5.2, 2.6)
    ax = quiet(figure.add_subplot())
    edge = np.quantile(log_density, 0.05)
    bins = np.histogram_bin_edges(log_density, bins=40)
    for part, color in ((log_density > edge, ACCENT), (log_density <= edge, OPTIMUM)):
        ax.hist(log_density[part], bins=list(bins), color=color, alpha=0.85)
    ax.axvline(float(edge), color=MUTED, linewidth=1, linestyle="--")
    ax.annotate(
        "least typical 5 %  ",
        (float(edge), 0.94),
        xycoords=("data", "axes fraction"),
        ha="right",
        va="center",
        fontsize=8,
        color=OPTIMUM,
    )
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    label_axes(ax, (name, "rows"))
    return figure
