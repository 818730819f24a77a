"""Measuring a fitted model. Every figure carries its protocol."""

from gedikit.evaluation.clustering import batch_mean_nmi, clustering_accuracy, clustering_metrics
from gedikit.evaluation.density import best_kde, energy_distance, grid_log_normaliser
from gedikit.evaluation.fid import (
    Statistics,
    fid_between_splits,
    fid_metric,
    fid_of_statistics,
    frechet_distance,
    image_statistics,
    stream_statistics,
)
from gedikit.evaluation.inception import Inception
from gedikit.evaluation.metric import Metric
from gedikit.evaluation.outliers import (
    SCORES,
    confidence,
    constant_images,
    gradient_norm,
    interpolated_images,
    noise_images,
    ood_metrics,
    typicality,
)
from gedikit.evaluation.probes import knn_probe, linear_probe

__all__ = [
    "SCORES",
    "Inception",
    "Metric",
    "Statistics",
    "batch_mean_nmi",
    "best_kde",
    "clustering_accuracy",
    "clustering_metrics",
    "confidence",
    "constant_images",
    "energy_distance",
    "fid_between_splits",
    "fid_metric",
    "fid_of_statistics",
    "frechet_distance",
    "gradient_norm",
    "grid_log_normaliser",
    "image_statistics",
    "interpolated_images",
    "knn_probe",
    "linear_probe",
    "noise_images",
    "ood_metrics",
    "stream_statistics",
    "typicality",
]
