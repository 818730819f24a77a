"""MALA: Langevin steps that are exact by accept/reject (Roberts & Rosenthal, 1998)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gedikit.components import setting
from gedikit.randomness import Randomness, member_shape, normal, share_of, uniform
from gedikit.samplers.base import Memory, register_sampler
from gedikit.samplers.chains import ChainSampler
from gedikit.samplers.domain import Box
from gedikit.samplers.langevin import ChainState, LogDensity, SampleInfo, init_chains

_RATE = 0.05  # of the adaptation during the training


def mala_step(
    log_density: LogDensity,
    state: ChainState,
    *,
    step: Float[Tensor, "..."],
    generator: Randomness,
    box: Box,
) -> tuple[ChainState, Bool[Tensor, "*m n"]]:
    """One Metropolis-adjusted Langevin step: propose x + ε²/2 ∇f + ε·noise, accept so that p stays invariant.

    A proposal outside Ω has density zero and is rejected, so no correction at the walls is needed.
    """
    noise = normal(member_shape(state.position.shape, generator), generator)
    drift = 0.5 * step**2
    proposal = init_chains(log_density, state.position + drift * state.score + step * noise)
    backward = (state.position - proposal.position - drift * proposal.score) / step
    log_ratio = (
        proposal.log_density - state.log_density - 0.5 * backward.square().sum(-1) + 0.5 * noise.square().sum(-1)
    )
    accept = _accept(log_ratio, generator) & box.contains(proposal.position)
    return _choose(accept, proposal, state), accept


def adapt_step(step: Tensor, accepted: Float[Tensor, "..."], rate: float, target: float = 0.57) -> Tensor:
    """Multiplicative step-size adaptation towards MALA's best acceptance rate (Roberts & Rosenthal, 1998)."""
    return step * torch.exp(rate * (accepted - target))


def run_mala(
    log_density: LogDensity,
    x: Float[Tensor, "*m n d"],
    *,
    steps: int,
    step_size: float,
    box: Box,
    generator: Randomness,
    adapt_for: float = 0.5,
) -> tuple[Float[Tensor, "*m n d"], SampleInfo]:
    """Move every chain `steps` times; each chain adapts its own step during the first part of the run.

    The last part uses fixed steps, so that it leaves p(x) exactly invariant.
    """
    state = init_chains(log_density, x)
    step = torch.full((len(x), 1), step_size, device=x.device)
    n_adapt = int(adapt_for * steps)
    accepted = torch.zeros((), device=x.device)
    for i in range(steps):
        state, accept = mala_step(log_density, state, step=step, generator=generator, box=box)
        if i < n_adapt:
            step = adapt_step(step, accept.to(step.dtype)[:, None], rate=0.1)
        else:
            accepted += accept.to(step.dtype).mean()
    rate = float(accepted) / max(1, steps - n_adapt)
    return state.position, SampleInfo(rate, float(step.median()), 1.0)


def _accept(log_ratio: Float[Tensor, "*m n"], generator: Randomness) -> Bool[Tensor, "*m n"]:
    u = uniform(member_shape(log_ratio.shape, generator), generator)
    return u.log() < log_ratio  # a NaN ratio compares false: a broken proposal is never accepted


def _choose(accept: Bool[Tensor, "*m n"], new: ChainState, old: ChainState) -> ChainState:
    return ChainState(
        torch.where(accept[..., None], new.position, old.position),
        torch.where(accept, new.log_density, old.log_density),
        torch.where(accept[..., None], new.score, old.score),
    )


@register_sampler("mala")
@dataclass(frozen=True)
class MALA(ChainSampler):
    """Persistent chains moved by Metropolis-adjusted Langevin steps whose size adapts."""

    first_step: float = setting(0.25, "first step size, in kernel bandwidths of the data", above=0)

    summary: ClassVar[str] = "persistent chains, Metropolis-adjusted Langevin steps"
    reference: ClassVar[str] = "Roberts & Rosenthal, 1998; Tieleman, 2008"

    def start_memory(self, bandwidth: float, device: torch.device) -> Memory:
        return {"step": torch.full((1, 1), self.first_step * bandwidth, device=device)}

    def move(
        self,
        log_density: LogDensity,
        x: Float[Tensor, "*m n d"],
        memory: Memory,
        *,
        generator: Randomness,
        box: Box,
    ) -> tuple[Float[Tensor, "*m n d"], Memory, Tensor]:
        state, step, here = init_chains(log_density, x), memory["step"], share_of(generator)
        rate = x.new_zeros(x.shape[:-2])
        for _ in range(self.steps):
            state, accept = mala_step(log_density, state, step=step, generator=generator, box=box)
            accepted = here.mean(accept.to(x.dtype).mean(-1))
            step = adapt_step(step, accepted.reshape(step.shape), rate=_RATE)
            rate += accepted / self.steps
        return state.position, {"step": step}, rate

    def sample(
        self,
        log_density: LogDensity,
        x: Float[Tensor, "n d"],
        *,
        steps: int,
        step_size: float,
        box: Box,
        generator: Randomness,
    ) -> tuple[Float[Tensor, "n d"], SampleInfo]:
        return run_mala(log_density, x, steps=steps, step_size=step_size, box=box, generator=generator)

    def final_step(self, memory: Memory) -> float:
        return float(memory["step"])
