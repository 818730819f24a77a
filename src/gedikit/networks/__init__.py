"""Encoders, heads and flows: nothing but `nn.Module`s."""

from gedikit.networks.flow import SplineFlow
from gedikit.networks.mlp import MLP, FourierFeatures, default_encoder, paper_encoder, paper_projector
from gedikit.networks.normalised import BatchNorm, NormalisedMLP, calibrate, is_batch_normalised

__all__ = [
    "MLP",
    "BatchNorm",
    "FourierFeatures",
    "NormalisedMLP",
    "SplineFlow",
    "calibrate",
    "default_encoder",
    "is_batch_normalised",
    "paper_encoder",
    "paper_projector",
]
