"""A replay buffer of chains: where the last iteration's samples wait for the next (Tieleman, 2008)."""

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from gedikit.randomness import Randomness, integers, uniform
from gedikit.samplers.initialisation import Start


class ReplayBuffer:
    """Chain positions, drawn with replacement and written back in place, a share of them begun anew.

    They may wait in half precision, or as bytes where the domain is [−1, 1]: the rounding, to steps of 2/255, is
    then less than the noise of a step.
    """

    def __init__(self, positions: Num[Tensor, "*m b d"]):
        self.positions = positions

    @staticmethod
    def pack(x: Float[Tensor, "*m n d"], dtype: torch.dtype) -> Num[Tensor, "*m n d"]:
        if dtype == torch.uint8:
            return ((x.clamp(-1, 1) + 1) * 127.5).round().to(dtype)
        return x.to(dtype)

    def draw(
        self, n: int, *, restart: float, start: Start, generator: Randomness
    ) -> tuple[Int[Tensor, "*m n"], Float[Tensor, "*m n d"]]:
        """n slots and their chains, each begun anew with probability `restart`."""
        slots = integers(self.positions.shape[-2], (n,), generator)
        x = _unpacked(torch.take_along_dim(self.positions, slots[..., None], dim=-2))
        if restart > 0:
            fresh = uniform((n,), generator) < restart
            x = torch.where(fresh[..., None], start(n, generator), x)
        return slots, x

    def packed(self, x: Float[Tensor, "*m n d"]) -> Num[Tensor, "*m n d"]:
        """Positions as they wait."""
        return self.pack(x, self.positions.dtype)

    def write(self, slots: Int[Tensor, "*m n"], x: Num[Tensor, "*m n d"]) -> None:
        """Put positions, packed, back into their slots."""
        self.positions.scatter_(-2, slots[..., None].expand_as(x), x)

    def first(self, n: int) -> Float[Tensor, "*m n d"]:
        return _unpacked(self.positions[..., :n, :]).clone()


def _unpacked(x: Num[Tensor, "*m n d"]) -> Float[Tensor, "*m n d"]:
    if x.dtype == torch.uint8:
        return x.float() / 127.5 - 1
    return x.float()
