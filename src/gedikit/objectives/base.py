"""What an objective is: a loss with its settings, its optimum, and what it remembers from batch to batch."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from numpy.typing import NDArray
from torch import Tensor, nn

from gedikit.components import Component, Registry, Tree, setting
from gedikit.known import Known
from gedikit.randomness import Randomness
from gedikit.symbolic import Placed, Symbols
from gedikit.symbolic.bundles import Bundles
from gedikit.views.neighbours import Likeness, NeighbourGraph

Memory = Mapping[str, Tensor]

CONTRASTIVE, NEGATIVE_FREE, CLUSTER_BASED = "contrastive", "negative-free", "cluster-based"
PAPER = "Sansone & Manhaeve"  # Unifying Self-Supervised Clustering and Energy-Based Models


class Outputs(Protocol):
    """What the network says about a batch: x, its views x′, and one forward pass of all of them. Read-only."""

    @property
    def rows(self) -> Int[Tensor, "*m b"]:
        """Row numbers of the batch in the training data."""

    @property
    def drawn(self) -> Int[Tensor, "*m k"]:
        """Numbers of what was drawn: of bundles of rows where rules say which belong together, else the rows."""

    @property
    def views(self) -> Sequence[Float[Tensor, "*m b d"]]:
        """The views x′, as many as the objectives asked for."""

    @property
    def z(self) -> Float[Tensor, "*m b l"]:
        """Embeddings of x."""

    @property
    def view_z(self) -> Float[Tensor, "*m b l"]:
        """Embeddings of the first x′."""

    @property
    def all_view_z(self) -> list[Float[Tensor, "*m b l"]]:
        """Embeddings of every x′."""

    @property
    def x_logits(self) -> Float[Tensor, "*m b c"]:
        """Cluster logits of x."""

    @property
    def view_logits(self) -> Float[Tensor, "*m b c"]:
        """Cluster logits of the first x′."""

    @property
    def log_p(self) -> Float[Tensor, "*m b c"]:
        """log p(y|x)."""

    @property
    def view_log_p(self) -> Float[Tensor, "*m b c"]:
        """log p(y|x′)."""

    @property
    def log_prior(self) -> Float[Tensor, "*m c"]:
        """log p(y), the expected shares of the clusters."""

    @property
    def temperature(self) -> float:
        """τ of the cluster logits."""

    @property
    def phases(self) -> Mapping[str, Hashable]:
        """What `phase` of every objective returned for this iteration, by its name."""

    def cluster_logits(self, z: Float[Tensor, "*m n l"]) -> Float[Tensor, "*m n c"]:
        """Cluster logits of embeddings."""

    def teacher_logits(self, x: Float[Tensor, "*m n d"]) -> Float[Tensor, "*m n c"]:
        """Cluster logits by the averaged network, without gradient."""

    @property
    def generator(self) -> Randomness:
        """Randomness of the training."""

    def logits(self, x: Float[Tensor, "*p n d"]) -> Float[Tensor, "*m n c"]:
        """Cluster logits of any points, by a pass of their own."""

    def module(self, name: str) -> nn.Module:
        """The module that the objective of this name brought into the network."""


@dataclass(frozen=True)
class Sizes:
    """What an optimum may depend on."""

    batch: int
    embedding: int
    log_prior: Float[Tensor, " c"]


class Rules(Protocol):
    """What is known of some rows together: examples of constraints over the symbols they show."""

    @property
    def symbols(self) -> Symbols: ...
    @property
    def placed(self) -> Sequence[Placed]: ...
    @property
    def bundles(self) -> Bundles: ...


@dataclass(frozen=True)
class TrainingData:
    """What an objective may look at before the first iteration."""

    n_rows: int
    prior: NDArray[np.float64]
    seed: int
    device: torch.device
    graph: Callable[[], NeighbourGraph]  # of all rows; built when it is first asked for
    points: Callable[[Int[Tensor, " k"]], Float[Tensor, "k d"]]  # scaled rows by their numbers, on the host
    rules: Rules | None = None
    likeness: Likeness | None = None  # of rows, where there are rules
    partition: Callable[[], Int64[np.ndarray, " n"]] | None = None  # to start from, groups by falling size
    known: Known | None = None  # of some rows
    images: bool = False


class Training(Protocol):
    """What an objective may ask of the trainer between iterations."""

    @property
    def iteration(self) -> int: ...
    @property
    def members(self) -> tuple[int, ...]:
        """() for one model, (m,) for m models trained side by side."""

    @property
    def device(self) -> torch.device: ...
    @property
    def n_rows(self) -> int: ...
    @property
    def n_clusters(self) -> int: ...
    @property
    def n_embedding(self) -> int: ...
    @property
    def n_hidden(self) -> int:
        """Number of features."""

    def average_features(self) -> Float[Tensor, "*m n h"]:
        """Features of all rows by the averaged network."""

    def average_logits(self) -> Float[Tensor, "*m n c"]:
        """Cluster logits of all rows by the averaged network."""

    def exchange_clusters(self, order: Int64[Tensor, " c"], event: str) -> None:
        """Let cluster i become what cluster order[i] was; `event` tells people why."""


@dataclass(frozen=True)
class Stage:
    """Objectives that are minimised until a share `until` of the training is over."""

    until: float
    terms: tuple[str, ...]


@dataclass(frozen=True)
class Objective(Component):
    """A loss of a batch, to be minimised.

    Subclasses are frozen dataclasses whose fields are their settings, and define `__call__`. All else has defaults.
    """

    weight: float = setting(1.0, "weight in the sum that is minimised", at_least=0)

    family: ClassVar[str] = CLUSTER_BASED
    labels: ClassVar[str] = "posterior"  # how clusters are read off a model trained with it
    changes: ClassVar[Tree] = {}  # settings of other components that go with it
    unit_length: ClassVar[bool] = False  # its embeddings are compared as unit vectors
    min_rows: ClassVar[int] = 1  # of a batch
    capturable: ClassVar[bool] = True  # False where it waits for the device, as some factorisations do
    needs_examples: ClassVar[bool] = False  # of a constraint
    needs_labels: ClassVar[bool] = False  # of some rows
    standalone: ClassVar[bool] = True  # whether it is a method by itself
    title: ClassVar[str] = ""  # of its curve in the report; its name if empty
    caption: ClassVar[str] = "What the method minimises."

    def __call__(self, out: Outputs, memory: Memory) -> tuple[Float[Tensor, "*m"], Memory]:
        """The loss of the batch, one value a model, and what to remember."""
        raise NotImplementedError

    @property
    def n_views(self) -> int:
        """How many views x′ it looks at."""
        return 1

    def optimum(self, sizes: Sizes) -> float | None:  # noqa: ARG002
        """The smallest value it can have, where that is known."""
        return None

    def bind(self, data: TrainingData) -> Self:  # noqa: ARG002
        """The objective with what it needs of the data; itself where that is nothing."""
        return self

    def module(self, n_embedding: int) -> nn.Module | None:  # noqa: ARG002
        """Weights of its own that are trained with the network."""
        return None

    def start(self, training: Training) -> Memory:  # noqa: ARG002
        """What it remembers before the first iteration."""
        return {}

    def refresh_every(self, iterations: int) -> int:  # noqa: ARG002
        """Iterations between two calls of `refresh`; 0 for none."""
        return 0

    def refresh(self, training: Training, memory: Memory) -> Memory:  # noqa: ARG002
        """A look at all the data between two iterations."""
        return memory

    def phase(self, iteration: int, batch_size: int) -> Hashable:  # noqa: ARG002
        """Anything on the host by which one iteration differs from the next: a captured graph holds one phase."""
        return None

    def join(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...] | None:  # noqa: ARG002
        """The stages of a method with this objective in them; None where it cannot be added to a method."""
        return None


@dataclass(frozen=True)
class OfKnownRows(Objective):
    """An objective of rows that something is known of: it joins all of the training, and looks at no view."""

    standalone: ClassVar[bool] = False

    @property
    def n_views(self) -> int:
        return 0

    def join(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        return tuple(Stage(stage.until, (*stage.terms, self.name)) for stage in stages)


objectives: Registry[Objective] = Registry("objective", Objective)
register_objective = objectives.register


def both_views(symmetric: bool, loss: Callable[[Tensor], Tensor], out: Outputs) -> Tensor:
    """A loss of log p(y|x), or with `symmetric` its mean over x and x′."""
    if not symmetric:
        return loss(out.log_p)
    return torch.stack([loss(out.log_p), loss(out.view_log_p)]).mean(0)
