"""How well clusters agree with labels that the training never saw."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn import metrics

from gedikit.errors import DataError, UsageError
from gedikit.evaluation.metric import Metric


def clustering_accuracy(labels: NDArray[Any], clusters: NDArray[Any]) -> float:
    """Share of rows that are right under the best one-to-one naming of clusters (Hungarian method)."""
    counts = metrics.cluster.contingency_matrix(labels, clusters)
    row, col = linear_sum_assignment(-counts)
    return float(counts[row, col].sum() / len(labels))


def clustering_metrics(labels: NDArray[Any], clusters: NDArray[Any], split: str, *, labels_by: str) -> list[Metric]:
    """NMI, AMI, ARI and ACC on all rows at once (never averaged over mini-batches).

    `labels_by` says how the clusters were read off the model; it stays with the metrics.
    """
    _check_lengths(labels, clusters)
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
        Metric(name, float(measure(labels, clusters)), {"definition": text, **shared})
        for name, measure, text in measures
    ]


def batch_mean_nmi(
    labels: NDArray[Any],
    clusters: NDArray[Any],
    batch_size: int,
    split: str,
    seed: int,
    *,
    labels_by: str = "not stated",
) -> Metric:
    """Mean NMI over consecutive batches of the shuffled split; rows that do not fill a batch are left out.

    NMI of few rows is high by chance: labels and clusters drawn at random from 100 score about 0.86 over batches of
    100 rows. So this is comparable only with metrics computed the same way, which some publications report.
    """
    _check_lengths(labels, clusters)
    n_batches = len(labels) // batch_size if batch_size > 0 else 0
    if n_batches == 0:
        raise UsageError(f"{len(labels)} rows do not fill a batch of {batch_size}")
    order = np.random.default_rng(seed).permutation(len(labels))[: n_batches * batch_size]
    values = [
        metrics.normalized_mutual_info_score(labels[rows], clusters[rows]) for rows in np.split(order, n_batches)
    ]
    protocol = {
        "definition": "normalised mutual information, arithmetic mean, averaged over mini-batches",
        "split": split,
        "n": len(order),
        "n_classes": len(np.unique(labels)),
        "n_clusters_used": len(np.unique(clusters)),
        "computed_on": f"{n_batches} batches of {batch_size} rows, shuffled",
        "comparable_with": "only values averaged over batches of this size; chance scores far above 0",
        "clusters_by": labels_by,
        "seed": seed,
    }
    return Metric("nmi_batch_mean", float(np.mean(values)), protocol)


def _check_lengths(labels: NDArray[Any], clusters: NDArray[Any]) -> None:
    if len(labels) != len(clusters):
        raise DataError(f"{len(labels)} labels do not fit {len(clusters)} rows")
