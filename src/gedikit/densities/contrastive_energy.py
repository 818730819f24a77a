"""The contrastive energy of EBCLR: log p(x) is the log-sum of similarities with a bank of data (Kim & Ye, 2022)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gedikit.components import setting
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
from gedikit.objectives.instances import similarities
from gedikit.objectives.loss import full_precision


@full_precision
def contrastive_log_density(
    z: Float[Tensor, "*m n l"], bank: Float[Tensor, "*m k l"], temperature: float
) -> Float[Tensor, "*m n"]:
    """f(x) = log Σ_k e^{−‖g(x) − g(x_k)‖²/τ} over a bank: the energy of EBCLR, negated (Eq. generative_ebm)."""
    return torch.logsumexp(similarities(z, bank, "euclidean") / temperature, dim=-1)


class ContrastiveEnergyModule(DensityModule):
    """f(x) = log Σ_k e^{−‖z − z_k‖²/τ} over the embeddings z_k of some data, on the unit sphere."""

    references: Tensor

    def __init__(self, references: Float[Tensor, "k d"], temperature: float):
        super().__init__()
        self.register_buffer("references", references)
        self.temperature = temperature

    def log_density(self, network: Network, x: Points, z: Embeddings | None) -> LogDensities:
        n = x.shape[-2]
        if z is None:
            references = self.references.expand(*x.shape[:-2], *self.references.shape[-2:])
            both = network.embed(torch.cat([x, references], dim=-2))
            z, bank = both[..., :n, :], both[..., n:, :]
        else:
            bank = network.embed(self.references)
        z, bank = F.normalize(z, dim=-1), F.normalize(bank, dim=-1)
        return contrastive_log_density(z, bank, self.temperature)


@register_density("contrastive-energy")
@dataclass(frozen=True)
class ContrastiveEnergy(Energy):
    """A kernel density in the space of embeddings."""

    temperature: float = setting(0.5, "τ of the similarities", above=0)
    references: int = setting(256, "rows of the data in the bank", above=0)

    summary: ClassVar[str] = "log-density is the log-sum of similarities with a bank of data"
    reference: ClassVar[str] = "Kim & Ye, 2022"

    @property
    def n_references(self) -> int:
        return self.references

    def build(self, context: DensityContext) -> DensityModule:
        return ContrastiveEnergyModule(context.references, self.temperature)
