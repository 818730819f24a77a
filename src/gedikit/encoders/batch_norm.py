"""Perceptrons with batch normalisation in all layers, as the paper's baselines Barlow Twins and SwAV use."""

import math
from collections.abc import Sequence
from itertools import pairwise
from types import EllipsisType
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from gedikit.processes import n_processes, over_processes


class BatchNorm(nn.Module):
    """γ (x − mean)/std + β with the batch's statistics while training, those of `calibrate` afterwards.

    No running averages: the statistics of the training data are taken once, when the weights are final.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, n_features: int, epsilon: float = 1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n_features))
        self.bias = nn.Parameter(torch.zeros(n_features))
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("variance", torch.ones(n_features))
        self.epsilon = epsilon

    def forward(self, x: Float[Tensor, "n d"], member: int | EllipsisType = ...) -> Float[Tensor, "n d"]:
        """`member` picks one of several models whose parameters are stacked."""
        weight, bias, mean, variance = (p[member] for p in (self.weight, self.bias, self.mean, self.variance))
        if self.training and n_processes() > 1:
            return self._over_processes(x) * weight + bias
        if self.training:
            return F.batch_norm(x, None, None, weight, bias, training=True, eps=self.epsilon)
        return F.batch_norm(x, mean, variance, weight, bias, eps=self.epsilon)

    def _over_processes(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """By the statistics of the rows of all processes, of which one may have fewer than another."""
        sums = over_processes(torch.cat([x.sum(0), x.new_full((1,), len(x))]))
        n = sums[-1].detach()
        centred = x - sums[:-1] / n
        variance = over_processes(centred.square().sum(0)) / n
        return centred * torch.rsqrt(variance + self.epsilon)


class NormalisedMLP(nn.Module):
    """Linear layers without biases, which batch normalisation after each would undo, with ReLU between them."""

    def __init__(self, sizes: Sequence[int], generator: torch.Generator):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairwise(sizes))
        self.norms = nn.ModuleList(BatchNorm(b) for b in sizes[1:])
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            nn.init.xavier_uniform_(layer.weight, gain=math.sqrt(2), generator=generator)

    def forward(self, x: Float[Tensor, "*m n d"]) -> Float[Tensor, "*m n o"]:
        if x.ndim == 2:
            return self._one(x, ...)
        return torch.stack([self._one(part, i) for i, part in enumerate(x)])

    def _one(self, x: Float[Tensor, "n d"], member: int | EllipsisType) -> Float[Tensor, "n o"]:
        for i, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            assert isinstance(layer, nn.Linear)
            x = norm(F.linear(x, layer.weight[member]), member)
            if i < len(self.layers) - 1:
                x = torch.relu(x)
        return x


def is_batch_normalised(network: nn.Module) -> bool:
    return any(isinstance(m, BatchNorm) for m in network.modules())


@torch.no_grad()
def calibrate(network: nn.Module, x: Float[Tensor, "n d"]) -> None:
    """Give every batch normalisation the statistics of x, layer by layer, and switch it to them."""
    network.train()
    handles = [m.register_forward_pre_hook(_take_statistics) for m in network.modules() if isinstance(m, BatchNorm)]
    network(x)
    for handle in handles:
        handle.remove()
    network.eval()


def _take_statistics(module: nn.Module, inputs: tuple[Any, ...]) -> None:
    assert isinstance(module, BatchNorm)
    module.mean, module.variance = inputs[0].mean(-2), inputs[0].var(-2, correction=0)
