"""The projector of images, and how its outputs start."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gedikit.encoders.batch_norm import NormalisedMLP


def image_projector(
    width: int, n_outputs: int, generator: torch.Generator, *, batch_norm: bool = False
) -> nn.Module:
    """The paper's projector for images, of plain layers that a compiler sees through: one hidden layer.

    Its baselines Barlow Twins and SwAV normalise batches in both layers.
    """
    if batch_norm:
        return NormalisedMLP((width, 2 * width, n_outputs), generator)
    layers = [nn.Linear(width, 2 * width), nn.Linear(2 * width, n_outputs)]
    for layer in layers:
        nn.init.xavier_uniform_(layer.weight, gain=math.sqrt(2), generator=generator)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.ReLU(), layers[1])


@torch.no_grad()
def standardise(projector: nn.Sequential, features: Float[Tensor, "n f"]) -> None:
    """Let embeddings of the data start with mean 0 and deviation 1, each of them.

    What is the same for all images would otherwise dwarf what is not: posteriors start constant, are made uniform,
    and stay there for long.
    """
    out = projector(features)
    mean, deviation = out.mean(0), out.std(0).clamp_min(1e-6)
    last = projector[-1]
    assert isinstance(last, nn.Linear)
    last.weight /= deviation[:, None]
    last.bias.copy_((last.bias - mean) / deviation)
