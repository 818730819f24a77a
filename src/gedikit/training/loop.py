"""The loop: step, look, remember, report."""

from dataclasses import dataclass, field
from typing import Any

from gedikit.errors import Interrupted
from gedikit.training.health import HealthMonitor
from gedikit.training.state import TrainState
from gedikit.training.step import TrainStep

_MAX_ROWS = 1024


class Observer:
    """What may be told about a running fit; the default listens to nothing."""

    def started(self, state: TrainState, iterations: int, optima: dict[str, float]) -> None:
        """Training begins or goes on at `state.iteration`."""

    def measured(self, state: TrainState, row: dict[str, float]) -> None:
        """A row of measurements."""

    def event(self, text: str) -> None:
        """Something a person should know."""

    def healthy(self, state: TrainState) -> bool:  # noqa: ARG002
        """A good moment to write a checkpoint; True if one was written."""
        return False

    def should_stop(self) -> bool:
        """True when training was asked to stop."""
        return False

    def stopped(self, state: TrainState) -> str:
        """Training ends before its last iteration; returns what to tell."""
        return f"stopped at iteration {state.iteration}"


@dataclass
class History:
    """Measurements in bounded memory: when full, every second row goes and the stride doubles."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    stride: int = 1
    seen: int = 0

    def add(self, row: dict[str, Any]) -> None:
        if self.seen % self.stride == 0:
            self.rows.append(row)
        self.seen += 1
        if len(self.rows) >= _MAX_ROWS:
            self.rows = self.rows[::2]
            self.stride *= 2


def train(
    state: TrainState,
    step: TrainStep,
    monitor: HealthMonitor,
    observer: Observer,
    history: History,
    optima: dict[str, float],
) -> None:
    """Advance `state` to the last iteration; raises DivergenceError if it cannot be kept sane."""
    s = step.settings
    observer.started(state, s.iterations, optima)
    monitor.remember(state)
    while state.iteration < s.iterations:
        last = state.iteration + 1 == s.iterations
        measured = step(state, measure=last or (state.iteration + 1) % s.log_every == 0)
        for values in measured:
            complaint = monitor.complaint(values)
            if complaint:
                observer.event(monitor.roll_back(state, complaint))
                continue
            row = {"iteration": state.iteration, **values}
            history.add(row)
            observer.measured(state, row)
            monitor.remember(state)
            if observer.healthy(state):
                monitor.remember(state, only=True)
            if observer.should_stop():  # only at a state that was found healthy
                raise Interrupted(observer.stopped(state))
