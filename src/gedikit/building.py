"""Networks as a method and its settings describe them, before any training."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gedikit import networks
from gedikit.errors import UsageError
from gedikit.methods import Method
from gedikit.model import ClusterEnergy, ContrastiveEnergy, Density, EnergyClassifier, Likelihood
from gedikit.settings import Settings


def build_model(
    method: Method,
    settings: Settings,
    n_features: int,
    n_clusters: int,
    bandwidth: float,
    generator: torch.Generator,
    references: Float[Tensor, "k d"] | None = None,
    encoder: nn.Module | None = None,
) -> EnergyClassifier:
    """An untrained network as the method and the settings describe it; `references` for a contrastive energy.

    `encoder` is a module that a user brought instead of the one the settings name.
    """
    by_projection = method.labels_by(settings) == "projection"
    if encoder is not None:
        encoder = networks.Brought(encoder, settings.image_shape)
        n_hidden = networks.n_features_of(encoder, n_features)
        width = n_clusters if by_projection else n_hidden
        projector: nn.Module = networks.image_projector(n_hidden, width, generator)
    elif settings.network.startswith("paper"):
        width = n_clusters if by_projection else 2
        encoder = networks.paper_encoder(n_features, generator, normalised=settings.network != "paper")
        projector = networks.paper_projector(2, width, generator, normalised=settings.network != "paper")
    elif settings.network == "resnet8":
        if not settings.image_shape:
            raise UsageError("network 'resnet8' is for images: image_shape must say (height, width, channels)")
        encoder = networks.ResNet8(settings.image_shape, settings.width, generator)
        width = n_clusters if by_projection else settings.width
        projector = networks.image_projector(settings.width, width, generator)
    else:
        encoder = networks.default_encoder(
            n_features,
            hidden=settings.hidden,
            n_outputs=settings.features,
            activation=settings.activation,
            n_frequencies=settings.frequencies,
            # √(2/d): the same phase spread per bandwidth in any number of dimensions
            frequency_scale=settings.detail / bandwidth * (2 / n_features) ** 0.5,
            generator=generator,
        )
        width = n_clusters if by_projection else settings.projection or settings.features
        linear = by_projection or settings.projection
        projector = networks.MLP([settings.features, width], "relu", generator) if linear else nn.Identity()
    return EnergyClassifier(
        encoder,
        projector,
        n_clusters,
        width,
        temperature=settings.temperature,
        cosine=settings.head == "cosine",
        with_critic="cpc" in method.terms,
        density=_density(method, settings, n_features, generator, references),
        generator=generator,
    )


def _density(
    method: Method, settings: Settings, n_features: int, generator: torch.Generator, references: Tensor | None
) -> Density:
    if method.generative == "flow":
        hidden = settings.flow_hidden
        return Likelihood(networks.SplineFlow(n_features, settings.flow_transforms, hidden, generator))
    if method.generative == "contrastive-energy":
        assert references is not None
        return ContrastiveEnergy(references, settings.similarity_temperature)
    return ClusterEnergy()


def precision(settings: Settings, device: torch.device) -> torch.dtype:
    """What images are convolved in: half precision where a GPU is made for it."""
    if settings.precision == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return torch.bfloat16 if settings.precision == "bfloat16" else torch.float32
