"""What images show at large: directions of edges, the layout of colours, and how much there is of each.

Two pictures of one kind of scene differ in every pixel and share these: histograms of oriented gradients (Dalal &
Triggs, 2005), a sketch of 8 × 8 fields, and a histogram of colours (Swain & Ballard, 1991).
"""

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float32, UInt8
from numpy.typing import NDArray

from gedikit.data.duplicates import sketches

_CELLS, _DIRECTIONS, _SHADES = 4, 8, 5
_BLOCK = 4096


def descriptors(pixels: UInt8[np.ndarray, "n h w c"]) -> Float32[np.ndarray, "n d"]:
    """Each of the three parts centred and of length 1, side by side."""
    side = min(pixels.shape[1:3])
    found = []
    for start in range(0, len(pixels), _BLOCK):
        block = pixels[start : start + _BLOCK]
        parts = (_directions(block), sketches(block[:, :side, :side]), _colours(block))
        found.append(np.concatenate([_unit(part) for part in parts], axis=1))
    return np.concatenate(found).astype(np.float32)


def _directions(pixels: UInt8[np.ndarray, "n h w c"]) -> NDArray[np.float32]:
    """How much edge of each direction there is in each of 4 × 4 cells; of the channel with the strongest edge."""
    images = torch.from_numpy(np.ascontiguousarray(pixels)).float().permute(0, 3, 1, 2)
    padded = F.pad(images, (1, 1, 1, 1), mode="replicate")
    across = padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2]
    down = padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1]
    strongest = (across.square() + down.square()).argmax(1, keepdim=True)
    across, down = (gradient.gather(1, strongest) for gradient in (across, down))
    strength = (across.square() + down.square()).sqrt()
    angle = torch.atan2(down, across).remainder(torch.pi) * (_DIRECTIONS / torch.pi)
    below = angle.floor()
    share = angle - below
    lower = below.long() % _DIRECTIONS
    maps = torch.zeros(len(images), _DIRECTIONS, *images.shape[2:])
    maps.scatter_add_(1, lower, strength * (1 - share))
    maps.scatter_add_(1, (lower + 1) % _DIRECTIONS, strength * share)
    amounts = F.adaptive_avg_pool2d(maps, _CELLS).flatten(1)
    directions: NDArray[np.float32] = F.normalize(amounts, dim=1).sqrt().numpy()
    return directions


def _colours(pixels: UInt8[np.ndarray, "n h w c"]) -> NDArray[np.float64]:
    """Square roots of the shares of shades in each channel; what lies between two shades counts for both."""
    n, channels = len(pixels), pixels.shape[3]
    values = np.moveaxis(pixels.reshape(n, -1, channels), 2, 1) * ((_SHADES - 1) / 255)
    shades = [np.maximum(1 - np.abs(values - shade), 0).mean(2) for shade in range(_SHADES)]
    return np.asarray(np.sqrt(np.concatenate(shades, axis=1)))


def _unit(part: NDArray[np.floating]) -> NDArray[np.floating]:
    centred = part - part.mean(1, keepdims=True)
    unit: NDArray[np.floating] = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-6)
    return unit
