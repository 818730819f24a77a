"""SGLD: the unadjusted Langevin steps of JEM and the paper."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.components import setting
from gedikit.randomness import Randomness, member_shape, normal
from gedikit.samplers.base import Memory, register_sampler
from gedikit.samplers.chains import ChainSampler
from gedikit.samplers.domain import BOUNDS, Box
from gedikit.samplers.langevin import LogDensity, init_chains


def temperature(step_size: float, noise_std: float) -> float:
    """σ²/2α: the temperature at which x ← x + α∇f + σε leaves exp(f/T) invariant for small steps."""
    return noise_std**2 / (2 * step_size)


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


@register_sampler("sgld")
@dataclass(frozen=True)
class SGLD(ChainSampler):
    """Persistent chains moved by x ← x + α∇f(x) + σε; every step is taken."""

    step_size: float = setting(1.0, "α, the share of the gradient that a step adds", above=0)
    noise_std: float = setting(0.01, "σ, standard deviation of a step's noise", at_least=0)
    bounds: str = setting("reflect", "what happens to a step out of the domain", choices=BOUNDS)

    summary: ClassVar[str] = "persistent chains, unadjusted Langevin steps"
    reference: ClassVar[str] = "Welling & Teh, 2011; Grathwohl et al., 2020"

    def step(
        self, log_density: LogDensity, x: Float[Tensor, "*m n d"], *, generator: Randomness, box: Box
    ) -> Float[Tensor, "*m n d"]:
        return sgld_step(
            log_density,
            x,
            step_size=self.step_size,
            noise_std=self.noise_std,
            generator=generator,
            box=box,
            bounds=self.bounds,
        )

    @property
    def temperature(self) -> float:
        return temperature(self.step_size, self.noise_std)

    def final_step(self, memory: Memory) -> float:  # noqa: ARG002
        return self.step_size
