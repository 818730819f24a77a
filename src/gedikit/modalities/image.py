"""Images: rows of pixels, flattened as (height, width, channels)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from gedikit.components import setting
from gedikit.errors import DataError, UsageError
from gedikit.modalities.base import Modality, PreparedData, register_modality
from gedikit.modalities.scaling import Scaler
from gedikit.randomness import keys
from gedikit.rows import Rows, StoredRows
from gedikit.samplers.domain import Box
from gedikit.views.augmentation import Augmentation
from gedikit.views.image_views import scaled

_BANDWIDTH = 0.03  # the scale on which pixels are noise, in units of [−1, 1]


@register_modality("image")
@dataclass(frozen=True)
class Image(Modality):
    """Pixels as bytes, scaled to [−1, 1]."""

    shape: tuple[int, ...] = setting((), "height, width, channels (1 or 3)")

    summary: ClassVar[str] = "images of one size"
    chains_at_once: ClassVar[int] = 512  # their activations fill the memory, not they
    diagnosed_rows: ClassVar[int] = 512
    threads: ClassVar[int] = 0  # torch's own number

    @property
    def image_shape(self) -> tuple[int, ...]:
        return self.shape

    def prepare(self, x: Rows, generator: torch.Generator) -> PreparedData:  # noqa: ARG002
        shape = check_image_shape(self.shape, x.shape[1])
        scaler, pixels = (_of_bytes(x.shape[1]), x) if isinstance(x, StoredRows) else as_bytes(x)
        d = x.shape[1]
        box = Box(torch.full((d,), -1.0), torch.full((d,), 1.0))

        def rows(which: Tensor) -> Tensor:
            return scaled(torch.from_numpy(np.ascontiguousarray(pixels[which.numpy()])))

        return PreparedData(len(x), scaler, _BANDWIDTH, box, rows, shape, pixels)

    def nearby(
        self,
        z: Float[Tensor, "n d"],
        bandwidth: float,
        generator: torch.Generator,  # noqa: ARG002
    ) -> Float[Tensor, "n d"]:
        """A pixel aside, with a little noise."""
        rows = torch.arange(len(z), device=z.device)
        moved = Augmentation(shift=1, noise=bandwidth)(z.reshape(-1, *self.shape), keys(0, 0, rows, 0))
        return moved.flatten(1)

    def sampling_steps(self, start: str, training_steps: int) -> int:
        """The paper's number from noise, and one more iteration's from the training's chains."""
        return 500 if start == "noise" else training_steps


def as_bytes(x: NDArray[Any]) -> tuple[Scaler, NDArray[np.uint8]]:
    """Pixels as bytes, and the map from the units of x to [−1, 1]: 0 to 255 for bytes, else the range of x."""
    if x.dtype == np.uint8:
        return _of_bytes(x.shape[1]), x
    d = x.shape[1]
    low, high = float(x.min()), float(x.max())
    middle, half = (low + high) / 2, (high - low) / 2
    rounded = np.rint((x - low) * (255 / (high - low))).astype(np.uint8)
    return Scaler(np.full(d, middle), np.full(d, half)), rounded


def _of_bytes(n_features: int) -> Scaler:
    return Scaler(np.full(n_features, 127.5), np.full(n_features, 127.5))


def check_image_shape(shape: tuple[int, ...], n_features: int) -> tuple[int, int, int]:
    if len(shape) != 3 or shape[2] not in (1, 3) or min(shape) < 1:
        raise UsageError(f"image_shape must be (height, width, channels) with 1 or 3 channels, not {shape}")
    height, width, channels = shape
    if height * width * channels != n_features:
        raise DataError(
            f"rows of {n_features} values are no images of {height} × {width} pixels with {channels} channel(s), "
            f"which have {height * width * channels}"
        )
    return height, width, channels
