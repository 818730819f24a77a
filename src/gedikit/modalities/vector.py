"""Rows of numbers."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.components import setting
from gedikit.errors import UsageError
from gedikit.modalities.base import Modality, PreparedData, register_modality
from gedikit.modalities.scaling import MODES, Scaler
from gedikit.rows import Rows, StoredRows
from gedikit.samplers.domain import Box
from gedikit.views.neighbour_walk import kernel_bandwidth


@register_modality("vector")
@dataclass(frozen=True)
class Vector(Modality):
    """Columns brought to unit size."""

    scaling: str = setting(
        "auto",
        "columns divided by their own deviation (features), by a common one (global) or not (none)",
        choices=MODES,
    )
    codes: tuple[int, ...] = setting((), "columns of codes, which are centred and not scaled")
    margin: float = setting(0.5, "of the domain around the data, in scaled units", above=0)

    summary: ClassVar[str] = "rows of numbers"

    def prepare(self, x: Rows, generator: torch.Generator) -> PreparedData:
        if isinstance(x, StoredRows):
            raise UsageError(
                f"{len(x):,} rows of {x.shape[1]} pixels are more than memory may hold, and as vectors they are "
                "held there: give --memory more, a larger --image-size, or fewer shards"
            )
        scaler = Scaler.fit(x, self.scaling, self.codes)
        data = torch.from_numpy(scaler.transform(x))
        bandwidth = kernel_bandwidth(data, generator)
        box = Box.around(data, max(self.margin, 4 * bandwidth))
        return PreparedData(len(x), scaler, bandwidth, box, lambda rows: data[rows])

    def nearby(self, z: Float[Tensor, "n d"], bandwidth: float, generator: torch.Generator) -> Float[Tensor, "n d"]:
        return z + 0.5 * bandwidth * torch.randn(z.shape, generator=generator, device=z.device)
