"""A method is data: a discriminative and a generative side, the terms they minimise, when, and what they change.

`DISCRIMINATIVE` and `GENERATIVE` name the two sides; any one of the first with any one of the second is a method,
written "swav+cluster-energy". `METHODS` holds the pairs that have names of their own. Adding a method is adding an
entry; nothing in the trainer knows their names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gedikit.errors import UsageError
from gedikit.recipes import PRINTED_TOY, image_recipe, source_of
from gedikit.settings import Settings

CONTRASTIVE, NEGATIVE_FREE, CLUSTER_BASED = "contrastive", "negative-free", "cluster-based"
# the generative processes of the paper's figure of graphical models
GRAPHS = {
    CONTRASTIVE: "x_i → y_i, a class for every row",
    NEGATIVE_FREE: "z → x_i → x′_i ← ξ_i, Gaussian z and ξ_i",
    CLUSTER_BASED: "x_i → x′_i and x_i → y_i, one of c clusters",
    "": "x_i",
}
LABELS = {
    "posterior": "argmax of the cluster posterior p(y|x)",
    "projection": "argmax of the projection z",
    "k-means": "k-means on the features of the training rows",
}


@dataclass(frozen=True)
class Discriminative:
    """A self-supervised side: which terms it minimises and how labels are read off."""

    family: str
    terms: tuple[str, ...]
    labels: str
    reference: str
    summary: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    unit_length: bool = False


@dataclass(frozen=True)
class Generative:
    """A likelihood side: a family of densities p_Ψ(x)."""

    reference: str
    summary: str


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
    family: str = CLUSTER_BASED
    labels: str = "posterior"
    generative: str | None = None
    unit_length: bool = False  # k-means on features of unit length
    printed: Mapping[str, Any] | None = None  # the paper's recipe for vectors, where that is what the name asks for

    @property
    def terms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(term for stage in self.stages for term in stage.terms))

    @property
    def needs_rules(self) -> bool:
        return "constraint" in self.terms

    @property
    def models_density(self) -> bool:
        return "generative" in self.terms

    def settings(self, recipe: Mapping[str, Any] | None = None, /, **changes: Any) -> Settings:
        """The defaults, as a recipe for the kind of data, then this method and then the caller changes them."""
        base = Settings().replace(**(recipe or self.printed or {}))
        return base.replace(**self.changes).replace(**changes)

    def settings_for(
        self,
        shape: tuple[int, ...],
        source: str,
        /,
        *,
        on_gpu: bool,
        like: str | None = None,
        forced: bool = False,
        **changes: Any,
    ) -> Settings:
        """The same for rows that may be images, of a source or `like` one; `forced` takes the smallest too."""
        printed = self.printed is not None
        forced = forced or like is not None
        recipe = image_recipe(shape, source_of(source, like, shape), on_gpu=on_gpu, forced=forced, printed=printed)
        return self.settings(recipe, **changes)

    def starting_from_clusters(self, share: float) -> "Method":
        """Clusters of neighbours are targets for the first part of every stage that looks for balanced clusters."""
        if not share or "reading" in self.terms:
            return self
        stages, begun = [], 0.0
        for stage in self.stages:
            if {"invariance", "prior"} <= {*stage.terms}:
                begun += share * (stage.until - begun)
                stages.append(Stage(begun, (*stage.terms, "reading")))
            if begun < stage.until:
                stages.append(stage)
            begun = stage.until
        return replace(self, stages=tuple(stages))

    def terms_at(self, progress: float) -> tuple[str, ...]:
        return next(stage.terms for stage in self.stages if progress < stage.until or stage.until == 1)

    @property
    def labels_by_default(self) -> str:
        return self.labels_by(self.settings())

    def labels_by(self, settings: Settings) -> str:
        return self.labels if settings.labels == "auto" else settings.labels


_PAPER = "Sansone & Manhaeve"  # Unifying Self-Supervised Clustering and Energy-Based Models
_COSINE = {"head": "cosine", "temperature": 0.1}
_PROJECTED = {"projection": 32}
_SHOWN_BY_THEMSELVES = {"image_walks": "off"}  # a rule is about these images, not about neighbours of them

DISCRIMINATIVE: dict[str, Discriminative] = {
    "bound": Discriminative(
        CLUSTER_BASED,
        ("invariance", "prior"),
        "posterior",
        _PAPER + "; cf. IMSAT (Hu et al., 2017)",
        "equal and certain labels for two views, balanced over the batch",
    ),
    "infonce": Discriminative(
        CONTRASTIVE,
        ("infonce",),
        "k-means",
        "van den Oord et al., 2018",
        "tell a row's view from those of others",
        changes=_PROJECTED,
        unit_length=True,
    ),
    "simclr": Discriminative(
        CONTRASTIVE,
        ("simclr",),
        "k-means",
        "Chen et al., 2020",
        "InfoNCE over both views (NT-Xent)",
        changes=_PROJECTED,
        unit_length=True,
    ),
    "cpc": Discriminative(
        CONTRASTIVE, ("cpc",), "k-means", "Hénaff et al., 2020", "InfoNCE with a learned bilinear score"
    ),
    "protocpc": Discriminative(
        CONTRASTIVE,
        ("protocpc",),
        "posterior",
        "Lee et al., 2022",
        "prototypes instead of rows, targets from the averaged network",
        _COSINE,
    ),
    "kscl": Discriminative(
        CONTRASTIVE,
        ("kscl",),
        "k-means",
        "Xu et al., 2022",
        "a row is the subspace that several views of it span",
        changes=_PROJECTED,
        unit_length=True,
    ),
    "corinfomax": Discriminative(
        NEGATIVE_FREE,
        ("corinfomax",),
        "k-means",
        "Ozsoy et al., 2022",
        "equal views, covariance of large determinant",
        unit_length=True,
    ),
    "barlow-twins": Discriminative(
        NEGATIVE_FREE,
        ("barlow-twins",),
        "k-means",
        "Zbontar et al., 2021",
        "cross-correlation of two views near the identity",
    ),
    "vicreg": Discriminative(
        NEGATIVE_FREE,
        ("vicreg",),
        "k-means",
        "Bardes et al., 2022",
        "equal views, variance kept, covariance removed",
    ),
    "w-mse": Discriminative(
        NEGATIVE_FREE, ("w-mse",), "k-means", "Ermolov et al., 2021", "equal views after whitening"
    ),
    "mec": Discriminative(
        NEGATIVE_FREE,
        ("mec",),
        "k-means",
        "Liu et al., 2022",
        "the longest code the two views share",
        unit_length=True,
    ),
    "swav": Discriminative(
        CLUSTER_BASED,
        ("swav",),
        "posterior",
        "Caron et al., 2020",
        "each view predicts the balanced codes of the other",
        _COSINE,
    ),
    "deepcluster": Discriminative(
        CLUSTER_BASED,
        ("deepcluster",),
        "posterior",
        "Caron et al., 2018",
        "predict the k-means clusters of one's own features",
    ),
    "sela": Discriminative(
        CLUSTER_BASED,
        ("sela",),
        "posterior",
        "Asano et al., 2020",
        "predict a balanced assignment of all rows",
    ),
}

GENERATIVE: dict[str, Generative] = {
    "cluster-energy": Generative("Grathwohl et al., 2020", "log-density is the logsumexp of the cluster logits"),
    "contrastive-energy": Generative(
        "Kim & Ye, 2022", "log-density is the log-sum of similarities with a bank of data"
    ),
    "flow": Generative("Durkan et al., 2019", "a neural spline flow with weights of its own (gedikit[flow])"),
}


def compose(discriminative: str | None, generative: str | None) -> Method:
    """The method that minimises one side's terms together with the other's."""
    if discriminative is None and generative is None:
        raise UsageError("a method needs a discriminative or a generative side")
    side = None if discriminative is None else DISCRIMINATIVE[discriminative]
    model = None if generative is None else GENERATIVE[generative]
    terms = (("generative",) if model else ()) + (side.terms if side else ())
    return Method(
        "+".join(name for name in (discriminative, generative) if name),
        "; ".join(part.summary for part in (side, model) if part),
        (Stage(1, terms),),
        "; ".join(part.reference for part in (side, model) if part),
        side.changes if side else {},
        side.family if side else "",
        side.labels if side else "posterior",
        generative,
        side is not None and side.unit_length,
    )


def _named(name: str, method: Method, summary: str, reference: str, **changes: Any) -> Method:
    return replace(method, name=name, summary=summary, reference=reference, changes={**method.changes, **changes})


def _registry() -> dict[str, Method]:
    gedi = compose("bound", "cluster-energy")
    gedis = (
        _named("gedi", gedi, "clusters, density and samples from one network", _PAPER),
        _named(
            "gedi-no-gen",
            compose("bound", None),
            "clustering only: no density is learned",
            DISCRIMINATIVE["bound"].reference,
        ),
        _named(
            "gedi-no-inv",
            replace(gedi, stages=(Stage(1, ("generative", "prior")),)),
            "without label invariance: clusters need not follow the data (failure mode 3)",
            _PAPER,
        ),
        _named(
            "gedi-no-prior",
            replace(gedi, stages=(Stage(1, ("generative", "invariance")),)),
            "without balance: everything may end in one cluster (failure mode 2)",
            _PAPER,
        ),
        _named(
            "jem",
            compose(None, "cluster-energy"),
            "density only: the cluster posterior is left to chance",
            "Grathwohl et al., 2020",
        ),
        _named(
            "gedi-two-stage",
            replace(gedi, stages=(Stage(0.5, ("generative",)), Stage(1, ("invariance", "prior")))),
            "density first, then clusters on top of it",
            "Sansone & Manhaeve, 2022",
        ),
        _named(
            "ebclr",
            compose("infonce", "contrastive-energy"),
            "tell rows apart and model their density with one similarity",
            "Kim & Ye, 2022",
            similarity="euclidean",
            similarity_temperature=0.1,
        ),
    )
    rules = (
        Method(
            "nesy",
            "symbols from rules alone: labels that satisfy a constraint, whichever they are",
            (Stage(1, ("constraint",)),),
            "Manhaeve et al., 2018; Xu et al., 2018",
            changes=_SHOWN_BY_THEMSELVES,
        ),
        _named(
            "gedi-nesy",
            replace(gedi, stages=(Stage(1, ("generative", "constraint", "uniformity")),)),
            "symbols from rules, with a density and all labels in use",
            _PAPER,
            **_SHOWN_BY_THEMSELVES,
        ),
        _named(
            "gedi-symbols",
            replace(
                gedi,
                stages=(
                    Stage(0.4, ("generative", "invariance", "prior", "reading")),
                    Stage(1, ("generative", "invariance", "prior", "constraint")),
                ),
            ),
            "clusters that rules give their names",
            _PAPER,
            walk_copies=64,
            **_SHOWN_BY_THEMSELVES,
        ),
    )
    alone = (compose(name, None) for name in DISCRIMINATIVE if name != "bound")
    return {m.name: m for m in (*gedis, *rules, *alone)}


METHODS: dict[str, Method] = _registry()

PRINTED = "-as-printed"
PRINTED_METHODS = tuple(PRINTED_TOY)


def get_method(name: str) -> Method:
    """A named method, a pair "discriminative+generative", or a method of the paper's toy tables "…-as-printed"."""
    if name in METHODS:
        return METHODS[name]
    if name.endswith(PRINTED):
        return _as_printed(name.removesuffix(PRINTED))
    if "+" in name:
        return _pair(name)
    raise UsageError(
        f"there is no method {name!r}; there are: {', '.join(METHODS)}, and pairs such as 'swav+cluster-energy'"
    )


def _as_printed(name: str) -> Method:
    if name not in PRINTED_TOY:
        raise UsageError(f"the paper prints no toy recipe for {name!r}; it does for: {', '.join(PRINTED_TOY)}")
    return replace(
        METHODS[name],
        name=name + PRINTED,
        summary="the paper's recipe to the letter; with a generative term expect it to diverge",
        reference=_PAPER + ", appendices on synthetic and real data",
        printed=PRINTED_TOY[name],
    )


def _pair(name: str) -> Method:
    parts = name.split("+")
    sides = {part: part in DISCRIMINATIVE for part in parts}
    for part in parts:
        if part not in DISCRIMINATIVE and part not in GENERATIVE:
            raise UsageError(
                f"{part!r} in {name!r} is neither a discriminative term ({', '.join(DISCRIMINATIVE)}) "
                f"nor a generative one ({', '.join(GENERATIVE)})"
            )
    if len(parts) != 2 or len(sides) != 2 or sum(sides.values()) != 1:
        raise UsageError(f"{name!r} must name one discriminative and one generative term, as 'swav+cluster-energy'")
    first, second = sorted(parts, key=lambda part: not sides[part])
    return compose(first, second)
