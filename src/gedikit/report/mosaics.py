"""Many small images as one, shown without smoothing."""

from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from gedikit.report.style import data_uri

# longer side of one image on the page, in CSS pixels
_LEAST_TINY, _LEAST, _MOST = 44, 64, 96
_TINY = 32  # images with fewer pixels a side show little and need little room
_LOSSLESS = 48  # above that many pixels a side PNG would make the page several times larger
_GAP = 2  # CSS pixels between images, if pixels of images are not larger


@dataclass(frozen=True)
class Mosaic:
    uri: str
    width: int  # on the page


@dataclass(frozen=True)
class Darkroom:
    """Turns rows into images, all on one scale of brightness."""

    shape: tuple[int, int, int]  # height, width, channels: 1 is grey, 3 is colour
    low: float
    high: float
    negative: bool

    @classmethod
    def of(cls, x: NDArray[Any], shape: tuple[int, int, int]) -> "Darkroom":
        in_colour = shape[2] > 1
        if in_colour and x.dtype == np.uint8:
            return cls(shape, 0.0, 255.0, negative=False)
        low, high = float(x.min()), float(x.max())
        high = high if high > low else low + 1
        # strokes on an empty ground are printed in ink on paper; a dark photograph is not
        negative = not in_colour and float(np.median(x)) < low + 0.25 * (high - low)
        return cls(shape, low, high, negative)

    @property
    def tile_width(self) -> int:
        """Of one image and the gap beside it, on the page."""
        return self._zoom * (-(-self.shape[1] // self._reduction) + self._gap)

    def mosaic(self, rows: NDArray[Any], columns: int) -> Mosaic:
        canvas = self.canvas(rows, columns)
        kind = "png" if max(self.shape[:2]) <= _LOSSLESS else "jpeg"
        return Mosaic(data_uri(_encoded(canvas, kind), kind), self._zoom * canvas.shape[1])

    def picture(self, rows: NDArray[Any], columns: int) -> bytes:
        """A PNG large enough to be looked at by itself."""
        return _encoded(self.canvas(rows, columns).repeat(self._zoom, 0).repeat(self._zoom, 1), "png")

    def canvas(self, rows: NDArray[Any], columns: int) -> NDArray[np.uint8]:
        """The images side by side on white, with a third axis where they have colour."""
        tiles = self._tiles(rows)
        height, width = tiles[0].shape[:2]
        lines = -(-len(tiles) // columns)
        extent = (lines * (height + self._gap) - self._gap, columns * (width + self._gap) - self._gap)
        canvas = np.full((*extent, *tiles[0].shape[2:]), 255, dtype=np.uint8)
        for i, tile in enumerate(tiles):
            top, left = (i // columns) * (height + self._gap), (i % columns) * (width + self._gap)
            canvas[top : top + height, left : left + width] = tile
        return canvas

    def _tiles(self, rows: NDArray[Any]) -> list[NDArray[np.uint8]]:
        bright = np.clip((np.asarray(rows, dtype=np.float64) - self.low) / (self.high - self.low), 0, 1)
        shown = np.rint(255 * (1 - bright if self.negative else bright)).astype(np.uint8)
        images = shown.reshape(-1, *(self.shape if self.shape[2] > 1 else self.shape[:2]))
        if self._reduction == 1:
            return list(images)
        return [np.asarray(Image.fromarray(image).reduce(self._reduction)) for image in images]

    @property
    def _reduction(self) -> int:
        return -(-max(self.shape[:2]) // _MOST)

    @property
    def _zoom(self) -> int:
        side = -(-max(self.shape[:2]) // self._reduction)
        least = _LEAST_TINY if side < _TINY else _LEAST
        return min(-(-least // side), _MOST // side)

    @property
    def _gap(self) -> int:
        return -(-_GAP // self._zoom)


def _encoded(canvas: NDArray[np.uint8], kind: str) -> bytes:
    buffer = BytesIO()
    options = {"optimize": True} if kind == "png" else {"quality": 88, "subsampling": 0}
    Image.fromarray(canvas).save(buffer, format=kind, **options)
    return buffer.getvalue()
