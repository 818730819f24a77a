"""One training iteration: two views, model samples, one forward pass, named terms, one update."""

import math
from dataclasses import dataclass

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
        device = state.chain_step.device
        rows = torch.randint(self.n_rows, (min(s.batch_size, self.n_rows),), generator=state.generator, device=device)
        x, view = self.views(rows, progress, state.generator)
        parts = [x, view]
        negative = self.negatives.draw(state) if self.negatives and "generative" in terms else None
        if negative is not None:
            parts.append(negative.points)
        logits = state.network.logits(torch.cat(parts)).split([len(p) for p in parts])
        losses = self._losses(terms, logits, negative)
        total = sum((getattr(s, name) * value for name, value in losses.items()), torch.zeros((), device=device))

        parameters = list(state.network.parameters())
        gradients = torch.autograd.grad(total, parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        state.optimiser.param_groups[0]["lr"] = learning_rate(s, state.iteration) * state.rate_scale
        state.optimiser.step()
        state.iteration += 1
        self._update_average(state)
        if not measure:
            return {}
        return _measurements(losses, logits, negative, [g for g in gradients if g is not None])

    def _losses(
        self, terms: tuple[str, ...], logits: tuple[Tensor, ...], negative: Batch | None
    ) -> dict[str, Tensor]:
        losses: dict[str, Tensor] = {}
        if "invariance" in terms:
            losses["invariance"] = objectives.invariance(logits[0], logits[1])
        if "prior" in terms:
            losses["prior"] = objectives.prior(logits[0], self.log_prior)
        if negative is not None:
            data = torch.logsumexp(logits[0], -1)
            model = torch.logsumexp(logits[2], -1)
            if negative.log_q is not None:
                losses["generative"] = objectives.importance_generative(data, model, negative.log_q)
            else:
                losses["generative"] = objectives.generative(data, model)
            if self.settings.energy_l2:
                losses["energy_l2"] = objectives.energy_l2(data, model)
        return losses

    def _update_average(self, state: TrainState) -> None:
        keep = min(self.settings.average, state.iteration / (state.iteration + 9))
        with torch.no_grad():
            torch._foreach_lerp_(list(state.average.parameters()), list(state.network.parameters()), 1 - keep)


def learning_rate(settings: Settings, iteration: int) -> float:
    """Linear warm-up, plateau, exponential decay to `decay_to` of the peak."""
    progress = iteration / settings.iterations
    ramp = min(1.0, (iteration + 1) / settings.warmup) if settings.warmup else 1.0
    decay = 1.0
    if progress > settings.decay_from and settings.decay_to > 0:
        decay = math.exp(
            math.log(settings.decay_to) * (progress - settings.decay_from) / (1 - settings.decay_from)
        )
    return settings.learning_rate * ramp * decay


def _measurements(
    losses: dict[str, Tensor], logits: tuple[Tensor, ...], negative: Batch | None, gradients: list[Tensor]
) -> dict[str, float]:
    with torch.no_grad():
        data = torch.logsumexp(logits[0], -1)
        values = {name: value.detach() for name, value in losses.items()}
        values["mutual_information"] = objectives.mutual_information(logits[0])
        values["log_density"] = data.mean()
        values["largest_log_density"] = torch.logsumexp(torch.cat(logits), -1).abs().amax()
        values["gradient_norm"] = torch.linalg.vector_norm(
            torch.stack([torch.linalg.vector_norm(g) for g in gradients])
        )
        if negative is not None:
            model = torch.logsumexp(logits[2], -1)
            if negative.log_q is not None:
                weights = torch.softmax(model - negative.log_q, dim=0)
                values["energy_gap"] = data.mean() - (weights * model).sum()
                values["effective_samples"] = objectives.effective_sample_size(model, negative.log_q)
            else:
                values["energy_gap"] = data.mean() - model.mean()
            if negative.acceptance is not None:
                values["acceptance"] = negative.acceptance
        stacked = torch.stack([v.to(torch.float64) for v in values.values()]).cpu()
    return dict(zip(values, stacked.tolist(), strict=True))
