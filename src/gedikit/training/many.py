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

from gedikit.data.views import StackedViews
from gedikit.errors import DivergenceError, Interrupted, UsageError
from gedikit.fitted import FittedModel
from gedikit.methods import Method
from gedikit.sampling import Box, ReplayBuffer
from gedikit.settings import Settings
from gedikit.training.fit import Prepared, fingerprint, prepare, threads
from gedikit.training.health import HealthMonitor, Snapshot
from gedikit.training.loop import History, Observer, train
from gedikit.training.negatives import Chains, Source, StackedProposals, WeightedProposals
from gedikit.training.state import TrainState, stack
from gedikit.training.step import TrainStep

WEIGHTS = ("generative", "invariance", "prior", "discriminative", "energy_l2")


@dataclass(frozen=True)
class Task:
    """One member: its data, its settings (members may differ in the weights of the terms) and its seed."""

    x: NDArray[Any]
    settings: Settings
    seed: int
    n_clusters: int


@dataclass
class Outcome:
    """What became of a member: a model, or the reason why there is none."""

    fitted: FittedModel | None = None
    failure: str | None = None
    history: History = field(default_factory=History)


def fit_many(
    tasks: Sequence[Task], method: Method, *, device: str = "auto", observer: Observer | None = None
) -> list[Outcome]:
    """Fit all tasks at once; a member that diverges ends without disturbing the others."""
    check_alike(tasks, method)
    ready = _prepared(tasks, method, device)
    members = _Members(ready, observer or Observer())
    with threads(ready[0].settings.threads if ready[0].device.type == "cpu" else 0):
        members.train()
    return [members.outcome(i) for i in range(len(tasks))]


def check_alike(tasks: Sequence[Task], method: Method) -> None:
    """Refuse what cannot be stacked, naming what differs."""
    if not tasks:
        raise UsageError("fit_many needs at least one task")
    if method.generative == "flow":
        raise UsageError(f"{method.name!r} has a flow, whose weights cannot be stacked: fit its models one by one")
    first = tasks[0]
    alike = {name: getattr(first.settings, name) for name in WEIGHTS}
    for task in tasks[1:]:
        if task.x.shape != first.x.shape or task.n_clusters != first.n_clusters:
            raise UsageError(
                f"members of a stack need data of one shape and one number of clusters: {first.x.shape} with "
                f"{first.n_clusters} and {task.x.shape} with {task.n_clusters} differ"
            )
        if task.settings.replace(**alike) != first.settings:
            theirs, ours = task.settings.as_dict(), first.settings.as_dict()
            name = next(n for n in theirs if n not in WEIGHTS and theirs[n] != ours[n])
            raise UsageError(f"members of a stack may differ in {', '.join(WEIGHTS)}, not in {name}")


def _prepared(tasks: Sequence[Task], method: Method, device: str) -> list[Prepared]:
    """Members that differ in nothing but their weights are prepared once."""
    known: dict[tuple[str, int], Prepared] = {}
    ready = []
    for t in tasks:
        key = (fingerprint(t.x), t.seed)
        if key not in known:
            known[key] = prepare(t.x, method, t.settings, n_clusters=t.n_clusters, seed=t.seed, device=device)
        ready.append(known[key].weighted(t.settings))
    return ready


class _Members:
    """The stack while it is trained, and the members that left it."""

    def __init__(self, ready: Sequence[Prepared], observer: Observer):
        self.ready, self.observer = ready, observer
        settings = ready[0].settings
        self.step = _stacked_step(ready)
        self.state = _stacked_state(ready, settings)
        self.step.start(self.state)
        self.monitors = [HealthMonitor(r.x.shape[1], settings.max_rollbacks) for r in ready]
        self.snapshots = HealthMonitor(ready[0].x.shape[1], settings.max_rollbacks)
        self.histories = [History() for _ in ready]
        self.left: dict[int, tuple[TrainState | None, str | None]] = {}

    def train(self) -> None:
        """As `loop.train`, with every member watched on its own."""
        s, state = self.step.settings, self.state
        self.observer.started(state, s.iterations, self.ready[0].optima)
        self.snapshots.remember(state)
        while state.iteration < s.iterations and len(self.left) < len(self.ready):
            last = state.iteration + 1 == s.iterations
            rows = self.step(state, measure=last or (state.iteration + 1) % s.log_every == 0)
            if not rows:
                continue
            for i, values in enumerate(rows):
                if i in self.left:
                    continue
                complaint = self.monitors[i].complaint(values)
                if complaint:
                    self._take_out(i, complaint)
                else:
                    self.histories[i].add({"iteration": state.iteration, **values})
            staying = [values for i, values in enumerate(rows) if i not in self.left]
            if staying:
                middle = {name: float(np.median([v[name] for v in staying])) for name in staying[0]}
                self.observer.measured(state, {"iteration": state.iteration, **middle})
                self.snapshots.remember(state)
            if self.observer.should_stop():
                raise Interrupted(self.observer.stopped(state))

    def _take_out(self, i: int, complaint: str) -> None:
        """A member in trouble goes on alone from its last good state, as its own fit would."""
        ready, monitor = self.ready[i], self.monitors[i]
        monitor.snapshots = [Snapshot(_member(s.tensors, i), dict(s.meta)) for s in self.snapshots.snapshots]
        alone = ready.new_state()
        alone.restore(_member(self.state.tensors(), i), self.state.meta())
        try:
            event = monitor.roll_back(alone, complaint)
            self.observer.event(f"member {i}: {event}")
            train(alone, ready.step, monitor, Observer(), self.histories[i], ready.optima)
            self.left[i] = (alone, None)
        except DivergenceError as error:
            self.observer.event(f"member {i}: {error}")
            self.left[i] = (None, str(error))

    def outcome(self, i: int) -> Outcome:
        state, failure = self.left.get(i, (None, None))
        if failure is not None:
            return Outcome(None, failure, self.histories[i])
        if state is None:
            state = self.ready[i].new_state()
            state.restore(_member(self.state.tensors(), i), self.state.meta())
        return Outcome(self.ready[i].finish(state), None, self.histories[i])


def _stacked_step(ready: Sequence[Prepared]) -> TrainStep:
    first = ready[0].step
    names = first.weights
    weights: dict[str, float | Tensor] = {
        name: torch.tensor([r.step.weights[name] for r in ready], device=ready[0].device) for name in names
    }
    return replace(
        first,
        views=StackedViews([r.step.views for r in ready]),
        negatives=_stacked_negatives(ready),
        log_prior=torch.stack([r.step.log_prior for r in ready]),
        weights=weights,
    )


def _stacked_negatives(ready: Sequence[Prepared]) -> Source | None:
    kinds = [r.negatives for r in ready]
    if kinds[0] is None:
        return None
    proposals = [k for k in kinds if isinstance(k, WeightedProposals)]
    if proposals:
        return StackedProposals(proposals)
    return Chains(ready[0].settings, Box.stacked([r.box for r in ready]))


def _stacked_state(ready: Sequence[Prepared], settings: Settings) -> TrainState:
    chains = [r.chains for r in ready if r.chains is not None]
    steps = torch.tensor([settings.step_size * r.bandwidth for r in ready], device=ready[0].device)
    return TrainState.new(
        stack([r.network for r in ready]),
        ReplayBuffer(torch.stack(chains)) if chains else None,
        steps[:, None, None],
        [torch.Generator(r.device).manual_seed(r.seed) for r in ready],
        settings,
    )


def _member(tensors: dict[str, Tensor], i: int) -> dict[str, Tensor]:
    """A copy of member i's part of a stack's tensors; the optimiser counts its steps for all at once."""
    parts = {name: (t if name == "optimiser.step" else t[i]).clone() for name, t in tensors.items()}
    return {**parts, "chain_step": parts["chain_step"].reshape(())}
