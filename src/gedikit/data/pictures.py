"""One picture of any size and kind as a small one of 8-bit pixels."""

import contextlib
import io
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
# named, so that a file of another kind under a wrong ending cannot reach decoders that start other programs
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
_HEIF, _AVIF = (".heic", ".heif", ".hif"), (".avif",)
_OTHERS = {
    "a video": (".mp4", ".mov", ".avi", ".mkv", ".webm", ".m4v", ".3gp", ".mpg", ".mpeg", ".wmv", ".mts"),
    "a raw photograph, which cameras and editors can save as JPEG": (
        *(".raw", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".raf", ".pef", ".srw"),
    ),
    "a drawing without pixels": (".svg", ".eps", ".ai"),
    "a document": (".pdf", ".psd", ".xcf"),
}
_LARGEST = 178_956_970  # pixels; what Pillow takes for an attack by default
_SPARE = 3  # how much larger than needed a picture is decoded or shrunk before it is filtered


class Unreadable(Exception):
    """Why a file gives no picture, for people."""


def is_picture(ending: str) -> bool:
    """Whether files of this ending are read here."""
    return ending in (*ENDINGS, *_optional_endings())


def why_left_out(ending: str) -> str | None:
    """What a file of this ending is, if it shows something and is not read; None for all other files."""
    if is_picture(ending):
        return None
    if ending in _HEIF:
        return "HEIC is read with the extra heic: pip install 'gedikit[heic]'"
    if ending in _AVIF:
        return "this Pillow has no AVIF"
    return next((what for what, endings in _OTHERS.items() if ending in endings), None)


def read_square(picture: Path | bytes, size: int, channels: int = 3) -> NDArray[np.uint8]:
    """The middle of a picture, upright, `size` × `size` × 3 (RGB) or 1 (luma); raises `Unreadable`.

    The picture is a file, or what one holds.
    """
    with _opened(picture) as image:
        return square_of(image, size, channels)


def square_of(image: Image.Image, size: int, channels: int = 3) -> NDArray[np.uint8]:
    """The same of a picture that is open."""
    square = _square(image, size).convert("RGB" if channels == 3 else "L")
    return np.asarray(square).reshape(size, size, channels)


def read_small(path: Path, longest: int) -> Image.Image:
    """A whole picture, upright, with sides of at most `longest` pixels; raises `Unreadable`."""
    with _opened(path) as image:
        flat = _flat(image, longest / max(image.size))
        flat.thumbnail((longest, longest), Image.Resampling.LANCZOS, reducing_gap=_SPARE)
        return flat.convert("RGB")


@contextlib.contextmanager
def _opened(picture: Path | bytes) -> Iterator[Image.Image]:
    """A picture file; whatever goes wrong with it is `Unreadable`."""
    try:
        if isinstance(picture, Path) and not picture.is_file():
            raise Unreadable("a link that leads nowhere" if picture.is_symlink() else "not a regular file")
        if not (picture if isinstance(picture, bytes) else picture.stat().st_size):
            raise Unreadable("the file is empty")
        source = io.BytesIO(picture) if isinstance(picture, bytes) else picture
        with Image.open(source, formats=(*_FORMATS, *_optional_formats())) as image:
            yield image
    except Unreadable:
        raise
    except UnidentifiedImageError:
        raise Unreadable("not a picture of a known format, or damaged at its start") from None
    except Image.DecompressionBombError:
        raise Unreadable(_too_large()) from None
    except Exception as error:  # damaged files make decoders raise nearly anything
        raise Unreadable(f"damaged or cut short: {' '.join(str(error).split()) or type(error).__name__}") from None


@cache
def _optional_formats() -> dict[str, tuple[str, ...]]:
    """Formats that some installations read, and their endings."""
    found: dict[str, tuple[str, ...]] = {}
    Image.init()
    if "AVIF" in Image.OPEN:
        found["AVIF"] = _AVIF
    with contextlib.suppress(ImportError):
        from pillow_heif import register_heif_opener

        register_heif_opener()
        found["HEIF"] = _HEIF
    return found


def _optional_endings() -> tuple[str, ...]:
    return tuple(ending for endings in _optional_formats().values() for ending in endings)


def is_grey(rgb: NDArray[np.uint8]) -> bool:
    return bool((rgb[..., :1] == rgb[..., 1:]).all())


def _square(image: Image.Image, size: int) -> Image.Image:
    flat = _flat(image, size / min(image.size))
    width, height = flat.size
    short = min(width, height)
    left, top = (width - short) / 2, (height - short) / 2
    middle = (left, top, left + short, top + short)
    # Lanczos shrinks best; where it enlarges it rings, and edges are what networks look at
    filtering = Image.Resampling.LANCZOS if short >= size else Image.Resampling.BICUBIC
    return flat.resize((size, size), filtering, box=middle, reducing_gap=_SPARE)


def _flat(image: Image.Image, scale: float) -> Image.Image:
    """The picture upright, grey or RGB, and large enough to be scaled by `scale`."""
    width, height = image.size
    if width * height > _LARGEST:
        raise Unreadable(_too_large())
    enough = _SPARE * scale
    if enough < 1:
        image.draft(image.mode, (round(width * enough), round(height * enough)))  # JPEG alone can do so
    image.load()
    with contextlib.suppress(Exception):  # a picture outlives its damaged metadata
        ImageOps.exif_transpose(image, in_place=True)
    return _eight_bits(image)


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
    return f"more than {_LARGEST / 1e6:.0f} million pixels"
