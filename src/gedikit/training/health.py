"""Noticing that training runs away, and going back to where it had not."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gedikit.errors import DivergenceError
from gedikit.training.state import TrainState

_LARGEST_LOG_DENSITY = 1e5
_LARGEST_GRADIENT = 1e8
_STUCK_CHECKS = 20
_SNAPSHOT_EVERY = 200
_KEPT = 3


@dataclass
class Snapshot:
    tensors: dict[str, Tensor]
    meta: dict[str, Any]


@dataclass
class HealthMonitor:
    """Watches the measurements; on trouble restores the last good state with half the learning rate."""

    n_features: int
    max_rollbacks: int
    snapshots: list[Snapshot] = field(default_factory=list)
    stuck: int = 0

    def complaint(self, values: dict[str, float], not_finite: str | None = None) -> str | None:
        """What is wrong with these measurements, or with the part of the state that is not finite, if anything."""
        for name, value in values.items():
            if not math.isfinite(value):
                return f"{name} is {value}"
        if not_finite is not None:
            return f"{not_finite} of the training state is not finite"
        gap_limit = 1000 + 100 * self.n_features
        if abs(values.get("energy_gap", 0.0)) > gap_limit:
            return f"the energy gap between data and samples is {values['energy_gap']:.3g} (limit {gap_limit:g})"
        if values.get("largest_log_density", 0.0) > _LARGEST_LOG_DENSITY:
            return f"|log-density| reached {values['largest_log_density']:.3g} (limit {_LARGEST_LOG_DENSITY:g})"
        if values["gradient_norm"] > _LARGEST_GRADIENT:
            return f"the gradient norm is {values['gradient_norm']:.3g} (limit {_LARGEST_GRADIENT:g})"
        self.stuck = self.stuck + 1 if values.get("acceptance", 1.0) < 0.01 else 0
        if self.stuck >= _STUCK_CHECKS:
            return f"fewer than 1 % of the chains' moves were accepted in {_STUCK_CHECKS} checks in a row"
        return None

    def remember(self, state: TrainState, *, only: bool = False) -> None:
        """Keep a copy of a healthy state; with `only`, forget the older ones (a checkpoint was written)."""
        newest = self.snapshots[-1].meta["iteration"] if self.snapshots else -_SNAPSHOT_EVERY
        if only:
            self.snapshots.clear()
        elif state.iteration - newest < _SNAPSHOT_EVERY:
            return
        copies = {name: tensor.clone() for name, tensor in state.tensors().items()}
        self.snapshots = [*self.snapshots, Snapshot(copies, state.meta())][-_KEPT:]

    def roll_back(self, state: TrainState, complaint: str) -> str:
        """Restore the newest snapshot (and next time the one before), or give up; returns what was done."""
        at, rollbacks, scale = state.iteration, state.rollbacks + 1, state.rate_scale / 2
        if rollbacks > self.max_rollbacks:
            raise DivergenceError(
                f"training diverged at iteration {at}: {complaint}; {self.max_rollbacks} returns to an earlier "
                f"state with a smaller learning rate did not help. Try a smaller optimiser.learning_rate, "
                f"density.l2=0.01, or the default method."
            )
        snapshot = self.snapshots.pop() if len(self.snapshots) > 1 else self.snapshots[0]
        assert isinstance(state.generator, torch.Generator)
        randomness, events = state.generator.get_state(), state.events
        state.restore(snapshot.tensors, snapshot.meta)
        state.generator.set_state(randomness)  # other noise than the one that led here
        state.rollbacks, state.rate_scale = rollbacks, scale
        event = (
            f"iteration {at}: {complaint}; went back to iteration {state.iteration} "
            f"with {scale:g} times the learning rate ({rollbacks} of {self.max_rollbacks})"
        )
        state.events = [*events, event]
        self.stuck = 0
        return event
