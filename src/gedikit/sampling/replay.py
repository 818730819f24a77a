"""Persistent chains (Tieleman, 2008): where the last iteration's samples wait for the next."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gedikit.randomness import Randomness, integers, uniform
from gedikit.sampling.domain import Box


class ReplayBuffer:
    """Chain positions, drawn with replacement and written back, a share of them restarted in Ω."""

    def __init__(self, positions: Float[Tensor, "*m b d"]):
        self.positions = positions

    def draw(
        self, n: int, *, restart: float, box: Box, generator: Randomness
    ) -> tuple[Int[Tensor, "*m n"], Float[Tensor, "*m n d"]]:
        """n slots and their chains, each restarted uniformly in the box with probability `restart`."""
        slots = integers(self.positions.shape[-2], (n,), generator)
        x = torch.take_along_dim(self.positions, slots[..., None], dim=-2)
        if restart > 0:
            fresh = uniform((n,), generator) < restart
            x = torch.where(fresh[..., None], box.uniform(n, generator), x)
        return slots, x

    def write(self, slots: Int[Tensor, "*m n"], x: Float[Tensor, "*m n d"]) -> None:
        self.positions.scatter_(-2, slots[..., None].expand_as(x), x)
