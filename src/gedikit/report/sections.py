"""What the page shows of the training and of rows that are no images: pictures with a caption."""

from dataclasses import dataclass

import numpy as np

from gedikit.report import charts, plots
from gedikit.report.charts import Drawing
from gedikit.report.inputs import ReportData
from gedikit.report.style import png_uri


@dataclass(frozen=True)
class Picture:
    title: str
    uri: str
    caption: str


def curves(data: ReportData) -> list[Picture]:
    measured = charts.panels(data.fitted.plan, data.history, data.optima, data.evaluations)
    return [Picture(panel.title, png_uri(plots.loss_panel(panel)), panel.caption) for panel in measured]


def cluster_pictures(data: ReportData, drawing: Drawing) -> list[Picture]:
    """Where the rows lie, and how many there are in each cluster."""
    rows = "rows" if data.of_rows is None else f"{len(data.x):,} of {data.of_rows:,} training rows"
    if drawing.in_plane:
        caption = f"The {rows} in the colours of their clusters; thin lines are the borders between clusters."
    elif data.fitted.n_features == 1:
        caption = f"The only column of the {rows}, coloured by cluster."
    else:
        caption = (
            f"The {rows} along the two directions in which they vary most, scaled ({drawing.axes.share:.0%} of "
            "their variance), coloured by cluster. What overlaps here may be far apart in other directions."
        )
    sizes = plots.size_bars(np.array(data.profiles.sizes), data.fitted.prior)
    return [
        Picture("The rows", png_uri(charts.clusters(drawing)), caption),
        Picture(
            "Cluster sizes",
            png_uri(sizes),
            "Rows in each cluster; the dashed ticks are the sizes that the prior expects.",
        ),
    ]


def density_pictures(drawing: Drawing) -> list[Picture]:
    """How dense the model says it is."""
    if drawing.found.log_density is None:
        return []
    made = Picture("How typical the rows are", "", "Further left is less typical.")
    if drawing.in_plane:
        made = Picture(
            "Density and generated samples",
            "",
            f"Darker is denser. The orange dots are {charts.SAMPLES} points that the model generated: they should "
            "lie where the data lies.",
        )
    elif drawing.fitted.n_features == 1 and drawing.fitted.normalised:
        made = Picture("Density", "", "The curve is the model, the bars are the rows.")
    return [Picture(made.title, png_uri(charts.density(drawing)), made.caption)]
