"""The multi-noise energy: one network is the density of the data at every noise level, and normalised at each.

    log p_σ(x) = log q_σ(x) + f(x, σ),    p_σ(x, y) = p_σ(x) p(y|x, σ)

q_σ is a mixture that is exact at every level (`mixture`), f a head on the network's embedding at that level. f is
learned by telling noised rows from noised samples of q (noise-contrastive estimation; Gutmann & Hyvärinen, 2012) at
all levels at once: its optimum is log p_σ/q_σ, with the constant, so nothing floats and there are no chains that
could run away. The posterior at a level is drawn towards that of the clean row. The paper's p(x, y) is the end at
the smallest level σ₀; nothing is evaluated below it.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from gedikit.components import setting
from gedikit.densities.base import (
    GENERATIVE,
    Density,
    DensityBatch,
    DensityContext,
    DensityModule,
    Embeddings,
    LogDensities,
    Points,
    register_density,
)
from gedikit.densities.estimators import effective_sample_size, log_normaliser
from gedikit.densities.mixture import NoisedMixture, blank_mixture, fit_mixture
from gedikit.objectives import batch
from gedikit.objectives.loss import full_precision
from gedikit.randomness import share_of

_LEVELS = 8  # at which the normaliser is measured
_PROPOSALS = 4000  # samples of the mixture for it
_STRENGTHS = torch.linspace(0, 1, 21)
_SMALLEST = (0.02, 0.1)  # limits of σ₀, in deviations of the scaled columns
_OF_BANDWIDTH = 0.25
_STEPS = 24
_CANDIDATES = 8  # for a sample of a cluster
_FOLLOWED, _FOLLOWED_STEPS = 64, 16  # held-out rows, and steps, that the probability flow is followed for
_DIFFERENCE = 0.05  # of a level: where scores are compared for their divergence
_SCHEDULE = 7.0  # of the levels that samples come down by (Karras et al., 2022)


@full_precision
def contrastive_loss(
    data: Float[Tensor, " n"], mixture: Float[Tensor, " k"], whole: int | None = None
) -> Float[Tensor, ""]:
    """Logistic loss of telling data from samples of the mixture by f; 2 log 2 where they are alike.

    `whole` is the number of each, where processes do not hold equally many.
    """
    return batch.mean(F.softplus(-data), whole) + batch.mean(F.softplus(mixture), whole)


@full_precision
def noised_posterior_loss(
    clean: Float[Tensor, "n c"], noised: Float[Tensor, "n c"], whole: int | None = None
) -> Float[Tensor, ""]:
    """Cross-entropy of the posterior of noised rows to that of the clean ones, from log-probabilities."""
    return -batch.mean((clean.exp() * noised).sum(-1), whole)


class MultiNoiseModule(DensityModule):
    """log q_σ + strength · f − log Γ(σ); strength and Γ are measured when the training is over."""

    normalised: ClassVar[bool] = True
    samples_clusters: ClassVar[bool] = True
    strength: Tensor
    log_normalisers: Tensor

    def __init__(self, mixture: NoisedMixture, n_embedding: int, levels: tuple[float, float]):
        super().__init__()
        self.mixture = mixture
        self.levels = levels
        self.head = nn.Linear(n_embedding, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.register_buffer("strength", torch.ones(()))
        self.register_buffer("log_normalisers", torch.zeros(_LEVELS))

    @property
    def log_levels(self) -> tuple[float, float]:
        return math.log(self.levels[0]), math.log(self.levels[1])

    def tilt(self, z: Embeddings) -> LogDensities:
        """f of embeddings at any level."""
        tilt: Tensor = self.head(z)[..., 0]
        return tilt

    def log_density(self, network: Any, x: Points, z: Embeddings | None) -> LogDensities:
        """log p at the smallest level; `at_level` for others."""
        sigma = x.new_full((len(x), 1), self.levels[0])
        return self._combined(x, sigma, network.embed(x) if z is None else z)

    def at_level(self, network: Any, x: Float[Tensor, "n d"], sigma: Float[Tensor, "n 1"]) -> Float[Tensor, " n"]:
        """log p_σ(x), each row at its own level."""
        return self._combined(x, sigma, network.embed(x, sigma))

    def _combined(self, x: Tensor, sigma: Tensor, z: Tensor) -> Tensor:
        tilted = self.mixture.log_density(x, sigma) + self.strength * self.tilt(z)
        return tilted - self._log_normaliser(sigma)

    def _log_normaliser(self, sigma: Float[Tensor, "n 1"]) -> Float[Tensor, " n"]:
        """log Γ at any level, linear in log σ between those it was measured at."""
        low, high = self.log_levels
        place = (sigma[:, 0].log() - low) / (high - low) * (_LEVELS - 1)
        place = place.clamp(0, _LEVELS - 1)
        left = place.floor().long().clamp_max(_LEVELS - 2)
        share = place - left
        return (1 - share) * self.log_normalisers[left] + share * self.log_normalisers[left + 1]

    @torch.no_grad()
    def calibrate(
        self, network: Any, held_out: Float[Tensor, "h d"], generator: torch.Generator
    ) -> dict[str, float]:
        """Measure Γ, and take as much of f as held-out rows support; returns what was found, in nats.

        f was learned from finitely many rows. Between none of it, which leaves the mixture, and all of it held-out
        rows decide, at the smallest level.
        """
        tilts = self._of_proposals(network, generator)
        smallest = self._grid(tilts.device)[0]
        noise = torch.randn(held_out.shape, generator=generator, device=tilts.device)
        noised = held_out + smallest * noise
        held = self._tilts(network, noised, smallest)
        strengths = _STRENGTHS.to(tilts.device)
        at_smallest = strengths[:, None] * tilts[0]
        normalisers = log_normaliser(at_smallest, torch.zeros_like(at_smallest))
        gains = strengths * held.mean() - normalisers
        # no more than is certain: the smallest strength within one standard error of the best
        best = int(gains.argmax())
        differences = (strengths[best] - strengths)[:, None] * held
        uncertain = differences.std(1, correction=0) / max(1, len(held)) ** 0.5
        taken = int(torch.nonzero(gains >= gains[best] - uncertain)[0])
        effective = self._normalise(tilts, strengths[taken])
        told = self.at_level(network, noised, smallest.expand(len(noised), 1))
        followed = self.flow_log_density(network, noised[:_FOLLOWED], generator)
        return {
            "strength": float(self.strength),
            "gain": float(gains[taken]),
            "effective_samples": effective,
            "held_out_log_density": float(told.mean()),
            "flow_gap": float((told[:_FOLLOWED] - followed).mean()),
        }

    def _of_proposals(self, network: Any, generator: torch.Generator) -> Float[Tensor, "l k"]:
        """f of samples of the mixture, at the levels of the grid."""
        grid = self._grid(generator.device)
        proposals = self.mixture.sample(_PROPOSALS, generator)
        noise = torch.randn(proposals.shape, generator=generator, device=grid.device)
        return torch.stack([self._tilts(network, proposals + sigma * noise, sigma) for sigma in grid])

    def _normalise(self, tilts: Float[Tensor, "l k"], strength: Float[Tensor, ""]) -> float:
        """Set strength and Γ; returns the share of the samples that carry the weight at the smallest level."""
        self.strength.copy_(strength)
        weights = strength * tilts
        proposed = torch.zeros_like(weights)  # f is relative to what the samples are drawn from
        self.log_normalisers.copy_(log_normaliser(weights, proposed))
        return float(effective_sample_size(weights, proposed)[0])

    def _grid(self, device: torch.device) -> Float[Tensor, " l"]:
        low, high = self.log_levels
        return torch.exp(torch.linspace(low, high, _LEVELS, device=device))

    def _tilts(self, network: Any, x: Tensor, sigma: Tensor) -> Tensor:
        return self.tilt(network.embed(x, sigma.expand(len(x), 1)))

    def draw(self, network: Any, n: int, cluster: int | None, generator: torch.Generator) -> Float[Tensor, "n d"]:
        """n samples along the probability flow from the largest level down to the smallest, of a cluster if given.

        dx/dσ = −σ ∇ log p_σ(x) takes p_σ to p_σ₀ (Song et al., 2021); Heun's steps over falling levels.
        """
        x = self._noise(network, n, cluster, generator)
        for now, then in pairwise(self._falling(_STEPS)):
            slope = -now * self._score(network, x, now, cluster)
            ahead = x + (then - now) * slope
            after = -then * self._score(network, ahead, then, cluster)
            x = x + (then - now) * 0.5 * (slope + after)
        return x

    @torch.no_grad()
    def flow_log_density(
        self, network: Any, x: Float[Tensor, "n d"], generator: torch.Generator
    ) -> Float[Tensor, " n"]:
        """log p at the smallest level as the scores of all levels tell it, from the density at the largest one.

        Along the probability flow d log p_σ(x)/dσ = σ div ∇ log p_σ(x) (Song et al., 2021). If the levels were not
        densities of the same data with more and more noise, this and `log_density` would differ. The divergence is
        a difference of scores along random signs (Hutchinson, 1989).
        """
        total = torch.zeros(len(x), device=x.device)
        for now, then in pairwise(self._falling(_FOLLOWED_STEPS)[::-1]):
            slope = -now * self._score(network, x, now, None)
            ahead = x + (then - now) * slope
            after = -then * self._score(network, ahead, then, None)
            here, there = (
                level * self._divergence(network, point, level, generator)
                for level, point in ((now, x), (then, ahead))
            )
            total = total + (then - now) * 0.5 * (here + there)
            x = x + (then - now) * 0.5 * (slope + after)
        return self.at_level(network, x, x.new_full((len(x), 1), self.levels[1])) - total

    def _divergence(self, network: Any, x: Tensor, level: float, generator: torch.Generator) -> Tensor:
        signs = torch.randint(0, 2, x.shape, generator=generator, device=x.device) * 2.0 - 1
        step = _DIFFERENCE * level
        difference = self._score(network, x + step * signs, level, None) - self._score(
            network, x - step * signs, level, None
        )
        return (signs * difference).sum(-1) / (2 * step)

    def _falling(self, steps: int) -> list[float]:
        """Levels from the largest to the smallest, denser towards the end."""
        low, high = self.levels
        root = 1 / _SCHEDULE
        return [(high**root + i / steps * (low**root - high**root)) ** _SCHEDULE for i in range(steps + 1)]

    def _noise(self, network: Any, n: int, cluster: int | None, generator: torch.Generator) -> Tensor:
        """Samples at the largest level; of a cluster by p(y|x) there."""
        high = self.levels[1]
        x = self.mixture.sample(n if cluster is None else _CANDIDATES * n, generator)
        x = x + high * torch.randn(x.shape, generator=generator, device=x.device)
        if cluster is None:
            return x
        with torch.no_grad():
            scores = network.cluster_scores(network.embed(x, x.new_full((len(x), 1), high)))
        return x[torch.multinomial(scores.softmax(-1)[:, cluster], n, generator=generator)]

    def _score(self, network: Any, x: Tensor, level: float, cluster: int | None) -> Tensor:
        """∇ log p_σ(x), or of log p_σ(x, y) for a cluster."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            sigma = x.new_full((len(x), 1), level)
            z = network.embed(x, sigma)
            total = self._combined(x, sigma, z).sum()
            if cluster is not None:
                total = total + network.cluster_scores(z).log_softmax(-1)[:, cluster].sum()
            (score,) = torch.autograd.grad(total, x)
        return score


@register_density("multi-noise-energy")
@dataclass(frozen=True)
class MultiNoiseEnergy(Density):
    """A mixture times a learned factor, at all noise levels."""

    samples: int = setting(256, "samples of the mixture an iteration", above=0)
    smallest: float = setting(0.0, "σ₀, in scaled units; 0: from the data's kernel bandwidth", at_least=0)
    largest: float = setting(3.0, "the largest noise level, in scaled units", above=0)
    posterior: float = setting(1.0, "weight of the posterior of noised rows", at_least=0)
    rows: int = setting(5000, "rows that the mixture is fitted to, at most", above=1)

    summary: ClassVar[str] = "a mixture times a learned factor at every noise level; normalised"
    reference: ClassVar[str] = "cf. Gutmann & Hyvärinen, 2012; Gao et al., 2021; Guo et al., 2023"
    normalised: ClassVar[bool] = True
    noised: ClassVar[bool] = True
    stackable: ClassVar[bool] = False
    capturable: ClassVar[bool] = False

    @property
    def n_references(self) -> int:
        return self.rows

    def level(self, bandwidth: float) -> float:
        """σ₀: a part of the kernel bandwidth, so that what the data resolves is kept."""
        low, high = _SMALLEST
        return self.smallest or min(high, max(low, _OF_BANDWIDTH * bandwidth))

    def build(self, context: DensityContext) -> DensityModule:
        smallest = self.level(context.bandwidth)
        if len(context.references):
            mixture = fit_mixture(
                context.references, context.held_out, smallest, context.bandwidth, context.generator
            )
        else:
            mixture = blank_mixture(context.n_features)
        return MultiNoiseModule(mixture, context.n_embedding, (smallest, max(self.largest, 2 * smallest)))

    def batch_losses(self, out: DensityBatch) -> dict[str, Float[Tensor, ""]]:
        module = out.network.density
        assert isinstance(module, MultiNoiseModule)
        assert isinstance(out.generator, torch.Generator)
        here, learned = share_of(out.generator), ~out.held_out
        counts = here.all_rows(learned.sum()[None], 0).tolist()
        if not any(counts):  # a batch of very few rows
            learned, counts = torch.ones_like(learned), [learned.numel()] * here.count
        whole, before = min(self.samples, sum(counts)), sum(counts[: here.rank])
        trained = out.x[learned][: max(0, whole - before)]
        n = len(trained)
        # numbers are drawn for the rows of all processes, which cannot be known to be equally many
        drawn = module.mixture.sample(whole, out.generator)
        low, high = module.log_levels
        uniform = torch.rand(whole, 1, generator=out.generator, device=drawn.device)
        uniform[: whole // 2] = 0  # half of them at the level that matters most
        sigma = torch.exp(low + (high - low) * uniform)
        noise = torch.randn((2, *drawn.shape), generator=out.generator, device=drawn.device)
        own, made = slice(before, before + n), here.part(whole)
        rows = torch.cat([trained, drawn[made]])
        sigma, noise = torch.cat([sigma[own], sigma[made]]), torch.cat([noise[0, own], noise[1, made]])
        z = out.network.embed(rows + sigma * noise, sigma)
        tilts = module.tilt(z)
        losses = {GENERATIVE: contrastive_loss(tilts[:n], tilts[n:], whole)}
        if self.posterior:
            clean = out.log_p[learned][:n].detach()
            noised = out.network.cluster_scores(z[:n]).log_softmax(-1)
            losses["noised_posterior"] = noised_posterior_loss(clean, noised, whole)
        return losses

    @property
    def weights(self) -> dict[str, float]:
        return {GENERATIVE: self.weight, "noised_posterior": self.posterior}
