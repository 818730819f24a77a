"""What the page shows of images: cluster by cluster, the ones that look out of place, and those there twice."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gedikit.report.albums import Album, Shot
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
_SHOTS = 6  # pictures of a folder in a strip
_COPIES, _OF_ONE = 24, 6  # near-duplicates: groups, and pictures of a group
_PAGE = 990  # CSS pixels for two stacks side by side
_WIDE, _NARROW = 10, 5  # images a line, of the left stack where there is room and of all others


@dataclass(frozen=True)
class Strip:
    """Images under a title: one mosaic, or pictures of a folder one by one."""

    title: str
    mosaic: Mosaic | None = None
    shots: list[Shot] = field(default_factory=list)


@dataclass(frozen=True)
class Gallery:
    cluster: int
    color: str
    size: int
    share: float
    stacks: list[list[Strip]]  # side by side, each from top to bottom


@dataclass(frozen=True)
class Suspect:
    image: Mosaic | Shot
    name: str
    cluster: int
    color: str
    outlier_score: float


@dataclass(frozen=True)
class Copies:
    """Pictures that look the same, and how many more of them there are."""

    shots: list[tuple[Shot, str]]  # with the colours of their clusters
    more: int


def galleries(
    data: ReportData, found: Findings, darkroom: Darkroom | None, album: Album | None = None
) -> list[Gallery]:
    """Cluster by cluster; the largest ones where there are too many.

    Pictures of a folder are shown from the `album`, others as the `darkroom` makes them.
    """
    shown = np.sort(np.argsort(-found.sizes, kind="stable")[:_MAX_GALLERIES])
    return [_gallery(data, found, darkroom, album, int(k)) for k in shown]


def _gallery(data: ReportData, found: Findings, darkroom: Darkroom | None, album: Album | None, k: int) -> Gallery:
    size = int(found.sizes[k])
    if album is not None:
        stacks = [[*_strips(found, album, k), *_generated(data, darkroom, k, _WIDE)]]
    else:
        assert darkroom is not None
        stacks = _stacks(data, found, darkroom, k)
    return Gallery(k, cluster_color(k), size, size / len(found.clusters), [stack for stack in stacks if stack])


def _strips(found: Findings, album: Album, k: int) -> list[Strip]:
    """Pictures of a folder: the extremes of a cluster, and between them what it is really like."""
    members = np.flatnonzero(found.clusters == k)
    chance = np.sort(np.random.default_rng(k).permutation(members)[:_SHOTS])
    strange = found.strangest_first()
    strange = strange[found.clusters[strange] == k]
    typical = strange[::-1] if len(strange) else found.nearest(k, _SHOTS)
    chosen = {"Typical": typical[:_SHOTS], "At random": chance, "Strangest": strange[:_SHOTS]}
    return [
        Strip(title, shots=[album.shot(int(row)) for row in rows]) for title, rows in chosen.items() if len(rows)
    ]


def _generated(data: ReportData, darkroom: Darkroom | None, k: int, columns: int) -> list[Strip]:
    """New images, where the model knows pixels."""
    if darkroom is None or data.pixels is not None or not data.fitted.models_density:
        return []
    return [Strip("Generated", darkroom.mosaic(data.fitted.sample(_GENERATED, cluster=k, seed=k)[0], columns))]


def _stacks(data: ReportData, found: Findings, darkroom: Darkroom, k: int) -> list[list[Strip]]:
    roomy = (_WIDE + _NARROW) * darkroom.tile_width <= _PAGE
    across = _WIDE if roomy else _NARROW

    def strip(title: str, rows: NDArray[np.int64], columns: int) -> list[Strip]:
        return [Strip(title, darkroom.mosaic(data.images[rows], columns))] if len(rows) else []

    closest = strip("Closest", found.nearest(k, _CLOSEST), across)
    if found.log_density is None:
        return [closest]
    generated = _generated(data, darkroom, k, _NARROW)
    typical_first = found.typical_first(k)
    least = strip("Least typical", typical_first[::-1][:_LEAST_TYPICAL], across)
    most = strip("Most typical", typical_first[:_MOST_TYPICAL], _NARROW)
    # either way both stacks come out about as tall as each other
    return [closest + least, generated + most] if roomy else [closest + most, generated + least]


def suspects(
    data: ReportData, found: Findings, darkroom: Darkroom | None, album: Album | None = None
) -> list[Suspect]:
    """The images with the highest outlier scores, the strangest first."""
    if found.outlier_score is None:
        return []

    def image(row: int) -> Mosaic | Shot:
        if album is not None:
            return album.shot(row)
        assert darkroom is not None
        return darkroom.mosaic(data.images[[row]], 1)

    return [
        Suspect(
            image(row),
            data.row_name(row),
            int(found.clusters[row]),
            cluster_color(int(found.clusters[row])),
            float(found.outlier_score[row]),
        )
        for row in map(int, found.strangest_first()[:_SUSPECTS])
    ]


def copies(data: ReportData, found: Findings, album: Album) -> list[Copies]:
    """Pictures of a folder that look the same, the largest groups first."""
    return [
        Copies(
            [(album.shot(row), cluster_color(int(found.clusters[row]))) for row in rows[:_OF_ONE]],
            max(0, len(rows) - _OF_ONE),
        )
        for rows in data.duplicates[:_COPIES]
    ]
