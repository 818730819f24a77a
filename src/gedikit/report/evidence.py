"""Why these clusters and not others: what spoke for their number, and the partition that came second."""

from dataclasses import dataclass

import numpy as np

from gedikit.groups.rivals import NumberEvidence, Rivals, SecondPartition
from gedikit.report import plots
from gedikit.report.charts import Drawing
from gedikit.report.inputs import ReportData
from gedikit.report.sections import Picture
from gedikit.report.style import png_uri
from gedikit.report.tables import Cell, HtmlTable, shaded


@dataclass(frozen=True)
class Evidence:
    """Sentences, pictures, and the rows that two partitions have in common."""

    sentences: list[str]
    pictures: list[Picture]
    table: HtmlTable | None


def evidence(data: ReportData, drawing: Drawing) -> Evidence | None:
    """Where the fit started from a partition of the rows and there was something to choose."""
    rivals = data.rivals
    if rivals is None or (rivals.number is None and rivals.n_candidates == 1):
        return None
    second = rivals.second
    pictures = [] if rivals.number is None else [_curve(rivals.number)]
    if second is not None and len(second.some_labels) == len(data.fitted.reference):
        pictures.append(_second(second, data, drawing))
    return Evidence(
        _sentences(rivals, data.fitted.n_clusters), pictures, None if second is None else _shared(second)
    )


def _sentences(rivals: Rivals, n_clusters: int) -> list[str]:
    number, second = rivals.number, rivals.second
    if number is None:
        said = [f"There are as many clusters as were asked for: {n_clusters}."]
    elif number.chosen == 1:
        said = ["The number of clusters was looked for: no gap between rows counts, so they are one cluster."]
    else:
        said = [f"The number of clusters was looked for: {number.chosen} are parted by gaps that count."]
    if number is not None:
        said = [f"{said[0]} The next candidate would be {number.runner_up}."]
    if rivals.n_candidates == 1:
        return said
    said.append(
        f"The training started from the best of {rivals.n_candidates} partitions into so many ({rivals.name}), "
        f"which agrees with the others by {rivals.agreement:.2f} (expected adjusted Rand index; 1 is the same)."
    )
    if second is None:
        return [*said, "None of the others is a different finding."]
    said.append(
        f"The best different one ({second.name}) agrees with the others by {second.agreement:.2f} "
        f"and with the one that was chosen by {second.likeness:.2f}."
    )
    return said


def _curve(number: NumberEvidence) -> Picture:
    caption = (
        "How thin the graph of neighbours is where one more cluster is parted, in standard deviations: what one "
        "group has by chance stays below the dashed line."
    )
    return Picture("How many clusters", png_uri(plots.number_curve(number)), caption)


def _second(second: SecondPartition, data: ReportData, drawing: Drawing) -> Picture:
    reference = data.fitted.scaler.inverse(data.fitted.reference.cpu().numpy())
    labels = np.array(second.some_labels)
    drawn = plots.projection(drawing.axes.points(reference), labels, drawing.axes.names, drawing.view)
    caption = f"{len(labels)} of the rows in the colours of that partition. Its numbers are its own."
    return Picture("The partition that came second", png_uri(drawn), caption)


def _shared(second: SecondPartition) -> HtmlTable:
    largest = max(max(line) for line in second.table)
    lines = [
        [Cell(str(k)), *(Cell(f"{n:,}" if n else "·", shaded(n / largest)) for n in line)]
        for k, line in enumerate(second.table)
    ]
    return HtmlTable(["group", *(f"second {j}" for j in range(len(second.table[0])))], lines)
