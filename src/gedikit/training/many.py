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

from gedikit import sampling
from gedikit.data.views import StackedViews
from gedikit.errors import DivergenceError, Interrupted, UsageError
from gedikit.fitted import FittedModel
from gedikit.methods import Method
from gedikit.sampling import Box, ReplayBuffer
from gedikit.settings import Settings
from gedikit.training.devices import threads
from gedikit.training.fit import DTYPES, Prepared, fingerprint, prepare
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
    if method.starting_from_clusters(first.settings.spectral_start) is not method:
        raise UsageError(
            "spectral_start gives every model targets of its own: fit models one by one, or set it to 0"
        )
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
        self.inside = list(range(len(ready)))  # which member is where in the stack
        self.step = _stacked_step(ready)
        self.state = _stacked_state(ready)
        self.step.start(self.state)
        self.monitors = [HealthMonitor(r.x.shape[1], settings.max_rollbacks) for r in ready]
        self.past = HealthMonitor(ready[0].x.shape[1], settings.max_rollbacks)  # snapshots of the whole stack
        self.histories = [History() for _ in ready]
        self.alone: dict[int, TrainState] = {}
        self.failures: dict[int, str] = {}

    def train(self) -> None:
        """As `loop.train`, with every member watched on its own."""
        s = self.step.settings
        self.observer.started(self.state, s.iterations, self.ready[0].optima)
        self.past.remember(self.state)
        while self.inside and self.state.iteration < s.iterations:
            last = self.state.iteration + 1 == s.iterations
            rows = self.step(self.state, measure=last or (self.state.iteration + 1) % s.log_every == 0)
            if not rows:
                continue
            complaints = {
                i: self.monitors[i].complaint(values) for i, values in zip(self.inside, rows, strict=True)
            }
            healthy = [values for i, values in zip(self.inside, rows, strict=True) if not complaints[i]]
            for i, values in zip(self.inside, rows, strict=True):
                if not complaints[i]:
                    self.histories[i].add({"iteration": self.state.iteration, **values})
            if len(healthy) < len(rows):
                self._part({i: text for i, text in complaints.items() if text})
            if healthy:
                middle = {name: float(np.median([v[name] for v in healthy])) for name in healthy[0]}
                self.observer.measured(self.state, {"iteration": self.state.iteration, **middle})
                self.past.remember(self.state)
            if self.observer.should_stop():
                raise Interrupted(self.observer.stopped(self.state))

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
        self.step, self.state = _stacked_step(staying), _stacked_state(staying)
        self.state.restore(kept, meta)

    def _go_alone(self, i: int, complaint: str) -> None:
        """From its last good state on, as its own fit would."""
        ready, monitor, place = self.ready[i], self.monitors[i], self.inside.index(i)
        monitor.snapshots = [Snapshot(_member(s.tensors, place), dict(s.meta)) for s in self.past.snapshots]
        state = ready.new_state()
        state.restore(_member(self.state.tensors(), place), self.state.meta())
        try:
            event = monitor.roll_back(state, complaint)
            self.observer.event(f"member {i}: {event}")
            train(state, ready.step, monitor, Observer(), self.histories[i], ready.optima)
            self.alone[i] = state
        except DivergenceError as error:
            self.observer.event(f"member {i}: {error}")
            self.failures[i] = str(error)

    def outcome(self, i: int) -> Outcome:
        if i in self.failures:
            return Outcome(None, self.failures[i], self.histories[i])
        state = self.alone.get(i)
        if state is None:
            state = self.ready[i].new_state()
            state.restore(_member(self.state.tensors(), self.inside.index(i)), self.state.meta())
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
    box, kind = Box.stacked([r.box for r in ready]), ready[0].settings.buffer_start
    start = sampling.start(kind, torch.stack([r.reference.to(r.device) for r in ready]), box)
    return Chains(ready[0].settings, box, start)


def _stacked_state(ready: Sequence[Prepared]) -> TrainState:
    settings = ready[0].settings
    chains = [r.chains for r in ready if r.chains is not None]
    steps = torch.tensor([settings.step_size * r.bandwidth for r in ready], device=ready[0].device)
    return TrainState.new(
        stack([r.network for r in ready]),
        ReplayBuffer(torch.stack(chains), DTYPES[settings.buffer_dtype]) if chains else None,
        steps[:, None, None],
        [torch.Generator(r.device).manual_seed(r.seed) for r in ready],
        settings,
    )


def _part_of(tensors: dict[str, Tensor], places: list[int]) -> dict[str, Tensor]:
    """A copy of some members' parts of a stack's tensors; the optimiser counts its steps for all at once."""
    return {name: t.clone() if name == "optimiser.step" else t[places] for name, t in tensors.items()}


def _member(tensors: dict[str, Tensor], place: int) -> dict[str, Tensor]:
    """A copy of one member's part, as its own state has it."""
    part = _part_of(tensors, [place])
    single = {name: t if name == "optimiser.step" else t[0].clone() for name, t in part.items()}
    return {**single, "chain_step": single["chain_step"].reshape(())}
