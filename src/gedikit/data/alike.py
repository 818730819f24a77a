"""Which images are near: by the smallest distance over changed copies.

The views that define what a cluster is then also define what is near.
"""

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from gedikit.data.augment import Augmentation
from gedikit.randomness import keys


def nearest_images(
    images: Float[Tensor, "n h w c"],
    n_neighbours: int,
    augmentation: Augmentation,
    copies: int,
    seed: int = 0,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Distances to and rows of the nearest other images of each, over the images themselves and `copies` of both.

    Copies are moved as the augmentation moves them; noise and colours say nothing about likeness. Memory grows with
    the square of the number of images.
    """
    moved = replace(augmentation, noise=0.0, jitter=0.0, grey=0.0)
    rows = torch.arange(len(images), device=images.device)
    points = _patterns(images)
    smallest = torch.cdist(points, points)
    for copy in range(copies):
        smallest = torch.minimum(smallest, torch.cdist(_patterns(moved(images, keys(seed, copy, rows, 0))), points))
    smallest = torch.minimum(smallest, smallest.T).fill_diagonal_(torch.inf)
    found = smallest.topk(n_neighbours, largest=False)
    return found.values.cpu().numpy(), found.indices.cpu().numpy()


def _patterns(images: Float[Tensor, "n h w c"]) -> Float[Tensor, "n d"]:
    """Of one length around their mean: else small and blurred copies would be near to everything."""
    flat = images.flatten(1)
    return F.normalize(flat - flat.mean(1, keepdim=True), dim=1)
