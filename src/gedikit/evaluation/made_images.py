"""Images of no data set: far from any, or, as JEM's interpolations (Grathwohl et al., 2020), close to one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import UInt8
from numpy.typing import NDArray

from gedikit.errors import DataError


def as_pixels(x: NDArray[Any]) -> NDArray[np.uint8]:
    """Numbers, such as generated ones, as the bytes that images are."""
    return np.asarray(np.clip(np.rint(np.nan_to_num(x)), 0, 255), np.uint8)


def noise_images(n: int, shape: Sequence[int], seed: int) -> UInt8[np.ndarray, "n h w c"]:
    """Images whose every value is uniform in 0..255."""
    return np.random.default_rng(seed).integers(256, size=(n, *shape), dtype=np.uint8)


def constant_images(n: int, shape: Sequence[int], seed: int) -> UInt8[np.ndarray, "n h w c"]:
    """Images of a single random colour each."""
    height, width, channels = shape
    colours = np.random.default_rng(seed).integers(256, size=(n, 1, 1, channels), dtype=np.uint8)
    return np.tile(colours, (1, height, width, 1))


def interpolated_images(images: UInt8[np.ndarray, "n h w c"], seed: int) -> UInt8[np.ndarray, "n h w c"]:
    """As many means of two different random images, rounded down."""
    n = len(images)
    if n < 2:
        raise DataError(f"interpolation needs at least two images, not {n}")
    rng = np.random.default_rng(seed)
    first = rng.integers(n, size=n)
    second = (first + rng.integers(1, n, size=n)) % n
    total = images[first].astype(np.uint16) + images[second]
    return np.asarray(total // 2, np.uint8)


def texture_images(n: int, shape: Sequence[int], seed: int) -> UInt8[np.ndarray, "n h w c"]:
    """Random fields that show nothing, with amplitudes that fall as 1/f as those of natural images (Field, 1987).

    Channels share most of the field, as colours do.
    """
    rng = np.random.default_rng(seed)
    height, width, channels = shape
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :])
    frequency[0, 0] = np.inf
    shared, own = rng.normal(size=(n, height, width, 1)), rng.normal(size=(n, height, width, channels))
    spectrum = np.fft.rfft2(0.9 * shared + 0.4 * own, axes=(1, 2)) / frequency[None, :, :, None]
    field = np.fft.irfft2(spectrum, (height, width), axes=(1, 2))
    deviation = field.std(axis=(1, 2, 3), keepdims=True)
    return as_pixels(127.5 + 50 * field / deviation)


# from images of a data set and a seed, as many others that are not of it
MADE_IMAGES: Mapping[str, Callable[[NDArray[np.uint8], int], NDArray[np.uint8]]] = {
    "noise": lambda images, seed: noise_images(len(images), images.shape[1:], seed),
    "texture": lambda images, seed: texture_images(len(images), images.shape[1:], seed),
    "constant": lambda images, seed: constant_images(len(images), images.shape[1:], seed),
    "interpolated": interpolated_images,
}
