"""What the page shows of images: cluster by cluster, and the ones that look out of place."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gedikit.report.findings import Findings
from gedikit.report.inputs import ReportData
from gedikit.report.mosaics import Darkroom, Mosaic
from gedikit.report.style import cluster_color

_MAX_GALLERIES = 24
_CLOSEST = 20
_GENERATED = 10
_LEAST_TYPICAL = 10
_MOST_TYPICAL = 5
_SUSPECTS = 24
_PAGE = 990  # CSS pixels for two stacks side by side
_WIDE, _NARROW = 10, 5  # images a line, of the left stack where there is room and of all others


@dataclass(frozen=True)
class Strip:
    title: str
    mosaic: Mosaic


@dataclass(frozen=True)
class Gallery:
    cluster: int
    color: str
    size: int
    share: float
    stacks: list[list[Strip]]  # side by side, each from top to bottom


@dataclass(frozen=True)
class Suspect:
    image: Mosaic
    name: str
    cluster: int
    color: str
    outlier_score: float


def galleries(data: ReportData, found: Findings, darkroom: Darkroom) -> list[Gallery]:
    """Cluster by cluster; the largest ones where there are too many."""
    shown = np.sort(np.argsort(-found.sizes, kind="stable")[:_MAX_GALLERIES])
    return [_gallery(data, found, darkroom, int(k)) for k in shown]


def _gallery(data: ReportData, found: Findings, darkroom: Darkroom, k: int) -> Gallery:
    size = int(found.sizes[k])
    stacks = [stack for stack in _stacks(data, found, darkroom, k) if stack]
    return Gallery(k, cluster_color(k), size, size / len(data.x), stacks)


def _stacks(data: ReportData, found: Findings, darkroom: Darkroom, k: int) -> list[list[Strip]]:
    roomy = (_WIDE + _NARROW) * darkroom.tile_width <= _PAGE
    across = _WIDE if roomy else _NARROW

    def strip(title: str, rows: NDArray[np.int64], columns: int) -> list[Strip]:
        return [Strip(title, darkroom.mosaic(data.x[rows], columns))] if len(rows) else []

    closest = strip("Closest", found.nearest(k, _CLOSEST), across)
    if found.log_density is None:
        return [closest]
    generated = [Strip("Generated", darkroom.mosaic(data.fitted.sample(_GENERATED, cluster=k, seed=k)[0], _NARROW))]
    typical_first = found.typical_first(k)
    least = strip("Least typical", typical_first[::-1][:_LEAST_TYPICAL], across)
    most = strip("Most typical", typical_first[:_MOST_TYPICAL], _NARROW)
    # either way both stacks come out about as tall as each other
    return [closest + least, generated + most] if roomy else [closest + most, generated + least]


def suspects(data: ReportData, found: Findings, darkroom: Darkroom) -> list[Suspect]:
    """The images with the highest outlier scores, the strangest first."""
    if found.outlier_score is None:
        return []
    return [
        Suspect(
            darkroom.mosaic(data.x[[row]], 1),
            data.row_name(row),
            int(found.clusters[row]),
            cluster_color(int(found.clusters[row])),
            float(found.outlier_score[row]),
        )
        for row in map(int, found.strangest_first()[:_SUSPECTS])
    ]
