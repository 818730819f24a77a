"""Telling data of the training distribution from other data by a score that is larger inside.

Figures are computed from exact counts at every distinct score, so ties cost and earn what they should.
"""

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from gedikit.errors import DataError, UsageError
from gedikit.evaluation.metric import Metric

SCORES = {
    "log_density": "log p(x)",
    "confidence": "the largest p(y|x)",
    "gradient_norm": "−‖∂ log p(x)/∂x‖₂ (JEM, Grathwohl et al., 2020)",
    "typicality": "−|log p(x) − median of log p over the training data| (after Nalisnick et al., 2019)",
}

_TRUE_POSITIVE_RATE = 0.95


def confidence(posterior: Float[np.ndarray, "n c"]) -> Float[np.ndarray, " n"]:
    """The largest p(y|x) of each row."""
    return np.asarray(np.max(posterior, axis=1))


def gradient_norm(gradients: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, " n"]:
    """Minus the Euclidean norm of each row of ∂ log p/∂x: near data that the density fits, gradients are small."""
    flat = np.asarray(gradients, np.float64).reshape(len(gradients), -1)
    return np.asarray(-np.linalg.norm(flat, axis=1))


def typicality(
    log_density: Float[np.ndarray, " n"], training_log_density_quantiles: Float[np.ndarray, " q"]
) -> Float[np.ndarray, " n"]:
    """Minus the distance of log p(x) from the training data's median.

    The second argument holds evenly spaced quantiles of log p over the training data, or all its values.
    """
    median = np.median(training_log_density_quantiles)
    return np.asarray(-np.abs(np.asarray(log_density, np.float64) - median))


def ood_scores(
    blocks: Iterable[tuple[Tensor, Tensor, Tensor]], training_log_density_quantiles: Float[np.ndarray, " q"]
) -> dict[str, NDArray[np.float64]]:
    """Every score of `SCORES`, row by row, from blocks of (logits of the clusters, log p, ∂ log p/∂x)."""
    posteriors, densities, norms = [], [], []
    for logits, density, gradients in blocks:
        posteriors.append(logits.double().softmax(-1).cpu().numpy())
        densities.append(density.double().cpu().numpy())
        norms.append(gradient_norm(gradients.cpu().numpy()))
    posterior, log_density = np.concatenate(posteriors), np.concatenate(densities)
    if not np.isfinite(log_density).all():
        raise DataError("log-densities are not finite: the weights have run away")
    return {
        "log_density": log_density,
        "confidence": confidence(posterior),
        "gradient_norm": np.concatenate(norms),
        "typicality": typicality(log_density, training_log_density_quantiles),
    }


def ood_metrics(
    inside: ArrayLike,
    outside: ArrayLike,
    *,
    score: str,
    inside_name: str,
    outside_name: str,
) -> list[Metric]:
    """AUROC, both AUPR and FPR at 95 % TPR of scores that are larger for data inside the distribution."""
    inside, outside = _scores(inside, inside_name), _scores(outside, outside_name)
    n_inside, n_outside = _counts_from_the_top(inside, outside)
    shared = {
        "score": score,
        "score_is": SCORES.get(score, "the caller's own"),
        "orientation": "larger is more in-distribution",
        "inside": inside_name,
        "outside": outside_name,
        "n_inside": len(inside),
        "n_outside": len(outside),
        "ties": "a tied pair counts one half (AUROC); equal scores pass a threshold together (AUPR, FPR)",
    }
    measures = (
        (
            "ood_auroc",
            _auroc(n_inside, n_outside),
            "probability that a row inside scores higher than one outside",
            "inside",
        ),
        (
            "ood_aupr_in",
            _average_precision(n_inside, n_outside),
            "average precision, no interpolation; chance is the share of inside rows",
            "inside",
        ),
        (
            "ood_aupr_out",
            _average_precision(n_outside[::-1], n_inside[::-1]),
            "average precision of the negated score, no interpolation; chance is the share of outside rows",
            "outside",
        ),
        (
            "ood_fpr95",
            _false_positive_rate(n_inside, n_outside),
            "share of outside rows above the highest threshold that 95 % of inside rows reach; lower is better",
            "inside",
        ),
    )
    return [
        Metric(name, value, {"definition": text, "positive": positive, **shared})
        for name, value, text, positive in measures
    ]


def _scores(values: ArrayLike, name: str) -> NDArray[np.float64]:
    scores = np.asarray(values, np.float64)
    if scores.ndim != 1:
        raise UsageError(f"scores of {name} must be one number a row, not of shape {scores.shape}")
    if len(scores) == 0:
        raise DataError(f"there are no scores of {name}: both sides are needed to tell them apart")
    if np.isnan(scores).any():
        raise DataError(f"{np.isnan(scores).sum()} of {len(scores)} scores of {name} are not numbers")
    return scores


def _counts_from_the_top(
    inside: NDArray[np.float64], outside: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many rows of either side have each distinct score, highest score first."""
    values, place = np.unique(np.concatenate([inside, outside]), return_inverse=True)
    per_side = (np.bincount(part, minlength=len(values))[::-1] for part in np.split(place, [len(inside)]))
    n_inside, n_outside = per_side
    return n_inside, n_outside


def _auroc(positive: NDArray[np.int64], negative: NDArray[np.int64]) -> float:
    below = negative.sum() - negative.cumsum()
    return float((positive * (2 * below + negative)).sum() / (2 * positive.sum() * negative.sum()))


def _average_precision(positive: NDArray[np.int64], negative: NDArray[np.int64]) -> float:
    precision = positive.cumsum() / (positive + negative).cumsum()
    return float((positive * precision).sum() / positive.sum())


def _false_positive_rate(positive: NDArray[np.int64], negative: NDArray[np.int64]) -> float:
    accepted = positive.cumsum() / positive.sum()
    threshold = int(np.argmax(accepted >= _TRUE_POSITIVE_RATE))
    return float(negative.cumsum()[threshold] / negative.sum())
