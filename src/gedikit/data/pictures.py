"""One picture file of any size and kind as a small square of 8-bit pixels."""

import contextlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
# named, so that a file of another kind under a wrong ending cannot reach decoders that start other programs
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
_LARGEST = 178_956_970  # pixels; what Pillow takes for an attack by default
_SPARE = 3  # how much larger than needed a picture is decoded or shrunk before it is filtered


class Unreadable(Exception):
    """Why a file gives no picture, for people."""


def read_square(path: Path, size: int, channels: int = 3) -> NDArray[np.uint8]:
    """The middle of a picture, upright, `size` × `size` × 3 (RGB) or 1 (luma); raises `Unreadable`."""
    try:
        if not path.is_file():
            raise Unreadable("a link that leads nowhere" if path.is_symlink() else "not a regular file")
        if path.stat().st_size == 0:
            raise Unreadable("the file is empty")
        with Image.open(path, formats=_FORMATS) as image:
            square = _square(image, size).convert("RGB" if channels == 3 else "L")
            return np.asarray(square).reshape(size, size, channels)
    except Unreadable:
        raise
    except UnidentifiedImageError:
        raise Unreadable("not a picture of a known format, or damaged at its start") from None
    except Image.DecompressionBombError:
        raise Unreadable(_too_large()) from None
    except Exception as error:  # damaged files make decoders raise nearly anything
        raise Unreadable(f"damaged or cut short: {' '.join(str(error).split()) or type(error).__name__}") from None


def is_grey(rgb: NDArray[np.uint8]) -> bool:
    return bool((rgb[..., :1] == rgb[..., 1:]).all())


def _square(image: Image.Image, size: int) -> Image.Image:
    width, height = image.size
    if width * height > _LARGEST:
        raise Unreadable(_too_large())
    enough = _SPARE * size / min(width, height)
    if enough < 1:
        image.draft(image.mode, (round(width * enough), round(height * enough)))  # JPEG alone can do so
    image.load()
    with contextlib.suppress(Exception):  # a picture outlives its damaged metadata
        ImageOps.exif_transpose(image, in_place=True)
    flat = _eight_bits(image)
    width, height = flat.size
    short = min(width, height)
    left, top = (width - short) / 2, (height - short) / 2
    middle = (left, top, left + short, top + short)
    return flat.resize((size, size), Image.Resampling.LANCZOS, box=middle, reducing_gap=_SPARE)


def _eight_bits(image: Image.Image) -> Image.Image:
    """Grey or RGB; what is transparent shows white."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode == "I":
        return _from_integers(np.asarray(image))
    if image.mode == "F":
        return _from_floats(np.asarray(image))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        paper = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(paper, image).convert("RGB")
    return image if image.mode in ("L", "RGB") else image.convert("L" if image.mode == "1" else "RGB")


def _from_integers(values: NDArray[np.int32]) -> Image.Image:
    if values.min() < 0 or values.max() > 65_535:
        raise Unreadable(f"32-bit values from {values.min()} to {values.max()}; only 8 and 16 bits can be read")
    return Image.fromarray((values >> 8).astype(np.uint8))


def _from_floats(values: NDArray[np.float32]) -> Image.Image:
    if not (values.min() >= 0 and values.max() <= 1):
        raise Unreadable("floating-point values outside 0 to 1")
    return Image.fromarray(np.round(values * 255).astype(np.uint8))


def _too_large() -> str:
    return f"more than {_LARGEST // 1_000_000} million pixels"
