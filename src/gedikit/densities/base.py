"""What a density is: a model p_Ψ(x) of the data, the loss it is trained by, and whether it is normalised."""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gedikit.components import Component, Registry, setting
from gedikit.densities.estimators import energy_l2, generative, importance_generative, likelihood_generative
from gedikit.randomness import Randomness

Points = Float[Tensor, "*m n d"]
Embeddings = Float[Tensor, "*m n l"]
LogDensities = Float[Tensor, "*m n"]
SampleDensities = Float[Tensor, "*m k"]

GENERATIVE = "generative"  # the name of its loss among the measurements: L_GEN of the paper


class Network(Protocol):
    """What a density may use of the network."""

    def embed(self, x: Points) -> Embeddings: ...
    def cluster_scores(self, z: Embeddings) -> Float[Tensor, "*m n c"]: ...


class DensityModule(nn.Module):
    """The part of a network that is its density, with weights Ψ of its own if it has any."""

    normalised: ClassVar[bool] = False
    from_logits: ClassVar[bool] = False  # True: the log-density is the logsumexp of the cluster logits
    samples_clusters: ClassVar[bool] = False  # whether `draw` samples p(x|y)

    def log_density(self, network: Any, x: Points, z: Embeddings | None) -> LogDensities:
        """log p(x) (+ log Γ unless `normalised`); z holds the embeddings of x where they are known already."""
        raise NotImplementedError

    def sample(self, n: int, generator: torch.Generator) -> Float[Tensor, "n d"]:
        """n exact samples, where `normalised`; others are sampled by a sampler."""
        raise NotImplementedError

    def draw(
        self,
        network: Any,  # noqa: ARG002
        n: int,
        cluster: int | None,
        generator: torch.Generator,
    ) -> Float[Tensor, "n d"]:
        """n samples by the network; of one cluster only where `samples_clusters`."""
        assert cluster is None
        return self.sample(n, generator)

    def calibrate(
        self,
        network: Any,  # noqa: ARG002
        held_out: Float[Tensor, "h d"],  # noqa: ARG002
        generator: torch.Generator,  # noqa: ARG002
    ) -> dict[str, float]:
        """Whatever is measured when the training is over, by name."""
        return {}


@dataclass(frozen=True)
class DensityContext:
    """What a density is built from."""

    n_features: int
    n_clusters: int
    n_embedding: int
    bandwidth: float  # of the data's kernel density
    generator: torch.Generator
    # as many rows of the data as `n_references` asks for, if it has so many; none where a saved model is read
    references: Float[Tensor, "k d"]
    held_out: Float[Tensor, "h d"]  # rows that the density is not trained on


class DensityBatch(Protocol):
    """What the loss of a density may look at in an iteration."""

    @property
    def network(self) -> Any:
        """The network, whose part `density` this is."""

    @property
    def x(self) -> Float[Tensor, "*m b d"]:
        """Rows of the data."""

    @property
    def held_out(self) -> Bool[Tensor, "*m b"]:
        """Which of them the density must not learn from."""

    @property
    def log_p(self) -> Float[Tensor, "*m b c"]:
        """log p(y|x)."""

    @property
    def data_log_density(self) -> LogDensities:
        """log p(x) of the rows."""

    @property
    def sample_log_density(self) -> SampleDensities | None:
        """log p of samples of the model or of weighted proposals, where a sampler draws them."""

    @property
    def log_q(self) -> SampleDensities | None:
        """log-density that proposals were drawn from, where they are weighted."""

    @property
    def generator(self) -> Randomness:
        """Randomness of the training."""


@dataclass(frozen=True)
class Density(Component):
    """A family of densities p_Ψ(x), trained by its likelihood."""

    weight: float = setting(1.0, "weight of its loss in the sum that is minimised", at_least=0)

    normalised: ClassVar[bool] = False
    stackable: ClassVar[bool] = True  # whether weights of several models can be stacked along a leading dimension
    capturable: ClassVar[bool] = True  # False where an iteration cannot be captured as a CUDA graph
    noised: ClassVar[bool] = False  # whether the network is asked about noised rows, with their noise level

    @property
    def n_references(self) -> int:
        """Rows of the data that the module keeps."""
        return 0

    def build(self, context: DensityContext) -> DensityModule:
        raise NotImplementedError

    def level(self, bandwidth: float) -> float | None:  # noqa: ARG002
        """The smallest noise level that the network is asked about, where it is; `bandwidth` is the data's."""
        return None

    def losses(
        self, data: LogDensities, model: SampleDensities | None, log_q: SampleDensities | None
    ) -> dict[str, Float[Tensor, "*m"]]:
        """Losses by name. `model`: log-densities of model samples, or with `log_q` of weighted proposals."""
        raise NotImplementedError

    def batch_losses(self, out: DensityBatch) -> dict[str, Float[Tensor, "*m"]]:
        """Losses of an iteration, for densities that look at more than log-densities."""
        return self.losses(out.data_log_density, out.sample_log_density, out.log_q)

    @property
    def weights(self) -> dict[str, float]:
        """Weights of these losses."""
        return {GENERATIVE: self.weight}


@dataclass(frozen=True)
class Energy(Density):
    """A density known up to its normaliser: its gradient takes samples of the model."""

    l2: float = setting(0.0, "weight of the squared log-densities, which keeps them in range", at_least=0)
    largest_gap: float = setting(
        0.0, "samples this many nats less likely than the data do not count; 0: all count", at_least=0
    )

    def losses(
        self, data: LogDensities, model: SampleDensities | None, log_q: SampleDensities | None
    ) -> dict[str, Float[Tensor, "*m"]]:
        assert model is not None, "an energy is trained with samples of the model"
        if log_q is not None:
            found = {GENERATIVE: importance_generative(data, model, log_q)}
        else:
            found = {GENERATIVE: generative(data, model, self.largest_gap)}
        if self.l2:
            found["energy_l2"] = energy_l2(data, model)
        return found

    @property
    def weights(self) -> dict[str, float]:
        return {GENERATIVE: self.weight, "energy_l2": self.l2}


@dataclass(frozen=True)
class Likelihood(Density):
    """A density that is normalised by itself: trained and sampled without a sampler."""

    normalised: ClassVar[bool] = True

    def losses(
        self,
        data: LogDensities,
        model: SampleDensities | None,  # noqa: ARG002
        log_q: SampleDensities | None,  # noqa: ARG002
    ) -> dict[str, Float[Tensor, "*m"]]:
        return {GENERATIVE: likelihood_generative(data)}


densities: Registry[Density] = Registry("density", Density)
register_density = densities.register
