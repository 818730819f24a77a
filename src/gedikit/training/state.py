"""Everything that changes during training, in one place that can be written down and read back."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from gedikit.errors import UsageError
from gedikit.model import EnergyClassifier
from gedikit.sampling import ReplayBuffer
from gedikit.settings import Settings


@dataclass
class TrainState:
    """Weights, averaged weights, optimiser, chains, step sizes, randomness and position.

    All weights lie in one flat tensor that the network's parameters are views of: optimiser, average and
    gradient norm are then one operation each, however many layers there are.
    """

    network: EnergyClassifier
    weights: nn.Parameter
    average: EnergyClassifier
    average_weights: Tensor
    optimiser: torch.optim.Adam
    buffer: ReplayBuffer | None
    chain_step: Tensor
    generator: torch.Generator
    iteration: int = 0
    rate_scale: float = 1.0
    rollbacks: int = 0
    events: list[str] = field(default_factory=list)

    @classmethod
    def new(
        cls,
        network: EnergyClassifier,
        buffer: ReplayBuffer | None,
        chain_step: float,
        generator: torch.Generator,
        settings: Settings,
    ) -> "TrainState":
        average = copy.deepcopy(network).requires_grad_(False)
        weights = nn.Parameter(flatten(network))
        return cls(
            network,
            weights,
            average,
            flatten(average),
            torch.optim.Adam([weights], lr=settings.learning_rate, fused=True),
            buffer,
            torch.tensor(chain_step, device=weights.device),
            generator,
        )

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name; the live ones, not copies."""
        named = {"weights": self.weights.detach(), "average_weights": self.average_weights}
        named |= {f"optimiser.{k}": v for k, v in self.optimiser.state[self.weights].items()}
        named |= {"chain_step": self.chain_step, "generator": self.generator.get_state()}
        if self.buffer is not None:
            named["buffer"] = self.buffer.positions
        return named

    def meta(self) -> dict[str, Any]:
        return {
            "iteration": self.iteration,
            "rate_scale": self.rate_scale,
            "rollbacks": self.rollbacks,
            "events": self.events,
        }

    def restore(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """Become the state that `tensors()` and `meta()` described."""
        device = self.weights.device
        with torch.no_grad():
            self.weights.copy_(tensors["weights"])
            self.average_weights.copy_(tensors["average_weights"])
        prefix = "optimiser."
        moments = {k[len(prefix) :]: v.clone() for k, v in tensors.items() if k.startswith(prefix)}
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": {0: moments} if moments else {}, "param_groups": groups})
        self.chain_step = tensors["chain_step"].clone().to(device)
        try:
            self.generator.set_state(tensors["generator"].cpu())
        except RuntimeError:
            raise UsageError("this checkpoint was written on another kind of device: resume it there") from None
        if self.buffer is not None:
            self.buffer.positions = tensors["buffer"].clone().to(device)
        self.iteration = meta["iteration"]
        self.rate_scale = meta["rate_scale"]
        self.rollbacks = meta["rollbacks"]
        self.events = list(meta["events"])


def flatten(network: nn.Module) -> Tensor:
    """One tensor that holds all parameters; the parameters become views of it."""
    parameters = list(network.parameters())
    flat = torch.cat([p.detach().reshape(-1) for p in parameters])
    for parameter, piece in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
        parameter.data = piece.view_as(parameter)
    return flat


@contextmanager
def frozen(network: nn.Module) -> Iterator[None]:
    """No gradients for the weights: sampling wants those of its input alone."""
    network.requires_grad_(False)
    try:
        yield
    finally:
        network.requires_grad_(True)
