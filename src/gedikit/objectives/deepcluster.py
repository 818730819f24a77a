"""DeepCluster: predict the k-means clusters of one's own features (Caron et al., 2018)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gedikit.components import setting
from gedikit.errors import UsageError
from gedikit.objectives import batch
from gedikit.objectives.base import Memory, Objective, Outputs, Sizes, Training, register_objective
from gedikit.objectives.loss import loss

Rows = Float[Tensor, "*m n c"]


@loss()
def deepcluster(log_p: Rows, assignment: Int[Tensor, "*m n"]) -> Float[Tensor, "*m"]:
    """−mean log p(a_i|x_i), a_i the k-means cluster of the features of x_i; optimum 0 (Caron et al., 2018)."""
    if assignment.shape != log_p.shape[:-1]:
        shapes = f"{tuple(log_p.shape[:-1])}, not {tuple(assignment.shape)}"
        raise UsageError(f"deepcluster takes one cluster a row, {shapes}")
    return batch.mean(-log_p.gather(-1, assignment[..., None])[..., 0])


@register_objective("deepcluster")
@dataclass(frozen=True)
class DeepCluster(Objective):
    """Clusters of the averaged network's features as labels, renewed now and then."""

    every: int = setting(10, "iterations between two assignments", above=0)

    summary: ClassVar[str] = "predict the k-means clusters of one's own features"
    reference: ClassVar[str] = "Caron et al., 2018"

    def __call__(self, out: Outputs, memory: Memory) -> tuple[Tensor, Memory]:
        target = torch.take_along_dim(memory["assignment"], out.rows, dim=-1)
        value = (deepcluster.formula(out.log_p, target) + deepcluster.formula(out.view_log_p, target)) / 2
        return value, memory

    def start(self, training: Training) -> Memory:
        shape = (*training.members, training.n_clusters, training.n_hidden)
        rows = (*training.members, training.n_rows)
        return {
            "centroids": torch.zeros(shape, dtype=torch.float64, device=training.device),
            "assignment": torch.zeros(rows, dtype=torch.int64, device=training.device),
        }

    def refresh_every(self, iterations: int) -> int:  # noqa: ARG002
        return self.every

    def refresh(self, training: Training, memory: Memory) -> Memory:
        """k-means from the last centroids on, so that clusters keep their names."""
        from sklearn.cluster import KMeans

        features = training.average_features().double()
        flat = features.reshape(-1, *features.shape[-2:]).cpu().numpy()
        old = memory["centroids"]
        old_flat = old.reshape(-1, *old.shape[-2:]).cpu().numpy()
        found = []
        for part, centroids in zip(flat, old_flat, strict=True):
            first = not np.any(centroids)
            start = "k-means++" if first else centroids
            n_init = 10 if first else 1
            model = KMeans(len(centroids), init=start, n_init=n_init, random_state=training.iteration)
            found.append(model.fit(part))
        centers = torch.from_numpy(np.stack([f.cluster_centers_ for f in found])).to(old.device)
        labels = torch.from_numpy(np.stack([f.labels_ for f in found])).long().to(old.device)
        return {"centroids": centers.reshape(old.shape), "assignment": labels.reshape(features.shape[:-1])}

    def optimum(self, sizes: Sizes) -> float:  # noqa: ARG002
        return 0.0
