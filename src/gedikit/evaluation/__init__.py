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
from gedikit.evaluation.inception import FID_NETWORK, Inception
from gedikit.evaluation.made_images import (
    MADE_IMAGES,
    as_pixels,
    constant_images,
    interpolated_images,
    noise_images,
    texture_images,
)
from gedikit.evaluation.metric import Metric
from gedikit.evaluation.outliers import (
    SCORES,
    confidence,
    gradient_norm,
    ood_metrics,
    ood_scores,
    typicality,
)
from gedikit.evaluation.probes import both_probes, knn_probe, linear_probe

__all__ = [
    "FID_NETWORK",
    "MADE_IMAGES",
    "SCORES",
    "Inception",
    "Metric",
    "Statistics",
    "as_pixels",
    "batch_mean_nmi",
    "best_kde",
    "both_probes",
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
    "ood_scores",
    "stream_statistics",
    "texture_images",
    "typicality",
]
