"""What rows show, read off before a network has learned: neighbours, their clusters, and what a rule calls these.

A network that has to find clusters from nothing may settle for a constant posterior, or for two clusters that
are one; one that starts from rules alone also guesses what its clusters stand for, and stays with a wrong guess.
Clusters of neighbours are there at once. A rule names them all together: several clusterings, coarser and finer,
are named one by one, and what they make of a row is averaged.
"""

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor

from gedikit.data.neighbours import Nearest, NeighbourGraph, affinity, spectral_clusters
from gedikit.symbolic import name_clusters
from gedikit.training.rules import Rules

_CLUSTERS_A_VALUE = (1.6, 2, 2.5, 3, 4)  # a value is shown in several ways
_MOST_ROWS = 3000  # memory grows with their square, and more are not needed to name clusters
_NEIGHBOURS = 10
_SMALLEST_SHARE = 0.2  # of what the prior expects: below that a cluster is a heap of near copies


def reading_of_clusters(
    graph: NeighbourGraph, prior: NDArray[np.float64], seed: int, device: torch.device
) -> Float[Tensor, "n c"]:
    """Each row in its spectral cluster, zeros for rows in none; larger clusters get more probable labels."""
    clusters = graph.clusters(len(prior), seed, smallest=_SMALLEST_SHARE * prior.min() * len(graph.rows))
    inside = clusters >= 0
    by_size = np.argsort(np.bincount(clusters[inside], minlength=len(prior)), kind="stable")
    label = np.empty(len(prior), dtype=np.int64)
    label[by_size] = np.argsort(prior, kind="stable")
    reading = torch.zeros(len(clusters), len(prior))
    reading[inside, label[clusters[inside]]] = 1
    return reading.to(device)


def reading_of_rules(
    nearest: Nearest, rules: Rules, n_rows: int, seed: int, device: torch.device, starts: int = 1000
) -> Float[Tensor, "n c"]:
    """p(value | row) by clusters and the rule; zeros for rows that none of the examples looked at names."""
    examples = _some(rules.examples, seed)
    rows, inverse = np.unique(examples, return_inverse=True)
    places = torch.from_numpy(inverse.reshape(examples.shape)).to(device)
    n_values = rules.constraint.variables[0].size
    found = torch.zeros(len(rows), n_values, device=device)
    for clusters in _clusterings(nearest, rows, n_values, seed):
        labels = torch.from_numpy(clusters).to(device)
        naming = name_clusters(rules.constraint, labels[places], int(clusters.max()) + 1, starts=starts, seed=seed)
        found.index_add_(0, places.flatten(), naming.log_posterior.exp().flatten(0, 1))
    reading = torch.zeros(n_rows, n_values, device=device)
    reading[torch.from_numpy(rows).to(device)] = found / found.sum(-1, keepdim=True)
    return reading


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
