"""Two views of a batch: x, and x′ ~ T(x′|x). What components that make them have in common."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from gedikit.components import Component, Registry
from gedikit.randomness import Randomness, integers, member_shape, normal
from gedikit.rows import StoredRows
from gedikit.views.neighbours import NeighbourGraph

Batch = tuple[Tensor, ...]  # what an iteration starts from: the rows, the numbers of what was drawn, and more


class Views(Protocol):
    """Batches of a data set as two tensors each.

    What `batch` returns is drawn outside, all else inside of an iteration that may be a captured graph: `level` is
    a number on the host by which an iteration may differ from the next.
    """

    @property
    def n_rows(self) -> int: ...

    def points(self, start: int, stop: int) -> Float[Tensor, "*m b d"]:
        """Some of the data as the network takes it, without augmentation."""
        ...

    def level(self, progress: float) -> int:
        """How far the augmentation has come; `progress` runs from 0 to 1 over the training."""
        ...

    def batch(self, size: int, iteration: int, level: int, generator: Randomness) -> Batch:
        """Rows, and the numbers of what was drawn: of rows that are drawn together, else the rows themselves.

        `size` of them are for this process; all processes draw the batch of all and keep their part.
        """
        ...

    def __call__(
        self, batch: Batch, level: int, generator: Randomness, number: int = 0
    ) -> tuple[Float[Tensor, "*m b d"], Float[Tensor, "*m b d"]]:
        """x and one x′; another `number`, another x′."""
        ...


@dataclass(frozen=True)
class ViewsContext:
    """What views are made from."""

    data: Callable[[], Float[Tensor, "n d"]]  # all scaled rows, on the host
    pixels: UInt8[np.ndarray, "n d"] | StoredRows | None  # the rows as bytes, where they are images
    image_shape: tuple[int, ...]  # (height, width, channels) where rows are images, else ()
    bandwidth: float  # of the data's kernel density
    n_clusters: int
    models_density: bool  # then x stays as it is: the density is to be that of the data
    seed: int
    generator: torch.Generator
    device: torch.device
    graph: Callable[[], NeighbourGraph]  # of all rows; built when it is first asked for
    examples: Int64[np.ndarray, "m v"] | None = None  # rows that are drawn together


@dataclass(frozen=True)
class ViewMaker(Component):
    """T(x′|x) with its settings."""

    of_images: ClassVar[bool] = False

    def prepare(self, context: ViewsContext) -> Views:
        """The views of this data."""
        raise NotImplementedError

    def sigma(self, bandwidth: float) -> float:  # noqa: ARG002
        """Standard deviation of noise that leaves a row what it is, in scaled units."""
        return 0.0


@dataclass(frozen=True)
class RowViews(ViewMaker):
    """Views of vectors. Subclasses define `change`, which makes x′ of x."""

    def change(self, x: Float[Tensor, "*m b d"], sigma: float, generator: Randomness) -> Float[Tensor, "*m b d"]:
        """x′ of x; `sigma` is what the method of this name gave for the data."""
        raise NotImplementedError

    def prepare(self, context: ViewsContext) -> Views:
        return ChangedRows(
            context.data().to(context.device),
            self.change,
            self.sigma(context.bandwidth),
            examples=on_device(context.examples, context.device),
        )


views: Registry[ViewMaker] = Registry("views", ViewMaker)
register_views = views.register


@dataclass(frozen=True)
class InMemory:
    """Rows on the device, drawn with replacement."""

    data: Float[Tensor, "n d"]
    examples: Int64[Tensor, "m v"] | None = field(default=None, kw_only=True)  # rows that are drawn together

    @property
    def n_rows(self) -> int:
        return self.data.shape[-2]

    def points(self, start: int, stop: int) -> Float[Tensor, "b d"]:
        return self.data[start:stop]

    def batch(self, size: int, iteration: int, level: int, generator: Randomness) -> Batch:  # noqa: ARG002
        if self.examples is None:
            rows = integers(self.n_rows, (size,), generator)
            return rows, rows
        count, together = self.examples.shape
        drawn = integers(count, (size // together,), generator)
        return self.examples[drawn].flatten(), drawn


@dataclass(frozen=True)
class ChangedRows(InMemory):
    """x as it is, and x′ by a function of x."""

    change: Callable[[Tensor, float, Randomness], Tensor]
    sigma: float

    def level(self, progress: float) -> int:  # noqa: ARG002
        return 0

    def __call__(
        self,
        batch: Batch,
        level: int,  # noqa: ARG002
        generator: Randomness,
        number: int = 0,  # noqa: ARG002
    ) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b d"]]:
        x = self.data[batch[0]]
        return x, self.change(x, self.sigma, generator)


def on_device(examples: Int64[np.ndarray, "m v"] | None, device: torch.device) -> Int64[Tensor, "m v"] | None:
    return None if examples is None else torch.from_numpy(examples).to(device)


def noise_like(x: Tensor, generator: Randomness) -> Tensor:
    return normal(member_shape(x.shape, generator), generator)
