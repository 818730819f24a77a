"""The loop: step, measure, remember, report."""

from dataclasses import dataclass, field
from typing import Any

from gedikit.errors import Interrupted
from gedikit.processes import alone, each, exchanged, n_processes
from gedikit.training.callbacks import Callback, FitView
from gedikit.training.health import HealthMonitor
from gedikit.training.step import TrainStep

_MAX_ROWS = 1024


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


def train(fit: FitView, step: TrainStep, monitor: HealthMonitor, callback: Callback, history: History) -> None:
    """Advance to the last iteration, or to where a callback stops; raises DivergenceError if it runs away."""
    state = fit.state
    each(lambda: callback.on_start(fit))
    monitor.remember(state)
    while state.iteration < fit.iterations:
        measured = step(state, measure=is_measured(fit, step))
        with alone():
            callback.on_step(fit)
        for values in measured:
            complaint = monitor.complaint(values, *state.not_finite())
            complaint = next((text for text in exchanged(complaint) if text), None)
            if complaint:
                _tell(callback, monitor.roll_back(state, complaint))
                continue
            row = {"iteration": state.iteration, **values}
            history.add(row)
            asked = _follow(fit, row, callback)
            monitor.remember(state)
            if asked.written:
                monitor.remember(state, only=True)
            if asked.interrupted:  # only at a state that was found healthy
                raise Interrupted(each(lambda: callback.on_interrupt(fit)))
            if asked.stopped:
                event = f"iteration {state.iteration}: {asked.stopped}"
                state.events = [*state.events, event]
                _tell(callback, event)
                each(lambda: callback.on_end(fit))
                return
    each(lambda: callback.on_end(fit))


def _tell(callback: Callback, event: str) -> None:
    each(lambda: callback.on_event(event))


@dataclass(frozen=True)
class _Asked:
    """What processes agree on at a measurement; a signal may ask one of them for something else a moment later."""

    written: bool  # a checkpoint
    stopped: str | None
    interrupted: bool


def _follow(fit: FitView, row: dict[str, Any], callback: Callback) -> _Asked:
    """Let callbacks see a measurement; what one process is asked to do all do."""

    def told() -> bool:
        with alone():  # callbacks of the first process may ask the network, the others do not
            callback.on_metrics(fit, row)
        return callback.on_checkpoint(fit)

    said = exchanged([each(told), fit.stopped, fit.interrupted])
    asked = _Asked(
        any(written for written, _, _ in said),
        next((stopped for _, stopped, _ in said if stopped), None),
        any(interrupted for _, _, interrupted in said),
    )
    if asked.stopped:
        fit.stop(asked.stopped)
    if asked.interrupted:
        fit.interrupt()
    return asked


def is_measured(fit: FitView, step: TrainStep) -> bool:
    """Whether the next iteration is measured: at regular intervals, at the end, and where it is asked to stop.

    Several processes are asked at different moments: they stop at the next regular measurement.
    """
    following = fit.iteration + 1
    asked = (fit.stopped is not None or fit.interrupted) and n_processes() == 1
    return asked or following == fit.iterations or following % step.execution.log_every == 0
