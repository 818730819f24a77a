"""What a page says of a model in figures: its log-likelihood, and its agreement with labels."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gedikit.evaluation import Metric, clustering_metrics, grid_log_normaliser
from gedikit.fitted import FittedModel
from gedikit.tables import TableEncoding


def label_metrics(
    fitted: FittedModel, labels: NDArray[Any], clusters: NDArray[np.int64], split: str
) -> list[Metric]:
    """Agreement of clusters with labels, as far as these are known."""
    known = ~pd.isna(labels)
    if not known.any():
        return []
    by = fitted.assignment.description
    return clustering_metrics(labels[known], clusters[known], split, labels_by=by)


def density_metrics(
    fitted: FittedModel, x: NDArray[Any], split: str, encoding: TableEncoding | None = None
) -> list[Metric]:
    """How probable the rows are, where a density was learned."""
    if not fitted.models_density:
        return []
    name, normaliser = "log_likelihood", "midpoint rule, 400 cells a side, over the domain"
    definition = "mean log-likelihood of the rows in nats, in the units of the data"
    constant = 0.0
    if encoding is not None and encoding.without_likelihood:
        name, normaliser = "mean_log_density", "none: categories and gaps have no density in units of the table"
        definition = "mean log-density of the encoded rows: only differences mean something"
    elif fitted.network.density.normalised:
        normaliser = "the density is normalised by itself"
    elif fitted.n_features <= 2:
        low, high = fitted.bounds()
        constant = grid_log_normaliser(fitted.log_density, low, high)
    elif fitted.normalised:
        normaliser = "importance sampling"
    else:
        name, normaliser = "mean_log_density", "unknown"
        definition = "mean unnormalised log-density of the rows: only differences mean something"
    protocol = {"definition": definition, "split": split, "n": len(x), "normaliser": normaliser}
    return [Metric(name, float(fitted.log_density(x).mean()) - constant, protocol)]
