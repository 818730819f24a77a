"""The one network: its logits are a clustering, a density and a score at the same time."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from gedikit.densities import DensityModule
from gedikit.densities.cluster_energy import ClusterEnergyModule
from gedikit.encoders import EncoderModule, is_batch_normalised

Points = Float[Tensor, "*m n d"]
Embeddings = Float[Tensor, "*m n l"]
LogDensities = Float[Tensor, "*m n"]
Levels = Float[Tensor, "*m n 1"]


class EnergyClassifier(nn.Module):
    """Embeddings z = g(x) with g = projector ∘ encoder, logits U^T z/τ, and a density p_Ψ(x).

    softmax over the logits is the cluster posterior p(y|x). Which density belongs to the network is its part
    `density`: by default the cluster energy, whose logsumexp over the logits is log p(x) + log Γ (Eq. gedi_gen).
    Parameters and points may carry a leading dimension of models that are trained side by side.
    """

    def __init__(
        self,
        encoder: nn.Module,
        projector: nn.Module,
        n_clusters: int,
        n_embedding: int,
        *,
        temperature: float = 1.0,
        cosine: bool = False,
        density: DensityModule | None = None,
        heads: Mapping[str, nn.Module] | None = None,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        self.encoder = encoder
        self.projector = projector
        self.temperature = temperature
        self.cosine = cosine
        centers = torch.empty(n_embedding, n_clusters)
        nn.init.xavier_uniform_(centers, gain=2**0.5, generator=generator)
        self.centers = nn.Parameter(centers)
        self.density = density or ClusterEnergyModule()
        self.heads = nn.ModuleDict(heads)  # modules of objectives that have weights of their own
        self.batch_normalised = is_batch_normalised(self)

    def compute_in(self, dtype: torch.dtype) -> None:
        """What convolutions are computed in, where there are any; all else is 32 bits wide."""
        for module in self.modules():
            if isinstance(module, EncoderModule):
                module.compute_dtype = dtype

    def features(self, x: Points, sigma: Levels | None = None) -> Float[Tensor, "*m n h"]:
        """enc(x), the representation ξ; of noised rows with their noise levels, where the encoder takes these."""
        out: Tensor = self.encoder(x) if sigma is None else self.encoder(x, sigma)
        return out

    def project(self, features: Float[Tensor, "*m n h"]) -> Embeddings:
        out: Tensor = self.projector(features)
        return out

    def embed(self, x: Points, sigma: Levels | None = None) -> Embeddings:
        """g(x), the embedding z."""
        return self.project(self.features(x, sigma))

    def cluster_scores(self, z: Embeddings) -> Float[Tensor, "*m n c"]:
        """U^T z/τ, one column a cluster; with `cosine` of unit vectors."""
        centers: Tensor = self.centers
        if self.cosine:
            z, centers = F.normalize(z, dim=-1), F.normalize(centers, dim=-2)
        # few columns: several times faster with the thin factor on the left, forwards and backwards
        return ((centers / self.temperature).mT @ z.mT).mT

    def logits(self, x: Points) -> Float[Tensor, "*m n c"]:
        return self.cluster_scores(self.embed(x))

    forward = logits

    def posterior(self, x: Points) -> Float[Tensor, "*m n c"]:
        """p(y|x)."""
        return torch.softmax(self.logits(x), dim=-1)

    def log_density(self, x: Points) -> LogDensities:
        """log p(x), up to the constant log Γ unless the density is normalised; the paper's −E(x)."""
        return self.density.log_density(self, x, None)

    def score(self, x: Points) -> Points:
        """∇x log p(x); Γ does not depend on x."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.log_density(x).sum(), x)
        return gradient


@contextmanager
def frozen(network: nn.Module) -> Iterator[None]:
    """No gradients for the weights: chains want those of their points alone. What stays the same over all passes
    through unchanging weights is prepared once."""
    learning = [parameter for parameter in network.parameters() if parameter.requires_grad]
    prepared = [module for module in network.modules() if isinstance(module, EncoderModule)]
    for parameter in learning:
        parameter.requires_grad_(False)
    for module in prepared:
        module.hold()
    try:
        yield
    finally:
        for module in prepared:
            module.release()
        for parameter in learning:
            parameter.requires_grad_(True)
