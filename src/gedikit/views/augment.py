"""Views of images: augmented in shuffled epochs, of the image itself or of one that a neighbour walk leads to."""

from dataclasses import dataclass
from typing import ClassVar

from gedikit.components import setting
from gedikit.errors import UsageError
from gedikit.views.augmentation import Augmentation
from gedikit.views.base import ViewMaker, ViewsContext, register_views
from gedikit.views.image_views import ImageViews, Walks, place
from gedikit.views.neighbour_walk import neighbour_walk


@register_views("augment")
@dataclass(frozen=True)
class Augment(Augmentation, ViewMaker):
    """Every view is augmented by numbers that follow from (seed, epoch, row)."""

    walks: bool = setting(False, "x′ is made of a neighbour instead of x itself")
    hold: float = setting(0.3, "share of the training with the longest walks")
    end: float = setting(0.8, "share of the training from which on walks are single steps")

    summary: ClassVar[str] = "moves, crops, colours and noise, for images"
    of_images: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.hold < self.end <= 1:
            raise UsageError(f"views.hold ({self.hold}) must come before views.end ({self.end})")

    def sigma(self, bandwidth: float) -> float:  # noqa: ARG002
        return self.noise

    def prepare(self, context: ViewsContext) -> ImageViews:
        if context.pixels is None:
            raise UsageError("the views 'augment' are for images: data.shape must say (height, width, channels)")
        height, width, channels = context.image_shape
        # a density is to be that of the images, not of what is made of them
        light = Augmentation(noise=self.noise) if context.models_density else self
        walks = None
        if self.walks:
            steps = neighbour_walk(context.graph(), context.n_clusters, context.generator)
            walks = Walks(steps, self.hold, self.end)
        reached = None if walks is None else walks.steps.anchor_rows.numpy()
        pixels = place(context.pixels, context.device, reached)
        shape = (height, width, channels)
        return ImageViews(pixels, shape, light, self, context.seed, context.device, walks, context.examples)
