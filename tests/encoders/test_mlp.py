import math

import pytest
import torch
from torch import nn

from gedikit.encoders import MLP, EncoderContext, FourierFeatures, FourierMLP
from gedikit.encoders.perceptron import ACTIVATIONS
from gedikit.model import EnergyClassifier

MODULES = {"relu": nn.ReLU, "tanh": nn.Tanh, "silu": nn.SiLU, "gelu": nn.GELU, "softplus": nn.Softplus}


def twin(mlp: MLP) -> nn.Sequential:
    """The same layers as separate modules."""
    parts = []
    for i, layer in enumerate(mlp.layers):
        parts.append(layer)
        if mlp.active_end or i < len(mlp.layers) - 1:
            parts.append(MODULES[mlp.activation]())
    return nn.Sequential(*parts)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("active_end", [False, True])
@pytest.mark.parametrize("sizes", [[3, 7], [2, 9, 9, 4], [6, 3, 8, 1]])
def test_one_function_equals_separate_layers(activation, active_end, sizes, generator):
    mlp = MLP(sizes, activation, generator, active_end=active_end).double()
    x = torch.randn(5, sizes[0], generator=generator, dtype=torch.float64, requires_grad=True)
    weights = [x, *mlp.parameters()]
    ours, theirs = mlp(x), twin(mlp)(x)
    torch.testing.assert_close(ours, theirs)
    up = torch.randn(ours.shape, generator=generator, dtype=torch.float64)
    for a, b in zip(torch.autograd.grad(ours, weights, up), torch.autograd.grad(theirs, weights, up), strict=True):
        torch.testing.assert_close(a, b)


def test_gradient_with_respect_to_the_input_alone(generator):
    mlp = MLP([2, 5, 1], "silu", generator).requires_grad_(False)
    x = torch.randn(4, 2, generator=generator, requires_grad=True)
    (gradient,) = torch.autograd.grad(mlp(x).sum(), x)
    (expected,) = torch.autograd.grad(twin(mlp)(x).sum(), x)
    torch.testing.assert_close(gradient, expected)


def test_layers_start_as_xavier_with_gain_root_two(generator):
    layer = MLP([400, 600], "relu", generator).layers[0]
    bound = math.sqrt(2) * math.sqrt(6 / 1000)
    assert layer.weight.abs().max().item() == pytest.approx(bound, rel=0.01)
    assert layer.weight.var().item() == pytest.approx(bound**2 / 3, rel=0.02)
    assert (layer.bias == 0).all()


def test_fourier_features_keep_x_and_add_waves(generator):
    fourier = FourierFeatures(2, 3, 1.5, generator)
    x = torch.tensor([[0.3, -0.7]])
    u = x @ fourier.frequencies
    torch.testing.assert_close(fourier(x), torch.cat([x, torch.sin(u), torch.cos(u)], 1))


@pytest.fixture
def model(generator) -> EnergyClassifier:
    family = FourierMLP(hidden=(8,), features=5, activation="silu", frequencies=4, detail=1.5**0.5)  # N(0, 1)
    encoding = family.build(EncoderContext(3, (), 1.0, None, generator))
    return EnergyClassifier(*encoding[:2], 4, 5, temperature=0.7, generator=generator).double()


def test_posterior_and_density_come_from_the_same_logits(model, generator):
    x = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    joint = torch.exp(model.logits(x))
    torch.testing.assert_close(model.posterior(x), joint / joint.sum(1, keepdim=True))
    torch.testing.assert_close(model.log_density(x), torch.log(joint.sum(1)))
    torch.testing.assert_close(model.logits(x), model.features(x) @ model.centers / 0.7)


def test_score_is_the_gradient_of_the_log_density(model, generator):
    x = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    step = 1e-6
    for j in range(3):
        e = torch.zeros(3, dtype=torch.float64)
        e[j] = step
        difference = (model.log_density(x + e) - model.log_density(x - e)) / (2 * step)
        torch.testing.assert_close(model.score(x)[:, j], difference, rtol=1e-5, atol=1e-7)
