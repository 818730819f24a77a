"""x⁻: where the second expectation of L_GEN is taken, by chains or by weighted proposals."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit import objectives
from gedikit.model import frozen
from gedikit.sampling import Box, ProposalBank, Proposals, Start, adapt_step, init_chains, mala_step, run_sgld
from gedikit.settings import Settings
from gedikit.training.state import TrainState


class Samples(NamedTuple):
    """Points, and their proposal density where they are weighted proposals rather than samples."""

    points: Float[Tensor, "*m k d"]
    log_q: Float[Tensor, "*m k"] | None
    acceptance: Tensor | None


class Source(Protocol):
    def draw(self, state: TrainState) -> Samples: ...


class Negatives(Source, Protocol):
    def final(self, state: TrainState, n: int) -> tuple[Float[Tensor, "n d"], float | None]:
        """n points of the averaged model to start later samples from, and log Γ where it can be estimated."""
        ...


@dataclass(frozen=True)
class WeightedProposals:
    """Draws from a scored bank; the loss weights them by exp f/q."""

    proposals: Proposals
    bank: ProposalBank
    count: int

    def draw(self, state: TrainState) -> Samples:
        assert isinstance(state.generator, torch.Generator)
        points, log_q = self.bank.draw(self.count, state.generator)
        return Samples(points, log_q, None)

    def final(self, state: TrainState, n: int) -> tuple[Float[Tensor, "n d"], float]:
        assert isinstance(state.generator, torch.Generator)
        # other proposals than those trained with
        bank = ProposalBank.build(self.proposals, len(self.bank.points), state.generator)
        with torch.inference_mode():
            density = state.average.log_density(bank.points)
            log_gamma = objectives.log_normaliser(density.double(), bank.log_q.double())
        return bank.resample(density, n, state.generator), float(log_gamma)


@dataclass(frozen=True)
class StackedProposals:
    """Every member of a stack draws from its own bank."""

    members: Sequence[WeightedProposals]

    def draw(self, state: TrainState) -> Samples:
        assert not isinstance(state.generator, torch.Generator)
        drawn = [m.bank.draw(m.count, g) for m, g in zip(self.members, state.generator, strict=True)]
        points, log_q = zip(*drawn, strict=True)
        return Samples(torch.stack(points), torch.stack(log_q), None)


@contextmanager
def quick_products() -> Iterator[None]:
    """Products of 32-bit matrices by a GPU's matrix units: chains bear their rounding, losses are spared it."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@dataclass(frozen=True)
class Chains:
    """Persistent chains of the replay buffer, moved by the published or by the adjusted step."""

    settings: Settings
    box: Box
    start: Start

    def draw(self, state: TrainState) -> Samples:
        s = self.settings
        assert state.buffer is not None
        slots, x = state.buffer.draw(s.negatives, restart=s.restart, start=self.start, generator=state.generator)
        with frozen(state.network), quick_products():
            x, acceptance = self._published(state, x) if s.sampler == "sgld" else self._adjusted(state, x)
        state.buffer.write(slots, x)
        return Samples(x, None, acceptance)

    def _published(self, state: TrainState, x: Tensor) -> tuple[Tensor, None]:
        s = self.settings
        x, _ = run_sgld(
            state.log_density,
            x,
            steps=s.steps,
            step_size=s.step_size,
            noise_std=s.noise_std,
            generator=state.generator,
            box=self.box,
            bounds=s.bounds,
        )
        return x, None

    def _adjusted(self, state: TrainState, x: Tensor) -> tuple[Tensor, Tensor]:
        log_density = state.log_density
        chains = init_chains(log_density, x)
        rate = x.new_zeros(state.members)
        for _ in range(self.settings.steps):
            chains, accept = mala_step(
                log_density, chains, step=state.chain_step, generator=state.generator, box=self.box
            )
            accepted = accept.to(x.dtype).mean(-1)
            state.chain_step = adapt_step(state.chain_step, accepted.reshape(state.chain_step.shape), rate=0.05)
            rate += accepted / self.settings.steps
        return chains.position, rate

    def final(self, state: TrainState, n: int) -> tuple[Float[Tensor, "n d"], None]:
        assert state.buffer is not None
        return state.buffer.first(n), None
