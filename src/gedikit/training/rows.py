"""Functions of all rows of the data, in memory that does not grow with them."""

from collections.abc import Callable

import torch
from torch import Tensor

from gedikit.views.base import Views

ROWS_AT_ONCE = 2048  # 2 GiB of activations where images are widest


def of_all_rows(function: Callable[[Tensor], Tensor], views: Views) -> Tensor:
    """A function of points, of all rows, block by block."""
    n, size = views.n_rows, ROWS_AT_ONCE
    blocks = (views.points(start, min(start + size, n)) for start in range(0, n, size))
    return torch.cat([function(block) for block in blocks], dim=-2)
