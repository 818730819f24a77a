"""The tables of the page, as rows of text ready for the template."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gedikit.components import Tree
from gedikit.planning import Plan
from gedikit.report.findings import Findings
from gedikit.report.inputs import ReportData

_MAX_CLASSES = 30


@dataclass(frozen=True)
class Cell:
    text: str
    shade: str = ""  # a CSS colour
    detail: str = ""  # in small print below


@dataclass(frozen=True)
class HtmlTable:
    head: list[str]
    rows: list[list[Cell]]
    note: str = ""


def facts(data: ReportData, *, has_density: bool) -> list[tuple[str, str]]:
    fitted, info = data.fitted, data.fitted.info
    versions = ", ".join(f"{name} {version}" for name, version in info.get("versions", {}).items())
    known = [
        ("images" if data.of_pictures else "rows", f"{sum(data.profiles.sizes):,}"),
        ("columns", str(len(data.table.learned)))
        if data.image_shape is None
        else ("pixels", _pixels(*data.image_shape)),
        ("clusters", str(fitted.n_clusters)),
        ("method", fitted.method),
        ("iterations", _whole(info.get("iterations"))),
        ("seed", str(fitted.plan.seed)),
        ("sampler", fitted.info["sampler"] if has_density else ""),
        ("labels", fitted.assignment.description),
        ("versions", versions),
    ]
    return [(name, value) for name, value in known if value]


def decisions(plan: Plan) -> HtmlTable:
    """What was decided about the fit, and why."""
    rows = [[Cell(text) for text in (d.what, d.choice, d.reason)] for d in plan.decisions]
    return HtmlTable(["decision", "choice", "reason"], rows)


def settings(plan: Plan) -> list[tuple[str, str]]:
    """All settings by their full names, with values as --set takes them."""
    return _flat(plan.config.tree())


def _flat(tree: Tree, prefix: str = "") -> list[tuple[str, str]]:
    found = []
    for name, value in tree.items():
        found += _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, _typed(value))]
    return found


def _typed(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_typed, value))
    if isinstance(value, float):
        return f"{value:.6g}"
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def scores(data: ReportData) -> HtmlTable | None:
    if not data.metrics:
        return None
    rows = [
        [
            Cell(metric.name.upper() if len(metric.name) <= 4 else metric.name.replace("_", " ")),
            Cell(f"{metric.value:.3f}"),
            Cell(str(metric.protocol.get("definition", ""))),
            Cell(str(metric.protocol.get("split", ""))),
            Cell(_whole(metric.protocol.get("n"))),
        ]
        for metric in data.metrics
    ]
    return HtmlTable(["measure", "value", "definition", "split", "n"], rows)


def agreement(data: ReportData, found: Findings) -> HtmlTable | None:
    """Rows of each true class in each cluster, as far as their class is known."""
    if data.labels is None:
        return None
    known = ~pd.isna(data.labels)
    classes, codes = np.unique(data.labels[known], return_inverse=True)
    if not len(classes) or len(classes) > _MAX_CLASSES or data.fitted.n_clusters > _MAX_CLASSES:
        return None
    counts = np.zeros((data.fitted.n_clusters, len(classes)), dtype=np.int64)
    np.add.at(counts, (found.clusters[known], codes.ravel()), 1)
    largest = max(int(counts.max()), 1)
    rows = [
        [Cell(str(k)), *(Cell(_whole(n) if n else "·", shaded(n / largest)) for n in line)]
        for k, line in enumerate(counts.tolist())
    ]
    return HtmlTable(["cluster", *(str(c) for c in classes)], rows)


def _pixels(height: int, width: int, channels: int) -> str:
    return f"{height}×{width} {'grey' if channels == 1 else 'colour'}"


def _whole(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def shaded(strength: float) -> str:
    """A CSS colour, from none at 0 to blue at 1."""
    return f"rgba(0, 114, 178, {0.55 * strength:.2f})"


def greyed(strength: float) -> str:
    """A CSS colour, from none at 0 to grey at 1."""
    return f"rgba(95, 103, 115, {0.35 * min(strength, 1.0):.2f})"


def diverging(strength: float) -> str:
    """A CSS colour: blue below 0, orange above, full at −1 and 1."""
    opacity = 0.45 * min(abs(strength), 1.0)
    return f"rgba(0, 114, 178, {opacity:.2f})" if strength < 0 else f"rgba(230, 159, 0, {opacity:.2f})"
