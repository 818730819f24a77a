import torch
from torch import nn

from gedikit.encoders import NormalisedMLP, calibrate, is_batch_normalised


def twin(mlp: NormalisedMLP) -> nn.Sequential:
    parts = []
    for i, (layer, norm) in enumerate(zip(mlp.layers, mlp.norms, strict=True)):
        parts += [layer, nn.BatchNorm1d(len(norm.weight))]
        if i < len(mlp.layers) - 1:
            parts.append(nn.ReLU())
    return nn.Sequential(*parts).double()


def test_normalised_layers_equal_torch_modules_while_training(generator):
    mlp = NormalisedMLP([2, 7, 3], generator).double()
    x = torch.randn(20, 2, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(mlp(x), twin(mlp)(x))


def test_calibration_makes_single_rows_come_out_as_in_the_whole_data(generator):
    mlp = NormalisedMLP([2, 7, 3], generator).double()
    x = torch.randn(50, 2, generator=generator, dtype=torch.float64)
    together = mlp(x)
    calibrate(mlp, x)
    assert not mlp.training
    torch.testing.assert_close(torch.cat([mlp(row[None]) for row in x]), together)
    assert is_batch_normalised(mlp)
    assert not is_batch_normalised(nn.Linear(2, 2))
