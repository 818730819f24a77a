"""How well clusters agree with labels that the training never saw."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn import metrics

from gedikit.errors import DataError
from gedikit.evaluation.figure import Figure


def clustering_accuracy(labels: NDArray[Any], clusters: NDArray[Any]) -> float:
    """Share of rows that are right under the best one-to-one naming of clusters (Hungarian method)."""
    counts = metrics.cluster.contingency_matrix(labels, clusters)
    row, col = linear_sum_assignment(-counts)
    return float(counts[row, col].sum() / len(labels))


def clustering_figures(labels: NDArray[Any], clusters: NDArray[Any], split: str, *, labels_by: str) -> list[Figure]:
    """NMI, AMI, ARI and ACC on all rows at once (never averaged over mini-batches).

    `labels_by` says how the clusters were read off the model; it stays with the figures.
    """
    if len(labels) != len(clusters):
        raise DataError(f"{len(labels)} labels do not fit {len(clusters)} rows")
    shared = {
        "split": split,
        "n": len(labels),
        "n_classes": len(np.unique(labels)),
        "n_clusters_used": len(np.unique(clusters)),
        "computed_on": "the full split at once",
        "clusters_by": labels_by,
    }
    measures = (
        ("nmi", metrics.normalized_mutual_info_score, "normalised mutual information, arithmetic mean"),
        (
            "ami",
            metrics.adjusted_mutual_info_score,
            "mutual information adjusted for chance, arithmetic mean",
        ),
        ("ari", metrics.adjusted_rand_score, "Rand index adjusted for chance"),
        ("acc", clustering_accuracy, "accuracy under the best one-to-one naming of clusters (Hungarian)"),
    )
    return [
        Figure(name, float(measure(labels, clusters)), {"definition": text, **shared})
        for name, measure, text in measures
    ]
