"""The paper's losses as pure functions of tensors: unweighted, to be minimised, optimum beside them."""

from gedikit.objectives.generative import (
    effective_sample_size,
    energy_l2,
    generative,
    importance_generative,
    log_normaliser,
)
from gedikit.objectives.invariance_prior import (
    invariance,
    invariance_optimum,
    mutual_information,
    prior,
    prior_optimum,
)

__all__ = [
    "effective_sample_size",
    "energy_l2",
    "generative",
    "importance_generative",
    "invariance",
    "invariance_optimum",
    "log_normaliser",
    "mutual_information",
    "prior",
    "prior_optimum",
]
