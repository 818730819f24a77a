"""What only a fit can see and a verdict needs: labels along the training's views, and the rivals of its start."""

import numpy as np
import torch
from jaxtyping import Int64
from sklearn.metrics import adjusted_rand_score

from gedikit.assignment import Assignment
from gedikit.model import EnergyClassifier
from gedikit.starts import Start
from gedikit.views.base import Views

_ROWS = 2000


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


def evidence_of_start(start: Start, labels: Int64[np.ndarray, " n"]) -> dict[str, float]:
    """How sure the starting partition was, and whether the network ended there."""
    choice = start.choice
    found = {
        "start_agreement": choice.chosen.agreement,
        "start_margin": choice.margin,
        "kept_of_start": float(adjusted_rand_score(choice.chosen.labels, labels)),
    }
    if choice.runner_up is not None:
        found["likeness_of_rival"] = float(adjusted_rand_score(choice.chosen.labels, choice.runner_up.labels))
    if start.number is not None:
        found["number_margin"] = start.number.margin
        found["other_number"] = float(start.number.runner_up)
    return found
