"""One page out of a fit, its data and its diagnosis."""

from typing import Any

from gedikit.diagnosis import UNCERTAIN
from gedikit.report import galleries, sections, tables
from gedikit.report.findings import Findings, find, groups_in_words, plotted_rows
from gedikit.report.inputs import ReportData
from gedikit.report.mosaics import Darkroom
from gedikit.report.template import page_template

__all__ = ["ReportData", "render"]

_MAX_LISTED = 200
_MILD = (UNCERTAIN, "unused clusters", "label inconsistency")


def render(data: ReportData) -> str:
    """The page as HTML; nothing in it points outside the file."""
    found = find(data.fitted, data.predictions)
    return page_template("gedikit.report").render(**_summary(data, found), **_body(data, found))


def _summary(data: ReportData, found: Findings) -> dict[str, Any]:
    has_density = data.fitted.models_density
    return {
        "title": data.title,
        "in_words": groups_in_words(found.sizes, "pictures" if data.image_shape is not None else "rows"),
        "method": data.fitted.method,
        "has_density": has_density,
        "n_skipped": len(data.skipped),
        "skipped": data.skipped[:_MAX_LISTED],
        "diagnosis": data.diagnosis,
        "tone": _tone(data),
        "facts": tables.facts(data, has_density=has_density),
        "scores": tables.scores(data),
        "agreement": tables.agreement(data, found),
        "events": data.fitted.info.get("events", []),
        "curves": sections.curves(data),
        "decisions": tables.decisions(data.fitted.plan),
        "settings": tables.settings(data.fitted.plan),
    }


def _body(data: ReportData, found: Findings) -> dict[str, Any]:
    if data.image_shape is not None:
        darkroom = Darkroom.of(data.x[plotted_rows(len(data.x))], data.image_shape)
        return {
            "kind": "images",
            "n_clusters": data.fitted.n_clusters,
            "galleries": galleries.galleries(data, found, darkroom),
            "suspects": galleries.suspects(data, found, darkroom),
            "named": bool(data.names),
        }
    strangest = tables.strangest(data, found)
    if data.fitted.n_features == 2:
        return {"kind": "plane", "pictures": sections.plane_pictures(data, found), "strangest": strangest}
    return {
        "kind": "table",
        "pictures": sections.table_pictures(data, found),
        "means": tables.cluster_means(data, found),
        "strangest": strangest,
    }


def _tone(data: ReportData) -> str:
    if data.diagnosis.healthy:
        return "good"
    return "fair" if data.diagnosis.verdict in _MILD else "bad"
