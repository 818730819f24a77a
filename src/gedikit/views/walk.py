"""x′ is where a random walk along the data's neighbours leads: views for data that has no obvious augmentation."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.components import setting
from gedikit.errors import UsageError
from gedikit.randomness import Randomness
from gedikit.views.base import Batch, InMemory, ViewMaker, ViewsContext, noise_like, on_device, register_views
from gedikit.views.neighbour_walk import NeighbourWalk, neighbour_walk, walk_level
from gedikit.views.noise import UNITS


@register_views("walk")
@dataclass(frozen=True)
class Walk(ViewMaker):
    """Walks that start long, so that first it is learned what hangs together, and shorten to single steps."""

    noise: float = setting(0.5, "standard deviation of the noise on both views, in `unit`", at_least=0)
    unit: str = setting("bandwidth", "kernel bandwidths of the data, or absolute in scaled units", choices=UNITS)
    hold: float = setting(0.3, "share of the training with the longest walks", at_least=0, at_most=1)
    end: float = setting(0.8, "share of the training from which on walks are single steps", at_least=0, at_most=1)

    summary: ClassVar[str] = "random walks along neighbours, for vectors"
    reference: ClassVar[str] = "cf. IMSAT (Hu et al., 2017); Zelnik-Manor & Perona, 2004"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hold >= self.end:
            raise UsageError(f"views.hold ({self.hold}) must come before views.end ({self.end})")

    def sigma(self, bandwidth: float) -> float:
        return self.noise * (bandwidth if self.unit == "bandwidth" else 1.0)

    def prepare(self, context: ViewsContext) -> "WalkViews":
        steps = neighbour_walk(context.graph(), context.n_clusters, context.generator)
        return WalkViews(
            context.data().to(context.device),
            steps.to(context.device),
            self.sigma(context.bandwidth),
            self.hold,
            self.end,
            examples=on_device(context.examples, context.device),
        )


@dataclass(frozen=True)
class WalkViews(InMemory):
    """x′ is where a walk along the data's neighbours leads; both views carry a little noise.

    Walks start long, so that the first thing to be learned is which points hang together at all, and
    shorten to single steps, which then settle where exactly the border runs.
    """

    walk: NeighbourWalk
    sigma: float
    hold: float
    end: float

    def level(self, progress: float) -> int:
        return walk_level(self.walk, progress, self.hold, self.end)

    def __call__(
        self,
        batch: Batch,
        level: int,
        generator: Randomness,
        number: int = 0,  # noqa: ARG002
    ) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b d"]]:
        assert isinstance(generator, torch.Generator)
        rows = batch[0]
        reached = self.walk.step(rows, level, generator)
        both = self.data[torch.stack([rows, reached])]
        x, view = both + self.sigma * noise_like(both, generator)
        return x, view
