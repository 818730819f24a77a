"""What is drawn, each thing in one way. Matplotlib objects only: no pyplot, no global state."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from gedikit.groups.rivals import NumberEvidence
from gedikit.report.style import (
    ACCENT,
    HAIRLINE,
    INK,
    MUTED,
    OPTIMUM,
    axes,
    cluster_color,
    label_axes,
    new_figure,
    note_beyond,
)
from gedikit.report.view import View

_MAX_NAMED = 20
_PANEL = (3.4, 2.3)  # inches
_NARROW = 1.5  # inches, below which there is room for few ticks
_BETWEEN = (0.6, 0.62)  # inches


@dataclass(frozen=True)
class Panel:
    """One measurement over the training."""

    title: str
    caption: str
    name: str
    history: Sequence[dict[str, float]]
    optimum: float | None


def loss_panel(panel: Panel, ax: Axes | None = None) -> Axes:
    """A curve over the training, with a dashed line where it would be at its best."""
    ax = axes(ax, *_PANEL)
    history, name, optimum = panel.history, panel.name, panel.optimum
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
    ticks = 4 if ax.get_window_extent().width > ax.figure.dpi * _NARROW else 2
    ax.xaxis.set_major_locator(MaxNLocator(ticks, integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(ticks))
    ax.grid(axis="y", color=HAIRLINE, linewidth=0.5, alpha=0.7)
    return ax


def loss_panels(panels: Sequence[Panel], ax: Axes | None = None) -> Axes:
    """All measurements, side by side within the axes."""
    across = min(3, len(panels))
    down = -(-len(panels) // across)
    if ax is None:
        ax = new_figure(_PANEL[0] * across, _PANEL[1] * down).add_subplot()
    ax.set_axis_off()
    extent = ax.get_window_extent()
    # what stands between panels has one size, whatever theirs is
    gap = np.array(_BETWEEN) * ax.figure.dpi / np.array([extent.width, extent.height])
    width, height = np.maximum((1 - gap * [across - 1, down - 1]) / [across, down], 0.05)
    for place, panel in enumerate(panels):
        left = (place % across) * (width + gap[0])
        bottom = 1 - height - (place // across) * (height + gap[1])
        inset = loss_panel(panel, ax.inset_axes((left, bottom, width, height)))
        inset.set_title(panel.title, fontsize=9, color=INK, loc="left")
        if place + across < len(panels):
            inset.set_xlabel("")
    return ax


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


def scatter(ax: Axes, points: NDArray[Any], clusters: NDArray[np.int64], view: View, *, named: bool = True) -> None:
    """Points in the colours of their clusters; rings at the edge are points beyond it."""
    size = float(np.clip(9000 / max(len(points), 1), 4, 26))
    held, beyond = view.held(points)
    colors = np.array([cluster_color(int(k)) for k in clusters], dtype=object)
    inside = ~beyond
    ax.scatter(
        held[inside, 0], held[inside, 1], s=size, c=colors[inside].tolist(), alpha=0.8, linewidths=0, zorder=3
    )
    if beyond.any():
        edge = colors[beyond].tolist()
        x, y = held[beyond].T
        ax.scatter(x, y, s=22, facecolors="white", edgecolors=edge, linewidths=1.0, zorder=4)
    note_beyond(ax, int(beyond.sum()), "○ ")
    ax.set_xlim(view.low[0], view.high[0])
    ax.set_ylim(view.low[1], view.high[1])
    used = np.unique(clusters[inside])
    if not named or len(used) > _MAX_NAMED:
        return
    for k in used:
        members = points[inside & (clusters == k)]
        middle = np.median(members, axis=0)
        # the member nearest the middle: the middle of a crescent lies outside it
        at = members[np.argmin(np.square((members - middle) / (view.high - view.low)).sum(1))]
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


def circled(
    points: NDArray[Any],
    clusters: NDArray[np.int64],
    marked: NDArray[Any],
    around: NDArray[Any],
    names: Sequence[str],
    view: View,
) -> Axes:
    """Points in the colours of their clusters, some of them circled, and others in grey around them."""
    ax = axes(None, 5.2, 4.0)
    x, y = around.T
    ax.scatter(x, y, s=5, color=HAIRLINE, linewidths=0, zorder=1)
    scatter(ax, points, clusters, view)
    x, y = view.held(marked)[0].T
    ax.scatter(x, y, s=34, facecolors="none", edgecolors=INK, linewidths=0.9, zorder=4)
    label_axes(ax, names)
    return ax


def projection(
    points: NDArray[Any], clusters: NDArray[np.int64], names: Sequence[str], view: View, ax: Axes | None = None
) -> Axes:
    """Rows on two axes, or the histogram of the only one, coloured by cluster."""
    ax = axes(ax, 5.2, 4.0)
    if points.shape[1] == 1:
        used = [int(k) for k in np.unique(clusters)]
        held, beyond = view.held(points)
        ax.hist(
            [held[clusters == k, 0] for k in used],
            bins=40,
            stacked=True,
            color=[cluster_color(int(k)) for k in used],
            label=[f"cluster {k}" for k in used],
        )
        note_beyond(ax, int(beyond.sum()))
        ax.set_ylabel("rows")
        if len(used) <= _MAX_NAMED:
            ax.legend(frameon=False, fontsize=8, labelcolor=INK)
    else:
        scatter(ax, points, clusters, view)
    label_axes(ax, names)
    return ax


def size_bars(sizes: NDArray[np.int64], prior: NDArray[np.float64]) -> Axes:
    """Rows a cluster, with a tick where the prior expects the bar to end."""
    ax = axes(None, 5.2, float(np.clip(0.9 + 0.32 * len(sizes), 2.0, 9.0)))
    where, expected = np.arange(len(sizes)), prior * sizes.sum()
    ax.barh(where, sizes, color=[cluster_color(int(k)) for k in where], height=0.68)
    ax.vlines(expected, where - 0.42, where + 0.42, color=INK, linewidth=1.2, linestyles=(0, (2, 1.5)))
    if len(sizes) <= _MAX_NAMED:
        for k, size in enumerate(sizes):
            ax.annotate(
                f"{size:,}",
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
    return ax


def density_histogram(log_density: NDArray[np.float64], name: str, ax: Axes | None = None) -> Axes:
    """How typical the rows are; the least typical twentieth stands out."""
    ax = axes(ax, 5.2, 2.6)
    edge = np.quantile(log_density, 0.05)
    column = log_density[:, None]
    held, beyond = View.of(column, np.zeros(len(column), dtype=np.int64)).held(column)
    log_density = held[:, 0]
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
    note_beyond(ax, int(beyond.sum()))
    label_axes(ax, (name, "rows"))
    return ax


def density_curve(
    values: NDArray[np.float64],
    log_density: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    names: Sequence[str],
    view: View,
    ax: Axes | None = None,
) -> Axes:
    """The density of the only column over a histogram of its values."""
    ax = axes(ax, 5.2, 3.2)
    held, beyond = view.held(values[:, None])
    ax.hist(held[:, 0], bins=50, density=True, color=HAIRLINE)
    at = np.linspace(view.low[0], view.high[0], 500)
    density = np.exp(log_density(at[:, None]))
    ax.fill_between(at, density, color=ACCENT, alpha=0.18, linewidth=0)
    ax.plot(at, density, color=ACCENT, linewidth=1.6)
    ax.set_ylim(bottom=0)
    note_beyond(ax, int(beyond.sum()))
    label_axes(ax, names)
    return ax


def number_curve(evidence: NumberEvidence) -> Axes:
    """How deep the graph dips for every number of groups, and the depth that counts."""
    ax = axes(None, 5.2, 2.8)
    numbers = np.array([k for k in evidence.curve if k <= _MAX_NAMED])
    depth = np.array([evidence.curve[int(k)] for k in numbers])
    highest = 3 * evidence.threshold
    colors = [ACCENT if k <= evidence.chosen else HAIRLINE for k in numbers]
    ax.bar(numbers, np.minimum(depth, highest), color=colors, width=0.7)
    for k, value in zip(numbers.tolist(), depth.tolist(), strict=True):
        ax.annotate(
            f"{value:.1f}" if value < highest else f">{highest:.0f}",
            (k, min(value, highest)),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            fontsize=7.5,
            color=MUTED,
        )
    ax.axhline(evidence.threshold, color=OPTIMUM, linewidth=1.2, linestyle="--", zorder=2)
    ax.annotate(
        f"counts from {evidence.threshold:g}",
        (1, evidence.threshold),
        xycoords=("axes fraction", "data"),
        xytext=(0, 6),
        textcoords="offset points",
        ha="right",
        va="center",
        fontsize=8,
        color=OPTIMUM,
    )
    ax.set_xticks([1, *numbers.tolist()])
    ax.set_xlim(0.4, max([2, *numbers.tolist()]) + 0.6)
    ax.set_ylim(0, 1.12 * max(min(highest, depth.max(initial=0.0)), evidence.threshold))
    for tick, k in zip(ax.get_xticklabels(), [1, *numbers.tolist()], strict=True):
        if k == evidence.chosen:
            tick.set_fontweight("bold")
            tick.set_color(INK)
    label_axes(ax, ("number of clusters", "depth of the dip"))
    return ax
