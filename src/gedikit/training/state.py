"""Everything that changes during training, in one place that can be written down and read back."""

import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gedikit.model import EnergyClassifier
from gedikit.sampling import ReplayBuffer
from gedikit.settings import Settings


@dataclass
class TrainState:
    """Weights, averaged weights, optimiser, chains, step sizes, randomness and position."""

    network: EnergyClassifier
    average: EnergyClassifier
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
        device = network.centers.device
        return cls(
            network,
            copy.deepcopy(network).requires_grad_(False),
            torch.optim.Adam(network.parameters(), lr=settings.learning_rate, fused=True),
            buffer,
            torch.tensor(chain_step, device=device),
            generator,
        )

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name; views of the live ones, not copies."""
        named = {f"network.{k}": v for k, v in self.network.state_dict().items()}
        named |= {f"average.{k}": v for k, v in self.average.state_dict().items()}
        for i, values in self.optimiser.state_dict()["state"].items():
            named |= {f"optimiser.{i}.{k}": v for k, v in values.items()}
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
        device = self.chain_step.device
        self.network.load_state_dict(_under("network.", tensors))
        self.average.load_state_dict(_under("average.", tensors))
        adam: dict[int, dict[str, Tensor]] = {}
        for name, value in _under("optimiser.", tensors).items():
            index, key = name.split(".")
            adam.setdefault(int(index), {})[key] = value.clone()
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": adam, "param_groups": groups})
        self.chain_step = tensors["chain_step"].clone().to(device)
        self.generator.set_state(tensors["generator"].cpu())
        if self.buffer is not None:
            self.buffer.positions = tensors["buffer"].clone().to(device)
        self.iteration = meta["iteration"]
        self.rate_scale = meta["rate_scale"]
        self.rollbacks = meta["rollbacks"]
        self.events = list(meta["events"])


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}
