"""Networks as a plan describes them, before any training."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gedikit.assignment import needs_projection
from gedikit.config import Execution
from gedikit.densities.base import DensityContext, DensityModule
from gedikit.densities.cluster_energy import ClusterEnergyModule
from gedikit.encoders import EncoderContext
from gedikit.model import EnergyClassifier
from gedikit.planning import Plan


def build_network(
    plan: Plan,
    n_features: int,
    bandwidth: float,
    generator: torch.Generator,
    references: Float[Tensor, "k d"],
    held_out: Float[Tensor, "h d"],
    module: nn.Module | None = None,
) -> EnergyClassifier:
    """An untrained network; the density is built from `references`, `module` is an encoder the user gave."""
    c = plan.config
    noise = None if c.density is None else c.density.level(bandwidth)
    n_outputs = plan.n_clusters if needs_projection(c.head.labels) else None
    context = EncoderContext(n_features, c.data.image_shape, bandwidth, n_outputs, generator, module, noise)
    encoding = c.encoder.build(context)
    if c.density is None:
        density: DensityModule = ClusterEnergyModule()
    else:
        of_data = (bandwidth, generator, references, held_out)
        density = c.density.build(DensityContext(n_features, plan.n_clusters, encoding.n_embedding, *of_data))
    modules = {name: objective.module(encoding.n_embedding) for name, objective in c.objectives.items()}
    return EnergyClassifier(
        encoding.encoder,
        encoding.projector,
        plan.n_clusters,
        encoding.n_embedding,
        temperature=c.head.temperature,
        cosine=c.head.cosine,
        density=density,
        heads={name: part for name, part in modules.items() if part is not None},
        generator=generator,
    )


def precision(execution: Execution, device: torch.device) -> torch.dtype:
    """What images are convolved in: half precision where a GPU is made for it."""
    if execution.precision == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return torch.bfloat16 if execution.precision == "bfloat16" else torch.float32
