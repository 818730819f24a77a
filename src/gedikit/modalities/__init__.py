"""Kinds of data, one a file: raw input to scaled rows, and back."""

from gedikit.modalities.base import Modality, PreparedData, modalities, register_modality
from gedikit.modalities.image import Image
from gedikit.modalities.scaling import Scaler
from gedikit.modalities.vector import Vector

__all__ = ["Image", "Modality", "PreparedData", "Scaler", "Vector", "modalities", "register_modality"]
