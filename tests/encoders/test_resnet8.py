"""The residual network against the same function written out plainly, and encoders that users bring."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gedikit.encoders import ResNet8, UserModule, image_projector
from gedikit.encoders.resnet8 import pooled_kernel
from gedikit.encoders.stem import stem
from gedikit.encoders.user import n_features_of
from gedikit.errors import UsageError

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
    """Noise around another brightness in every image: means of noise alone are all alike."""
    generator = torch.Generator().manual_seed(seed)
    brightness = torch.linspace(-0.7, 0.7, n)[:, None]
    return brightness + 0.6 * torch.rand(n, math.prod(shape), generator=generator) - 0.3


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
    made, x = network(shape), rows(shape).requires_grad_()
    pick = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(2))
    wanted = torch.autograd.grad((printed(made, x) * pick).sum(), [x, *made.parameters()])
    found = torch.autograd.grad((made(x) * pick).sum(), [x, *made.parameters()])
    for name, a, b in zip(["x", *dict(made.named_parameters())], found, wanted, strict=True):
        assert b.norm() > 1e-3, name
        assert relative(a, b) < 2e-5, name


def test_the_gradient_of_the_input_is_the_slope_of_the_features():
    made, x = network((8, 8, 3), 4), rows((8, 8, 3), 2).requires_grad_()
    (gradient,) = torch.autograd.grad(made(x).sum(), x)
    direction = gradient / gradient.norm()
    step = 2e-3  # piecewise linear: large enough for 32 bits, small enough for few kinks
    with torch.no_grad():
        slope = (made(x + step * direction).sum() - made(x - step * direction).sum()) / (2 * step)
    assert float(gradient.norm()) == pytest.approx(float(slope), rel=1e-2)


@pytest.mark.parametrize("size", [(8, 8), (4, 6), (2, 2), (10, 4)])
def test_pooled_kernel_is_a_convolution_and_a_mean_up_to_the_borders(size):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(5, 3, 3, 3, generator=generator, dtype=torch.float64)
    h = torch.randn(2, 3, *size, generator=generator, dtype=torch.float64)
    wanted = F.avg_pool2d(F.conv2d(h, weight, padding=1), 2)
    found = F.conv2d(h, pooled_kernel(weight), stride=2, padding=1)
    assert pooled_kernel(weight).shape == (5, 3, 4, 4)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


def test_pooled_kernel_of_one_tap_is_a_quarter_of_a_two_by_two_square():
    weight = torch.zeros(1, 1, 3, 3)
    weight[0, 0, 0, 2] = 1.0
    wanted = torch.zeros(4, 4)
    wanted[0:2, 2:4] = 0.25
    assert torch.equal(pooled_kernel(weight)[0, 0], wanted)


def test_the_stem_is_a_rectified_convolution():
    """A delta in one pixel gives the kernel, mirrored, and 0.2 of what is negative of it."""
    weight = torch.arange(-4.0, 5.0).reshape(1, 1, 3, 3)
    x = torch.zeros(1, 5, 5, 1)
    x[0, 2, 3, 0] = 1.0
    out = stem(x, weight, torch.zeros(1))
    assert out.shape == (1, 1, 5, 5)
    expected = weight[0, 0].flip(0, 1)
    torch.testing.assert_close(out[0, 0, 1:4, 2:5], torch.where(expected > 0, expected, 0.2 * expected))
    assert out[0, 0].abs().sum() == out[0, 0, 1:4, 2:5].abs().sum()


def test_held_kernels_give_the_same_features_until_they_are_released():
    made, x = network((8, 12, 3)), rows((8, 12, 3))
    before = made(x).detach()
    made.hold()
    assert torch.equal(made(x), before)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(1.5)
    assert torch.equal(made(x), before), "the kernels were prepared before the weights changed"
    made.release()
    after = made(x)
    assert relative(after, before) > 0.1
    torch.testing.assert_close(after, printed(made, x), rtol=1e-5, atol=1e-5)


def test_held_kernels_let_gradients_through_to_the_pixels_alone():
    made, x = network((8, 12, 3)), rows((8, 12, 3)).requires_grad_()
    (wanted,) = torch.autograd.grad(made(x).sum(), x)
    made.hold()
    made(x).sum().backward()
    assert torch.equal(x.grad, wanted)
    assert all(parameter.grad is None for parameter in made.parameters())


def test_half_precision_is_near_and_its_features_are_full():
    made, x = network((16, 16, 3)), rows((16, 16, 3), 8)
    full = made(x).detach()
    made.compute_dtype = torch.bfloat16
    half = made(x)
    assert half.dtype == torch.float32
    assert 1e-4 < relative(half, full) < 0.03, "near, but not computed in 32 bits after all"
    half.sum().backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in made.parameters())


@pytest.mark.parametrize("shape", [(30, 32, 3), (32, 30, 3), (4, 32, 3), (32, 4, 1), (7, 7, 1)])
def test_sides_that_cannot_be_halved_twice_are_refused(shape):
    height, across, _ = shape
    with pytest.raises(
        UsageError, match=rf"^the sides of an image must be multiples of 4 from 8 on, not {height} × {across}$"
    ):
        ResNet8(shape, 8, torch.Generator())


def test_weights_begin_uniform_with_the_gain_of_a_rectifier():
    made = ResNet8((32, 32, 3), 32, torch.Generator().manual_seed(0))
    for layer in [made.stem, made.shortcut, *made.inner]:
        size = layer.kernel_size[0] ** 2
        most = math.sqrt(2) * math.sqrt(6 / (size * (layer.in_channels + layer.out_channels)))
        weight = layer.weight.detach()
        assert weight.abs().max() <= most
        assert weight.abs().max() > 0.9 * most
        assert float(weight.std()) == pytest.approx(most / math.sqrt(3), rel=0.2 if weight.numel() < 200 else 0.05)
        assert not layer.bias.any()


def test_the_generator_alone_sets_the_weights():
    weights = [torch.cat([p.flatten() for p in ResNet8((8, 8, 1), 4, g(s)).parameters()]) for s in (0, 0, 1)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_the_projector_has_one_hidden_layer_twice_as_wide():
    made = image_projector(16, 5, g(0))
    assert [tuple(p.shape) for p in made.parameters()] == [(32, 16), (32,), (5, 32), (5,)]
    x = torch.randn(4, 16, generator=g(1))
    first, _, second = made
    torch.testing.assert_close(made(x), (x @ first.weight.T).clamp(min=0) @ second.weight.T)


class Reader(nn.Module):
    """Reads some pixels by their place in an image of channels first."""

    def __init__(self, *places: tuple[int, int, int]):
        super().__init__()
        self.places = places

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch.stack([image[:, c, y, x] for c, y, x in self.places], dim=1)


def test_a_brought_module_sees_images_with_channels_first():
    height, across, channels = shape = (4, 6, 3)
    x = torch.arange(2.0 * math.prod(shape)).reshape(2, -1)
    places = [(0, 0, 0), (2, 0, 0), (0, 0, 5), (0, 3, 0), (1, 2, 4)]
    out = UserModule(Reader(*places), shape)(x)
    for column, (c, down, right) in enumerate(places):
        assert torch.equal(out[:, column], x[:, (down * across + right) * channels + c])
    assert height * across * channels == x.shape[1]


def test_a_brought_module_for_vectors_sees_rows():
    linear = nn.Linear(7, 3)
    x = torch.randn(5, 7, generator=g(0))
    assert torch.equal(UserModule(linear, ())(x), linear(x))


def test_a_brought_module_in_half_precision_returns_full_features():
    linear = nn.Linear(64, 16)
    x = torch.randn(5, 64, generator=g(0))
    half = UserModule(linear, (), torch.bfloat16)(x)
    assert half.dtype == torch.float32
    assert 1e-5 < relative(half, linear(x)) < 0.02


def test_how_many_features_a_brought_module_makes_is_found_by_trying():
    module = nn.Sequential(nn.Conv2d(3, 7, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert n_features_of(UserModule(module, (8, 12, 3)), 8 * 12 * 3) == 7
    assert n_features_of(UserModule(nn.Linear(5, 11), ()), 5) == 11


@pytest.mark.parametrize(
    ("module", "shape"),
    [(nn.Conv2d(3, 7, 3), r"\(2, 7, 6, 10\)"), (nn.Flatten(0), r"\(576,\)"), (nn.Flatten(0, 1), r"\(6, 8, 12\)")],
)
@pytest.mark.usefixtures("unchecked")
def test_a_brought_module_must_return_rows_of_features(module, shape):
    with pytest.raises(UsageError, match=rf"must return one row of features for each input, not shape {shape}"):
        n_features_of(UserModule(module, (8, 12, 3)), 288)


def test_a_brought_module_for_other_inputs_is_refused():
    with pytest.raises(UsageError, match=r"the encoder could not take a batch of 2 rows of 10 values: .+"):
        n_features_of(UserModule(nn.Linear(9, 3), ()), 10)


def g(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.detach() - b.detach()).norm() / b.detach().norm())
