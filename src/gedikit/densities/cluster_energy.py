"""The cluster energy: log p(x) is the logsumexp of the cluster logits, the paper's unification (Eq. gedi_gen)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.densities.base import (
    DensityContext,
    DensityModule,
    Embeddings,
    Energy,
    LogDensities,
    Network,
    Points,
    register_density,
)
from gedikit.objectives.loss import full_precision


@full_precision
def cluster_log_density(logits: Float[Tensor, "*m n c"]) -> Float[Tensor, "*m n"]:
    """f(x) = log Σ_y e^{logit_y}: the cluster energy, negated (Eq. gedi_gen)."""
    return torch.logsumexp(logits, dim=-1)


class ClusterEnergyModule(DensityModule):
    """f(x) = logsumexp of the cluster logits: Ψ = Θ, no weights of its own."""

    from_logits = True

    def log_density(self, network: Network, x: Points, z: Embeddings | None) -> LogDensities:
        z = network.embed(x) if z is None else z
        return cluster_log_density(network.cluster_scores(z))


@register_density("cluster-energy")
@dataclass(frozen=True)
class ClusterEnergy(Energy):
    """The density of the cluster logits."""

    summary: ClassVar[str] = "log-density is the logsumexp of the cluster logits"
    reference: ClassVar[str] = "Grathwohl et al., 2020"

    def build(self, context: DensityContext) -> DensityModule:  # noqa: ARG002
        return ClusterEnergyModule()
