"""The figures of the addition experiment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from gedikit.report.style import ACCENT, INK, MUTED, OPTIMUM, new_figure, png, quiet

_LINES: dict[str, tuple[str, Literal["-", ":"], str]] = {
    "constraint": (ACCENT, "-", "L_NESY"),
    "invariance": (OPTIMUM, "-", "L_INV"),
    "watched_invariance": (OPTIMUM, ":", "L_INV, not minimised"),
    "pseudo-labels": (MUTED, "-", "cross-entropy to pseudo-labels"),
}
_COLUMNS = 3
_NEAR_OPTIMUM = 1e-3  # which is 0


@dataclass(frozen=True)
class Explained:
    """A test example: its images, what they are, and what the network and the rule make of them."""

    pixels: list[list[int]]  # a, b and c as they are written
    truth: str
    log_probability: float
    worlds: list[str]


def losses(curves: Mapping[str, Sequence[Mapping[str, float]]]) -> bytes:
    rows = -(-len(curves) // _COLUMNS)
    figure = new_figure(max(3.1 * min(_COLUMNS, len(curves)), 6.2), 2.3 * rows + 0.4)
    axes = figure.subplots(rows, min(_COLUMNS, len(curves)), squeeze=False).ravel()
    for ax, (title, curve) in zip(axes, curves.items(), strict=False):
        quiet(ax).set_title(title, fontsize=9, color=INK)
        for name, (color, style, _) in _LINES.items():
            points = [(row["iteration"], row[name]) for row in curve if name in row]
            if points:
                ax.plot(*zip(*points, strict=True), color=color, linestyle=style, linewidth=1.1)
        ax.set_xlabel("iteration")
        ax.set_yscale("log")
        ax.minorticks_off()
        ax.set_ylim(bottom=_NEAR_OPTIMUM)
    for ax in axes[len(curves) :]:
        ax.set_visible(False)
    seen = {name for curve in curves.values() for row in curve for name in row}
    handles = [
        Line2D([], [], color=color, linestyle=style, linewidth=1.2, label=label)
        for name, (color, style, label) in _LINES.items()
        if name in seen
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8, labelcolor=INK)
    return png(figure)


def confusions(matrices: Mapping[int, NDArray[np.int64]]) -> bytes:
    figure = new_figure(3.4 * len(matrices), 3.4)
    axes = figure.subplots(1, len(matrices), squeeze=False)[0]
    for ax, (n, matrix) in zip(axes, matrices.items(), strict=True):
        share = matrix / matrix.sum(1, keepdims=True).clip(1)
        ax.imshow(share, vmin=0, vmax=1, cmap="Blues")
        for (i, j), count in np.ndenumerate(matrix):
            if count:
                dark = share[i, j] > 0.5
                ax.text(j, i, str(count), ha="center", va="center", fontsize=5.5, color="white" if dark else INK)
        quiet(ax)
        ax.set_xticks(range(10))
        ax.set_yticks(range(10))
        ax.set_xlabel("digit found")
        ax.set_ylabel("digit shown")
        ax.set_title(f"{n} examples", fontsize=10, color=INK)
    return png(figure)


def explained(examples: Sequence[Explained]) -> bytes:
    """Images of each example, what they are, and the sums that the network and the rule allow."""
    n_images = len(examples[0].pixels)
    figure = new_figure(1.05 * n_images + 3.4, 1.15 * len(examples))
    axes = figure.subplots(len(examples), n_images + 1, squeeze=False, width_ratios=(*[1] * n_images, 3.4))
    for line, example in zip(axes, examples, strict=True):
        for ax, pixels in zip(line, example.pixels, strict=False):
            ax.imshow(255 - np.array(pixels, dtype=np.uint8).reshape(28, 28), cmap="gray", vmin=0, vmax=255)
            ax.set_axis_off()
        line[-1].set_axis_off()
        line[-1].text(0, 0.93, example.truth, fontsize=9, color=INK, va="top", weight="bold")
        told = f"P(rule) = {np.exp(example.log_probability):.2g}"
        line[-1].text(0.5, 0.93, told, fontsize=8, color=MUTED, va="top")
        line[-1].text(0, 0.68, "\n".join(example.worlds), fontsize=8, color=INK, va="top", family="monospace")
    return png(figure)
