"""Pictures of what a verdict is about: the clusters concerned, seen from where it shows."""

import numpy as np
from jaxtyping import Int64

from gedikit.groups import GroupProfiles
from gedikit.groups.cells import percent
from gedikit.report import plots
from gedikit.report.charts import Directions, Drawing
from gedikit.report.inputs import ReportData
from gedikit.report.sections import Picture
from gedikit.report.style import png_uri
from gedikit.report.view import View
from gedikit.training.fit import fingerprint
from gedikit.training.islands import CUT_ISLAND, OUTLIERS, SEVERAL_ISLANDS, Concern

_MOST = 4  # pictures
_TOLD = 2  # differences
_TITLES = {
    SEVERAL_ISLANDS: "Cluster {0}: several islands?",
    CUT_ISLAND: "Clusters {0} and {1}: one island?",
    OUTLIERS: "Cluster {0}: outliers?",
}
_CAPTIONS = {
    SEVERAL_ISLANDS: "The circled rows are some of an island of their own, which has {share} of all rows.",
    CUT_ISLAND: "No gap runs along the border of these clusters; the circled rows lie at it.",
    OUTLIERS: "The circled rows are far from all others.",
}


def concern_pictures(data: ReportData, drawing: Drawing) -> list[Picture]:
    """The surest and largest first; none where the rows are not those that were looked at."""
    found = sorted(data.diagnosis.concerns, key=lambda concern: (not concern.sure, -concern.share))
    of_training = fingerprint(data.x) == data.fitted.info.get("fingerprint")
    return [
        _picture(concern, drawing) for concern in found[:_MOST] if of_training and drawing.fitted.n_features > 1
    ]


def _picture(concern: Concern, drawing: Drawing) -> Picture:
    clusters, circled = drawing.found.clusters, np.array(concern.rows, dtype=np.int64)
    concerned = np.union1d(drawing.rows[np.isin(clusters[drawing.rows], concern.clusters)], circled)
    others = np.setdiff1d(drawing.rows, concerned)
    seen = _directions(concern, drawing, concerned, circled)
    points, ringed, around = (seen.points(drawing.x[rows]) for rows in (concerned, circled, others))
    view = View.of(points, clusters[concerned])
    ax = plots.circled(points, clusters[concerned], ringed, around, seen.names, view)
    caption = _CAPTIONS[concern.kind].format(share=percent(concern.share))
    caption += _differences(concern, drawing, concerned, circled)
    doubt = "" if concern.sure else " The signs of it are weak."
    return Picture(_TITLES[concern.kind].format(*concern.clusters), png_uri(ax), caption + doubt)


def _differences(
    concern: Concern, drawing: Drawing, concerned: Int64[np.ndarray, " c"], circled: Int64[np.ndarray, " r"]
) -> str:
    """What sets the rows that are shown apart from the rest of their cluster."""
    if concern.kind == CUT_ISLAND:
        return ""
    apart = np.isin(concerned, circled).astype(np.int64)
    told = GroupProfiles.of(drawing.x[concerned], apart, 2, drawing.encoding).apart(1, _TOLD)
    return f" Compared with the rest of the cluster: {'; '.join(told)}." if told else ""


def _directions(
    concern: Concern, drawing: Drawing, concerned: Int64[np.ndarray, " c"], circled: Int64[np.ndarray, " r"]
) -> Directions:
    """From one of two clusters to the other, or from the rest of a cluster to the rows that stand apart."""
    if drawing.in_plane:
        return drawing.axes
    if concern.kind == CUT_ISLAND:
        first = drawing.found.clusters[concerned] == concern.clusters[0]
    else:
        first = ~np.isin(concerned, circled)
    if first.all() or not first.any():
        return drawing.axes
    return Directions.between(drawing.fitted, drawing.x[concerned[first]], drawing.x[concerned[~first]])
