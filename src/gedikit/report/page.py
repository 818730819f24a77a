"""One page out of a fit, its data and its diagnosis."""

from typing import Any

import numpy as np

from gedikit.diagnosis import UNCERTAIN, UNDECIDED_NAMES, UNSURE_NAMES
from gedikit.report import galleries, records, sections, tables
from gedikit.report.albums import Album
from gedikit.report.charts import Drawing
from gedikit.report.concerns import concern_pictures
from gedikit.report.evidence import evidence
from gedikit.report.findings import Findings, find, groups_in_words, plotted_rows
from gedikit.report.inputs import ReportData
from gedikit.report.mosaics import Darkroom
from gedikit.report.rules import names_section
from gedikit.report.template import page_template

__all__ = ["ReportData", "render"]

_MAX_LISTED = 200
_MILD = (UNCERTAIN, UNDECIDED_NAMES, UNSURE_NAMES, "unused clusters", "label inconsistency")


def render(data: ReportData) -> str:
    """The page as HTML; it needs nothing outside the file, and links to the pictures of a folder."""
    found = find(data.fitted, data.predictions)
    return page_template("gedikit.report").render(**_summary(data, found), **_body(data, found))


def _summary(data: ReportData, found: Findings) -> dict[str, Any]:
    has_density = data.fitted.models_density
    return {
        "title": data.title,
        "in_words": groups_in_words(np.array(data.profiles.sizes), "pictures" if data.of_pictures else "rows"),
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
        "rules": data.rules or names_section(data.fitted),
    }


def _body(data: ReportData, found: Findings) -> dict[str, Any]:
    if data.of_pictures:
        shape = data.shown_shape
        darkroom = None if shape is None else Darkroom.of(data.images[plotted_rows(len(data.x))], shape)
        album = None if data.folder is None else Album(data.folder, data.names)
        return {
            "kind": "images",
            "n_clusters": data.fitted.n_clusters,
            "galleries": galleries.galleries(data, found, darkroom, album),
            "suspects": galleries.suspects(data, found, darkroom, album),
            "n_copies": len(data.duplicates),
            "copies": [] if album is None else galleries.copies(data, found, album),
            "generated": data.image_shape is not None and data.fitted.models_density,
            "named": bool(data.names),
            "linked": album is not None,
        }
    drawing = Drawing(data.fitted, data.table, data.x, found)
    return {
        "kind": "table",
        "some_rows": data.of_rows is not None,
        "pictures": sections.cluster_pictures(data, drawing),
        "concerns": concern_pictures(data, drawing),
        "cards": records.group_cards(data.profiles),
        "profiles": records.profile_table(data.profiles),
        "evidence": evidence(data, drawing),
        "strangest": records.strangest(data, found),
        "density": sections.density_pictures(drawing),
        "generated": records.generated(data),
    }


def _tone(data: ReportData) -> str:
    if data.diagnosis.healthy:
        return "good"
    return "fair" if data.diagnosis.verdict in _MILD else "bad"
