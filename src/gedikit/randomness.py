"""Random numbers from explicit generators: one for a model, or one each for models trained side by side.

A sequence of generators draws for each member on its own and stacks what comes out, so that a member of a stack
sees the numbers it would see alone.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

Randomness = torch.Generator | Sequence[torch.Generator]


def normal(shape: Sequence[int], randomness: Randomness) -> Float[Tensor, "..."]:
    return _drawn(lambda g: torch.randn(shape, generator=g, device=g.device), randomness)


def uniform(shape: Sequence[int], randomness: Randomness) -> Float[Tensor, "..."]:
    return _drawn(lambda g: torch.rand(shape, generator=g, device=g.device), randomness)


def integers(high: int, shape: Sequence[int], randomness: Randomness) -> Int[Tensor, "..."]:
    return _drawn(lambda g: torch.randint(high, shape, generator=g, device=g.device), randomness)


def member_shape(shape: Sequence[int], randomness: Randomness) -> Sequence[int]:
    """`shape` without the leading dimension that a sequence of generators adds."""
    return shape if isinstance(randomness, torch.Generator) else shape[1:]


def _drawn(draw: Callable[[torch.Generator], Tensor], randomness: Randomness) -> Tensor:
    if isinstance(randomness, torch.Generator):
        return draw(randomness)
    return torch.stack([draw(g) for g in randomness])
