"""What a sampler is: where the second expectation of an energy's gradient is taken, and how a model is sampled."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gedikit.components import Component, Registry, setting
from gedikit.randomness import Randomness
from gedikit.samplers.domain import Box
from gedikit.samplers.initialisation import Start
from gedikit.samplers.langevin import LogDensity, SampleInfo

Memory = Mapping[str, Tensor]


class Samples(NamedTuple):
    """Points, and their proposal density where they are weighted proposals rather than samples."""

    points: Float[Tensor, "*m k d"]
    log_q: Float[Tensor, "*m k"] | None = None
    acceptance: Float[Tensor, "*m"] | None = None


@dataclass(frozen=True)
class SamplerContext:
    """What a sampler may look at before the first iteration."""

    n_rows: int
    rows: Callable[[Int[Tensor, " k"]], Float[Tensor, "k d"]]  # scaled rows on the host
    reference: Float[Tensor, "r d"]  # some of them
    box: Box  # the domain, on the host
    bandwidth: float  # of the data's kernel density
    sigma: float  # of noise that leaves a point where it is
    unit_range: bool  # whether the domain is [−1, 1], as that of pixels is
    generator: torch.Generator
    device: torch.device


class Source(Protocol):
    """A sampler that has seen the data: draws for one model, or for several side by side."""

    def start(self) -> Memory:
        """What it remembers before the first iteration."""
        ...

    def draw(self, log_density: LogDensity, memory: Memory, generator: Randomness) -> tuple[Samples, Memory]:
        """Samples for one iteration, and what to remember."""
        ...

    def final(
        self, log_density: LogDensity, memory: Memory, n: int, generator: torch.Generator
    ) -> tuple[Float[Tensor, "n d"], float | None]:
        """n points to start later samples from, and log Γ where it can be estimated."""
        ...


S = TypeVar("S", bound=Source)


@dataclass(frozen=True)
class Sampler(Component):
    """A way to draw from a density that is known up to its normaliser."""

    samples: int = setting(400, "points an iteration", above=0)

    weighted: ClassVar[bool] = False  # True: weighted proposals instead of samples

    def prepare(self, context: SamplerContext) -> Source:
        """The sampler with what it needs of the data."""
        raise NotImplementedError

    def stack(self, sources: Sequence[Source]) -> Source:
        """One source for several models side by side."""
        raise NotImplementedError

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
        """Samples of a trained model, from the points x on; `step_size` is that of the end of the training."""
        raise NotImplementedError

    def initialisation(self, rows: Float[Tensor, "*m r d"], box: Box) -> Start:  # noqa: ARG002
        """Where chains from noise begin."""
        return box.uniform

    @property
    def start_in_words(self) -> str:
        """Where chains from noise begin, for protocols."""
        return "uniform noise"

    @property
    def temperature(self) -> float:
        """T: samples are of exp(f/T)."""
        return 1.0

    def final_step(self, memory: Memory) -> float:
        """The step size at the end of the training."""
        raise NotImplementedError


samplers: Registry[Sampler] = Registry("sampler", Sampler)
register_sampler = samplers.register
