"""Langevin dynamics: the published unadjusted step, and steps that are exact by accept/reject.

Kernels are pure functions: what a chain carries is a `ChainState`, randomness is an argument.
All chains of a batch move at once, those of several models too: shapes are (*members, chains, d).
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gedikit.randomness import Randomness, member_shape, normal, uniform
from gedikit.sampling.domain import Box

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


def temperature(step_size: float, noise_std: float) -> float:
    """σ²/2α: the temperature at which x ← x + α∇f + σε leaves exp(f/T) invariant for small steps."""
    return noise_std**2 / (2 * step_size)


def init_chains(log_density: LogDensity, x: Float[Tensor, "*m n d"]) -> ChainState:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        value = log_density(x)
        (gradient,) = torch.autograd.grad(value.sum(), x)  # input gradient only: no weight gradients
    return ChainState(x.detach(), value.detach(), gradient)


def sgld_step(
    log_density: LogDensity,
    x: Float[Tensor, "*m n d"],
    *,
    step_size: float,
    noise_std: float,
    generator: Randomness,
    box: Box | None = None,
    bounds: str = "none",
) -> Float[Tensor, "*m n d"]:
    """x + α∇f(x) + σε, the convention of JEM and the paper: no ½, no clamping.

    bounds: "none"; "reflect" folds a step back at the walls; "reject" keeps a chain that would leave; "clip" lets
    it rest at the wall, where pixels that are black or white rest too.
    """
    score = init_chains(log_density, x).score
    noise = normal(member_shape(x.shape, generator), generator)
    moved = torch.add(x, score, alpha=step_size).add_(noise, alpha=noise_std)
    if box is None or bounds == "none":
        return moved
    if bounds == "clip":
        return box.clip(moved)
    if bounds == "reflect":
        return box.reflect(moved)
    return torch.where(box.contains(moved)[..., None], moved, x)


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


def run_sgld(
    log_density: LogDensity,
    x: Float[Tensor, "*m n d"],
    *,
    steps: int,
    step_size: float,
    noise_std: float,
    generator: Randomness,
    box: Box | None = None,
    bounds: str = "none",
) -> tuple[Float[Tensor, "*m n d"], SampleInfo]:
    """`steps` unadjusted Langevin steps; every one is taken, so the acceptance rate is 1."""
    for _ in range(steps):
        x = sgld_step(
            log_density,
            x,
            step_size=step_size,
            noise_std=noise_std,
            generator=generator,
            box=box,
            bounds=bounds,
        )
    return x, SampleInfo(1.0, step_size, temperature(step_size, noise_std))


def _accept(log_ratio: Float[Tensor, "*m n"], generator: Randomness) -> Bool[Tensor, "*m n"]:
    u = uniform(member_shape(log_ratio.shape, generator), generator)
    return u.log() < log_ratio  # a NaN ratio compares false: a broken proposal is never accepted


def _choose(accept: Bool[Tensor, "*m n"], new: ChainState, old: ChainState) -> ChainState:
    return ChainState(
        torch.where(accept[..., None], new.position, old.position),
        torch.where(accept, new.log_density, old.log_density),
        torch.where(accept[..., None], new.score, old.score),
    )
