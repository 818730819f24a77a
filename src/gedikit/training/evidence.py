"""What only a fit can see and a verdict needs: labels along views, rivals of the start, worth of the density."""

import numpy as np
import torch
from jaxtyping import Float, Int64
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from gedikit.assignment import Assignment
from gedikit.model import EnergyClassifier
from gedikit.starts import Start
from gedikit.views.base import Views

_ROWS = 2000
_LEAST_VARIANCE = 1e-6


@torch.inference_mode()
def agreement_of_views(
    network: EnergyClassifier, assignment: Assignment, views: Views, progress: float, seed: int
) -> float:
    """How often x and x′ ~ T(x′|x), drawn as at this point of the training, share their cluster."""
    device = network.centers.device
    generator = torch.Generator(device).manual_seed(seed)
    level = views.level(progress)
    batch = views.batch(min(_ROWS, views.n_rows), 0, level, generator)
    labels = [assignment.of_points(network, x).argmax(-1) for x in views(batch, level, generator)]
    return float((labels[0] == labels[1]).double().mean())


def gain_over_gaussian(
    log_density: Float[Tensor, " h"],
    rows: Float[Tensor, "h d"],
    trained: Float[Tensor, "n d"],
    sigma: float,
) -> dict[str, float]:
    """How much more probable rows are than under one Gaussian of the training rows, in nats, with its error."""
    trained, rows = trained.double().cpu(), rows.double().cpu()
    mean, d = trained.mean(0), trained.shape[1]
    spread = torch.cov(trained.T).reshape(d, d) + (sigma**2 + _LEAST_VARIANCE) * torch.eye(d, dtype=torch.float64)
    gaussian = torch.distributions.MultivariateNormal(mean, spread)
    gains = log_density.double().cpu() - gaussian.log_prob(rows)
    error = gains.std(correction=0) / len(gains) ** 0.5
    return {"gain_over_gaussian": float(gains.mean()), "gain_error": float(error)}


def evidence_of_start(start: Start, labels: Int64[np.ndarray, " n"]) -> dict[str, float]:
    """How sure the starting partition was, and whether the network ended there."""
    choice = start.choice
    own = labels if start.rows is None else labels[start.rows]
    found = {"kept_of_start": float(adjusted_rand_score(start.labels, own))}
    if start.known is None or not start.known.guides:  # else rivals are out of the question that labels rule out
        found |= {"start_agreement": choice.chosen.agreement, "start_margin": choice.margin}
        if choice.runner_up is not None:
            found["likeness_of_rival"] = float(adjusted_rand_score(choice.chosen.labels, choice.runner_up.labels))
    if start.number is not None:
        found["number_margin"] = start.number.margin
        found["other_number"] = float(start.number.runner_up)
    return found
