"""Persistent chains in a replay buffer: what SGLD, MALA and samplers of users share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.components import setting
from gedikit.errors import UsageError
from gedikit.randomness import Randomness, share_of
from gedikit.samplers.base import Memory, Sampler, SamplerContext, Samples, Source
from gedikit.samplers.domain import Box
from gedikit.samplers.initialisation import INITIALISATIONS, Start, start
from gedikit.samplers.langevin import LogDensity, SampleInfo
from gedikit.samplers.replay import ReplayBuffer

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "uint8": torch.uint8}


@dataclass(frozen=True)
class ChainSampler(Sampler):
    """Persistent chains (Tieleman, 2008). Subclasses define `step`, one transition of all chains."""

    rejects: ClassVar[bool] = False  # whether `step` may leave chains where they are; their share is then measured

    steps: int = setting(5, "transitions an iteration", above=0)
    chains: int = setting(2000, "persistent chains", above=0)
    start: str = setting(
        "data",
        "where chains begin: at rows of the data, in uniform noise, or in Gaussian noise with the data's moments",
        choices=INITIALISATIONS,
    )
    restart: float = setting(0.0, "share of the chains that begin anew in an iteration", at_least=0, at_most=1)
    storage: str = setting("float32", "data type of stored chains", choices=tuple(DTYPES))

    def step(
        self, log_density: LogDensity, x: Float[Tensor, "*m n d"], *, generator: Randomness, box: Box
    ) -> Float[Tensor, "*m n d"]:
        """One transition of all chains."""
        raise NotImplementedError

    def start_memory(self, bandwidth: float, device: torch.device) -> Memory:  # noqa: ARG002
        """What transitions remember beside the positions."""
        return {}

    def move(
        self,
        log_density: LogDensity,
        x: Float[Tensor, "*m n d"],
        memory: Memory,
        *,
        generator: Randomness,
        box: Box,
    ) -> tuple[Float[Tensor, "*m n d"], Memory, Tensor | None]:
        """The transitions of an iteration: positions, memory, and the share that was accepted if not all were."""
        x, moved = self._run(self.steps, log_density, x, generator, box)
        return x, memory, moved if self.rejects else None

    def sample(
        self,
        log_density: LogDensity,
        x: Float[Tensor, "n d"],
        *,
        steps: int,
        step_size: float,  # noqa: ARG002
        box: Box,
        generator: Randomness,
    ) -> tuple[Float[Tensor, "n d"], SampleInfo]:
        x, moved = self._run(steps, log_density, x, generator, box)
        return x, SampleInfo(float(moved), self.final_step({}), self.temperature)

    def _run(
        self, steps: int, log_density: LogDensity, x: Float[Tensor, "*m n d"], generator: Randomness, box: Box
    ) -> tuple[Float[Tensor, "*m n d"], Float[Tensor, "*m"]]:
        """Positions after some transitions, and the share of the chains that a transition moved on average."""
        moved = x.new_zeros(x.shape[:-2]) if self.rejects and steps else x.new_ones(x.shape[:-2])
        for _ in range(steps):
            before, x = x, self.step(log_density, x, generator=generator, box=box)
            if self.rejects:
                moved = moved + (x != before).any(-1).to(x.dtype).mean(-1) / steps
        return x, moved

    def final_step(self, memory: Memory) -> float:  # noqa: ARG002
        return float("nan")

    def initialisation(self, rows: Float[Tensor, "*m r d"], box: Box) -> Start:
        return start(self.start, rows, box)

    @property
    def start_in_words(self) -> str:
        gaussian = self.start == "gaussian"
        return "Gaussian noise with the data's mean and covariance" if gaussian else super().start_in_words

    def prepare(self, context: SamplerContext) -> "Chains":
        if self.storage == "uint8" and not context.unit_range:
            raise UsageError("sampler.storage 'uint8' is for pixels: it would cut other chains off at ±1")
        box, generator = context.box, context.generator
        if self.start == "data":
            rows = torch.randint(context.n_rows, (self.chains,), generator=generator)
            noise = torch.randn(self.chains, len(box.low), generator=generator)
            positions = box.reflect(context.rows(rows) + context.sigma * noise)
        else:
            positions = self.initialisation(context.reference, box)(self.chains, generator)
        device = context.device
        return Chains(
            self,
            box.to(device),
            context.reference.to(device),
            positions.to(device),
            self.start_memory(context.bandwidth, device),
        )

    def stack(self, sources: Sequence[Source]) -> "Chains":
        members = cast(Sequence[Chains], sources)
        return Chains(
            self,
            Box.stacked([m.box for m in members]),
            torch.stack([m.reference for m in members]),
            torch.stack([m.positions for m in members]),
            {name: torch.stack([m.memory[name] for m in members]) for name in members[0].memory},
        )


@dataclass(frozen=True)
class Chains:
    """The chains of one model, or of several side by side."""

    sampler: ChainSampler
    box: Box
    reference: Float[Tensor, "*m r d"]
    positions: Float[Tensor, "*m b d"]  # before the first iteration
    memory: Memory

    def start(self) -> Memory:
        kept = ReplayBuffer.pack(self.positions.clone(), DTYPES[self.sampler.storage])
        return {"positions": kept, **{name: value.clone() for name, value in self.memory.items()}}

    def draw(self, log_density: LogDensity, memory: Memory, generator: Randomness) -> tuple[Samples, Memory]:
        s, here = self.sampler, share_of(generator)
        buffer = ReplayBuffer(memory["positions"])
        begin = s.initialisation(self.reference, self.box)
        slots, x = buffer.draw(here.size(s.samples), restart=s.restart, start=begin, generator=generator)
        x, kept, acceptance = s.move(log_density, x, memory, generator=generator, box=self.box)
        acceptance = None if acceptance is None else here.mean(acceptance)
        buffer.write(here.all_rows(slots, -1), here.all_rows(buffer.packed(x), -2))
        return Samples(x, None, acceptance), {**memory, **kept}

    def final(
        self,
        log_density: LogDensity,  # noqa: ARG002
        memory: Memory,
        n: int,
        generator: torch.Generator,  # noqa: ARG002
    ) -> tuple[Float[Tensor, "n d"], None]:
        return ReplayBuffer(memory["positions"]).first(n), None
