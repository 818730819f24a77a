"""From a network's outputs to clusters: by its posterior, its projection, or k-means on its features."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gedikit.model import EnergyClassifier

_STARTS = 10
LABELS: Mapping[str, str] = MappingProxyType(
    {
        "posterior": "argmax of the cluster posterior p(y|x)",
        "projection": "argmax of the projection z",
        "k-means": "k-means on the features of the training rows",
    }
)


@dataclass(frozen=True)
class Assignment:
    """Scores of the clusters for a point: their softmax is p(y|x), their argmax the label.

    For k-means the scores are −‖u − μ_k‖²/2s², so that p(y|x) is the posterior of a mixture of Gaussians of equal
    width s around the centres; u are the features, standardised or of unit length.
    """

    rule: str
    centers: Float[Tensor, "c h"] | None = None
    shift: Float[Tensor, " h"] | None = None
    scale: Float[Tensor, " h"] | None = None  # None: features of unit length
    spread: float = 1.0

    @property
    def description(self) -> str:
        if self.centers is None:
            return LABELS[self.rule]
        kind = "unit-length" if self.scale is None else "standardised"
        return f"{LABELS[self.rule]} ({kind})"

    def scores(
        self, network: EnergyClassifier, features: Float[Tensor, "n h"], z: Float[Tensor, "n l"]
    ) -> Float[Tensor, "n c"]:
        if self.centers is not None:
            return -0.5 * torch.cdist(self._placed(features), self.centers).square() / self.spread**2
        return z if self.rule == "projection" else network.cluster_scores(z)

    def of_points(self, network: EnergyClassifier, x: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        features = network.features(x)
        return self.scores(network, features, network.project(features))

    def _placed(self, features: Float[Tensor, "n h"]) -> Float[Tensor, "n h"]:
        if self.shift is None or self.scale is None:
            return F.normalize(features, dim=-1)
        return (features - self.shift) / self.scale

    @classmethod
    def by_k_means(
        cls, features: Float[Tensor, "n h"], n_clusters: int, *, unit_length: bool, seed: int
    ) -> "Assignment":
        """Centres of the training features; best of ten starts."""
        from sklearn.cluster import KMeans

        shift = scale = None
        if not unit_length:
            shift, scale = features.mean(0), features.std(0).clamp_min(1e-6)
        bare = cls("k-means", None, shift, scale)
        placed = bare._placed(features)
        found = KMeans(n_clusters, n_init=_STARTS, random_state=seed).fit(placed.cpu().numpy())
        spread = float(np.sqrt(found.inertia_ / placed.numel()))
        centers = torch.from_numpy(found.cluster_centers_).to(placed)
        return cls("k-means", centers, shift, scale, max(spread, 1e-6))

    def tensors(self) -> dict[str, Tensor]:
        named = {"centers": self.centers, "shift": self.shift, "scale": self.scale}
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    @classmethod
    def from_tensors(cls, rule: str, spread: float, tensors: Mapping[str, Tensor]) -> "Assignment":
        return cls(rule, tensors.get("centers"), tensors.get("shift"), tensors.get("scale"), spread)


def needs_features(rule: str) -> bool:
    """Whether the rule is fitted to the features of the training rows."""
    return rule == "k-means"


def needs_projection(rule: str) -> bool:
    """Whether the rule takes one embedding coordinate a cluster."""
    return rule == "projection"
