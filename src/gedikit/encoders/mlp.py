"""Multi-layer perceptrons as one autograd function each."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gedikit.encoders.perceptron import Perceptron


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
