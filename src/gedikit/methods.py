"""A method names objectives and a density, says when they are minimised, and changes what settings it has to.

Any registered objectives with at most one density are a method, written "swav+cluster-energy"; "bound" stands for
invariance and prior. `methods` holds those with names of their own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from gedikit.components import Component, Tree, load_plugins, merge
from gedikit.components.component import unknown
from gedikit.densities import densities
from gedikit.densities.base import GENERATIVE
from gedikit.errors import UsageError
from gedikit.objectives import objectives
from gedikit.objectives.base import CLUSTER_BASED, CONTRASTIVE, NEGATIVE_FREE, PAPER, Stage

# the generative processes of the paper's figure of graphical models
GRAPHS: Mapping[str, str] = MappingProxyType(
    {
        CONTRASTIVE: "x_i → y_i, a class for every row",
        NEGATIVE_FREE: "z → x_i → x′_i ← ξ_i, Gaussian z and ξ_i",
        CLUSTER_BASED: "x_i → x′_i and x_i → y_i, one of c clusters",
        "": "x_i",
    }
)
BOUND = ("invariance", "prior")
_GROUPS = {"bound": BOUND}
POSTERIOR = "posterior"


@dataclass(frozen=True)
class Method:
    """Stages of objectives, a density, and the settings that go with them."""

    name: str
    summary: str
    stages: tuple[Stage, ...]
    reference: str
    density: str | None = None
    family: str = CLUSTER_BASED
    labels: str = POSTERIOR  # how clusters are read off
    unit_length: bool = False  # k-means on features of unit length
    changes: Tree = field(default_factory=dict)  # applied where the component they are for is in use
    recipe: Tree | None = None  # all that a published recipe fixes, instead of the defaults for the data
    any_density: bool = False  # whether the plan may take another density that suits the data

    @property
    def terms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(term for stage in self.stages for term in stage.terms))

    @property
    def objectives(self) -> tuple[str, ...]:
        return tuple(term for term in self.terms if term != GENERATIVE)

    @property
    def needs_examples(self) -> bool:
        return any(objectives.get(name).needs_examples for name in self.objectives)

    @property
    def trains_posterior(self) -> bool:
        """Whether p(y|x) is what its objectives are about."""
        return self.labels == POSTERIOR


class Methods:
    """Methods by name, from this package and from others."""

    def __init__(self) -> None:
        self._known: dict[str, Method] = {}

    def register(self, method: Method) -> Method:
        """Make a method known by its name."""
        known = self._known.get(method.name)
        if known is not None and known != method:
            raise UsageError(f"there already is a method {method.name!r}")
        self._known[method.name] = method
        return method

    def __iter__(self) -> Iterator[str]:
        load_plugins()
        for name, objective in objectives.items():
            if objective.standalone and name not in self._known:
                self.register(compose(name))
        return iter(list(self._known))

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in list(self)

    def __getitem__(self, name: str) -> Method:
        """A method with a name, or several objectives and a density joined by "+"."""
        if name in self:
            return self._known[name]
        if "+" in name or name in objectives or name in densities:
            return compose(*name.split("+"))
        text = unknown("method", name, self)
        end = "" if text.endswith("?") else "."
        raise UsageError(f"{text}{end} Objectives and a density can be joined, as in 'swav+cluster-energy'")

    def named(self, name: str) -> Method:
        """A method of this package, without looking for others."""
        return self._known.get(name) or compose(name)

    def values(self) -> list[Method]:
        return [self._known[name] for name in self]


def compose(*parts: str) -> Method:
    """The method that minimises these objectives together, with a density if one is among them."""
    name = "+".join(sorted(parts, key=lambda part: part in densities))  # in either order the same method
    sides = [p for part in parts for p in _GROUPS.get(part, (part,))]
    if any(part not in objectives and part not in densities for part in sides):
        load_plugins()
    for part in sides:
        if part not in objectives and part not in densities:
            known = [*_GROUPS, *objectives, *densities]
            raise UsageError(f"{name!r}: {unknown('objective or density', part, known)}")
    chosen = [part for part in sides if part in densities]
    losses = [part for part in sides if part in objectives]
    if len(chosen) > 1 or len(set(sides)) < len(sides):
        raise UsageError(
            f"{name!r} must name each objective once and at most one density, as 'swav+cluster-energy'"
        )
    first = objectives.get(losses[0]) if losses else None
    about: list[type[Component]] = [*map(objectives.get, losses), *map(densities.get, chosen)]
    changes: Tree = {}
    for loss in losses:
        changes = merge(changes, objectives.get(loss).changes)
    return Method(
        name,
        "; ".join(part.summary for part in about),
        (Stage(1, (*([GENERATIVE] if chosen else []), *losses)),),
        "; ".join(dict.fromkeys(part.reference for part in about if part.reference)),
        chosen[0] if chosen else None,
        first.family if first else "",
        first.labels if first else POSTERIOR,
        first is not None and first.unit_length,
        changes,
    )


methods = Methods()
register_method = methods.register


def _register_named() -> None:
    gedi = replace(compose(*BOUND, "cluster-energy"), any_density=True)

    def named(name: str, method: Method, summary: str, reference: str = PAPER) -> Method:
        return register_method(replace(method, name=name, summary=summary, reference=reference))

    def staged(*stages: Stage) -> Method:
        return replace(gedi, stages=stages)

    named("gedi", gedi, "clusters, density and samples from one network")
    named(
        "gedi-no-gen",
        compose(*BOUND),
        "clustering only: no density is learned",
        PAPER + "; cf. IMSAT (Hu et al., 2017)",
    )
    named(
        "gedi-no-inv",
        staged(Stage(1, (GENERATIVE, "prior"))),
        "without label invariance: clusters need not follow the data (failure mode 3)",
    )
    named(
        "gedi-no-prior",
        staged(Stage(1, (GENERATIVE, "invariance"))),
        "without balance: everything may end in one cluster (failure mode 2)",
    )
    named(
        "jem",
        replace(compose("cluster-energy"), any_density=True),
        "density only: the cluster posterior is left to chance",
        "Grathwohl et al., 2020",
    )
    named(
        "gedi-two-stage",
        staged(Stage(0.5, (GENERATIVE,)), Stage(1, BOUND)),
        "density first, then clusters on top of it",
        "Sansone & Manhaeve, 2022",
    )
    ebclr = compose("infonce", "contrastive-energy")
    similar = {"objectives": {"infonce": {"similarity": "euclidean", "temperature": 0.1}}}
    ebclr = replace(ebclr, changes=merge(ebclr.changes, {**similar, "density": {"temperature": 0.1}}))
    named("ebclr", ebclr, "tell rows apart and model their density with one similarity", "Kim & Ye, 2022")

    itself = {"views": {"walks": False}}  # a rule is about these images, not about neighbours of them
    nesy = compose("constraint")
    named(
        "nesy",
        replace(nesy, changes=itself),
        "symbols from rules alone: labels that satisfy a constraint, whichever they are",
        nesy.reference,
    )
    named(
        "gedi-nesy",
        replace(staged(Stage(1, (GENERATIVE, "constraint", "uniformity"))), changes=itself),
        "symbols from rules, with a density and all labels in use",
    )
    named(
        "gedi-symbols",
        replace(
            staged(
                Stage(0.4, (GENERATIVE, *BOUND, "pseudo-labels")),
                Stage(1, (GENERATIVE, *BOUND, "constraint")),
            ),
            changes={**itself, "similarity": {"copies": 64}},
        ),
        "clusters that rules give their names, from pseudo-labels on",
    )


_register_named()
