"""A known density q around the data: proposals whose density can be computed exactly.

q mixes the uniform density on Ω with Gaussians of several widths around data points. In a few
dimensions it covers everything the model can put mass on, so the normaliser Γ can be estimated by
importance sampling, afresh in every iteration, with no chain to converge.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.randomness import integers
from gedikit.samplers.domain import Box

_CHUNK = 4096


@dataclass(frozen=True)
class Proposals:
    """q(x) = u/|Ω| + (1−u) mean over widths h and centres a of N(x; a, h²I) cut to Ω and normalised there."""

    centers: Float[Tensor, "k d"]
    widths: tuple[float, ...]
    box: Box
    uniform_share: float = 1 / 3

    def sample(self, n: int, generator: torch.Generator) -> Float[Tensor, "n d"]:
        """n points in random order; every component gives its exact share, which lowers the variance."""
        d, device = self.centers.shape[1], self.centers.device
        n_uniform = round(self.uniform_share * n)
        x = self.box.uniform(n, generator)
        todo = torch.arange(n_uniform, n, device=device)
        widths = torch.tensor(self.widths, device=device)
        turn = torch.arange(len(todo), device=device)
        for _ in range(100):
            pick = (turn // len(widths)) % len(self.centers)
            width = widths[turn % len(widths)]
            noise = torch.randn(len(todo), d, generator=generator, device=device)
            x[todo] = self.centers[pick] + width[:, None] * noise
            outside = ~self.box.contains(x[todo])
            todo, turn = todo[outside], turn[outside]
            if len(todo) == 0:
                break
        order = torch.randperm(n, generator=generator, device=device)
        return x[order]

    def log_prob(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """log q(x) for x in Ω, in blocks of bounded memory."""
        return torch.cat([self._log_prob_block(block) for block in x.split(_CHUNK)])

    def _log_mass_inside(self, h: float) -> Float[Tensor, " k"]:
        """log of the share of each Gaussian that lies in Ω."""
        below = torch.special.ndtr((self.box.low - self.centers) / h)
        above = torch.special.ndtr((self.box.high - self.centers) / h)
        inside: Tensor = (above - below).log().sum(-1)
        return inside

    def _log_prob_block(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        k, d = self.centers.shape
        squared = torch.cdist(x, self.centers).square()
        uniform = math.log(self.uniform_share) - self.box.log_volume
        # relative to the uniform part: the sum is at least 1, so no kernel needs a logarithm of its own
        total = x.new_ones(len(x))
        for h in self.widths:
            share = math.log((1 - self.uniform_share) / len(self.widths) / k)
            log_height = share - 0.5 * d * math.log(2 * math.pi * h * h) - uniform
            weights = torch.exp(log_height - self._log_mass_inside(h))
            # numbers too small to be normal are slow, and add nothing here
            total += torch.exp((squared / (-2 * h * h)).clamp_min_(-80)) @ weights
        return total.log() + uniform


@dataclass(frozen=True)
class ProposalBank:
    """Proposals drawn and scored once, to be drawn from in every iteration at the cost of an index."""

    points: Float[Tensor, "b d"]
    log_q: Float[Tensor, " b"]

    @classmethod
    def build(cls, proposals: Proposals, size: int, generator: torch.Generator) -> "ProposalBank":
        points = proposals.sample(size, generator)
        return cls(points, proposals.log_prob(points))

    def draw(self, n: int, generator: torch.Generator) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        rows = integers(len(self.points), (n,), generator)
        return self.points[rows], self.log_q[rows]

    def log_normaliser(self, log_density: Float[Tensor, " b"]) -> float:
        """log Γ̂ = log 1/m Σ exp f(x_k)/q(x_k): importance sampling of Γ = ∫ exp f."""
        weights = (log_density.double() - self.log_q.double())[:, None]
        return float(torch.logsumexp(weights, dim=-2)[0] - math.log(len(weights)))

    def resample(
        self, log_density: Float[Tensor, " b"], n: int, generator: torch.Generator
    ) -> Float[Tensor, "n d"]:
        """n points by their importance weights: samples of p up to the bank's finite size.

        Systematic resampling: each point is taken as often as its weight says, up to one.
        """
        weights = torch.softmax(log_density.double() - self.log_q.double(), dim=0)
        offset = torch.rand((), generator=generator, device=weights.device, dtype=torch.float64)
        marks = (torch.arange(n, device=weights.device) + offset) / n
        rows = torch.searchsorted(weights.cumsum(0), marks).clamp(max=len(weights) - 1)
        return self.points[rows[torch.randperm(n, generator=generator, device=rows.device)]]
