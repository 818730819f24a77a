"""What describes a picture by numbers: a network that somebody has trained before."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from gedikit.components import Component, Registry, setting


@dataclass(frozen=True)
class FeatureNetwork(Component):
    """A frozen network from pixels between 0 and 1, (n, 3, size, size), to features (n, n_features)."""

    size: int = setting(160, "height and width that pictures are scaled to", at_least=32)
    unit_length: bool = setting(True, "features of length 1: what a picture shows is in their direction")

    n_features: ClassVar[int] = 0

    def build(self) -> nn.Module:
        """The network with its weights, for inference; a missing package is a `UsageError` that names it."""
        raise NotImplementedError


feature_networks: Registry[FeatureNetwork] = Registry("feature network", FeatureNetwork)
register_features = feature_networks.register
