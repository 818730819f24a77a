"""Which images are alike, before any network is trained: the graphs in which groups of images are looked for."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from gedikit.data.duplicates import near_duplicates, sketches
from gedikit.image_descriptors import descriptors
from gedikit.modalities.image import as_bytes
from gedikit.views.augmentation import Augmentation
from gedikit.views.image_similarity import MEASURES, nearest_anchors, nearest_images
from gedikit.views.image_views import scaled
from gedikit.views.neighbours import NeighbourGraph, affinity, nearest_in_space

MAX_ANCHORS = 2000  # likeness of all pairs: 16 MB, and half a minute on a core with images of 32 × 32 pixels
_CANDIDATES = 4  # images an anchor that are looked at for copies
ALIKE = 0.8  # likeness of images to their neighbours from which on pixels say enough about them
DESCRIPTORS = "descriptors"
_COMPONENTS = 20  # principal ones, of descriptors
_NEIGHBOURS = 10
_COMPARED = 24_000  # moved copies of all anchors together, within the next limits
_LEAST_COPIES, _MOST_COPIES = 8, 48
_BLOCK = 4096
# moves under which images are still alike, whatever they show
_MOVES = Augmentation(rotation=10.0, shear=5.0, zoom=(0.85, 1.15), translation=0.1)


@dataclass(frozen=True)
class ImageGraphs:
    """A graph for every measure of likeness, over anchors that are images without near-duplicates."""

    by: dict[str, NeighbourGraph]
    rows: Int64[np.ndarray, " a"]  # of the anchors
    likeness: float  # of an image and its farthest neighbour by pixels: their correlation, the median
    near_duplicates: int  # images that look the same as another one, among those looked at


def image_graphs(x: NDArray[np.generic], shape: tuple[int, ...], fill: float | None, seed: int) -> ImageGraphs:
    """Graphs of the images in the rows of x; of very many images some stand for the rest."""
    pixels = as_bytes(x)[1].reshape(-1, *shape)
    rows, stands_for, n_duplicates = _without_duplicates(pixels, seed)
    k = min(_NEIGHBOURS, len(rows) - 1)
    copies = int(np.clip(_COMPARED // len(rows), _LEAST_COPIES, _MOST_COPIES))
    moves = replace(_MOVES, fill=fill)
    graphs, likeness = {}, 1.0
    for by in MEASURES if k else ():
        distance, index = nearest_images(_points(pixels[rows]), k, moves, copies, by)
        anchor = _anchors(pixels, rows, stands_for, by)
        graphs[by] = NeighbourGraph(affinity(distance, index), rows, anchor)
        if by == "pixels":
            likeness = float(np.median(1 - distance[:, -1] ** 2 / 2))
    if k and likeness < ALIKE:  # else descriptors would tell apart what pixels show to be alike
        graphs[DESCRIPTORS] = _by_descriptors(pixels, rows, stands_for, k, seed)
    return ImageGraphs(graphs, rows, likeness, n_duplicates)


def _by_descriptors(
    pixels: UInt8[np.ndarray, "n h w c"], rows: NDArray[np.int64], same: dict[int, int], k: int, seed: int
) -> NeighbourGraph:
    every = descriptors(pixels)
    few = PCA(min(_COMPONENTS, len(rows) - 1, every.shape[1]), random_state=seed).fit(every[rows])
    points = few.transform(every)
    distance, index = nearest_in_space(points[rows], k)
    anchor = _own_anchors(len(pixels), rows, same)
    others = np.flatnonzero(anchor < 0)
    if len(others):
        nearest = NearestNeighbors(n_neighbors=1).fit(points[rows])
        anchor[others] = nearest.kneighbors(points[others], return_distance=False).ravel()
    return NeighbourGraph(affinity(distance, index), rows, anchor)


def _without_duplicates(
    pixels: UInt8[np.ndarray, "n h w c"], seed: int
) -> tuple[NDArray[np.int64], dict[int, int], int]:
    """Rows of the anchors; the anchor's place for rows that look the same as it; how many of these there are."""
    rng = np.random.default_rng(seed)
    looked_at = np.arange(len(pixels))
    if len(looked_at) > _CANDIDATES * MAX_ANCHORS:
        looked_at = np.sort(rng.permutation(len(pixels))[: _CANDIDATES * MAX_ANCHORS])
    side = min(pixels.shape[1:3])
    heaps = [looked_at[list(heap)] for heap in near_duplicates(sketches(pixels[looked_at, :side, :side]))]
    n_duplicates = sum(len(heap) - 1 for heap in heaps)
    rows = np.setdiff1d(looked_at, np.concatenate([heap[1:] for heap in heaps])) if heaps else looked_at
    if len(rows) > MAX_ANCHORS:
        rows = np.sort(rng.permutation(rows)[:MAX_ANCHORS])
    place = {int(row): at for at, row in enumerate(rows)}
    same = {int(row): place[int(heap[0])] for heap in heaps if int(heap[0]) in place for row in heap}
    return rows.astype(np.int64), same, n_duplicates


def _anchors(
    pixels: UInt8[np.ndarray, "n h w c"], rows: NDArray[np.int64], same: dict[int, int], by: str
) -> Int64[np.ndarray, " n"]:
    """The place of each image's anchor: itself, the one it looks the same as, or the one most like it."""
    anchor = _own_anchors(len(pixels), rows, same)
    others = np.flatnonzero(anchor < 0)
    if len(others):
        blocks = (_points(pixels[others[i : i + _BLOCK]]) for i in range(0, len(others), _BLOCK))
        anchor[others] = nearest_anchors(blocks, _points(pixels[rows]), by)[:, 0]
    return anchor


def _own_anchors(n: int, rows: NDArray[np.int64], same: dict[int, int]) -> NDArray[np.int64]:
    """The anchors of anchors and of what looks the same as one; −1 for the rest."""
    anchor = np.full(n, -1, dtype=np.int64)
    anchor[rows] = np.arange(len(rows))
    if same:
        anchor[list(same)] = list(same.values())
    return anchor


def _points(pixels: UInt8[np.ndarray, "n h w c"]) -> Tensor:
    return scaled(torch.from_numpy(np.ascontiguousarray(pixels)))
