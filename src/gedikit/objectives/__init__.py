"""Losses, to be minimised, one a file: the formula, its optimum, its settings, and its name.

Tensors have shape (*members, rows, …) and a loss has one value a member, so that many models can be trained in one
step. Whatever looks at the whole batch sees the rows of all processes of `torch.distributed` by itself.
"""

from gedikit.objectives.barlow_twins import barlow_twins
from gedikit.objectives.base import Objective, Outputs, objectives, register_objective
from gedikit.objectives.constraint import constraint_loss, constraint_loss_optimum
from gedikit.objectives.corinfomax import corinfomax, corinfomax_optimum, running_covariance
from gedikit.objectives.cpc import cpc
from gedikit.objectives.deepcluster import deepcluster
from gedikit.objectives.infonce import infonce, infonce_optimum
from gedikit.objectives.instances import similarities
from gedikit.objectives.invariance import invariance, invariance_optimum
from gedikit.objectives.known_labels import known_label_loss, known_label_loss_optimum
from gedikit.objectives.kscl import kscl, kscl_optimum
from gedikit.objectives.links import link_loss, link_loss_optimum
from gedikit.objectives.loss import Loss
from gedikit.objectives.mec import mec, mec_optimum
from gedikit.objectives.prior import mutual_information, prior, prior_optimum
from gedikit.objectives.protocpc import protocpc, protocpc_optimum
from gedikit.objectives.pseudo_labels import pseudo_label_loss
from gedikit.objectives.sela import sela
from gedikit.objectives.simclr import simclr, simclr_optimum
from gedikit.objectives.sinkhorn import sinkhorn
from gedikit.objectives.swav import swav
from gedikit.objectives.uniformity import entropy_of_mean, entropy_of_mean_optimum
from gedikit.objectives.vicreg import vicreg
from gedikit.objectives.w_mse import w_mse

__all__ = [
    "Loss",
    "Objective",
    "Outputs",
    "barlow_twins",
    "constraint_loss",
    "constraint_loss_optimum",
    "corinfomax",
    "corinfomax_optimum",
    "cpc",
    "deepcluster",
    "entropy_of_mean",
    "entropy_of_mean_optimum",
    "infonce",
    "infonce_optimum",
    "invariance",
    "invariance_optimum",
    "known_label_loss",
    "known_label_loss_optimum",
    "kscl",
    "kscl_optimum",
    "link_loss",
    "link_loss_optimum",
    "mec",
    "mec_optimum",
    "mutual_information",
    "objectives",
    "prior",
    "prior_optimum",
    "protocpc",
    "protocpc_optimum",
    "pseudo_label_loss",
    "register_objective",
    "running_covariance",
    "sela",
    "simclr",
    "simclr_optimum",
    "similarities",
    "sinkhorn",
    "swav",
    "vicreg",
    "w_mse",
]
