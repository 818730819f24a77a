"""Generated rows as a picture of their own."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gedikit.report.mosaics import Darkroom
from gedikit.report.plots import projection
from gedikit.report.style import png
from gedikit.report.view import View


def samples_png(x: NDArray[Any], clusters: NDArray[np.int64], image_shape: tuple[int, int, int] | None) -> bytes:
    """Images as a mosaic, ordered by cluster; points of the plane as a scatter plot."""
    if image_shape is None:
        return png(projection(x, clusters, ["first feature", "second feature"], View.of(x, clusters)))
    order = np.argsort(clusters, kind="stable")
    return Darkroom.of(x, image_shape).picture(x[order], columns=round(len(x) ** 0.5) or 1)
