"""Which images are near: by the smallest distance over changed copies.

The views that define what a cluster is then also define what is near. Images are compared by their pixels, or by
their outlines where colours and light say nothing about what they show.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor

from gedikit.randomness import keys
from gedikit.views.augmentation import Augmentation

_FINE, _COARSE, _MIDDLE = 0.7, 1 / 8, 1 / 4  # pixels; shares of the side

Pattern = Float[Tensor, "n d"]


def nearest_images(
    images: Float[Tensor, "n h w c"],
    n_neighbours: int,
    augmentation: Augmentation,
    copies: int,
    by: str = "pixels",
    seed: int = 0,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Distances to and rows of the nearest other images of each, over the images themselves and `copies` of both.

    Memory grows with the square of the number of images.
    """
    measure = MEASURES[by]
    points = measure.pattern(images)
    largest = measure.likeness(points, points)
    for copy in _moved(images, augmentation, copies, seed):
        torch.maximum(largest, measure.likeness(measure.pattern(copy), points), out=largest)
    largest = torch.maximum(largest, largest.T).fill_diagonal_(-torch.inf)
    found = largest.topk(n_neighbours)
    distances = (2 - 2 * found.values).clamp(min=0).sqrt()  # of patterns, which have length 1
    return distances.cpu().numpy(), found.indices.cpu().numpy()


def nearest_anchors(
    blocks: Iterable[Float[Tensor, "_ h w c"]],
    anchors: Float[Tensor, "a h w c"],
    by: str = "pixels",
    n_nearest: int = 1,
    augmentation: Augmentation | None = None,
    copies: int = 0,
    seed: int = 0,
) -> NDArray[np.int64]:
    """For each image of all blocks the places of the anchors most like it, over `copies` of the anchors."""
    measure = MEASURES[by]
    shown = [anchors, *(() if augmentation is None else _moved(anchors, augmentation, copies, seed))]
    patterns = [measure.pattern(images) for images in shown]

    def nearest(block: Float[Tensor, "_ h w c"]) -> Int64[Tensor, "_ k"]:
        pattern = measure.pattern(block)
        largest = measure.likeness(pattern, patterns[0])
        for of_copies in patterns[1:]:
            torch.maximum(largest, measure.likeness(pattern, of_copies), out=largest)
        return largest.topk(n_nearest).indices

    return torch.cat([nearest(block) for block in blocks]).cpu().numpy()


def _moved(
    images: Float[Tensor, "n h w c"], augmentation: Augmentation, copies: int, seed: int
) -> Iterator[Float[Tensor, "n h w c"]]:
    """Copies moved as the augmentation moves them; noise and colours say nothing about likeness."""
    moved = replace(augmentation, noise=0.0, jitter=0.0, grey=0.0)
    rows = torch.arange(len(images), device=images.device)
    for copy in range(copies):
        yield moved(images, keys(seed, copy, rows, 0))


def _pixels(images: Float[Tensor, "n h w c"]) -> Pattern:
    """Of one length around their mean: else small and blurred copies would be near to everything."""
    flat = images.flatten(1)
    return F.normalize(flat - flat.mean(1, keepdim=True), dim=1)


def _outlines(images: Float[Tensor, "n h w c"]) -> Pattern:
    """What is left without colours and without light that changes slowly, the more the nearer to the middle."""
    grey = images.mean(-1)
    n_rows, n_columns = grey.shape[1:]
    side = min(n_rows, n_columns)
    found = _blurred(grey, _FINE) - _blurred(grey, _COARSE * side)
    window = _bell(n_rows, _MIDDLE * side)[:, None] * _bell(n_columns, _MIDDLE * side)
    return _pixels((found * window.to(grey))[..., None])


@dataclass(frozen=True)
class Measure:
    """What of images is compared, as patterns of length 1, and whether a negative is something else."""

    pattern: Callable[[Float[Tensor, "n h w c"]], Pattern]
    signed: bool

    def likeness(self, a: Pattern, b: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
        cosines = a @ b.T
        return cosines if self.signed else cosines.abs_()


MEASURES: Mapping[str, Measure] = MappingProxyType(
    {"pixels": Measure(_pixels, signed=True), "outlines": Measure(_outlines, signed=False)}
)


def _blurred(grey: Float[Tensor, "n h w"], width: float) -> Float[Tensor, "n h w"]:
    radius = min(round(3 * width), min(grey.shape[1:]) - 1)
    kernel = _bell(2 * radius + 1, width).to(grey)
    kernel = kernel / kernel.sum()
    padded = F.pad(grey[:, None], (radius,) * 4, mode="reflect")
    return F.conv2d(F.conv2d(padded, kernel.view(1, 1, 1, -1)), kernel.view(1, 1, -1, 1))[:, 0]


def _bell(n: int, width: float) -> Float[Tensor, " n"]:
    """A Gaussian around the middle of n places."""
    away = torch.arange(n) - (n - 1) / 2
    return torch.exp(-away.square() / (2 * width**2))
