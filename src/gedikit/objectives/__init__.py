"""Losses as pure functions of tensors: unweighted, to be minimised, optimum beside them.

Tensors have shape (*members, rows, …) and a loss has one value a member, so that many models can be trained in one
step. Whatever looks at the whole batch sees the rows of all processes of `torch.distributed` by itself.
"""

from gedikit.objectives.cluster_based import deepcluster, sela, sinkhorn, swav
from gedikit.objectives.constraint_based import (
    constraint_loss,
    constraint_loss_optimum,
    entropy_of_mean,
    entropy_of_mean_optimum,
    reading_loss,
)
from gedikit.objectives.contrastive import (
    cpc,
    infonce,
    infonce_optimum,
    kscl,
    kscl_optimum,
    protocpc,
    protocpc_optimum,
    simclr,
    simclr_optimum,
    similarities,
)
from gedikit.objectives.generative import (
    cluster_log_density,
    contrastive_log_density,
    effective_sample_size,
    energy_l2,
    generative,
    importance_generative,
    likelihood_generative,
    log_normaliser,
)
from gedikit.objectives.information_bounds import infonce_bound, nwj_bound, tuba_bound, uba_bound
from gedikit.objectives.invariance_prior import (
    invariance,
    invariance_optimum,
    mutual_information,
    prior,
    prior_optimum,
)
from gedikit.objectives.negative_free import (
    barlow_twins,
    corinfomax,
    corinfomax_optimum,
    mec,
    mec_optimum,
    running_covariance,
    vicreg,
    w_mse,
)
from gedikit.objectives.objective import Objective

__all__ = [
    "Objective",
    "barlow_twins",
    "cluster_log_density",
    "constraint_loss",
    "constraint_loss_optimum",
    "contrastive_log_density",
    "corinfomax",
    "corinfomax_optimum",
    "cpc",
    "deepcluster",
    "effective_sample_size",
    "energy_l2",
    "entropy_of_mean",
    "entropy_of_mean_optimum",
    "generative",
    "importance_generative",
    "infonce",
    "infonce_bound",
    "infonce_optimum",
    "invariance",
    "invariance_optimum",
    "kscl",
    "kscl_optimum",
    "likelihood_generative",
    "log_normaliser",
    "mec",
    "mec_optimum",
    "mutual_information",
    "nwj_bound",
    "prior",
    "prior_optimum",
    "protocpc",
    "protocpc_optimum",
    "reading_loss",
    "running_covariance",
    "sela",
    "simclr",
    "simclr_optimum",
    "similarities",
    "sinkhorn",
    "swav",
    "tuba_bound",
    "uba_bound",
    "vicreg",
    "w_mse",
]
