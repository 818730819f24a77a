"""A normalising flow: a density that is normalised by itself and sampled exactly."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gedikit.errors import UsageError


class SplineFlow(nn.Module):
    """Neural spline flow (Durkan et al., 2019) from the zuko library, the extra `gedikit[flow]`."""

    def __init__(self, n_features: int, transforms: int, hidden: Sequence[int], generator: torch.Generator):
        super().__init__()
        try:
            import zuko
        except ImportError:
            raise UsageError(
                "the generative term 'flow' needs the zuko library: pip install 'gedikit[flow]'"
            ) from None
        self.n_features = n_features
        with torch.random.fork_rng(devices=[]):  # zuko initialises from the global generator
            torch.manual_seed(int(torch.randint(2**31 - 1, (), generator=generator)))
            self.flow = zuko.flows.NSF(n_features, transforms=transforms, hidden_features=list(hidden))

    def log_prob(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        value: Tensor = self.flow().log_prob(x)
        return value

    @torch.no_grad()
    def sample(self, n: int, generator: torch.Generator) -> Float[Tensor, "n d"]:
        noise = torch.randn(n, self.n_features, generator=generator, device=generator.device)
        x: Tensor = self.flow().transform.inv(noise)
        return x
