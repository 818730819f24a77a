"""What a plan looks at in the data: sizes, and for pictures what their pixels say about safe views."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gedikit.errors import DataError
from gedikit.rows import Rows, StoredRows

_LOOKED_AT = 4000  # pictures
_SAME_BORDER = 0.9  # share of border pixels that have one colour


@dataclass(frozen=True)
class DataProfile:
    """The facts that decisions are made from."""

    n_rows: int
    n_features: int
    image_shape: tuple[int, ...] = ()  # (height, width, channels) where rows are images
    mirrored: float | None = None  # share of pictures that a mirror moves away from the others, at most
    border: float | None = None  # colour of the border in [−1, 1], where most pictures have the same

    @classmethod
    def of(cls, x: Rows, image_shape: tuple[int, ...] = ()) -> "DataProfile":
        """Look at rows, and at some of the pictures where rows are pictures."""
        n, d = x.shape
        if not image_shape or int(np.prod(image_shape)) != d or len(x) < 4 or len(image_shape) != 3:
            return cls(n, d, tuple(int(v) for v in image_shape))
        some = np.random.default_rng(0).permutation(n)[:_LOOKED_AT]
        pictures = np.asarray(x[np.sort(some)], dtype=np.float32).reshape(-1, *image_shape)
        of_bytes = isinstance(x, StoredRows) or x.dtype == np.uint8
        low, high = (0.0, 255.0) if of_bytes else (float(np.min(x[:])), float(np.max(x[:])))
        if high <= low:
            return cls(n, d, tuple(int(v) for v in image_shape))
        pictures = (pictures - low) * (2 / (high - low)) - 1
        shape = tuple(int(v) for v in image_shape)
        return cls(n, d, shape, mirrored=_mirrored(pictures), border=_border(pictures))

    def tree(self) -> dict[str, Any]:
        values = dataclasses.asdict(self) | {"image_shape": list(self.image_shape)}
        return {key: value for key, value in values.items() if value is not None}

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> "DataProfile":
        return cls(**{**tree, "image_shape": tuple(tree.get("image_shape", ()))})


def as_rows(x: NDArray[Any]) -> tuple[NDArray[Any], tuple[int, ...]]:
    """Arrays of pictures as rows, and their shape; anything else as it is."""
    if x.ndim not in (3, 4):
        return x, ()
    shape = (*x.shape[1:3], x.shape[3] if x.ndim == 4 else 1)
    if shape[2] not in (1, 3):
        raise DataError(f"arrays of images have 1 or 3 channels in their last dimension, not the shape {x.shape}")
    return x.reshape(len(x), -1), shape


def _mirrored(pictures: NDArray[np.float32]) -> float:
    """How often the mirror image of a picture is farther from the other pictures than the picture itself.

    One half where mirrors change nothing. The value is the upper limit by two standard errors: few pictures prove
    nothing.
    """
    half = len(pictures) // 2
    others, these = pictures[:half], pictures[half:]
    flat = _patterns(others)
    near = (_patterns(these) @ flat.T).max(1)
    mirror = (_patterns(these[:, :, ::-1]) @ flat.T).max(1)
    share = float(np.mean((mirror < near) + 0.5 * (mirror == near)))
    return min(1.0, share + float(1 / np.sqrt(len(these))))


def _patterns(pictures: NDArray[np.float32]) -> NDArray[np.float32]:
    flat = pictures.reshape(len(pictures), -1)
    flat = flat - flat.mean(1, keepdims=True)
    unit: NDArray[np.float32] = flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-6)
    return unit


def _border(pictures: NDArray[np.float32]) -> float | None:
    """The colour that most border pixels of most pictures have."""
    edge = np.concatenate([pictures[:, 0], pictures[:, -1], pictures[:, :, 0], pictures[:, :, -1]], axis=1).reshape(
        len(pictures), -1
    )
    middle = float(np.median(edge))
    same = np.abs(edge - middle) < 0.1
    return round(middle, 3) if float(same.mean()) > _SAME_BORDER else None
