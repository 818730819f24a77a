"""The paper's networks for synthetic data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from gedikit.components import setting
from gedikit.encoders.base import Encoder, EncoderContext, Encoding, register_encoder
from gedikit.encoders.batch_norm import NormalisedMLP
from gedikit.encoders.mlp import MLP


@register_encoder("paper-mlp")
@dataclass(frozen=True)
class PaperMLP(Encoder):
    """An encoder of two hidden layers of 100 ReLU units and 2 outputs, a projector of one hidden layer of 4."""

    batch_norm: bool = setting(False, "batch normalisation after every layer, as the paper's baselines have it")

    summary: ClassVar[str] = "the paper's perceptron for synthetic data"
    reference: ClassVar[str] = "Sansone & Manhaeve, appendix on synthetic data"

    def build(self, context: EncoderContext) -> Encoding:
        n_outputs = context.n_outputs or 2
        encoder = self._perceptron([context.n_features, 100, 100, 2], context.generator)
        return Encoding(encoder, self._perceptron([2, 4, n_outputs], context.generator), n_outputs)

    def _perceptron(self, sizes: Sequence[int], generator: torch.Generator) -> nn.Module:
        return NormalisedMLP(sizes, generator) if self.batch_norm else MLP(sizes, "relu", generator)
