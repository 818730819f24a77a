"""Views for models that are trained side by side."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.randomness import Randomness
from gedikit.views.base import Batch, Views


class StackedViews:
    """Views of several data sets with equally many rows, each drawn for itself."""

    def __init__(self, members: Sequence[Views]):
        self.members = members
        self.n_rows = members[0].n_rows

    def points(self, start: int, stop: int) -> Float[Tensor, "m b d"]:
        return torch.stack([m.points(start, stop) for m in self.members])

    def level(self, progress: float) -> int:
        """The members' levels, as the digits of one number: they may differ."""
        levels = [m.level(progress) for m in self.members]
        return sum(level * _LEVELS**place for place, level in enumerate(levels))

    def batch(self, size: int, iteration: int, level: int, generator: Randomness) -> Batch:
        assert not isinstance(generator, torch.Generator)
        each = enumerate(zip(self.members, generator, strict=True))
        drawn = [m.batch(size, iteration, _own(level, place), g) for place, (m, g) in each]
        return tuple(torch.stack(parts) for parts in zip(*drawn, strict=True))

    def __call__(
        self, batch: Batch, level: int, generator: Randomness, number: int = 0
    ) -> tuple[Float[Tensor, "m b d"], Float[Tensor, "m b d"]]:
        assert not isinstance(generator, torch.Generator)
        drawn = []
        for place, (views, g) in enumerate(zip(self.members, generator, strict=True)):
            drawn.append(views(tuple(part[place] for part in batch), _own(level, place), g, number))
        x, view = zip(*drawn, strict=True)
        return torch.stack(x), torch.stack(view)


_LEVELS = 64


def _own(level: int, place: int) -> int:
    return int(level // _LEVELS**place % _LEVELS)
