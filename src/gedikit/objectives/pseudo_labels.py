"""Pseudo-labels from clusters of neighbours: targets for the first part of the training.

A network that has to find clusters from nothing may settle for a constant posterior, or for two clusters that are
one; one that starts from a constraint alone also guesses what its clusters stand for, and keeps a wrong guess.
Spectral clusters of the neighbour graph are there at once. A constraint names them all together: several
clusterings, coarser and finer, are named one by one, and the resulting posteriors of a row are averaged.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor

from gedikit.components import setting
from gedikit.guidance import guided
from gedikit.objectives import batch
from gedikit.objectives.base import (
    PAPER,
    Examples,
    Memory,
    Objective,
    Outputs,
    Stage,
    TrainingData,
    both_views,
    register_objective,
)
from gedikit.objectives.loss import full_precision, times_log
from gedikit.symbolic import name_clusters
from gedikit.views.neighbours import Nearest, NeighbourGraph, affinity, spectral_clusters

_CLUSTERS_A_VALUE = (1.6, 2, 2.5, 3, 4)  # a value is shown in several ways
_MOST_ROWS = 3000  # memory grows with their square, and more are not needed to name clusters
_NEIGHBOURS = 10
_SMALLEST_SHARE = 0.2  # of what the prior expects: a smaller cluster is a group of near-duplicates


@full_precision
def pseudo_label_loss(log_p: Float[Tensor, "*m n c"], targets: Float[Tensor, "*m n c"]) -> Float[Tensor, "*m"]:
    """Mean cross-entropy to the targets; rows whose targets are zeros have none and are left out."""
    total = batch.over_processes(times_log(targets, log_p).sum((-2, -1)))
    return -total / batch.over_processes(targets.sum((-2, -1))).clamp(min=1)


@register_objective("pseudo-labels")
@dataclass(frozen=True)
class PseudoLabels(Objective):
    """Cross-entropy to a partition found before the training, named by the constraint if there is one.

    For rows of numbers the partition is the plan's start, and so it is for images where that is clear (`started`);
    for other images it is the spectral clusters of the neighbour graph.
    """

    weight: float = setting(25.0, "weight in the sum that is minimised", at_least=0)
    symmetric: bool = setting(False, "of x′ as well as of x")
    share: float = setting(
        0.0,
        "share of the training in which it is minimised, of stages with invariance and prior",
        at_least=0,
        at_most=1,
    )
    started: bool = setting(False, "of images too, the partition is the one that the plan starts from")
    _targets: Float[Tensor, "n c"] | None = field(default=None, repr=False, compare=False, kw_only=True)

    summary: ClassVar[str] = "cross-entropy to a partition of the neighbour graph, at the beginning"
    reference: ClassVar[str] = PAPER + "; cf. SCAN (Van Gansbeke et al., 2020)"
    standalone: ClassVar[bool] = False
    title: ClassVar[str] = "Pseudo-label loss"
    caption: ClassVar[str] = "Cross-entropy to the partition that the training starts from."

    def __call__(self, out: Outputs, memory: Memory) -> tuple[Tensor, Memory]:
        assert self._targets is not None, "bound before the training"
        targets = self._targets[out.rows]
        return both_views(self.symmetric, lambda log_p: pseudo_label_loss(log_p, targets), out), memory

    @property
    def n_views(self) -> int:
        return int(self.symmetric)

    def bind(self, data: TrainingData) -> Self:
        partition = None if data.images and not self.started else data.partition
        if data.examples is not None:
            targets = labels_by_constraint(data.nearest, data.examples, data.n_rows, data.seed, data.device)
        elif data.known is not None and data.known.labels is not None:  # groups have the names of labels already
            groups = _guided_partition(data) if partition is None else partition()
            targets = one_hot(groups, len(data.prior), data.device)
        elif partition is not None:
            targets = labels_by_partition(partition(), data.prior, data.device)
        else:
            targets = labels_by_clusters(data.graph(), data.prior, data.seed, data.device)
        return replace(self, _targets=targets)

    def join(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        """The first part of every stage that has both invariance and prior."""
        if not self.share:
            return stages
        joined, begun = [], 0.0
        for stage in stages:
            if {"invariance", "prior"} <= {*stage.terms}:
                begun += self.share * (stage.until - begun)
                joined.append(Stage(begun, (*stage.terms, self.name)))
            if begun < stage.until:
                joined.append(stage)
            begun = stage.until
        return tuple(joined)


def labels_by_partition(
    groups: Int64[np.ndarray, " n"], prior: NDArray[np.float64], device: torch.device
) -> Float[Tensor, "n c"]:
    """Each row in its group; the larger groups, which come first, get the more probable labels."""
    label = np.argsort(-prior, kind="stable")
    return one_hot(label[groups], len(prior), device)


def one_hot(labels: Int64[np.ndarray, " n"], n_clusters: int, device: torch.device) -> Float[Tensor, "n c"]:
    return torch.nn.functional.one_hot(torch.from_numpy(labels), n_clusters).float().to(device)


def _guided_partition(data: TrainingData) -> Int64[np.ndarray, " n"]:
    """Clusters of the neighbour graph and what known labels make of it, where no partition was looked for."""
    assert data.known is not None
    graph, n_clusters = data.graph(), len(data.prior)
    clusters = graph.clusters(n_clusters, data.seed)
    return guided(graph, [clusters] if clusters.min() >= 0 else [], data.known, n_clusters)


def labels_by_clusters(
    graph: NeighbourGraph, prior: NDArray[np.float64], seed: int, device: torch.device
) -> Float[Tensor, "n c"]:
    """Each row in its spectral cluster, zeros for rows in none; larger clusters get more probable labels."""
    clusters = graph.clusters(len(prior), seed, smallest=_SMALLEST_SHARE * prior.min() * len(graph.rows))
    inside = clusters >= 0
    by_size = np.argsort(np.bincount(clusters[inside], minlength=len(prior)), kind="stable")
    label = np.empty(len(prior), dtype=np.int64)
    label[by_size] = np.argsort(prior, kind="stable")
    targets = torch.zeros(len(clusters), len(prior))
    targets[inside, label[clusters[inside]]] = 1
    return targets.to(device)


def labels_by_constraint(
    nearest: Nearest, known: Examples, n_rows: int, seed: int, device: torch.device, starts: int = 1000
) -> Float[Tensor, "n c"]:
    """p(value | row) by clusters and the constraint; zeros for rows that none of the examples used names."""
    examples = _some(known.examples, seed)
    rows, inverse = np.unique(examples, return_inverse=True)
    places = torch.from_numpy(inverse.reshape(examples.shape)).to(device)
    n_values = known.constraint.variables[0].size
    found = torch.zeros(len(rows), n_values, device=device)
    for clusters in _clusterings(nearest, rows, n_values, seed):
        labels = torch.from_numpy(clusters).to(device)
        naming = name_clusters(known.constraint, labels[places], int(clusters.max()) + 1, starts=starts, seed=seed)
        found.index_add_(0, places.flatten(), naming.log_posterior.exp().flatten(0, 1))
    targets = torch.zeros(n_rows, n_values, device=device)
    targets[torch.from_numpy(rows).to(device)] = found / found.sum(-1, keepdim=True)
    return targets


def _some(examples: Int64[np.ndarray, "m v"], seed: int) -> Int64[np.ndarray, "s v"]:
    """Drawn, because files are often sorted."""
    most = max(1, _MOST_ROWS // examples.shape[1])
    if len(examples) <= most:
        return examples
    return examples[np.random.default_rng(seed).permutation(len(examples))[:most]]


def _clusterings(
    nearest: Nearest, rows: Int64[np.ndarray, " r"], n_values: int, seed: int
) -> list[Int64[np.ndarray, " r"]]:
    graph = affinity(*nearest(rows, min(_NEIGHBOURS, len(rows) - 1)))
    sizes = sorted({min(round(share * n_values), len(rows) // 2) for share in _CLUSTERS_A_VALUE})
    return [spectral_clusters(graph, size, seed) for size in sizes]
