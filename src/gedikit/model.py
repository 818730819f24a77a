"""The one network: its logits are a clustering, a density and a score at the same time."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class EnergyClassifier(nn.Module):
    """Logits U^T g(x)/τ with g = projector ∘ encoder (Eq. gedi_gen of the paper).

    softmax over the logits is the cluster posterior p(y|x); logsumexp is log p(x) + log Γ, the
    unnormalised log-density; a single logit is log p(x, y) + log Γ.
    """

    def __init__(
        self,
        encoder: nn.Module,
        projector: nn.Module,
        n_clusters: int,
        n_embedding: int,
        *,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        self.encoder = encoder
        self.projector = projector
        self.temperature = temperature
        centers = torch.empty(n_embedding, n_clusters)
        nn.init.xavier_uniform_(centers, gain=2**0.5, generator=generator)
        self.centers = nn.Parameter(centers)

    def features(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n h"]:
        """enc(x), the representation ξ."""
        out: Tensor = self.encoder(x)
        return out

    def logits(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """U^T g(x)/τ, one column a cluster."""
        z: Tensor = self.projector(self.encoder(x))
        return z @ (self.centers / self.temperature)

    forward = logits

    def posterior(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """p(y|x)."""
        return torch.softmax(self.logits(x), dim=-1)

    def log_density(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """log p(x) up to the constant log Γ; the paper's −E(x)."""
        return torch.logsumexp(self.logits(x), dim=-1)

    def score(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """∇x log p(x); Γ does not depend on x."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.log_density(x).sum(), x)
        return gradient
