"""Persistent chains (Tieleman, 2008): where the last iteration's samples wait for the next."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gedikit.sampling.domain import Box


class ReplayBuffer:
    """Chain positions, drawn with replacement and written back, a share of them restarted in Ω."""

    def __init__(self, positions: Float[Tensor, "b d"]):
        self.positions = positions

    def draw(
        self, n: int, *, restart: float, box: Box, generator: torch.Generator
    ) -> tuple[Int[Tensor, " n"], Float[Tensor, "n d"]]:
        """n slots and their chains, each restarted uniformly in the box with probability `restart`."""
        device = self.positions.device
        slots = torch.randint(len(self.positions), (n,), generator=generator, device=device)
        x = self.positions[slots]
        if restart > 0:
            fresh = torch.rand(n, generator=generator, device=device) < restart
            x = torch.where(fresh[:, None], box.uniform(n, generator), x)
        return slots, x

    def write(self, slots: Int[Tensor, " n"], x: Float[Tensor, "n d"]) -> None:
        self.positions[slots] = x
