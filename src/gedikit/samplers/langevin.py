"""Chains: what they carry, and what a run of them reports.

Kernels are pure functions: what a chain carries is a `ChainState`, randomness is an argument.
All chains of a batch move at once, those of several models too: shapes are (*members, chains, d).
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

LogDensity = Callable[[Tensor], Tensor]


class ChainState(NamedTuple):
    """Where the chains are, with the log-density and its gradient there."""

    position: Float[Tensor, "*m n d"]
    log_density: Float[Tensor, "*m n"]
    score: Float[Tensor, "*m n d"]


class SampleInfo(NamedTuple):
    """What a run of chains reports beside the samples."""

    acceptance: float
    step_size: float
    temperature: float


def init_chains(log_density: LogDensity, x: Float[Tensor, "*m n d"]) -> ChainState:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        value = log_density(x)
        (gradient,) = torch.autograd.grad(value.sum(), x)  # input gradient only: no weight gradients
    return ChainState(x.detach(), value.detach(), gradient)
