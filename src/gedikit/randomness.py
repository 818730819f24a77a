"""Random numbers from explicit generators, or hashed from what they are for.

A sequence of generators, one each for models trained side by side, draws for each member on its own and stacks
what comes out, so that a member of a stack sees the numbers it would see alone.

Keys need no generator: a number is a hash of (seed, epoch, row, stream, column), so a row gets the same numbers in
whichever batch, order, process or device it turns up. Each part is added and mixed in by the output function of
the generator splitmix64. Noise for images is many numbers, hence the arithmetic in place: a CPU spends more
on fresh memory than on the arithmetic.

Several processes that train one model draw the same numbers for the rows of all, and each keeps those of its own
rows: chain i of four processes sees the noise that chain i of one process sees.
"""

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from gedikit.processes import Share

Randomness = torch.Generator | Sequence[torch.Generator]


class SharedGenerator(torch.Generator):
    """A generator that all processes have alike: drawn is for the rows of all, kept are those of this process."""

    share: Share

    @classmethod
    def of(cls, device: torch.device, share: Share) -> torch.Generator:
        """A generator of this kind, or a plain one where there is one process."""
        if share.count == 1:
            return torch.Generator(device)
        made = cls(device)
        made.share = share
        return made


def share_of(randomness: Randomness) -> Share:
    """The part of the rows that numbers are drawn for."""
    return randomness.share if isinstance(randomness, SharedGenerator) else Share()


def plain(generator: torch.Generator) -> torch.Generator:
    """The generator, or one in the same state that is not shared with other processes."""
    if not isinstance(generator, SharedGenerator):
        return generator
    own = torch.Generator(generator.device)
    own.set_state(generator.get_state())
    return own


def normal(shape: Sequence[int], randomness: Randomness) -> Float[Tensor, "..."]:
    """Standard normal numbers for the rows here: the last dimension but one, or the only one."""
    return _drawn(lambda s, g: torch.randn(s, generator=g, device=g.device), shape, randomness)


def uniform(shape: Sequence[int], randomness: Randomness) -> Float[Tensor, "..."]:
    """Numbers in [0, 1) for the rows here, as for `normal`."""
    return _drawn(lambda s, g: torch.rand(s, generator=g, device=g.device), shape, randomness)


def integers(high: int, shape: Sequence[int], randomness: Randomness, *, whole: bool = False) -> Int[Tensor, "..."]:
    """Numbers in [0, high) for the rows here, as for `normal`; with `whole` those of all processes."""
    return _drawn(lambda s, g: torch.randint(high, s, generator=g, device=g.device), shape, randomness, whole=whole)


def member_shape(shape: Sequence[int], randomness: Randomness) -> Sequence[int]:
    """`shape` without the leading dimension that a sequence of generators adds."""
    return shape if isinstance(randomness, torch.Generator) else shape[1:]


def _drawn(
    draw: Callable[[Sequence[int], torch.Generator], Tensor],
    shape: Sequence[int],
    randomness: Randomness,
    *,
    whole: bool = False,
) -> Tensor:
    if isinstance(randomness, SharedGenerator) and not whole:
        rows, here = max(0, len(shape) - 2), randomness.share
        everyone = [n * here.count if dim == rows else n for dim, n in enumerate(shape)]
        return draw(everyone, randomness).narrow(rows, here.rank * shape[rows], shape[rows])
    if isinstance(randomness, torch.Generator):
        return draw(shape, randomness)
    return torch.stack([draw(shape, g) for g in randomness])


def keys(seed: int, epoch: Int[Tensor, ""] | int, rows: Int[Tensor, "*b"], stream: int) -> Int64[Tensor, "*b"]:
    """A key for every row; `stream` tells apart what is drawn for the same row, such as its two views.

    An epoch that lies on the device can be changed between replays of a captured CUDA graph.
    """
    start = torch.full((), _signed(seed), dtype=torch.int64, device=rows.device)
    return _mixed(rows.long() + _mixed(_mixed(_mixed(start) + stream) + epoch))


def substream(keys: Int64[Tensor, "*b"], stream: int) -> Int64[Tensor, "*b"]:
    """Other keys for the same rows, whose numbers have nothing to do with those of `keys`."""
    return _mixed(_mixed(keys) + stream)


def keyed_uniform(keys: Int64[Tensor, "*b"], n: int) -> Float[Tensor, "*b {n}"]:
    """n numbers in [0, 1) for every key: multiples of 2⁻²⁴, the same bits on every device."""
    return ((_hashes(keys, n) >> 40) & _lowest_bits(24)).float() * 2.0**-24


def keyed_normal(keys: Int64[Tensor, "*b"], n: int) -> Float[Tensor, "*b {n}"]:
    """n standard normal numbers for every key, two from each hash by the method of Box and Muller.

    They reach 6.7 standard deviations. Devices differ in the last bits of logarithm and cosine.
    """
    hashes = _hashes(keys, (n + 1) // 2)
    upper, lower = (hashes >> 32).float(), hashes.to(torch.int32).float()
    share = upper.abs_().clamp_(min=0.5).mul_(2.0**-31)  # in (0, 1]
    radius = share.log_().mul_(-2).sqrt_()
    angle = lower.mul_(math.pi * 2.0**-31)
    return torch.cat([angle.cos().mul_(radius), angle.sin().mul_(radius)], dim=-1)[..., :n]


_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def _hashes(keys: Int64[Tensor, "*b"], n: int) -> Int64[Tensor, "*b {n}"]:
    # mixed columns rather than multiples of a 64-bit stride: the compiler would take those for 32-bit indices
    return _mixed(keys[..., None] + _mixed(torch.arange(1, n + 1, device=keys.device)))


def _mixed(z: Int64[Tensor, "*b"]) -> Int64[Tensor, "*b"]:
    """The output function of splitmix64; the masks undo the sign that torch's >> drags along."""
    z = (z >> 30).bitwise_and_(_lowest_bits(34)).bitwise_xor_(z).mul_(_signed(_MULTIPLIERS[0]))
    z = (z >> 27).bitwise_and_(_lowest_bits(37)).bitwise_xor_(z).mul_(_signed(_MULTIPLIERS[1]))
    return (z >> 31).bitwise_and_(_lowest_bits(33)).bitwise_xor_(z)


def _lowest_bits(n: int) -> int:
    return (1 << n) - 1


def _signed(value: int) -> int:
    """The 64-bit pattern of `value` as the integer torch has for it."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
