"""Arrays of which each of several processes has made a part."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gedikit.processes import exchanged, gathered

_PIECE = 2**24  # bytes that each process sends at a time


def gathered_rows(own: NDArray[Any]) -> NDArray[Any]:
    """The rows of all processes, those of the first one first; each may have another number of them."""
    counts = exchanged(len(own))
    if len(counts) == 1:
        return own
    whole = np.empty((sum(counts), *own.shape[1:]), own.dtype)
    parts = [part.reshape(-1).view(np.uint8) for part in np.split(whole, np.cumsum(counts)[:-1])]
    mine = np.ascontiguousarray(own).reshape(-1).view(np.uint8)
    for start in range(0, max(map(len, parts)), _PIECE):
        sent = torch.zeros(min(_PIECE, max(map(len, parts)) - start), dtype=torch.uint8)
        piece = torch.from_numpy(mine[start : start + _PIECE].copy())
        sent[: len(piece)] = piece
        for part, received in zip(parts, gathered(sent), strict=True):
            room = part[start : start + _PIECE]
            room[:] = received.numpy()[: len(room)]
    return whole
