"""Measuring a fitted model. Every figure carries its protocol."""

from gedikit.evaluation.clustering import clustering_accuracy, clustering_figures
from gedikit.evaluation.density import best_kde, energy_distance, grid_log_normaliser
from gedikit.evaluation.figure import Figure

__all__ = [
    "Figure",
    "best_kde",
    "clustering_accuracy",
    "clustering_figures",
    "energy_distance",
    "grid_log_normaliser",
]
