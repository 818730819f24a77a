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

    def build(self, context: EncoderContext) -> Encoding:
        stem: list[nn.Module] = []
        width, generator = context.n_features, context.generator
        if self.frequencies:
            # √(2/d): the same phase spread per bandwidth in any number of dimensions
            scale = self.detail / context.bandwidth * (2 / context.n_features) ** 0.5
            fourier = FourierFeatures(context.n_features, self.frequencies, scale, generator)
            stem, width = [fourier], fourier.n_outputs
        body = MLP([width, *self.hidden, self.features], self.activation, generator, active_end=True)
        # spread the first layer's kinks over the data instead of through the origin
        nn.init.uniform_(body.layers[0].bias, -1, 1, generator=generator)  # type: ignore[arg-type]
        n_outputs = context.n_outputs or self.projection
        projector = MLP([self.features, n_outputs], "relu", generator) if n_outputs else nn.Identity()
        return Encoding(nn.Sequential(*stem, body), projector, n_outputs or self.features)
