"""Everything that changes during training, in one place that can be written down and read back."""

import copy
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from gedikit.config import Execution, Optimiser
from gedikit.errors import UsageError
from gedikit.model import EnergyClassifier
from gedikit.processes import n_processes
from gedikit.randomness import Randomness
from gedikit.training.capture import CapturedGraph

Memory = Mapping[str, Tensor]
_MEMORY = "memory/"


@dataclass
class TrainState:
    """Weights, averaged weights, optimiser, memories of the components, randomness and position.

    All weights lie in one flat tensor that the network's parameters are views of: optimiser, average and
    gradient norm are then one operation each, however many layers there are. Models that are trained side by
    side are one state, whose tensors have a leading dimension and whose randomness is one generator each.
    """

    network: EnergyClassifier
    embed: Callable[[Tensor], Tensor]  # of the network, compiled where that pays
    log_density: Callable[[Tensor], Tensor]
    weights: nn.Parameter
    average: EnergyClassifier
    average_weights: Tensor
    optimiser: torch.optim.Adam
    average_keep: Tensor
    generator: Randomness
    memory: dict[str, Memory] = field(default_factory=dict)  # what components carry from batch to batch
    iteration: int = 0
    rate_scale: float = 1.0
    rollbacks: int = 0
    events: list[str] = field(default_factory=list)
    graphs: dict[Hashable, CapturedGraph] = field(default_factory=dict)  # iterations as captured on the device

    @classmethod
    def new(
        cls,
        network: EnergyClassifier,
        generator: Randomness,
        optimiser: Optimiser,
        execution: Execution,
    ) -> "TrainState":
        members = () if isinstance(generator, torch.Generator) else (len(generator),)
        average = copy.deepcopy(network).requires_grad_(False)
        weights = nn.Parameter(flatten(network, members))
        compiles = accelerates(execution, weights.device) and getattr(network.encoder, "compiles", False)
        if network.batch_normalised and n_processes() > 1:
            compiles = False  # it speaks to the other processes in the middle of a pass
        return cls(
            network,
            torch.compile(network.embed, dynamic=False) if compiles else network.embed,
            torch.compile(network.log_density, dynamic=False) if compiles else network.log_density,
            weights,
            average,
            flatten(average, members),
            _adam(weights, optimiser),
            torch.zeros((), device=weights.device),
            generator,
        )

    @property
    def members(self) -> tuple[int, ...]:
        """() for one model, (m,) for m models side by side."""
        return () if isinstance(self.generator, torch.Generator) else (len(self.generator),)

    def set_rates(self, learning_rate: float, keep: float) -> None:
        """How far this iteration moves the weights, and how much of their average it keeps."""
        group = self.optimiser.param_groups[0]
        if isinstance(group["lr"], Tensor):  # read by a captured graph
            group["lr"].fill_(learning_rate)
        else:
            group["lr"] = learning_rate
        self.average_keep.fill_(keep)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """What is replaced in here is copied into what was there before: a captured graph knows nothing else."""
        before = {owner: dict(kept) for owner, kept in self.memory.items()}
        yield
        for owner, old in before.items():
            new = self.memory[owner]
            self.memory[owner] = {name: t if new[name] is t else t.copy_(new[name]) for name, t in old.items()}

    @torch.no_grad()
    def exchange_clusters(self, order: Int64[Tensor, " c"]) -> None:
        """Cluster i becomes what cluster order[i] was, with all that the optimiser knows of it."""
        sizes = {name: p.numel() for name, p in self.network.named_parameters()}
        before = list(sizes)[: list(sizes).index("centers")]
        start = sum(sizes[name] for name in before)
        moments = self.optimiser.state[self.weights]
        for flat in (self.weights, self.average_weights, moments["exp_avg"], moments["exp_avg_sq"]):
            centers = flat[start : start + sizes["centers"]].view(self.network.centers.shape)
            centers.copy_(centers[:, order])

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name; the live ones, not copies."""
        named = {"weights": self.weights.detach(), "average_weights": self.average_weights}
        named |= {f"optimiser.{k}": v for k, v in self.optimiser.state[self.weights].items()}
        named["generator"] = _generator_state(self.generator)
        named |= {f"{_MEMORY}{owner}/{name}": v for owner, kept in self.memory.items() for name, v in kept.items()}
        return named

    def not_finite(self) -> list[str | None]:
        """What holds numbers that are not finite, for each model; None for one that is sound."""
        m = self.members[0] if self.members else 1
        # a sum is finite where all of its terms are: one pass, and one look at the device for all of them
        sums = {
            name: t.reshape(m, -1).sum(-1, dtype=torch.promote_types(t.dtype, torch.float32))
            for name, t in self.tensors().items()
            if t.is_floating_point() and name != "optimiser.step"  # steps are counted for all at once
        }
        sound = torch.stack([s.isfinite() for s in sums.values()], dim=-1).tolist()
        return [next((name for name, good in zip(sums, row, strict=True) if not good), None) for row in sound]

    def meta(self) -> dict[str, Any]:
        return {
            "iteration": self.iteration,
            "rate_scale": self.rate_scale,
            "rollbacks": self.rollbacks,
            "events": self.events,
        }

    def restore(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """Become the state that `tensors()` and `meta()` described."""
        with torch.no_grad():
            self.weights.copy_(tensors["weights"])
            self.average_weights.copy_(tensors["average_weights"])
            for name, moment in self.optimiser.state[self.weights].items():
                moment.copy_(tensors[f"optimiser.{name}"])
            for owner, kept in self.memory.items():
                for name, tensor in kept.items():
                    tensor.copy_(tensors[f"{_MEMORY}{owner}/{name}"])
        one = isinstance(self.generator, torch.Generator)
        generators = [self.generator] if isinstance(self.generator, torch.Generator) else self.generator
        states = tensors["generator"].cpu()
        try:
            for generator, kept_state in zip(generators, states[None] if one else states, strict=True):
                generator.set_state(kept_state.clone())
        except RuntimeError:
            raise UsageError("this checkpoint was written on another kind of device: resume it there") from None
        self.iteration = meta["iteration"]
        self.rate_scale = meta["rate_scale"]
        self.rollbacks = meta["rollbacks"]
        self.events = list(meta["events"])


def accelerates(execution: Execution, device: torch.device) -> bool:
    """Whether iterations are compiled and captured: on a GPU, unless that was switched off."""
    return device.type == "cuda" and execution.compile


def _adam(weights: nn.Parameter, optimiser: Optimiser) -> torch.optim.Adam:
    """With its moments there from the start, and a rate that a captured graph can read."""
    on_gpu = weights.is_cuda
    rate = torch.tensor(optimiser.learning_rate, device=weights.device) if on_gpu else optimiser.learning_rate
    adam = torch.optim.Adam([weights], lr=rate, fused=True, capturable=on_gpu, weight_decay=optimiser.weight_decay)
    step = torch.zeros((), device=weights.device)
    adam.state[weights] = {
        "step": step,
        "exp_avg": torch.zeros_like(weights.detach()),
        "exp_avg_sq": torch.zeros_like(weights.detach()),
    }
    return adam


def flatten(network: nn.Module, members: tuple[int, ...] = ()) -> Tensor:
    """One tensor that holds all parameters; the parameters become views of it."""
    parameters = list(network.parameters())
    pieces = [p.detach().reshape(*members, -1) for p in parameters]
    flat = torch.cat(pieces, dim=-1)
    for parameter, view in zip(parameters, flat.split([p.shape[-1] for p in pieces], dim=-1), strict=True):
        parameter.data = view.view(parameter.shape)
    return flat


def stack(networks: Sequence[EnergyClassifier]) -> EnergyClassifier:
    """One network whose parameters and buffers are those of all, along a leading dimension."""
    together = copy.deepcopy(networks[0])
    for name, parameter in together.named_parameters():
        parameter.data = torch.stack([n.get_parameter(name).detach() for n in networks])
    for name, _ in together.named_buffers():
        owner, _, leaf = name.rpartition(".")
        together.get_submodule(owner).register_buffer(leaf, torch.stack([n.get_buffer(name) for n in networks]))
    return together


def _generator_state(generator: Randomness) -> Tensor:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    return torch.stack([g.get_state() for g in generator])
