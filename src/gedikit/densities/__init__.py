"""Densities p_Ψ(x), one a file: log-density, the loss it is trained by, whether it is normalised, and its name."""

from gedikit.densities.base import Density, DensityModule, Energy, Likelihood, densities, register_density
from gedikit.densities.cluster_energy import ClusterEnergy, cluster_log_density
from gedikit.densities.contrastive_energy import ContrastiveEnergy, contrastive_log_density
from gedikit.densities.estimators import (
    effective_sample_size,
    energy_l2,
    generative,
    importance_generative,
    likelihood_generative,
    log_normaliser,
)
from gedikit.densities.flow import Flow
from gedikit.densities.multi_noise_energy import MultiNoiseEnergy, MultiNoiseModule

__all__ = [
    "ClusterEnergy",
    "ContrastiveEnergy",
    "Density",
    "DensityModule",
    "Energy",
    "Flow",
    "Likelihood",
    "MultiNoiseEnergy",
    "MultiNoiseModule",
    "cluster_log_density",
    "contrastive_log_density",
    "densities",
    "effective_sample_size",
    "energy_l2",
    "generative",
    "importance_generative",
    "likelihood_generative",
    "log_normaliser",
    "register_density",
]
