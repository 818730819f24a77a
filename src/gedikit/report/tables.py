"""The tables of the page, as rows of text ready for the template."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gedikit.components import Tree
from gedikit.planning import Plan
from gedikit.report.findings import Findings
from gedikit.report.inputs import ReportData

_MAX_COLUMNS = 12
_MAX_CLASSES = 30
_STRANGEST = 10
_FEW = 3  # columns that fit into one cell


@dataclass(frozen=True)
class Cell:
    text: str
    shade: str = ""  # a CSS colour


@dataclass(frozen=True)
class HtmlTable:
    head: list[str]
    rows: list[list[Cell]]
    note: str = ""


def facts(data: ReportData, *, has_density: bool) -> list[tuple[str, str]]:
    fitted, info = data.fitted, data.fitted.info
    versions = ", ".join(f"{name} {version}" for name, version in info.get("versions", {}).items())
    known = [
        ("rows" if data.image_shape is None else "images", f"{len(data.x):,}"),
        ("features", str(fitted.n_features))
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
        [Cell(str(k)), *(Cell(_whole(n) if n else "·", _blue(n / largest)) for n in line)]
        for k, line in enumerate(counts.tolist())
    ]
    return HtmlTable(["cluster", *(str(c) for c in classes)], rows)


def cluster_means(data: ReportData, found: Findings) -> HtmlTable:
    """Mean of each column in each cluster, shaded by how far it lies from the mean of all rows."""
    x = np.asarray(data.x, dtype=np.float64)
    used = np.flatnonzero(found.sizes)
    means = np.stack([x[found.clusters == k].mean(0) for k in used])
    deviation = x.std(0)
    away = (means - x.mean(0)) / np.where(deviation > 0, deviation, 1.0)
    shown = np.arange(x.shape[1])
    note = ""
    if len(shown) > _MAX_COLUMNS:
        shown = np.sort(np.argsort(-np.square(away).mean(0), kind="stable")[:_MAX_COLUMNS])
        note = f"The {_MAX_COLUMNS} of {x.shape[1]} columns whose means differ most between the clusters."
    rows = [[Cell("rows"), *(Cell(_whole(int(found.sizes[k]))) for k in used)]]
    for j in shown:
        cells = (Cell(f"{mean:.4g}", _diverging(z)) for mean, z in zip(means[:, j], away[:, j], strict=True))
        rows.append([Cell(data.column_names[j]), *cells])
    return HtmlTable(["column", *(f"cluster {k}" for k in used)], rows, note)


def strangest(data: ReportData, found: Findings) -> HtmlTable | None:
    """The strangest rows, each with the column that makes it so."""
    if found.log_density is None or found.outlier_score is None:
        return None
    mean, deviation = np.mean(data.x, axis=0), np.std(data.x, axis=0)
    order = found.strangest_first()[:_STRANGEST]
    outliers, reasons = data.fitted.outliers, None
    if outliers is not None:
        reasons = outliers.reasons(data.fitted.to_scaled(np.asarray(data.x[order])))
    rows = []
    for place, i in enumerate(order):
        row = np.asarray(data.x[i], dtype=np.float64)
        away = (row - mean) / np.where(deviation > 0, deviation, 1.0)
        if len(row) <= _FEW:
            values = ", ".join(f"{name} = {value:.4g}" for name, value in zip(data.column_names, row, strict=True))
        else:
            j = int(np.argmax(np.abs(away) if reasons is None else reasons[place]))
            values = f"{data.column_names[j]} = {row[j]:.4g} ({away[j]:+.1f} deviations)"
        numbers = (
            str(i),
            str(found.clusters[i]),
            f"{found.log_density[i]:.2f}",
            f"{found.outlier_score[i]:.3f}",
        )
        rows.append([Cell(text) for text in (*numbers, values)])
    last = "values" if data.fitted.n_features <= _FEW else "mainly because of"
    return HtmlTable(["row (from 0)", "cluster", "log-density", "outlier score", last], rows)


def _pixels(height: int, width: int, channels: int) -> str:
    return f"{height}×{width} {'grey' if channels == 1 else 'colour'}"


def _whole(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _blue(strength: float) -> str:
    return f"rgba(0, 114, 178, {0.55 * strength:.2f})"


def _diverging(deviations: float) -> str:
    strength = 0.45 * min(abs(deviations) / 1.5, 1.0)
    return f"rgba(0, 114, 178, {strength:.2f})" if deviations < 0 else f"rgba(230, 159, 0, {strength:.2f})"
