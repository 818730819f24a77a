"""What kind of data rows are: how raw input becomes scaled rows, and back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from gedikit.components import Component, Registry
from gedikit.errors import UsageError
from gedikit.modalities.scaling import Scaler
from gedikit.rows import Rows, StoredRows
from gedikit.samplers.domain import Box


@dataclass(frozen=True)
class PreparedData:
    """Rows as the network takes them, and how to undo that."""

    n_rows: int
    scaler: Scaler
    bandwidth: float  # of a kernel density of the scaled rows: the scale of their finest detail
    box: Box  # the domain, on the host
    rows: Callable[[Int[Tensor, " k"]], Float[Tensor, "k d"]]  # scaled rows by their numbers, on the host
    image_shape: tuple[int, ...] = ()  # (height, width, channels) where rows are images
    pixels: UInt8[np.ndarray, "n d"] | StoredRows | None = None  # the rows as bytes, where they are images

    def all_rows(self) -> Float[Tensor, "n d"]:
        if isinstance(self.pixels, StoredRows):
            raise UsageError(
                "a part of this plan holds all rows in memory as numbers, which do not fit: give --memory more, "
                "or leave views, similarity and density of pictures at what the plan chooses"
            )
        return self.rows(torch.arange(self.n_rows))


@dataclass(frozen=True)
class Modality(Component):
    """A kind of data with its settings."""

    chains_at_once: ClassVar[int] = 16_384  # generated together
    diagnosed_rows: ClassVar[int] = 2000
    threads: ClassVar[int] = 1  # of the CPU while training: more are slower for small networks

    @property
    def image_shape(self) -> tuple[int, ...]:
        """(height, width, channels) where rows are images, else ()."""
        return ()

    @property
    def scaling(self) -> str:
        """How columns are brought to one size, one of `scaling.MODES`."""
        return "auto"

    @property
    def codes(self) -> tuple[int, ...]:
        """Columns of codes (booleans, categories, marks of gaps), which are centred and not scaled."""
        return ()

    def prepare(self, x: Rows, generator: torch.Generator) -> PreparedData:
        raise NotImplementedError

    def nearby(self, z: Float[Tensor, "n d"], bandwidth: float, generator: torch.Generator) -> Float[Tensor, "n d"]:
        """A point beside each point, which should have the same label."""
        raise NotImplementedError

    def sampling_steps(self, start: str, training_steps: int) -> int:  # noqa: ARG002
        """How many steps chains take to sample a trained model, from the training's chains or from noise."""
        return 1000 if start == "noise" else 200


modalities: Registry[Modality] = Registry("data", Modality)
register_modality = modalities.register
