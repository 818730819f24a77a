"""Encoders, one a file: the network, its settings, and its name."""

from gedikit.encoders.base import Encoder, EncoderContext, EncoderModule, Encoding, encoders, register_encoder
from gedikit.encoders.batch_norm import BatchNorm, NormalisedMLP, calibrate, is_batch_normalised
from gedikit.encoders.fourier_mlp import FourierFeatures, FourierMLP
from gedikit.encoders.mlp import MLP
from gedikit.encoders.paper_mlp import PaperMLP
from gedikit.encoders.projector import image_projector, standardise
from gedikit.encoders.resnet8 import ResNet8, ResNet8Encoder
from gedikit.encoders.user import UserEncoder, UserModule

__all__ = [
    "MLP",
    "BatchNorm",
    "Encoder",
    "EncoderContext",
    "EncoderModule",
    "Encoding",
    "FourierFeatures",
    "FourierMLP",
    "NormalisedMLP",
    "PaperMLP",
    "ResNet8",
    "ResNet8Encoder",
    "UserEncoder",
    "UserModule",
    "calibrate",
    "encoders",
    "image_projector",
    "is_batch_normalised",
    "register_encoder",
    "standardise",
]
