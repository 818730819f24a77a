"""One training iteration: two views, model samples, one forward pass, named terms, one update."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit import objectives
from gedikit.data.views import Batch, Views
from gedikit.methods import Method
from gedikit.model import ClusterEnergy, EnergyClassifier
from gedikit.settings import Settings
from gedikit.training.capture import CapturedGraph
from gedikit.training.negatives import Samples, Source
from gedikit.training.rules import Rules
from gedikit.training.state import TrainState, accelerates
from gedikit.training.terms import TERMS, Look


@dataclass(frozen=True)
class TrainStep:
    """What stays fixed over a training run; calling it advances a TrainState by one iteration.

    A state of several models is advanced in one go: their weights of the terms may differ, all else is shared.
    """

    settings: Settings
    method: Method
    views: Views
    negatives: Source | None
    log_prior: Float[Tensor, "*m c"]
    weights: dict[str, float | Tensor]
    rules: Rules | None = None
    reading: Float[Tensor, "n c"] | None = None  # p(label | row) before the network has learned
    _measured: dict["Phase", tuple[str, ...]] = field(default_factory=dict, repr=False)  # names of measurements

    def start(self, state: TrainState) -> None:
        """Give the terms the memory they begin with."""
        for name in self.method.terms:
            if name in TERMS:
                state.memory |= TERMS[name].start(state, self.settings, self.views)

    def __call__(self, state: TrainState, *, measure: bool = False) -> list[dict[str, float]]:
        """Advance; with `measure`, report the losses and the health signs of each model (this reads the device)."""
        s = self.settings
        phase = self.phase(state.iteration, measure=measure)
        self._refresh(phase.terms, state)
        batch = self.views.batch(s.batch_size, state.iteration, phase.level, state.generator)
        done = state.iteration + 1
        state.set_rates(learning_rate(s, state.iteration) * state.rate_scale, min(s.average, done / (done + 9)))
        values = self._run(state, phase, batch)
        state.iteration = done
        if values is None:
            return []
        columns = values.cpu().reshape(len(values), -1).T.tolist()
        return [dict(zip(self._measured[phase], column, strict=True)) for column in columns]

    def phase(self, iteration: int, *, measure: bool = False) -> "Phase":
        s = self.settings
        progress = iteration / s.iterations
        return Phase(
            self.method.terms_at(progress),
            self.views.level(progress),
            frozen_prototypes=iteration < s.freeze_prototypes,
            full_queue=0 < s.queue <= iteration * s.batch_size,
            measure=measure,
        )

    def _run(self, state: TrainState, phase: "Phase", batch: Batch) -> Tensor | None:
        """The iteration, from a captured graph where there is one."""
        held = all(TERMS[name].captured for name in phase.terms if name in TERMS)
        if not held or not accelerates(self.settings, state.weights.device):
            return self._advance(state, phase, batch)
        others = list(state.graphs.values())
        graph = state.graphs.setdefault(phase, CapturedGraph())
        return graph.run(lambda inputs: self._advance(state, phase, inputs), batch, state.generator, others)

    def _advance(self, state: TrainState, phase: "Phase", batch: Batch) -> Tensor | None:
        """All that happens on the device; returns the measurements."""
        with state.in_place():
            look = self._look(state, phase, batch)
            losses = self._losses(phase.terms, look)
            total = sum((self.weights[name] * value).sum() for name, value in losses.items())
            assert isinstance(total, Tensor)
            gradient = self._gradient(total, state, phase)
            state.weights.grad = gradient
            state.optimiser.step()
            # the average may have taught in this iteration: it moves last
            state.average_weights.lerp_(state.weights.detach(), 1 - state.average_keep)
            return self._measurements(phase, losses, look, gradient) if phase.measure else None

    def _look(self, state: TrainState, phase: "Phase", batch: Batch) -> Look:
        wanted = max([TERMS[name].views(self.settings) for name in phase.terms if name in TERMS], default=0)
        x, view = self.views(batch, phase.level, state.generator)
        others = [self.views(batch, phase.level, state.generator, i)[1] for i in range(1, wanted)]
        views = (view, *others)[:wanted]
        negative = self.negatives.draw(state) if self.negatives and "generative" in phase.terms else None
        outputs = Outputs(state.network, state.embed, x, views, negative)
        rows, prior = batch[0], self.log_prior
        return Look(self.settings, state, phase, rows, views, view, outputs, prior, self.rules, self.reading)

    def _gradient(self, total: Tensor, state: TrainState, phase: "Phase") -> Tensor:
        parameters = list(state.network.parameters())
        learning = [p for p in parameters if p.requires_grad]  # of an encoder that was brought, perhaps not all
        found = iter(torch.autograd.grad(total, learning, materialize_grads=True))
        gradients = [next(found) if p.requires_grad else torch.zeros_like(p) for p in parameters]
        if phase.frozen_prototypes:
            gradients = [
                torch.zeros_like(g) if p is state.network.centers else g
                for p, g in zip(parameters, gradients, strict=True)
            ]
        return torch.cat([g.reshape(*state.members, -1) for g in gradients], dim=-1)

    def _refresh(self, terms: tuple[str, ...], state: TrainState) -> None:
        for term in [TERMS[name] for name in terms if name in TERMS]:
            if term.refresh is not None and state.iteration % term.every(self.settings) == 0:
                with torch.no_grad(), state.in_place():
                    term.refresh(state, self.settings, self.views, self.rules)

    def _losses(self, terms: tuple[str, ...], look: Look) -> dict[str, Tensor]:
        losses = {name: TERMS[name].loss(look) for name in terms if name in TERMS}
        if "generative" not in terms:
            return losses
        data, negative = look.out.data, look.out.negative
        if negative is None:
            losses["generative"] = objectives.likelihood_generative(data)
            return losses
        model = look.out.model
        if negative.log_q is not None:
            losses["generative"] = objectives.importance_generative(data, model, negative.log_q)
        else:
            losses["generative"] = objectives.generative(data, model, self.settings.largest_gap)
        if self.settings.energy_l2:
            losses["energy_l2"] = objectives.energy_l2(data, model)
        return losses

    def _measurements(self, phase: "Phase", losses: dict[str, Tensor], look: Look, gradient: Tensor) -> Tensor:
        out = look.out
        with torch.no_grad():
            values = {name: value.detach() for name, value in losses.items()}
            if self.method.labels == "posterior":
                values["mutual_information"] = objectives.mutual_information(out.log_p)
                values |= self._watched(losses, out, look.view)
            if self.method.models_density:
                values["log_density"] = out.data.mean(-1)
                values["largest_log_density"] = out.density.abs().amax(-1)
            values["gradient_norm"] = torch.linalg.vector_norm(gradient, dim=-1)
            if out.negative is not None:
                values |= _sampling_signs(out, out.negative)
            self._measured[phase] = tuple(values)
            return torch.stack([v.to(torch.float64) for v in values.values()])

    def _watched(self, losses: dict[str, Tensor], out: "Outputs", view: Tensor) -> dict[str, Tensor]:
        """Invariance and prior where they are not minimised: the loss that was left out shows the failure."""
        watched = {}
        if "invariance" not in losses:
            view_log_p = out.view_log_p if out.n_views else torch.log_softmax(out.network.logits(view), dim=-1)
            watched["watched_invariance"] = objectives.invariance.formula(out.log_p, view_log_p)
        if "prior" not in losses:
            watched["watched_prior"] = objectives.prior.formula(out.log_p, self.log_prior)
        return watched


@dataclass(frozen=True)
class Phase:
    """Everything on the host by which one iteration may differ from the next: a captured graph holds one phase."""

    terms: tuple[str, ...]
    level: int
    frozen_prototypes: bool
    full_queue: bool
    measure: bool


class Outputs:
    """What one forward pass of [x, x′, …, x⁻] says; each reading is computed when it is asked for."""

    def __init__(
        self,
        network: EnergyClassifier,
        embed: Callable[[Tensor], Tensor],
        x: Tensor,
        views: tuple[Tensor, ...],
        negative: Samples | None,
    ):
        self.network, self.negative = network, negative
        self.size, self.n_views = x.shape[-2], len(views)
        parts = [x, *views] if negative is None else [x, *views, negative.points]
        self.points = torch.cat(parts, dim=-2)
        if network.batch_normalised:  # the statistics are of one view at a time
            self.embeddings = torch.cat([embed(part) for part in parts], dim=-2)
        else:
            self.embeddings = embed(self.points)

    def _part(self, of: Tensor, number: int) -> Tensor:
        return of[..., number * self.size : (number + 1) * self.size, :]

    @property
    def z(self) -> Float[Tensor, "*m b l"]:
        return self._part(self.embeddings, 0)

    @property
    def view_z(self) -> Float[Tensor, "*m b l"]:
        return self._part(self.embeddings, 1)

    @property
    def all_view_z(self) -> list[Float[Tensor, "*m b l"]]:
        return [self._part(self.embeddings, i + 1) for i in range(self.n_views)]

    @cached_property
    def logits(self) -> Float[Tensor, "*m n c"]:
        return self.network.cluster_scores(self.embeddings)

    @cached_property
    def log_sum(self) -> Float[Tensor, "*m n"]:
        return torch.logsumexp(self.logits, dim=-1)

    @property
    def logits_of_x(self) -> Float[Tensor, "*m b c"]:
        return self._part(self.logits, 0)

    @property
    def logits_of_view(self) -> Float[Tensor, "*m b c"]:
        return self._part(self.logits, 1)

    @cached_property
    def _log_p(self) -> Float[Tensor, "*m v c"]:
        rows = (1 + self.n_views) * self.size
        return self.logits[..., :rows, :] - self.log_sum[..., :rows, None]

    @property
    def log_p(self) -> Float[Tensor, "*m b c"]:
        return self._part(self._log_p, 0)

    @property
    def view_log_p(self) -> Float[Tensor, "*m b c"]:
        return self._part(self._log_p, 1)

    @cached_property
    def density(self) -> Float[Tensor, "*m n"]:
        """log p(x) of the data and of the negatives, in this order; of the views too where they cost nothing."""
        if isinstance(self.network.density, ClusterEnergy):
            return self.log_sum
        kept = [slice(0, self.size), slice((1 + self.n_views) * self.size, None)]
        x = torch.cat([self.points[..., part, :] for part in kept], dim=-2)
        z = torch.cat([self.embeddings[..., part, :] for part in kept], dim=-2)
        return self.network.density.log_density(self.network, x, z)

    @property
    def data(self) -> Float[Tensor, "*m b"]:
        return self.density[..., : self.size]

    @property
    def model(self) -> Float[Tensor, "*m k"]:
        assert self.negative is not None
        return self.density[..., -self.negative.points.shape[-2] :]


def learning_rate(settings: Settings, iteration: int) -> float:
    """Linear warm-up, plateau, exponential decay to `decay_to` of the peak."""
    progress = iteration / settings.iterations
    ramp = min(1.0, (iteration + 1) / settings.warmup) if settings.warmup else 1.0
    decay = 1.0
    if progress > settings.decay_from and settings.decay_to > 0:
        decay = math.exp(math.log(settings.decay_to) * (progress - settings.decay_from) / (1 - settings.decay_from))
    return settings.learning_rate * ramp * decay


def _sampling_signs(out: Outputs, negative: Samples) -> dict[str, Tensor]:
    signs = {}
    if negative.log_q is not None:
        weights = torch.softmax(out.model - negative.log_q, dim=-1)
        signs["energy_gap"] = out.data.mean(-1) - (weights * out.model).sum(-1)
        signs["effective_samples"] = objectives.effective_sample_size(out.model, negative.log_q)
    else:
        signs["energy_gap"] = out.data.mean(-1) - out.model.mean(-1)
    if negative.acceptance is not None:
        signs["acceptance"] = negative.acceptance
    return signs
