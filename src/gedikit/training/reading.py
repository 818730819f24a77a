"""What the rows of examples show, read off before any network has learned: neighbours, clusters, and their names.

A network that starts from rules alone has to guess what its clusters stand for while it still finds them, and
stays with a wrong guess. Clusters of neighbours are there at once, and a rule names them all together. Several
clusterings, coarser and finer, are named one by one; what they make of a row is averaged.
"""

import warnings

import numpy as np
import torch
from jaxtyping import Float, Int64
from sklearn.cluster import SpectralClustering
from torch import Tensor

from gedikit.data.geometry import Nearest, affinity
from gedikit.symbolic import name_clusters
from gedikit.training.rules import Rules

_CLUSTERS_A_VALUE = (1.6, 2, 2.5, 3, 4)  # a value is shown in several ways
_MOST_ROWS = 3000  # memory grows with their square, and more are not needed to name clusters
_NEIGHBOURS = 10


def first_reading(
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a graph in several parts is no harm: parts are clusters
        return [
            SpectralClustering(size, affinity="precomputed", assign_labels="cluster_qr", random_state=seed)
            .fit_predict(graph)
            .astype(np.int64)
            for size in sizes
        ]
