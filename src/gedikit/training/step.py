"""One training iteration: two views, model samples, one forward pass, named terms, one update."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit import objectives
from gedikit.data.views import Views
from gedikit.methods import Method
from gedikit.settings import Settings
from gedikit.training.negatives import Batch, Negatives
from gedikit.training.state import TrainState


@dataclass(frozen=True)
class TrainStep:
    """What stays fixed over a training run; calling it advances a TrainState by one iteration."""

    settings: Settings
    method: Method
    views: Views
    n_rows: int
    negatives: Negatives | None
    log_prior: Float[Tensor, " c"]

    def __call__(self, state: TrainState, *, measure: bool = False) -> dict[str, float]:
        """Advance; with `measure`, report the losses and the health signs (this reads the device)."""
        s = self.settings
        progress = state.iteration / s.iterations
        terms = self.method.terms_at(progress)
        device, size = state.weights.device, min(s.batch_size, self.n_rows)
        rows = torch.randint(self.n_rows, (size,), generator=state.generator, device=device)
        x, view = self.views(rows, progress, state.generator)
        parts = [x, view]
        negative = self.negatives.draw(state) if self.negatives and "generative" in terms else None
        if negative is not None:
            parts.append(negative.points)
        outputs = Outputs.of(state.network.logits(torch.cat(parts)), size, negative)
        losses = self._losses(terms, outputs)
        total = sum(getattr(s, name) * value for name, value in losses.items())
        assert isinstance(total, Tensor)

        parameters = list(state.network.parameters())
        gradients = torch.autograd.grad(total, parameters, materialize_grads=True)
        state.weights.grad = torch.cat([g.reshape(-1) for g in gradients])
        state.optimiser.param_groups[0]["lr"] = learning_rate(s, state.iteration) * state.rate_scale
        state.optimiser.step()
        state.iteration += 1
        keep = min(s.average, state.iteration / (state.iteration + 9))
        state.average_weights.lerp_(state.weights.detach(), 1 - keep)
        return _measurements(losses, outputs, state.weights.grad) if measure else {}

    def _losses(self, terms: tuple[str, ...], out: "Outputs") -> dict[str, Tensor]:
        losses: dict[str, Tensor] = {}
        if "invariance" in terms:
            losses["invariance"] = objectives.invariance(out.log_p, out.view_log_p)
        if "prior" in terms:
            losses["prior"] = objectives.prior(out.log_p, self.log_prior)
        if out.negative is not None:
            if out.negative.log_q is not None:
                losses["generative"] = objectives.importance_generative(out.data, out.model, out.negative.log_q)
            else:
                losses["generative"] = objectives.generative(out.data, out.model)
            if self.settings.energy_l2:
                losses["energy_l2"] = objectives.energy_l2(out.data, out.model)
        return losses


class Outputs(NamedTuple):
    """What one forward pass of [x, x′, x⁻] says: posteriors and log-densities, from one logsumexp."""

    log_p: Float[Tensor, "b c"]
    view_log_p: Float[Tensor, "b c"]
    data: Float[Tensor, " b"]
    model: Float[Tensor, " m"]
    density: Float[Tensor, " n"]
    negative: Batch | None

    @classmethod
    def of(cls, logits: Float[Tensor, "n c"], size: int, negative: Batch | None) -> "Outputs":
        density = torch.logsumexp(logits, dim=-1)
        log_p = logits[: 2 * size] - density[: 2 * size, None]
        return cls(log_p[:size], log_p[size:], density[:size], density[2 * size :], density, negative)


def learning_rate(settings: Settings, iteration: int) -> float:
    """Linear warm-up, plateau, exponential decay to `decay_to` of the peak."""
    progress = iteration / settings.iterations
    ramp = min(1.0, (iteration + 1) / settings.warmup) if settings.warmup else 1.0
    decay = 1.0
    if progress > settings.decay_from and settings.decay_to > 0:
        decay = math.exp(math.log(settings.decay_to) * (progress - settings.decay_from) / (1 - settings.decay_from))
    return settings.learning_rate * ramp * decay


def _measurements(losses: dict[str, Tensor], out: Outputs, gradient: Tensor) -> dict[str, float]:
    with torch.no_grad():
        values = {name: value.detach() for name, value in losses.items()}
        values["mutual_information"] = objectives.mutual_information(out.log_p)
        values["log_density"] = out.data.mean()
        values["largest_log_density"] = out.density.abs().amax()
        values["gradient_norm"] = torch.linalg.vector_norm(gradient)
        if out.negative is not None:
            log_q = out.negative.log_q
            if log_q is not None:
                weights = torch.softmax(out.model - log_q, dim=0)
                values["energy_gap"] = out.data.mean() - weights @ out.model
                values["effective_samples"] = objectives.effective_sample_size(out.model, log_q)
            else:
                values["energy_gap"] = out.data.mean() - out.model.mean()
            if out.negative.acceptance is not None:
                values["acceptance"] = out.negative.acceptance
        stacked = torch.stack([v.to(torch.float64) for v in values.values()]).cpu()
    return dict(zip(values, stacked.tolist(), strict=True))
