"""What makes two rows neighbours: the graph that walks follow and that pseudo-labels are clusters of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, UInt8
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from gedikit.components import Component, Registry, setting
from gedikit.errors import UsageError
from gedikit.rows import StoredRows
from gedikit.views.augmentation import Augmentation
from gedikit.views.image_similarity import nearest_anchors, nearest_images
from gedikit.views.image_views import scaled
from gedikit.views.neighbours import Likeness, Likest, Nearest, NeighbourGraph, nearest_in_space, neighbour_graph

_BLOCK = 4096
_COPIES_OF_ANCHORS = 8  # all rows are compared with each of them


@dataclass(frozen=True)
class SimilarityContext:
    """What neighbours are found among."""

    data: Callable[[], Float[Tensor, "n d"]]  # all scaled rows, on the host
    pixels: UInt8[np.ndarray, "n d"] | StoredRows | None  # the rows as bytes, where they are images
    image_shape: tuple[int, ...]
    augmentation: Augmentation  # under which images are compared
    device: torch.device


@dataclass(frozen=True)
class Similarity(Component):
    """A measure of likeness. Subclasses define `nearest`, and `likest` where that is not by scaled distance."""

    neighbours: int = setting(10, "neighbours of a row in the graph", above=0)

    def nearest(self, context: SimilarityContext) -> Nearest:
        """A function from row numbers and k to distances and places of their k nearest among them."""
        raise NotImplementedError

    def likest(self, context: SimilarityContext) -> Likest:
        """A function from row numbers, those of anchors and k to places of the k anchors nearest to each row.

        By default by the distance of scaled rows.
        """

        def found(rows: NDArray[np.int64], anchors: NDArray[np.int64], k: int) -> NDArray[np.int64]:
            points = context.data().numpy()
            nearest = NearestNeighbors(n_neighbors=k).fit(points[anchors])
            places: NDArray[np.int64] = nearest.kneighbors(points[rows], return_distance=False)
            return places

        return found

    def likeness(self, context: SimilarityContext) -> Likeness:
        return Likeness(self.nearest(context), self.likest(context))

    def graph(self, context: SimilarityContext, generator: torch.Generator) -> NeighbourGraph:
        """The graph of all rows, or of some that stand for the rest."""
        points = context.data().numpy()
        return neighbour_graph(points, generator, n_neighbours=self.neighbours, nearest=self.nearest(context))


similarities: Registry[Similarity] = Registry("similarity", Similarity)
register_similarity = similarities.register


@register_similarity("euclidean")
@dataclass(frozen=True)
class Euclidean(Similarity):
    """The distance of scaled rows."""

    summary: ClassVar[str] = "distance of scaled rows"

    def nearest(self, context: SimilarityContext) -> Nearest:
        points = context.data().numpy()

        def found(rows: NDArray[np.int64], k: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
            return nearest_in_space(points[rows], k)

        return found


@dataclass(frozen=True)
class ImageSimilarity(Similarity):
    """The smallest distance over moved copies of two images."""

    copies: int = setting(0, "moved copies of an image that are compared too", at_least=0)

    def nearest(self, context: SimilarityContext) -> Nearest:
        images = _images(context)

        def found(rows: NDArray[np.int64], k: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
            taken = images(torch.from_numpy(rows))
            return nearest_images(taken, k, context.augmentation, self.copies, self.name)

        return found

    def likest(self, context: SimilarityContext) -> Likest:
        images, copies = _images(context), min(self.copies, _COPIES_OF_ANCHORS)

        def found(rows: NDArray[np.int64], anchors: NDArray[np.int64], k: int) -> NDArray[np.int64]:
            blocks = map(images, torch.from_numpy(rows).split(_BLOCK))
            shown = images(torch.from_numpy(anchors))
            return nearest_anchors(blocks, shown, self.name, k, context.augmentation, copies)

        return found

    def graph(self, context: SimilarityContext, generator: torch.Generator) -> NeighbourGraph:
        images, pixels = _images(context), context.pixels
        assert pixels is not None

        def closest(anchors: NDArray[np.int64]) -> NDArray[np.int64]:
            blocks = map(images, torch.arange(len(pixels)).split(_BLOCK))
            return nearest_anchors(blocks, images(torch.from_numpy(anchors)), self.name)[:, 0]

        nearest = self.nearest(context)
        return neighbour_graph(pixels, generator, n_neighbours=self.neighbours, nearest=nearest, closest=closest)


@register_similarity("pixels")
@dataclass(frozen=True)
class Pixels(ImageSimilarity):
    """Pixels as they are, of one contrast."""

    summary: ClassVar[str] = "pixels, of one contrast, under the augmentation; for images"


@register_similarity("outlines")
@dataclass(frozen=True)
class Outlines(ImageSimilarity):
    """What is left without colours and light that changes slowly; dark on bright is bright on dark."""

    summary: ClassVar[str] = "outlines, whatever the colours and the light; for images"


def _images(context: SimilarityContext) -> Callable[[Tensor], Float[Tensor, "k h w c"]]:
    pixels = context.pixels
    if pixels is None:
        raise UsageError("similarity by pixels or outlines is for images: data.shape must say their shape")

    def images(rows: Tensor) -> Tensor:
        raw = torch.from_numpy(np.ascontiguousarray(pixels[rows.numpy()]))
        return scaled(raw).reshape(-1, *context.image_shape).to(context.device)

    return images
