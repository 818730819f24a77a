"""What one forward pass of [x, x′, …, x⁻] says; each quantity is computed when it is asked for."""

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from gedikit.model import EnergyClassifier
from gedikit.randomness import Randomness
from gedikit.samplers import Samples
from gedikit.training.state import TrainState


class BatchOutputs:
    """The `Outputs` that objectives look at, and the log-densities that the density is trained by."""

    def __init__(
        self,
        state: TrainState,
        rows: Int[Tensor, "*m b"],
        x: Float[Tensor, "*m b d"],
        view: Float[Tensor, "*m b d"],
        views: Sequence[Float[Tensor, "*m b d"]],
        samples: Samples | None,
        log_prior: Float[Tensor, "*m c"],
        held_out: Bool[Tensor, " n"],
        phases: Mapping[str, Hashable],
        drawn: Int[Tensor, "*m k"] | None = None,
    ):
        """`view` is one x′ in any case, `views` are as many as the objectives want."""
        self._state, self._network, self._held_out = state, state.network, held_out
        self.rows, self.views, self.samples = rows, views, samples
        self.log_prior, self.phases, self._drawn = log_prior, phases, drawn
        self._view, self._size = view, x.shape[-2]
        parts = [x, *views] if samples is None else [x, *views, samples.points]
        self._points = torch.cat(parts, dim=-2)
        if state.network.batch_normalised:  # the statistics are of one view at a time
            self._embeddings = torch.cat([state.embed(part) for part in parts], dim=-2)
        else:
            self._embeddings = state.embed(self._points)

    @property
    def drawn(self) -> Int[Tensor, "*m k"]:
        return self.rows if self._drawn is None else self._drawn

    @property
    def network(self) -> EnergyClassifier:
        return self._network

    @property
    def generator(self) -> Randomness:
        return self._state.generator

    @property
    def x(self) -> Float[Tensor, "*m b d"]:
        return self._part(self._points, 0)

    @property
    def held_out(self) -> Bool[Tensor, "*m b"]:
        return self._held_out[self.rows]

    @property
    def log_q(self) -> Float[Tensor, "*m k"] | None:
        return None if self.samples is None else self.samples.log_q

    def _part(self, of: Tensor, number: int) -> Tensor:
        return of[..., number * self._size : (number + 1) * self._size, :]

    @property
    def z(self) -> Float[Tensor, "*m b l"]:
        return self._part(self._embeddings, 0)

    @property
    def view_z(self) -> Float[Tensor, "*m b l"]:
        return self._part(self._embeddings, 1)

    @property
    def all_view_z(self) -> list[Float[Tensor, "*m b l"]]:
        return [self._part(self._embeddings, i + 1) for i in range(len(self.views))]

    @cached_property
    def _logits(self) -> Float[Tensor, "*m n c"]:
        return self._network.cluster_scores(self._embeddings)

    @cached_property
    def _log_sum(self) -> Float[Tensor, "*m n"]:
        return torch.logsumexp(self._logits, dim=-1)

    @property
    def x_logits(self) -> Float[Tensor, "*m b c"]:
        return self._part(self._logits, 0)

    @property
    def view_logits(self) -> Float[Tensor, "*m b c"]:
        return self._part(self._logits, 1)

    @cached_property
    def _log_p(self) -> Float[Tensor, "*m v c"]:
        rows = (1 + len(self.views)) * self._size
        return self._logits[..., :rows, :] - self._log_sum[..., :rows, None]

    @property
    def log_p(self) -> Float[Tensor, "*m b c"]:
        return self._part(self._log_p, 0)

    @property
    def view_log_p(self) -> Float[Tensor, "*m b c"]:
        """Of the first view; where no objective asked for one, by a pass of its own."""
        if self.views:
            return self._part(self._log_p, 1)
        return torch.log_softmax(self._network.logits(self._view), dim=-1)

    @property
    def temperature(self) -> float:
        return self._network.temperature

    def cluster_logits(self, z: Float[Tensor, "*m n l"]) -> Float[Tensor, "*m n c"]:
        return self._network.cluster_scores(z)

    def teacher_logits(self, x: Float[Tensor, "*m n d"]) -> Float[Tensor, "*m n c"]:
        with torch.no_grad():
            return self._state.average.logits(x)

    def logits(self, x: Float[Tensor, "*p n d"]) -> Float[Tensor, "*m n c"]:
        """Of points that models side by side share, or that each has of its own."""
        return self._network.logits(x.expand(*self._state.members, *x.shape[-2:]))

    def module(self, name: str) -> nn.Module:
        return self._network.heads[name]

    @cached_property
    def log_density(self) -> Float[Tensor, "*m n"]:
        """log p of the data and of the samples, in this order; of the views too where they cost nothing."""
        density = self._network.density
        if density.from_logits:
            return self._log_sum
        kept = [slice(0, self._size), slice((1 + len(self.views)) * self._size, None)]
        x = torch.cat([self._points[..., part, :] for part in kept], dim=-2)
        z = torch.cat([self._embeddings[..., part, :] for part in kept], dim=-2)
        return density.log_density(self._network, x, z)

    @property
    def data_log_density(self) -> Float[Tensor, "*m b"]:
        return self.log_density[..., : self._size]

    @property
    def sample_log_density(self) -> Float[Tensor, "*m k"] | None:
        return None if self.samples is None else self.log_density[..., -self.samples.points.shape[-2] :]
