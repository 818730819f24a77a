"""One training iteration: two views, model samples, one forward pass, named losses, one update."""

import math
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from gedikit.config import Execution, Optimiser
from gedikit.densities import effective_sample_size
from gedikit.densities.base import GENERATIVE
from gedikit.model import frozen
from gedikit.objectives import Objective, mutual_information
from gedikit.objectives.invariance import Invariance
from gedikit.objectives.prior import Prior
from gedikit.planning import Plan
from gedikit.processes import Share, add_up, alone, exchanged, n_processes
from gedikit.randomness import share_of
from gedikit.samplers import Samples, Source
from gedikit.training.capture import CapturedGraph
from gedikit.training.outputs import BatchOutputs
from gedikit.training.rows import of_all_rows
from gedikit.training.state import TrainState, accelerates
from gedikit.views.base import Batch, Views

SAMPLER = "sampler"  # whose memory it is
_GRADIENT = "gradient"  # the same
_NEWEST = 0.02  # how much the latest gradient counts in what is usual
# losses of Proposition 1 that are measured where they are not minimised: one that was left out shows the failure
_WATCHED: Mapping[str, Objective] = {Invariance.name: Invariance(), Prior.name: Prior()}


@dataclass(frozen=True)
class Phase:
    """Everything on the host by which one iteration may differ from the next: a captured graph holds one phase."""

    terms: tuple[str, ...]
    level: int
    frozen_prototypes: bool
    of_objectives: tuple[Hashable, ...]
    measure: bool


@dataclass(frozen=True)
class TrainStep:
    """What stays fixed over a training run; calling it advances a TrainState by one iteration.

    A state of several models is advanced in one go: their weights of the losses may differ, all else is shared.
    """

    plan: Plan
    execution: Execution
    objectives: Mapping[str, Objective]  # bound to the data
    views: Views
    source: Source | None
    log_prior: Float[Tensor, "*m c"]
    held_out: Bool[Tensor, " n"]  # rows that the density is not trained on
    weights: Mapping[str, float | Tensor]
    _measured: dict[Phase, tuple[str, ...]] = field(default_factory=dict, repr=False)  # names of measurements

    @property
    def optimiser(self) -> Optimiser:
        return self.plan.config.optimiser

    def start(self, state: TrainState) -> None:
        """Give the components the memory they begin with."""
        training = _Training(state, self.views)
        with alone():
            for name in self.plan.terms:
                if name in self.objectives:
                    state.memory[name] = self.objectives[name].start(training)
        if self.source is not None:
            state.memory[SAMPLER] = self.source.start()
        if self.optimiser.clip:
            state.memory[_GRADIENT] = {"usual_norm": torch.zeros(state.members, device=state.weights.device)}

    def __call__(self, state: TrainState, *, measure: bool = False) -> list[dict[str, float]]:
        """Advance; with `measure`, report the losses and the health signs of each model (this reads the device)."""
        o = self.optimiser
        phase = self.phase(state.iteration, measure=measure)
        self._refresh(phase.terms, state)
        size = share_of(state.generator).size(o.batch_size)
        batch = self.views.batch(size, state.iteration, phase.level, state.generator)
        done = state.iteration + 1
        state.set_rates(learning_rate(o, state.iteration) * state.rate_scale, min(o.average, done / (done + 9)))
        values = self._run(state, phase, batch)
        state.iteration = done
        if values is None:
            return []
        if values.is_cuda:
            exchanged(done)  # a process that hangs is missed here; waiting for the device would name nobody
        columns = values.cpu().reshape(len(values), -1).T.tolist()
        return [dict(zip(self._measured[phase], column, strict=True)) for column in columns]

    def phase(self, iteration: int, *, measure: bool = False) -> Phase:
        o = self.optimiser
        progress = iteration / o.iterations
        terms = self.plan.terms_at(progress)
        return Phase(
            terms,
            self.views.level(progress),
            frozen_prototypes=iteration < self.plan.config.head.freeze,
            of_objectives=tuple(
                self.objectives[name].phase(iteration, o.batch_size) if name in self.objectives else None
                for name in terms
            ),
            measure=measure,
        )

    def _run(self, state: TrainState, phase: Phase, batch: Batch) -> Tensor | None:
        """The iteration, from a captured graph where there is one."""
        density = self.plan.config.density
        held = all(self.objectives[name].capturable for name in phase.terms if name in self.objectives)
        held = held and (density is None or density.capturable) and n_processes() == 1
        if not held or not accelerates(self.execution, state.weights.device):
            return self._advance(state, phase, batch)
        others = list(state.graphs.values())
        graph = state.graphs.setdefault(phase, CapturedGraph())
        return graph.run(lambda inputs: self._advance(state, phase, inputs), batch, state.generator, others)

    def _advance(self, state: TrainState, phase: Phase, batch: Batch) -> Tensor | None:
        """All that happens on the device; returns the measurements."""
        with state.in_place():
            out = self._outputs(state, phase, batch)
            losses = self._losses(state, phase.terms, out)
            total = sum((self.weights[name] * value).sum() for name, value in losses.items())
            assert isinstance(total, Tensor)
            gradient = self._gradient(total, state, phase)
            add_up(gradient)
            gradient /= n_processes()
            state.weights.grad = self._clipped(gradient, state) if self.optimiser.clip else gradient
            state.optimiser.step()
            # the average may have taught in this iteration: it moves last
            state.average_weights.lerp_(state.weights.detach(), 1 - state.average_keep)
            return self._measurements(phase, losses, out, gradient) if phase.measure else None

    def _outputs(self, state: TrainState, phase: Phase, batch: Batch) -> BatchOutputs:
        wanted = max([self.objectives[name].n_views for name in phase.terms if name in self.objectives], default=0)
        x, view = self.views(batch, phase.level, state.generator)
        others = [self.views(batch, phase.level, state.generator, i)[1] for i in range(1, wanted)]
        views = (view, *others)[:wanted]
        samples = self._samples(state) if GENERATIVE in phase.terms else None
        phases = dict(zip(phase.terms, phase.of_objectives, strict=True))
        rows, drawn = batch[:2]
        return BatchOutputs(state, rows, x, view, views, samples, self.log_prior, self.held_out, phases, drawn)

    def _samples(self, state: TrainState) -> Samples | None:
        if self.source is None:
            return None
        with frozen(state.network), quick_products():
            samples, kept = self.source.draw(state.log_density, state.memory[SAMPLER], state.generator)
        state.memory[SAMPLER] = kept
        return samples

    def _gradient(self, total: Tensor, state: TrainState, phase: Phase) -> Tensor:
        parameters = list(state.network.parameters())
        learning = [p for p in parameters if p.requires_grad]  # of an encoder that a user gave, perhaps not all
        found = iter(torch.autograd.grad(total, learning, materialize_grads=True))
        gradients = [next(found) if p.requires_grad else torch.zeros_like(p) for p in parameters]
        if phase.frozen_prototypes:
            gradients = [
                torch.zeros_like(g) if p is state.network.centers else g
                for p, g in zip(parameters, gradients, strict=True)
            ]
        return torch.cat([g.reshape(*state.members, -1) for g in gradients], dim=-1)

    def _clipped(self, gradient: Float[Tensor, "*m w"], state: TrainState) -> Float[Tensor, "*m w"]:
        """No longer than so many times what is usual; cf. AutoClip (Seetharaman et al., 2020).

        Adam divides by what gradients were: a much longer one, as when another objective begins, would be a step
        that undoes what thousands have learned.
        """
        norm, usual = torch.linalg.vector_norm(gradient, dim=-1), state.memory[_GRADIENT]["usual_norm"]
        begins = usual == 0
        clipped = torch.where(begins, norm, torch.minimum(norm, self.optimiser.clip * usual))
        state.memory[_GRADIENT] = {"usual_norm": torch.where(begins, norm, usual.lerp(clipped, _NEWEST))}
        shorter: Tensor = gradient * (clipped / norm.clamp_min(1e-30))[..., None]
        return shorter

    def _refresh(self, terms: tuple[str, ...], state: TrainState) -> None:
        for name in terms:
            if name not in self.objectives:
                continue
            every = self.objectives[name].refresh_every(self.optimiser.iterations)
            if every and state.iteration % every == 0:
                with torch.no_grad(), state.in_place(), alone():
                    kept = self.objectives[name].refresh(_Training(state, self.views), state.memory[name])
                    state.memory[name] = kept

    def _losses(self, state: TrainState, terms: tuple[str, ...], out: BatchOutputs) -> dict[str, Tensor]:
        losses = {}
        for name in terms:
            if name in self.objectives:
                losses[name], kept = self.objectives[name](out, state.memory[name])
                state.memory[name] = kept
        if GENERATIVE in terms:
            density = self.plan.config.density
            assert density is not None
            losses |= density.batch_losses(out)
        return losses

    def _measurements(self, phase: Phase, losses: dict[str, Tensor], out: BatchOutputs, gradient: Tensor) -> Tensor:
        with torch.no_grad():
            values = {name: value.detach() for name, value in losses.items()}
            if self.plan.trains_posterior:
                values["mutual_information"] = mutual_information(out.log_p)
                for name, objective in _WATCHED.items():
                    if name not in losses:
                        values[f"watched_{name}"] = objective(out, {})[0]
            here = share_of(out.generator)
            if self.plan.models_density:
                values["log_density"] = here.mean(out.data_log_density.mean(-1))
                largest = out.log_density.abs().amax(-1, keepdim=True)
                values["largest_log_density"] = here.all_rows(largest, -1).amax(-1)
            values["gradient_norm"] = torch.linalg.vector_norm(gradient, dim=-1)
            if out.samples is not None:
                values |= _sampling_signs(out, out.samples, here)
            self._measured[phase] = tuple(values)
            # processes decide by these numbers: no bit of them may differ
            return here.mean(torch.stack([v.to(torch.float64) for v in values.values()]))


@dataclass(frozen=True)
class _Training:
    """What objectives may ask of the trainer between iterations."""

    state: TrainState
    views: Views

    @property
    def iteration(self) -> int:
        return self.state.iteration

    @property
    def members(self) -> tuple[int, ...]:
        return self.state.members

    @property
    def device(self) -> torch.device:
        return self.state.weights.device

    @property
    def n_rows(self) -> int:
        return self.views.n_rows

    @property
    def n_clusters(self) -> int:
        return self.state.network.centers.shape[-1]

    @property
    def n_embedding(self) -> int:
        return self.state.network.centers.shape[-2]

    @property
    def n_hidden(self) -> int:
        with torch.no_grad():
            return self.state.network.features(self.views.points(0, 2)).shape[-1]

    def average_features(self) -> Float[Tensor, "*m n h"]:
        return of_all_rows(self.state.average.features, self.views)

    def average_logits(self) -> Float[Tensor, "*m n c"]:
        return of_all_rows(self.state.average.logits, self.views)

    def exchange_clusters(self, order: Int64[Tensor, " c"], event: str) -> None:
        self.state.exchange_clusters(order)
        self.state.events.append(f"iteration {self.state.iteration}: {event}")


@contextmanager
def quick_products() -> Iterator[None]:
    """Products of 32-bit matrices by a GPU's matrix units: chains bear their rounding, losses are spared it."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def learning_rate(optimiser: Optimiser, iteration: int) -> float:
    """Linear warm-up, plateau, exponential decay to `decay_to` of the peak."""
    o = optimiser
    progress = iteration / o.iterations
    ramp = min(1.0, (iteration + 1) / o.warmup) if o.warmup else 1.0
    decay = 1.0
    if progress > o.decay_from and o.decay_to > 0:
        decay = math.exp(math.log(o.decay_to) * (progress - o.decay_from) / (1 - o.decay_from))
    return o.learning_rate * ramp * decay


def _sampling_signs(out: BatchOutputs, samples: Samples, here: Share) -> dict[str, Tensor]:
    signs = {}
    assert out.sample_log_density is not None
    data, model = (here.all_rows(part, -1) for part in (out.data_log_density, out.sample_log_density))
    if samples.log_q is not None:
        weights = torch.softmax(model - here.all_rows(samples.log_q, -1), dim=-1)
        signs["energy_gap"] = data.mean(-1) - (weights * model).sum(-1)
        signs["effective_samples"] = effective_sample_size(out.sample_log_density, samples.log_q)
    else:
        signs["energy_gap"] = data.mean(-1) - model.mean(-1)
    if samples.acceptance is not None:
        signs["acceptance"] = samples.acceptance
    return signs
