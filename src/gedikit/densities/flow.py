"""A normalising flow: a density that is normalised by itself and sampled exactly."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.components import setting
from gedikit.densities.base import (
    DensityContext,
    DensityModule,
    Embeddings,
    Likelihood,
    LogDensities,
    Points,
    register_density,
)
from gedikit.errors import UsageError


class SplineFlow(torch.nn.Module):
    """Neural spline flow (Durkan et al., 2019) from the zuko library, the extra `gedikit[flow]`."""

    def __init__(self, n_features: int, transforms: int, hidden: Sequence[int], generator: torch.Generator):
        super().__init__()
        try:
            import zuko
        except ImportError:
            raise UsageError("the density 'flow' needs the zuko library: pip install 'gedikit[flow]'") from None
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


class FlowModule(DensityModule):
    """Anything with `log_prob(x)` and `sample(n, generator)` as the density of a network."""

    normalised: ClassVar[bool] = True

    def __init__(self, family: SplineFlow):
        super().__init__()
        self.family = family

    def log_density(self, network: Any, x: Points, z: Embeddings | None) -> LogDensities:  # noqa: ARG002
        return self.family.log_prob(x)

    def sample(self, n: int, generator: torch.Generator) -> Float[Tensor, "n d"]:
        return self.family.sample(n, generator)


@register_density("flow")
@dataclass(frozen=True)
class Flow(Likelihood):
    """A neural spline flow with weights of its own."""

    transforms: int = setting(3, "spline transformations, one after the other", above=0)
    hidden: tuple[int, ...] = setting((64, 64), "units of the hidden layers of each")

    summary: ClassVar[str] = "a neural spline flow with weights of its own (gedikit[flow])"
    reference: ClassVar[str] = "Durkan et al., 2019"
    stackable: ClassVar[bool] = False

    def build(self, context: DensityContext) -> DensityModule:
        return FlowModule(SplineFlow(context.n_features, self.transforms, self.hidden, context.generator))
