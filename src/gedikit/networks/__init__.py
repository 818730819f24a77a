"""Encoders, heads and flows: nothing but `nn.Module`s."""

from gedikit.networks.brought import Brought, n_features_of
from gedikit.networks.flow import SplineFlow
from gedikit.networks.mlp import MLP, FourierFeatures, default_encoder, paper_encoder, paper_projector
from gedikit.networks.normalised import BatchNorm, NormalisedMLP, calibrate, is_batch_normalised
from gedikit.networks.resnet8 import ResNet8, image_projector, standardise

__all__ = [
    "MLP",
    "BatchNorm",
    "Brought",
    "FourierFeatures",
    "NormalisedMLP",
    "ResNet8",
    "SplineFlow",
    "calibrate",
    "default_encoder",
    "image_projector",
    "is_batch_normalised",
    "n_features_of",
    "paper_encoder",
    "paper_projector",
    "standardise",
]
