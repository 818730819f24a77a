"""The residual network against the same function written out plainly, and encoders that users bring."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gedikit.errors import UsageError
from gedikit.networks import Brought, ResNet8, n_features_of
from gedikit.networks.resnet8 import image_projector, pooled_kernel
from gedikit.networks.stem import stem

SHAPES = [(32, 32, 3), (28, 28, 1), (8, 12, 3)]
WIDTH = 12


def network(shape: tuple[int, int, int], width: int = WIDTH, seed: int = 0) -> ResNet8:
    """With biases too: they begin at zero, where a forgotten one would not show."""
    generator = torch.Generator().manual_seed(seed)
    made = ResNet8(shape, width, generator)
    with torch.no_grad():
        for layer in [made.stem, made.shortcut, *made.inner]:
            layer.bias.normal_(0, 0.5, generator=generator)
    return made


def rows(shape: tuple[int, int, int], n: int = 3, seed: int = 1) -> torch.Tensor:
    return torch.rand(n, math.prod(shape), generator=torch.Generator().manual_seed(seed)) * 2 - 1


def printed(made: ResNet8, x: torch.Tensor) -> torch.Tensor:
    """Four pre-activation blocks with a shortcut each, the first two halved at their ends, as the paper prints."""

    def conv(layer: nn.Conv2d, h: torch.Tensor) -> torch.Tensor:
        return F.conv2d(h, layer.weight, layer.bias, padding=layer.kernel_size[0] // 2)

    def act(h: torch.Tensor) -> torch.Tensor:
        return F.leaky_relu(h, 0.2)

    height, across, channels = made.image_shape
    image = torch.stack([x[:, c::channels].reshape(-1, height, across) for c in range(channels)], dim=1)
    c = made.inner
    h = F.avg_pool2d(conv(c[0], act(conv(made.stem, image))), 2) + conv(made.shortcut, F.avg_pool2d(image, 2))
    h = F.avg_pool2d(conv(c[2], act(conv(c[1], act(h)))), 2) + F.avg_pool2d(h, 2)
    h = conv(c[4], act(conv(c[3], act(h)))) + h
    h = conv(c[6], act(conv(c[5], act(h)))) + h
    return act(h).mean((2, 3))


@pytest.mark.parametrize(("width", "count"), [(128, 1_037_184), (256, 4_138_752)])
def test_as_many_parameters_as_the_printed_network(width, count):
    made = ResNet8((32, 32, 3), width, torch.Generator())
    assert sum(p.numel() for p in made.parameters()) == count


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_the_printed_function(shape):
    made, x = network(shape), rows(shape)
    found, wanted = made(x), printed(made, x)
    assert found.shape == (3, WIDTH)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert wanted.std(0).min() > 1e-2, "features that do not depend on the image would agree with anything"


@pytest.mark.parametrize("shape", SHAPES)
def test_its_gradients_are_those_of_the_printed_function(shape):
    made, x = network(shape).double(), rows(shape).double().requires_grad_()
    made.dtype = torch.float64
    made.forward = lambda x: _in_double(made, x)  # features are cast to 32 bits: the cast is not what is looked at
    pick = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    wanted = torch.autograd.grad((printed(made, x) * pick).sum(), [x, *made.parameters()])
    found = torch.autograd.grad((made(x) * pick).sum(), [x, *made.parameters()])
    for name, a, b in zip(["x", *dict(made.named_parameters())], found, wanted, strict=True):
        assert b.abs().max() > 0, name
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6 * float(b.abs().max()), msg=name)
