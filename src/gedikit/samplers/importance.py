"""Weighted proposals of a known density instead of chains: exact in a few dimensions, nothing to converge."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.components import setting
from gedikit.randomness import Randomness, share_of
from gedikit.samplers.base import Memory, Sampler, SamplerContext, Samples, Source, register_sampler
from gedikit.samplers.domain import Box
from gedikit.samplers.langevin import LogDensity, SampleInfo
from gedikit.samplers.mala import run_mala
from gedikit.samplers.proposals import ProposalBank, Proposals

_MAX_CENTERS = 2000


@register_sampler("importance")
@dataclass(frozen=True)
class Importance(Sampler):
    """Proposals around the data, drawn and scored once; the loss weights them by exp f/q."""

    bank: int = setting(30_000, "proposals drawn and scored before the training", above=0)
    first_step: float = setting(
        0.25, "first step size of the chains that sample the trained model, in kernel bandwidths", above=0
    )

    summary: ClassVar[str] = "importance-weighted proposals, for up to three features"
    reference: ClassVar[str] = "Bengio & Senécal, 2003"
    weighted: ClassVar[bool] = True

    def prepare(self, context: SamplerContext) -> "WeightedProposals":
        generator, device, box = context.generator, context.device, context.box
        centers = context.rows(torch.randperm(context.n_rows, generator=generator)[:_MAX_CENTERS])
        widths = (context.bandwidth, 3 * context.bandwidth)
        bank = ProposalBank.build(Proposals(centers, widths, box), self.bank, generator)
        return WeightedProposals(
            self,
            Proposals(centers.to(device), widths, box.to(device)),
            ProposalBank(bank.points.to(device), bank.log_q.to(device)),
            self.first_step * context.bandwidth,
        )

    def stack(self, sources: Sequence[Source]) -> "StackedProposals":
        return StackedProposals(cast(Sequence[WeightedProposals], sources))

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


@dataclass(frozen=True)
class WeightedProposals:
    """Draws from a scored bank."""

    sampler: Importance
    proposals: Proposals
    bank: ProposalBank
    step_size: float

    def start(self) -> Memory:
        return {"step": torch.full((1, 1), self.step_size, device=self.bank.points.device)}

    def draw(
        self,
        log_density: LogDensity,  # noqa: ARG002
        memory: Memory,
        generator: Randomness,
    ) -> tuple[Samples, Memory]:
        assert isinstance(generator, torch.Generator)
        points, log_q = self.bank.draw(share_of(generator).size(self.sampler.samples), generator)
        return Samples(points, log_q), memory

    def final(
        self,
        log_density: LogDensity,
        memory: Memory,  # noqa: ARG002
        n: int,
        generator: torch.Generator,
    ) -> tuple[Float[Tensor, "n d"], float]:
        # other proposals than those trained with
        bank = ProposalBank.build(self.proposals, len(self.bank.points), generator)
        with torch.inference_mode():
            density = log_density(bank.points)
            log_gamma = bank.log_normaliser(density)
        return bank.resample(density, n, generator), log_gamma


@dataclass(frozen=True)
class StackedProposals:
    """Every member of a stack draws from its own bank."""

    members: Sequence[WeightedProposals]

    def start(self) -> Memory:
        return {"step": torch.stack([m.start()["step"] for m in self.members])}

    def draw(self, log_density: LogDensity, memory: Memory, generator: Randomness) -> tuple[Samples, Memory]:
        assert not isinstance(generator, torch.Generator)
        drawn = [m.draw(log_density, memory, g)[0] for m, g in zip(self.members, generator, strict=True)]
        log_q = torch.stack([cast(Tensor, s.log_q) for s in drawn])
        return Samples(torch.stack([s.points for s in drawn]), log_q), memory

    def final(
        self, log_density: LogDensity, memory: Memory, n: int, generator: torch.Generator
    ) -> tuple[Float[Tensor, "n d"], float]:
        raise NotImplementedError("members of a stack end one by one")
