"""All settings of a fit as one tree: a component or a table of settings in each section."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gedikit.assignment import LABELS
from gedikit.components import Component, Registry, Tree, as_tree, setting, settings_of
from gedikit.components.component import unknown
from gedikit.densities import Density, densities
from gedikit.encoders import Encoder, encoders
from gedikit.errors import UsageError
from gedikit.modalities import Modality, modalities
from gedikit.objectives import Objective, objectives
from gedikit.processes import TIMEOUT
from gedikit.samplers import Sampler, samplers
from gedikit.views import Similarity, ViewMaker, similarities, views


@dataclass(frozen=True)
class Head(Component):
    """From embeddings to cluster logits, and from outputs to labels."""

    cosine: bool = setting(False, "logits are cosines of embeddings and cluster centres")
    temperature: float = setting(1.0, "τ of the logits", above=0)
    freeze: int = setting(0, "iterations during which the cluster centres stay as they are", at_least=0)
    labels: str = setting("posterior", "how clusters are read off", choices=tuple(LABELS))


@dataclass(frozen=True)
class Optimiser(Component):
    """How long and how fast the weights move: Adam with warm-up, a plateau and exponential decay."""

    iterations: int = setting(3000, "training iterations", above=0)
    epochs: int = setting(0, "passes over the data instead of iterations; 0 for none", at_least=0)
    batch_size: int = setting(400, "rows an iteration", above=0)
    learning_rate: float = setting(1e-3, "at its peak", above=0)
    warmup: int = setting(100, "iterations until the peak", at_least=0)
    decay_from: float = setting(0.5, "share of the training after which the rate decays", at_least=0, at_most=1)
    decay_to: float = setting(0.01, "share of the peak that it decays to", at_least=0, at_most=1)
    average: float = setting(0.999, "decay of the averaged weights per iteration", at_least=0, at_most=1)
    weight_decay: float = setting(0.0, "L2 penalty of the weights", at_least=0)
    clip: float = setting(
        0.0, "gradients longer than so many times their usual length are shortened to it; 0 for none", at_least=0
    )
    max_rollbacks: int = setting(
        4, "returns to an earlier state with half the rate before a diverging fit ends", at_least=0
    )


@dataclass(frozen=True)
class Execution(Component):
    """How a fit is computed, which does not change what is fitted."""

    device: str = setting("auto", "auto (a GPU where there is one), cpu or cuda")
    precision: str = setting(
        "auto", "of convolutions; auto is bfloat16 on a GPU", choices=("auto", "float32", "bfloat16")
    )
    compile: bool = setting(True, "compiled networks and captured iterations on a GPU")
    log_every: int = setting(25, "iterations between two measurements", above=0)
    checkpoint_every: int = setting(500, "iterations between two checkpoints", above=0)
    timeout: float = setting(
        TIMEOUT, "seconds that several processes wait for one that does not answer before all end", above=0
    )
    threads: int | None = setting(
        None, "CPU threads, 0 for torch's own number; none: 1 for vectors, torch's number for images", at_least=0
    )


# sections that name a component, and those that are one table
REGISTRIES: Mapping[str, Registry[Any]] = {
    "data": modalities,
    "encoder": encoders,
    "density": densities,
    "sampler": samplers,
    "views": views,
    "similarity": similarities,
}
TABLES: Mapping[str, type[Component]] = {"head": Head, "optimiser": Optimiser}
OBJECTIVES = "objectives"
EXECUTION = "execution"
SECTIONS = ("data", "encoder", "head", "density", "sampler", OBJECTIVES, "views", "similarity", "optimiser")
NONE = "none"


@dataclass(frozen=True)
class Config:
    """The components of a fit with their settings."""

    data: Modality
    encoder: Encoder
    head: Head
    density: Density | None
    sampler: Sampler | None
    objectives: Mapping[str, Objective]
    views: ViewMaker
    similarity: Similarity
    optimiser: Optimiser

    sections: ClassVar[tuple[str, ...]] = SECTIONS

    def tree(self) -> Tree:
        """The settings as plain values."""
        tree: Tree = {}
        for section in SECTIONS:
            value = getattr(self, section)
            if section == OBJECTIVES:
                tree[section] = {name: _unnamed(as_tree(objective)) for name, objective in value.items()}
            else:
                tree[section] = as_tree(value)
        return tree

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any], needs: Mapping[str, str] | None = None) -> "Config":
        """The components that a tree names; `needs` says which modules defined those of others."""
        needs = needs or {}
        check_sections(tree, needs=needs)
        built: dict[str, Any] = {}
        for section, registry in REGISTRIES.items():
            built[section] = _component(section, registry, tree.get(section, {}), needs)
        for section, table in TABLES.items():
            built[section] = table.of(tree.get(section, {}))
        built[OBJECTIVES] = {
            name: objectives.get(name, needs.get(f"{OBJECTIVES}.{name}")).of(values)
            for name, values in tree.get(OBJECTIVES, {}).items()
        }
        return cls(**built)

    def needs(self) -> dict[str, str]:
        """The modules that define components which are not of this package, by where they are used."""
        used: dict[str, Any] = {section: getattr(self, section) for section in REGISTRIES}
        used |= {f"{OBJECTIVES}.{name}": objective for name, objective in self.objectives.items()}
        modules = {place: type(component).__module__ for place, component in used.items() if component is not None}
        return {place: module for place, module in modules.items() if module.split(".")[0] != "gedikit"}


def check_sections(
    tree: Mapping[str, Any], *, execution: bool = False, needs: Mapping[str, str] | None = None
) -> None:
    """Refuse names and values that cannot be sections."""
    known = (*SECTIONS, EXECUTION) if execution else SECTIONS
    for section, value in tree.items():
        if section not in known:
            raise UsageError(_unknown_section(section, value))
        if not isinstance(value, Mapping):
            raise UsageError(f"{section} is a section: set {section}.name or one of its settings, not {value!r}")
        if section == OBJECTIVES:
            for name, values in value.items():
                objectives.get(name, (needs or {}).get(f"{OBJECTIVES}.{name}"))
                if not isinstance(values, Mapping):
                    raise UsageError(f"{OBJECTIVES}.{name} has settings, such as {OBJECTIVES}.{name}.weight")


def _unknown_section(name: str, value: Any) -> str:
    """A setting without its section is the most common slip: say where it is."""
    if not isinstance(value, Mapping):
        where = [place for place, setting_name in all_settings() if setting_name == name]
        if name in objectives:
            return f"there is no section {name!r}; did you mean {OBJECTIVES}.{name}.weight?"
        if where:
            return f"there is no section {name!r}; did you mean {' or '.join(f'{w}.{name}' for w in where[:3])}?"
    everything = [*SECTIONS, EXECUTION, *(f"{place}.{n}" for place, n in all_settings())]
    return unknown("section or setting", name, everything) if "." in name else unknown("section", name, SECTIONS)


def all_components() -> list[tuple[str, str, type[Component]]]:
    """Section, name and class of everything that has settings; tables have no name."""
    found: list[tuple[str, str, type[Component]]] = []
    for section, registry in (*REGISTRIES.items(), (OBJECTIVES, objectives)):
        found += [(section, name, cls) for name, cls in registry.items()]
    found += [(section, "", cls) for section, cls in TABLES.items()]
    return [*found, (EXECUTION, "", Execution)]


def place_of(section: str, name: str) -> str:
    """Where the settings of a component are: objectives are named in their section, others chosen in it."""
    return f"{section}.{name}" if section == OBJECTIVES else section


def all_settings() -> list[tuple[str, str]]:
    """Place and name of every setting, those of objectives last."""
    components = sorted(all_components(), key=lambda found: found[0] == OBJECTIVES)
    found = [(place_of(section, name), s.name) for section, name, cls in components for s in settings_of(cls)]
    return list(dict.fromkeys(found))


def _component(section: str, registry: Registry[Any], values: Mapping[str, Any], needs: Mapping[str, str]) -> Any:
    name = values.get("name", "")
    if name == NONE and section in ("density", "sampler"):
        return None
    return registry.get(name, needs.get(section)).of(_unnamed(values))


def _unnamed(values: Mapping[str, Any]) -> Tree:
    return {key: value for key, value in values.items() if key != "name"}
