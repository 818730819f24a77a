"""The paper's residual network with eight convolutions, for images.

Four pre-activation blocks without normalisation (as in VERA, Grathwohl et al., 2021): two 3×3 convolutions each, a
shortcut around every block, 2×2 means at the end of the first two, a global mean at the end. A 3×3 convolution that
a 2×2 mean follows is one 4×4 convolution with stride 2, whose kernel is the mean of four shifted copies of the 3×3
one: the same function with 16/36 of the products, and without its large output ever being written.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from gedikit.components import setting
from gedikit.encoders.base import Encoder, EncoderContext, EncoderModule, Encoding, register_encoder
from gedikit.encoders.projector import image_projector
from gedikit.encoders.stem import SLOPE, stem
from gedikit.errors import UsageError

_POOLED = (0, 2)  # those of the seven inner convolutions that a mean follows


class ResNet8(EncoderModule):
    """Rows (n, height·width·channels) of pixels in [−1, 1] to features (n, width).

    `compute_dtype` is what the convolutions compute in; the weights stay in 32 bits, and so do the features.
    """

    compiles: ClassVar[bool] = True

    def __init__(
        self, image_shape: Sequence[int], width: int, generator: torch.Generator, dtype: torch.dtype = torch.float32
    ):
        super().__init__(dtype)
        height, across, n_channels = image_shape
        if min(height, across) < 8 or height % 4 or across % 4:
            raise UsageError(f"the sides of an image must be multiples of 4 from 8 on, not {height} × {across}")
        self.image_shape = (height, across, n_channels)
        self.stem = _convolution(n_channels, width, 3, generator)
        self.shortcut = _convolution(n_channels, width, 1, generator)
        self.inner = nn.ModuleList(_convolution(width, width, 3, generator) for _ in range(7))
        self._held: list[Tensor] | None = None

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n f"]:
        kernels = self.kernels() if self._held is None else self._held
        return _run(x.reshape(-1, *self.image_shape), *kernels)

    def kernels(self) -> list[Tensor]:
        """Weights and biases as convolved with: in `compute_dtype`, channels last, pooled where a mean follows."""
        layers = [self.stem, self.shortcut, *self.inner]
        weights = [layer.weight for layer in layers]
        for i in _POOLED:
            weights[2 + i] = pooled_kernel(weights[2 + i])
        parameters = [p for pair in zip(weights, layers, strict=True) for p in (pair[0], pair[1].bias)]
        return [_prepared(p, self.compute_dtype) for p in parameters]

    def hold(self) -> None:
        """Prepare the kernels once for the many passes of a chain, during which the weights do not change."""
        with torch.no_grad():  # in 32 bits a kernel may be the parameter itself
            self._held = [k.clone() if isinstance(k, nn.Parameter) else k for k in self.kernels()]

    def release(self) -> None:
        self._held = None


def pooled_kernel(weight: Float[Tensor, "o i 3 3"]) -> Float[Tensor, "o i 4 4"]:
    """The 4×4 kernel that, with stride 2, does what `weight` and a 2×2 mean do."""
    shifted = [F.pad(weight, (right, 1 - right, down, 1 - down)) for right in (0, 1) for down in (0, 1)]
    return (shifted[0] + shifted[1] + shifted[2] + shifted[3]) / 4


def _convolution(n_inputs: int, n_outputs: int, size: int, generator: torch.Generator) -> nn.Conv2d:
    layer = nn.Conv2d(n_inputs, n_outputs, size, padding=size // 2)
    nn.init.xavier_uniform_(layer.weight, gain=math.sqrt(2), generator=generator)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


def _prepared(parameter: Tensor, dtype: torch.dtype) -> Tensor:
    if parameter.ndim == 1:
        return parameter.to(dtype)
    return parameter.to(dtype=dtype, memory_format=torch.channels_last)


def _run(x: Float[Tensor, "n h w c"], *kernels: Tensor) -> Float[Tensor, "n f"]:
    weights, biases = kernels[::2], kernels[1::2]
    inner = list(zip(weights[2:], biases[2:], strict=True))
    h = stem(x, weights[0], biases[0])
    h = F.conv2d(h, *inner[0], stride=2, padding=1) + _shortcut(x, weights[1], biases[1])
    a = F.leaky_relu(F.conv2d(F.leaky_relu(h, SLOPE), *inner[1], padding=1), SLOPE)
    h = F.conv2d(a, *inner[2], stride=2, padding=1) + F.avg_pool2d(h, 2)
    for first, second in (inner[3:5], inner[5:7]):
        a = F.leaky_relu(F.conv2d(F.leaky_relu(h, SLOPE), *first, padding=1), SLOPE)
        h = F.conv2d(a, *second, padding=1) + h
    return F.leaky_relu(h, SLOPE).float().mean((2, 3))


def _shortcut(x: Float[Tensor, "n h w c"], weight: Tensor, bias: Tensor) -> Float[Tensor, "n f i j"]:
    """A 1×1 convolution of 2×2 means: so few channels that a sum of products is faster than a convolution."""
    n, height, width, channels = x.shape
    means = x.reshape(n, height // 2, 2, width // 2, 2, channels).mean((2, 4)).to(weight.dtype)
    out = bias.expand(n, height // 2, width // 2, -1)
    for c in range(channels):
        out = out + means[..., c : c + 1] * weight[:, c, 0, 0]
    return out.permute(0, 3, 1, 2)


@register_encoder("resnet8")
@dataclass(frozen=True)
class ResNet8Encoder(Encoder):
    """The paper's residual network with eight convolutions."""

    width: int = setting(128, "channels of its convolutions, and features", above=0)
    batch_norm: bool = setting(
        False, "batch normalisation in all layers of the projector, as the paper's baselines have it"
    )

    summary: ClassVar[str] = "a residual network with eight convolutions, for images"
    reference: ClassVar[str] = "Sansone & Manhaeve; Grathwohl et al., 2021"
    of_images: ClassVar[bool] = True

    @property
    def standardised(self) -> bool:
        """Unless batches are normalised anyway."""
        return not self.batch_norm

    def build(self, context: EncoderContext) -> Encoding:
        if not context.image_shape:
            raise UsageError("the encoder 'resnet8' is for images: data.shape must say (height, width, channels)")
        encoder = ResNet8(context.image_shape, self.width, context.generator)
        n_outputs = context.n_outputs or self.width
        projector = image_projector(self.width, n_outputs, context.generator, batch_norm=self.batch_norm)
        return Encoding(encoder, projector, n_outputs)
