"""Many small images as one, shown without smoothing."""

from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.image import imsave
from numpy.typing import NDArray

from gedikit.report.style import data_uri

_TILE = 44  # width of one image on the page, in CSS pixels
_GAP = 1


@dataclass(frozen=True)
class Mosaic:
    uri: str
    width: int  # on the page


@dataclass(frozen=True)
class Darkroom:
    """Turns rows into images, all on one scale of grey."""

    shape: tuple[int, int]
    low: float
    high: float
    cmap: str

    @classmethod
    def of(cls, x: NDArray[Any], shape: tuple[int, int]) -> "Darkroom":
        low, high = float(x.min()), float(x.max())
        mostly_background_low = float(np.median(x)) < (low + high) / 2
        return cls(shape, low, high if high > low else low + 1, "gray_r" if mostly_background_low else "gray")

    def canvas(self, rows: NDArray[Any], columns: int) -> NDArray[np.float64]:
        """The images side by side, 0 to 1."""
        height, width = self.shape
        lines = max(1, -(-len(rows) // columns))
        grey = np.clip((np.asarray(rows, dtype=np.float64) - self.low) / (self.high - self.low), 0, 1)
        paper = 0.0 if self.cmap == "gray_r" else 1.0
        canvas = np.full((lines * (height + _GAP) - _GAP, columns * (width + _GAP) - _GAP), paper)
        for i, image in enumerate(grey.reshape(-1, height, width)):
            top, left = (i // columns) * (height + _GAP), (i % columns) * (width + _GAP)
            canvas[top : top + height, left : left + width] = image
        return canvas

    def mosaic(self, rows: NDArray[Any], columns: int) -> Mosaic:
        canvas = self.canvas(rows, columns)
        return Mosaic(data_uri(self.png(canvas)), self._zoom * canvas.shape[1])

    def picture(self, rows: NDArray[Any], columns: int) -> bytes:
        """A PNG large enough to be looked at by itself."""
        canvas = self.canvas(rows, columns)
        return self.png(canvas.repeat(self._zoom, 0).repeat(self._zoom, 1))

    def png(self, canvas: NDArray[np.float64]) -> bytes:
        buffer = BytesIO()
        imsave(buffer, canvas, vmin=0, vmax=1, cmap=self.cmap, format="png")
        return buffer.getvalue()

    @property
    def _zoom(self) -> int:
        return max(1, round(_TILE / self.shape[1]))
