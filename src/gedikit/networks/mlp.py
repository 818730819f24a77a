"""Multi-layer perceptrons for vectors: the one that works by default and the paper's."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gedikit.networks.normalised import NormalisedMLP
from gedikit.networks.perceptron import Perceptron


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


class MLP(nn.Module):
    """Linear layers with an activation between them and, with `active_end`, after the last.

    Xavier-uniform weights with gain √2 and zero biases; with PyTorch's own initialisation the logits
    hardly depend on x and the posterior may never leave the constant.
    """

    def __init__(
        self, sizes: Sequence[int], activation: str, generator: torch.Generator, *, active_end: bool = False
    ):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.activation, self.active_end = activation, active_end
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            nn.init.xavier_uniform_(layer.weight, gain=math.sqrt(2), generator=generator)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Float[Tensor, "*m n d"]) -> Float[Tensor, "*m n o"]:
        parameters = [p for layer in self.layers for p in (layer.weight, layer.bias)]
        out: Tensor = Perceptron.apply(x, self.activation, self.active_end, *parameters)  # type: ignore[no-untyped-call]
        return out


def default_encoder(
    n_features: int,
    *,
    hidden: Sequence[int],
    n_outputs: int,
    activation: str,
    n_frequencies: int,
    frequency_scale: float,
    generator: torch.Generator,
) -> nn.Module:
    """Fourier features (where asked for) and a smooth perceptron."""
    stem: list[nn.Module] = []
    width = n_features
    if n_frequencies:
        fourier = FourierFeatures(n_features, n_frequencies, frequency_scale, generator)
        stem, width = [fourier], fourier.n_outputs
    body = MLP([width, *hidden, n_outputs], activation, generator, active_end=True)
    # spread the first layer's kinks over the data instead of through the origin
    nn.init.uniform_(body.layers[0].bias, -1, 1, generator=generator)  # type: ignore[arg-type]
    return nn.Sequential(*stem, body)


def paper_encoder(n_features: int, generator: torch.Generator, *, normalised: bool = False) -> nn.Module:
    """The paper's toy encoder: two hidden layers of 100 ReLU units and h = 2 outputs."""
    return _perceptron([n_features, 100, 100, 2], generator, normalised)


def paper_projector(
    n_inputs: int, n_outputs: int, generator: torch.Generator, *, normalised: bool = False
) -> nn.Module:
    """The paper's toy projector: one hidden layer of 4 ReLU units."""
    return _perceptron([n_inputs, 4, n_outputs], generator, normalised)


def _perceptron(sizes: Sequence[int], generator: torch.Generator, normalised: bool) -> nn.Module:
    return NormalisedMLP(sizes, generator) if normalised else MLP(sizes, "relu", generator)
