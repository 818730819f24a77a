"""Many models in one step: the same method for several data sets, seeds or weights, as one batched model.

Small networks leave a processor waiting between operations. Here the weights of all members are stacked, every
operation serves all of them, and each member sees the random numbers, and so becomes the model, of its own fit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gedikit.components import Tree
from gedikit.config import Execution
from gedikit.errors import DivergenceError, Interrupted, UsageError
from gedikit.fitted import FittedModel
from gedikit.planning import Plan
from gedikit.processes import alone
from gedikit.training.callbacks import Callback, Callbacks, FitView
from gedikit.training.devices import threads
from gedikit.training.fit import Setup, fingerprint, prepare
from gedikit.training.health import HealthMonitor, Snapshot
from gedikit.training.loop import History, is_measured, train
from gedikit.training.state import TrainState, stack
from gedikit.training.step import TrainStep
from gedikit.views.stacked import StackedViews

_WEIGHTS = ("weight", "l2")  # settings by which members may differ


@dataclass(frozen=True)
class Task:
    """One member: its data and its plan (members may differ in seeds and in the weights of the losses)."""

    x: NDArray[Any]
    plan: Plan


@dataclass
class Outcome:
    """What became of a member: a model, or the reason why there is none."""

    fitted: FittedModel | None = None
    failure: str | None = None
    history: History = field(default_factory=History)


def fit_many(
    tasks: Sequence[Task], *, execution: Execution | None = None, callbacks: Sequence[Callback] = ()
) -> list[Outcome]:
    """Fit all tasks at once; a member that diverges ends without disturbing the others.

    Where there are several processes, each fits the tasks that it was given by itself.
    """
    check_alike(tasks)
    with alone():
        ready = _prepared(tasks, execution or Execution())
        members = _Members(ready, Callbacks(callbacks))
        with threads(ready[0].threads):
            members.train()
        return [members.outcome(i) for i in range(len(tasks))]


def check_alike(tasks: Sequence[Task]) -> None:
    """Refuse what cannot be stacked, naming what differs."""
    if not tasks:
        raise UsageError("fit_many needs at least one task")
    first = tasks[0]
    density = first.plan.config.density
    if density is not None and not density.stackable:
        raise UsageError(
            f"the weights of the density {density.name!r} cannot be stacked: fit {first.plan.method!r} one by one"
        )
    own = [name for name, objective in first.plan.config.objectives.items() if objective.join(()) is not None]
    if own:
        raise UsageError(
            f"{own[0]} give every model targets of its own: fit models one by one, or leave it out (known labels "
            "and links are for single fits; objectives.pseudo-labels.share=0 starts without a partition)"
        )
    ours = _without_weights(first.plan)
    for task in tasks[1:]:
        if task.x.shape != first.x.shape or task.plan.n_clusters != first.plan.n_clusters:
            raise UsageError(
                f"members of a stack need data of one shape and one number of clusters: {first.x.shape} with "
                f"{first.plan.n_clusters} and {task.x.shape} with {task.plan.n_clusters} differ"
            )
        theirs = _without_weights(task.plan)
        different = [name for name in ours if theirs.get(name) != ours[name]]
        if different:
            raise UsageError(f"members of a stack may differ in the weights of losses, not in {different[0]}")


def _without_weights(plan: Plan) -> Tree:
    flat: Tree = {"method": plan.method, "stages": plan.stages}
    for section, values in plan.config.tree().items():
        for name, value in values.items():
            inner = value.items() if isinstance(value, dict) else [("", value)]
            for key, leaf in inner:
                if (key or name) not in _WEIGHTS:
                    flat[".".join(filter(None, (section, name, key)))] = leaf
    return flat


def _prepared(tasks: Sequence[Task], execution: Execution) -> list[Setup]:
    """Members that differ in nothing but their weights are prepared once."""
    known: dict[tuple[str, int], Setup] = {}
    ready = []
    for t in tasks:
        key = (fingerprint(t.x), t.plan.seed)
        if key not in known:
            known[key] = prepare(t.plan, t.x, execution=execution)
        ready.append(known[key].weighted(t.plan))
    return ready


class _Members:
    """The stack while it is trained, and the members that left it."""

    def __init__(self, ready: Sequence[Setup], callback: Callback):
        self.ready, self.callback = ready, callback
        rollbacks = ready[0].plan.config.optimiser.max_rollbacks
        self.inside = list(range(len(ready)))  # which member is where in the stack
        self.step = _stacked_step(ready)
        self.state = _stacked_state(ready, self.step)
        self.monitors = [HealthMonitor(r.x.shape[1], rollbacks) for r in ready]
        self.past = HealthMonitor(ready[0].x.shape[1], rollbacks)  # snapshots of the whole stack
        self.histories = [History() for _ in ready]
        self.alone: dict[int, TrainState] = {}
        self.failures: dict[int, str] = {}

    def train(self) -> None:
        """As `loop.train`, with every member watched on its own."""
        fit = FitView(self.ready[0].plan, self.state, self.ready[0].optima)
        self.callback.on_start(fit)
        self.past.remember(self.state)
        while self.inside and self.state.iteration < fit.iterations:
            rows = self.step(self.state, measure=is_measured(fit, self.step))
            self.callback.on_step(fit)
            if not rows:
                continue
            complaints = {
                i: self.monitors[i].complaint(values, broken)
                for i, values, broken in zip(self.inside, rows, self.state.not_finite(), strict=True)
            }
            healthy = [values for i, values in zip(self.inside, rows, strict=True) if not complaints[i]]
            for i, values in zip(self.inside, rows, strict=True):
                if not complaints[i]:
                    self.histories[i].add({"iteration": self.state.iteration, **values})
            if len(healthy) < len(rows):
                self._part({i: text for i, text in complaints.items() if text})
                fit.state = self.state
            if healthy:
                middle = {name: float(np.median([v[name] for v in healthy])) for name in healthy[0]}
                self.callback.on_metrics(fit, {"iteration": self.state.iteration, **middle})
                self.past.remember(self.state)
            if fit.interrupted:
                raise Interrupted(self.callback.on_interrupt(fit))
            if fit.stopped:
                break
        self.callback.on_end(fit)

    def _part(self, complaints: dict[int, str]) -> None:
        """Members in trouble leave; the others go on as a smaller stack."""
        for i, complaint in complaints.items():
            self._go_alone(i, complaint)
        places = [place for place, i in enumerate(self.inside) if i not in complaints]
        self.inside = [self.inside[place] for place in places]
        if not self.inside:
            return
        kept = _part_of(self.state.tensors(), places)
        self.past.snapshots = [Snapshot(_part_of(s.tensors, places), s.meta) for s in self.past.snapshots]
        meta = self.state.meta()
        staying = [self.ready[i] for i in self.inside]
        self.step = _stacked_step(staying)
        self.state = _stacked_state(staying, self.step)
        self.state.restore(kept, meta)

    def _go_alone(self, i: int, complaint: str) -> None:
        """From its last good state on, as its own fit would."""
        ready, monitor, place = self.ready[i], self.monitors[i], self.inside.index(i)
        monitor.snapshots = [Snapshot(_member(s.tensors, place), dict(s.meta)) for s in self.past.snapshots]
        state = ready.new_state()
        state.restore(_member(self.state.tensors(), place), self.state.meta())
        try:
            event = monitor.roll_back(state, complaint)
            self.callback.on_event(f"member {i}: {event}")
            view = FitView(ready.plan, state, ready.optima)
            train(view, ready.step, monitor, Callback(), self.histories[i])
            self.alone[i] = state
        except DivergenceError as error:
            self.callback.on_event(f"member {i}: {error}")
            self.failures[i] = str(error)

    def outcome(self, i: int) -> Outcome:
        if i in self.failures:
            return Outcome(None, self.failures[i], self.histories[i])
        state = self.alone.get(i)
        if state is None:
            state = self.ready[i].new_state()
            state.restore(_member(self.state.tensors(), self.inside.index(i)), self.state.meta())
        return Outcome(self.ready[i].finish(state), None, self.histories[i])


def _stacked_step(ready: Sequence[Setup]) -> TrainStep:
    first = ready[0].step
    weights: dict[str, float | Tensor] = {
        name: torch.tensor([r.step.weights[name] for r in ready], device=ready[0].device) for name in first.weights
    }
    sampler, sources = ready[0].plan.config.sampler, [r.source for r in ready if r.source is not None]
    return replace(
        first,
        views=StackedViews([r.step.views for r in ready]),
        source=sampler.stack(sources) if sampler is not None and sources else None,
        log_prior=torch.stack([r.step.log_prior for r in ready]),
        weights=weights,
    )


def _stacked_state(ready: Sequence[Setup], step: TrainStep) -> TrainState:
    state = TrainState.new(
        stack([r.network for r in ready]),
        [torch.Generator(r.device).manual_seed(r.plan.seed) for r in ready],
        ready[0].plan.config.optimiser,
        ready[0].execution,
    )
    step.start(state)
    return state


def _part_of(tensors: dict[str, Tensor], places: list[int]) -> dict[str, Tensor]:
    """A copy of some members' parts of a stack's tensors; the optimiser counts its steps for all at once."""
    return {name: t.clone() if name == "optimiser.step" else t[places] for name, t in tensors.items()}


def _member(tensors: dict[str, Tensor], place: int) -> dict[str, Tensor]:
    """A copy of one member's part, as its own state has it."""
    part = _part_of(tensors, [place])
    return {name: t if name == "optimiser.step" else t[0].clone() for name, t in part.items()}
