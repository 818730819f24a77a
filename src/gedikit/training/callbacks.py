"""What may be told about a running fit, and how it is asked to stop."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from gedikit.planning import Plan

if TYPE_CHECKING:
    from gedikit.training.state import TrainState

Metrics = dict[str, float]


@dataclass
class FitView:
    """A running fit as callbacks see it."""

    plan: Plan
    state: "TrainState"  # weights, averaged weights, optimiser, chains; for those who know what they do
    optima: dict[str, float]  # the smallest value that each loss can have, where it is known
    stopped: str | None = field(default=None, init=False)
    interrupted: bool = field(default=False, init=False)

    @property
    def iteration(self) -> int:
        """Iterations done."""
        return self.state.iteration

    @property
    def iterations(self) -> int:
        """Iterations planned."""
        return self.plan.config.optimiser.iterations

    def stop(self, reason: str) -> None:
        """End the training at the next healthy measurement and keep the model."""
        self.stopped = self.stopped or reason

    def interrupt(self) -> None:
        """Leave the fit at the next healthy measurement, after a checkpoint: it is to be resumed."""
        self.interrupted = True


class Callback:
    """Base of callbacks: every method does nothing unless it is overridden.

    Where several processes compute a fit, callbacks of the first one are called; what it is asked to do, all do.
    """

    everywhere: ClassVar[bool] = False  # whether it is called on every process

    def on_start(self, fit: FitView) -> None:
        """Training begins, or goes on at `fit.iteration`."""

    def on_step(self, fit: FitView) -> None:
        """An iteration is done."""

    def on_metrics(self, fit: FitView, metrics: Metrics) -> None:
        """Losses and health signs were measured, every `execution.log_every` iterations."""

    def on_event(self, text: str) -> None:
        """Something happened that a person should know, such as a rollback."""

    def on_checkpoint(self, fit: FitView) -> bool:  # noqa: ARG002
        """The state was found healthy: a checkpoint may be written. Return True if one was."""
        return False

    def on_interrupt(self, fit: FitView) -> str:
        """The fit is left before its end; return what to tell."""
        return f"stopped at iteration {fit.iteration}"

    def on_end(self, fit: FitView) -> None:
        """Training is over, at its last iteration or earlier."""


class Callbacks(Callback):
    """Several callbacks as one."""

    def __init__(self, callbacks: Sequence[Callback] = ()):
        self.callbacks = list(callbacks)

    def on_start(self, fit: FitView) -> None:
        for callback in self.callbacks:
            callback.on_start(fit)

    def on_step(self, fit: FitView) -> None:
        for callback in self.callbacks:
            callback.on_step(fit)

    def on_metrics(self, fit: FitView, metrics: Metrics) -> None:
        for callback in self.callbacks:
            callback.on_metrics(fit, metrics)

    def on_event(self, text: str) -> None:
        for callback in self.callbacks:
            callback.on_event(text)

    def on_checkpoint(self, fit: FitView) -> bool:
        written = [callback.on_checkpoint(fit) for callback in self.callbacks]
        return any(written)

    def on_interrupt(self, fit: FitView) -> str:
        told = [callback.on_interrupt(fit) for callback in self.callbacks]
        return max(told, key=len) if told else super().on_interrupt(fit)

    def on_end(self, fit: FitView) -> None:
        for callback in self.callbacks:
            callback.on_end(fit)
