"""A plan as it is asked for, made and kept."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gedikit.components import Tree, expand
from gedikit.config import EXECUTION, REGISTRIES, Config, check_sections
from gedikit.densities.base import GENERATIVE
from gedikit.errors import DataError, UsageError
from gedikit.known import Known
from gedikit.objectives.base import Stage
from gedikit.profile import DataProfile
from gedikit.rows import Rows, blocks

_COMPARED = 1024  # rows at a time
BUDGETS = ("quick", "default", "best")
AUTO = "auto"
UNIFORM, GIVEN = "uniform", "given"
PRIORS = (AUTO, UNIFORM)
ASKED = "asked for"


@dataclass(frozen=True)
class Decision:
    """What was decided, and why."""

    what: str
    choice: str
    reason: str


@dataclass(frozen=True)
class Asked:
    """What a user asked for; everything else is for the plan to decide."""

    n_clusters: int | None = None  # None: as many as the data has
    method: str = "gedi"
    prior: Sequence[float] | NDArray[Any] | str = AUTO  # shares of the clusters, or a word of PRIORS
    views: str = AUTO
    budget: str = "default"
    seed: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)
    user_encoder: bool = False
    examples: "ExamplesProfile | None" = None
    known: Known | None = None  # of single rows


@dataclass(frozen=True)
class ExamplesProfile:
    """What a plan takes from the examples of a constraint."""

    n_rows: int  # of all examples together
    n_variables: int
    prior: tuple[float, ...]  # how often the constraint lets each value occur


@dataclass(frozen=True)
class Plan:
    """A fit before it is computed."""

    method: str
    n_clusters: int
    prior: tuple[float, ...]
    seed: int
    budget: str
    stages: tuple[Stage, ...]
    config: Config
    decisions: tuple[Decision, ...]
    data: DataProfile
    labels: str = "posterior"  # how the method itself reads clusters off
    unit_length: bool = False
    shares: str = GIVEN  # where the prior is from: the data (auto), uniform, or given
    agreement: float | None = None  # of methods on a partition of images that was too unclear to start from

    @property
    def terms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(term for stage in self.stages for term in stage.terms))

    @property
    def models_density(self) -> bool:
        return GENERATIVE in self.terms

    @property
    def trains_posterior(self) -> bool:
        return self.labels == "posterior"

    def terms_at(self, progress: float) -> tuple[str, ...]:
        return next(stage.terms for stage in self.stages if progress < stage.until or stage.until == 1)

    def tree(self) -> Tree:
        """The plan as plain values, as TOML and JSON hold them."""
        return {
            "method": self.method,
            "n_clusters": self.n_clusters,
            "prior": list(self.prior),
            "seed": self.seed,
            "budget": self.budget,
            "labels": self.labels,
            "unit_length": self.unit_length,
            "shares": self.shares,
            **({} if self.agreement is None else {"agreement": self.agreement}),
            "data": self.data.tree(),
            "stages": [{"until": stage.until, "terms": list(stage.terms)} for stage in self.stages],
            "config": self.config.tree(),
            "needs": self.config.needs(),
            "decisions": [dataclasses.asdict(decision) for decision in self.decisions],
        }

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> "Plan":
        """What `tree` returned; a part that is not there is a KeyError."""
        missing = [section for section in REGISTRIES if section not in tree["config"]]
        if missing:
            raise KeyError(missing[0])
        return cls(
            tree["method"],
            tree["n_clusters"],
            tuple(tree["prior"]),
            tree["seed"],
            tree["budget"],
            tuple(Stage(stage["until"], tuple(stage["terms"])) for stage in tree["stages"]),
            Config.from_tree(tree["config"], tree.get("needs", {})),
            tuple(Decision(**decision) for decision in tree.get("decisions", ())),
            DataProfile.from_tree(tree["data"]),
            tree["labels"],
            tree["unit_length"],
            tree.get("shares", GIVEN),
            tree.get("agreement"),
        )

    def replaced(self, **sections: Any) -> "Plan":
        """The plan with other components in some sections."""
        return dataclasses.replace(self, config=dataclasses.replace(self.config, **sections))

    def cost(self) -> float:
        """Work of the fit relative to other plans for the same data: iterations × passes × size of the network."""
        c = self.config
        steps = getattr(c.sampler, "steps", 0) if self.models_density else 0
        samples = c.sampler.samples if c.sampler is not None and self.models_density else 0
        size = getattr(c.encoder, "width", 64) ** 2
        return float(c.optimiser.iterations * (6 * c.optimiser.batch_size + (3 + 2 * steps) * samples) * size)


def split_execution(config: Mapping[str, Any] | None) -> tuple[Tree, Tree]:
    """What a user set about the fit, and about how it is computed."""
    tree = expand(config or {})
    check_sections(tree, execution=True)
    return {k: v for k, v in tree.items() if k != EXECUTION}, dict(tree.get(EXECUTION, {}))


def check_prior(prior: NDArray[Any] | None, n_clusters: int) -> NDArray[np.float64]:
    """Shares of the clusters that are positive and sum to one; equal ones where none are given."""
    if prior is None:
        return np.full(n_clusters, 1 / n_clusters)
    p = np.asarray(prior, dtype=np.float64)
    if p.shape != (n_clusters,):
        raise UsageError(f"prior must hold one probability for each of {n_clusters} clusters, not shape {p.shape}")
    if not np.all(np.isfinite(p)) or np.any(p <= 0) or not np.isclose(p.sum(), 1, atol=1e-6):
        raise UsageError(f"prior must be positive and sum to 1, not {p.tolist()}")
    return np.asarray(p / p.sum())


def check_rows(x: Rows, n_clusters: int) -> None:
    """Refuse data that nothing can be learned from."""
    if len(x) < 2:
        raise DataError(f"n_samples={len(x)}: at least two rows are needed")
    if len(x) < n_clusters:
        raise DataError(f"n_samples={len(x)} should be >= n_clusters={n_clusters}")
    first = x[0]
    if all(np.all(block == first) for block in blocks(x, _COMPARED)):
        raise DataError("all rows are the same: there is nothing to learn from constant columns")
