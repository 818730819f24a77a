"""Features of pictures: numbers by networks that somebody has trained before, from the pictures that you have."""

from gedikit.features.base import FeatureNetwork, feature_networks, register_features
from gedikit.features.efficientnet_lite import EfficientNetLite0
from gedikit.features.embedding import embed
from gedikit.features.folders import PictureFeatures, embed_folder, feature_blocks

__all__ = [
    "EfficientNetLite0",
    "FeatureNetwork",
    "PictureFeatures",
    "embed",
    "embed_folder",
    "feature_blocks",
    "feature_networks",
    "register_features",
]
