"""A method is data: the terms it minimises, when, and the settings it changes.

Adding a method is adding an entry to METHODS; nothing in the trainer knows their names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gedikit.errors import UsageError
from gedikit.settings import Settings

TERMS = ("generative", "invariance", "prior")


@dataclass(frozen=True)
class Stage:
    """Terms minimised until a share `until` of the training is over."""

    until: float
    terms: tuple[str, ...]


@dataclass(frozen=True)
class Method:
    name: str
    summary: str
    stages: tuple[Stage, ...]
    reference: str
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def terms(self) -> tuple[str, ...]:
        return tuple(t for t in TERMS if any(t in stage.terms for stage in self.stages))

    @property
    def models_density(self) -> bool:
        return "generative" in self.terms

    def settings(self, **changes: Any) -> Settings:
        """The defaults, as this method and then the caller changes them."""
        return Settings().replace(**self.changes).replace(**changes)

    def terms_at(self, progress: float) -> tuple[str, ...]:
        return next(stage.terms for stage in self.stages if progress < stage.until or stage.until == 1)


def _always(*terms: str) -> tuple[Stage, ...]:
    return (Stage(1, terms),)


# Unifying Self-Supervised Clustering and Energy-Based Models
_SANSONE = "Sansone & Manhaeve"
_TOY_TABLE = {
    "network": "paper",
    "scaling": "none",
    "augmentation": "noise",
    "noise": 0.03,
    "noise_unit": "absolute",
    "sampler": "sgld",
    "negatives": 400,
    "buffer": 10_000,
    "buffer_start": "noise",
    "restart": 0.05,
    "steps": 1,
    "step_size": 0.01**2 / 2,
    "noise_std": 0.01,
    "bounds": "none",
    "invariance": 50.0,
    "prior": 10.0,
    "iterations": 20_000,
    "warmup": 0,
    "decay_from": 1.0,
    "average": 0.0,
}

METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        Method("gedi", "clusters, density and samples from one network", _always(*TERMS), _SANSONE),
        Method(
            "gedi-no-gen",
            "clustering only: no density is learned",
            _always("invariance", "prior"),
            _SANSONE + "; cf. IMSAT (Hu et al., 2017)",
        ),
        Method(
            "gedi-no-inv",
            "without label invariance: clusters need not follow the data (failure mode 3)",
            _always("generative", "prior"),
            _SANSONE,
        ),
        Method(
            "gedi-no-prior",
            "without balance: everything may end in one cluster (failure mode 2)",
            _always("generative", "invariance"),
            _SANSONE,
        ),
        Method(
            "jem",
            "density only: the cluster posterior is left to chance",
            _always("generative"),
            "Grathwohl et al., 2020",
        ),
        Method(
            "gedi-two-stage",
            "density first, then clusters on top of it",
            (Stage(0.5, ("generative",)), Stage(1, ("invariance", "prior"))),
            "Sansone & Manhaeve, 2022",
        ),
        Method(
            "gedi-as-printed",
            "the paper's toy recipe to the letter; expect it to diverge",
            _always(*TERMS),
            _SANSONE + ", appendix G",
            _TOY_TABLE,
        ),
    )
}


def get_method(name: str) -> Method:
    if name not in METHODS:
        raise UsageError(f"there is no method {name!r}; there are: {', '.join(METHODS)}")
    return METHODS[name]
