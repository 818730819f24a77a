"""Fourier features and a smooth perceptron: the encoder of vectors by default."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gedikit.components import setting
from gedikit.encoders.base import Encoder, EncoderContext, Encoding, register_encoder
from gedikit.encoders.mlp import MLP
from gedikit.encoders.perceptron import ACTIVATIONS

_WAVES = 8  # of the logarithm of the noise level
_LONGEST = 8.0  # in its units


class FourierFeatures(nn.Module):
    """x ↦ [x, sin(xW), cos(xW)] with fixed random frequencies W ~ N(0, scale²).

    A plain perceptron learns low frequencies first and leaves thin, curled densities blurred
    (Tancik et al., 2020); `scale` sets the finest detail that is easy to learn.
    """

    frequencies: Tensor

    def __init__(self, n_features: int, n_frequencies: int, scale: float, generator: torch.Generator):
        super().__init__()
        w = torch.randn(n_features, n_frequencies, generator=generator) * scale
        self.register_buffer("frequencies", w)
        self.n_outputs = n_features + 2 * n_frequencies

    def forward(self, x: Float[Tensor, "*m n d"]) -> Float[Tensor, "*m n o"]:
        u = x @ self.frequencies
        return torch.cat([x, u.sin(), u.cos()], dim=-1)


class NoisedFourierFeatures(FourierFeatures):
    """Fourier features of rows with noise σ, and waves of log σ.

    Under noise a wave fades by exp(−σ²‖w‖²/2), its expectation; rows shrink to the size they had without noise.
    Rows without a level are taken as they are at the smallest.
    """

    waves: Tensor

    def __init__(
        self, n_features: int, n_frequencies: int, scale: float, generator: torch.Generator, smallest: float
    ):
        super().__init__(n_features, n_frequencies, scale, generator)
        self.smallest = smallest
        self.register_buffer("waves", 2 * torch.pi / _LONGEST * 2.0 ** (torch.arange(_WAVES) / 2))
        self.n_outputs += 2 * _WAVES

    def forward(
        self, x: Float[Tensor, "*m n d"], sigma: Float[Tensor, "*m n 1"] | None = None
    ) -> Float[Tensor, "*m n o"]:
        if sigma is None:
            sigma = x.new_full((*x.shape[:-1], 1), self.smallest)
        fade = torch.exp(-0.5 * sigma**2 * self.frequencies.square().sum(-2, keepdim=True))
        u = x @ self.frequencies
        phase = sigma.log() * self.waves
        parts = [x / (1 + sigma**2).sqrt(), fade * u.sin(), fade * u.cos(), phase.sin(), phase.cos()]
        return torch.cat(parts, dim=-1)


class FourierEncoder(nn.Sequential):
    """Features first, then a perceptron; with a noise level where the features take one."""

    def forward(self, x: Float[Tensor, "*m n d"], sigma: Float[Tensor, "*m n 1"] | None = None) -> Tensor:
        stem, body = self
        out: Tensor = body(stem(x) if sigma is None else stem(x, sigma))
        return out


@register_encoder("fourier-mlp")
@dataclass(frozen=True)
class FourierMLP(Encoder):
    """Random Fourier features of the data's own scale, then a perceptron."""

    hidden: tuple[int, ...] = setting((128, 128), "units of the hidden layers")
    features: int = setting(64, "number of features", above=0)
    activation: str = setting("silu", "between the layers", choices=tuple(ACTIVATIONS))
    projection: int = setting(0, "outputs of a linear projector; 0: the features are the embedding", at_least=0)
    frequencies: int = setting(64, "number of random frequencies; 0 for none", at_least=0)
    detail: float = setting(0.06, "frequency times the data's kernel bandwidth: larger sees finer detail", above=0)

    summary: ClassVar[str] = "Fourier features and a smooth perceptron, for vectors"
    reference: ClassVar[str] = "Tancik et al., 2020"
    takes_noise: ClassVar[bool] = True

    def build(self, context: EncoderContext) -> Encoding:
        generator = context.generator
        stem = self._stem(context)
        width = context.n_features if stem is None else stem.n_outputs
        body = MLP([width, *self.hidden, self.features], self.activation, generator, active_end=True)
        # spread the first layer's kinks over the data instead of through the origin
        nn.init.uniform_(body.layers[0].bias, -1, 1, generator=generator)  # type: ignore[arg-type]
        n_outputs = context.n_outputs or self.projection
        projector = MLP([self.features, n_outputs], "relu", generator) if n_outputs else nn.Identity()
        encoder = nn.Sequential(body) if stem is None else FourierEncoder(stem, body)
        return Encoding(encoder, projector, n_outputs or self.features)

    def _stem(self, context: EncoderContext) -> FourierFeatures | None:
        # √(2/d): the same phase spread per bandwidth in any number of dimensions
        scale = self.detail / context.bandwidth * (2 / context.n_features) ** 0.5
        if context.noise is not None:
            return NoisedFourierFeatures(
                context.n_features, self.frequencies, scale, context.generator, context.noise
            )
        if not self.frequencies:
            return None
        return FourierFeatures(context.n_features, self.frequencies, scale, context.generator)
