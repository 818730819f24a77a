"""The one network: its logits are a clustering, a density and a score at the same time."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from gedikit import networks, objectives

Points = Float[Tensor, "*m n d"]
Embeddings = Float[Tensor, "*m n l"]
LogDensities = Float[Tensor, "*m n"]


class EnergyClassifier(nn.Module):
    """Embeddings z = g(x) with g = projector ∘ encoder, logits U^T z/τ, and a density p_Ψ(x).

    softmax over the logits is the cluster posterior p(y|x). Which density belongs to the network is its part
    `density`: by default the cluster energy, whose logsumexp over the logits is log p(x) + log Γ (Eq. gedi_gen).
    Parameters and points may carry a leading dimension of models that are trained side by side.
    """

    critic: nn.Parameter | None

    def __init__(
        self,
        encoder: nn.Module,
        projector: nn.Module,
        n_clusters: int,
        n_embedding: int,
        *,
        temperature: float = 1.0,
        cosine: bool = False,
        with_critic: bool = False,
        density: "Density | None" = None,
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
        self.density = density or ClusterEnergy()
        # the bilinear score of contrastive predictive coding
        self.critic = nn.Parameter(torch.eye(n_embedding) / n_embedding**0.5) if with_critic else None
        self.batch_normalised = networks.is_batch_normalised(self)

    def compute_in(self, dtype: torch.dtype) -> None:
        """What convolutions are computed in, where there are any; all else is 32 bits wide."""
        for module in self.modules():
            if isinstance(module, networks.ResNet8 | networks.Brought):
                module.dtype = dtype

    def features(self, x: Points) -> Float[Tensor, "*m n h"]:
        """enc(x), the representation ξ."""
        out: Tensor = self.encoder(x)
        return out

    def project(self, features: Float[Tensor, "*m n h"]) -> Embeddings:
        out: Tensor = self.projector(features)
        return out

    def embed(self, x: Points) -> Embeddings:
        """g(x), the embedding z."""
        return self.project(self.features(x))

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
    prepared = [module for module in network.modules() if isinstance(module, networks.ResNet8)]
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


class Density(nn.Module):
    """A model p_Ψ(x) of the data (Eq. generative_obj): the interface for any likelihood-based family."""

    normalised = False

    def log_density(self, network: EnergyClassifier, x: Points, z: Embeddings | None) -> LogDensities:
        """log p(x) (+ log Γ unless `normalised`); z holds the embeddings of x where they are known already."""
        raise NotImplementedError

    def sample(self, n: int, generator: torch.Generator) -> Points:
        """n exact samples, where `normalised`; energies are sampled by Langevin dynamics."""
        raise NotImplementedError


class ClusterEnergy(Density):
    """f(x) = logsumexp of the cluster logits: Ψ = Θ, the unification of the paper."""

    def log_density(self, network: EnergyClassifier, x: Points, z: Embeddings | None) -> LogDensities:
        z = network.embed(x) if z is None else z
        return objectives.cluster_log_density(network.cluster_scores(z))


class ContrastiveEnergy(Density):
    """f(x) = log Σ_k e^{−‖z − z_k‖²/τ} over the embeddings z_k of some data, on the unit sphere (EBCLR)."""

    references: Tensor

    def __init__(self, references: Float[Tensor, "k d"], temperature: float):
        super().__init__()
        self.register_buffer("references", references)
        self.temperature = temperature

    def log_density(self, network: EnergyClassifier, x: Points, z: Embeddings | None) -> LogDensities:
        n = x.shape[-2]
        if z is None:
            references = self.references.expand(*x.shape[:-2], *self.references.shape[-2:])
            both = network.embed(torch.cat([x, references], dim=-2))
            z, bank = both[..., :n, :], both[..., n:, :]
        else:
            bank = network.embed(self.references)
        z, bank = F.normalize(z, dim=-1), F.normalize(bank, dim=-1)
        return objectives.contrastive_log_density(z, bank, self.temperature)


class Likelihood(Density):
    """A normalised density with parameters Ψ of its own: anything with `log_prob(x)` and `sample(n, generator)`."""

    normalised = True

    def __init__(self, family: nn.Module):
        super().__init__()
        self.family = family

    def log_density(self, network: EnergyClassifier, x: Points, z: Embeddings | None) -> LogDensities:  # noqa: ARG002
        value: Tensor = self.family.log_prob(x)  # type: ignore[operator]
        return value

    def sample(self, n: int, generator: torch.Generator) -> Points:
        x: Tensor = self.family.sample(n, generator)  # type: ignore[operator]
        return x
