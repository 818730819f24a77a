"""The plan of a fit: everything decided once, from the data and what was asked, with a reason for each decision.

Nothing here depends on the name of a data set or on the hardware: an array of the same shape and type has the same
plan wherever it comes from and wherever it is fitted.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gedikit.components import Tree, expand, merge
from gedikit.components.component import public_fields, unknown
from gedikit.config import EXECUTION, NONE, OBJECTIVES, REGISTRIES, TABLES, Config, Execution, check_sections
from gedikit.densities import densities
from gedikit.densities.base import GENERATIVE
from gedikit.errors import DataError, UsageError
from gedikit.methods import Method, methods
from gedikit.objectives import objectives
from gedikit.objectives.base import Stage
from gedikit.profile import DataProfile
from gedikit.views import views
from gedikit.views.image_views import batches_per_epoch
from gedikit.views.purposes import PURPOSES

BUDGETS = ("quick", "default", "best")
AUTO = "auto"
SMALLEST_SIDE = 16  # smaller images are treated as vectors: a perceptron on neighbours does better, and faster
# beyond this, uniform and Gaussian proposals miss what the model can put mass on: use chains
MAX_IMPORTANCE_FEATURES = 3


@dataclass(frozen=True)
class Decision:
    """What was decided, and why."""

    what: str
    choice: str
    reason: str


@dataclass(frozen=True)
class Asked:
    """What a user asked for; everything else is for the plan to decide."""

    n_clusters: int = 8
    method: str = "gedi"
    prior: Sequence[float] | NDArray[Any] | None = None
    views: str = AUTO
    budget: str = "default"
    seed: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)
    user_encoder: bool = False
    examples: "ExamplesProfile | None" = None


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
            "data": self.data.tree(),
            "stages": [{"until": stage.until, "terms": list(stage.terms)} for stage in self.stages],
            "config": self.config.tree(),
            "needs": self.config.needs(),
            "decisions": [dataclasses.asdict(decision) for decision in self.decisions],
        }

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> "Plan":
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


def plan(data: DataProfile, asked: Asked) -> Plan:
    """Decide everything about a fit."""
    return _Planner(data, asked).plan()


class _Planner:
    def __init__(self, data: DataProfile, asked: Asked):
        self.data, self.asked = data, asked
        self.method = methods[asked.method]
        self.changes, _ = split_execution(asked.config)
        self.decisions: list[Decision] = []

    def plan(self) -> Plan:
        asked, method = self.asked, self.method
        _check_asked(asked, method)
        image_shape = self._image_shape()
        tree = self._defaults(image_shape)
        tree = merge(tree, _applicable(tree, self._size(image_shape)))
        if method.recipe is not None:
            tree = merge(tree, method.recipe)
            self._decide("recipe", method.name, "a published recipe fixes all its settings")
        elif image_shape:
            chosen = self._views(image_shape)
            tree = merge(tree, _applicable(tree, {k: v for k, v in chosen.items() if k != OBJECTIVES}))
            tree = merge(tree, {OBJECTIVES: chosen.get(OBJECTIVES, {})})
        elif asked.views != AUTO:
            tree = merge(tree, self._vector_views())
        tree = merge(tree, _applicable(tree, method.changes))
        tree = merge(tree, self.changes)
        stages = self._stages(tree)
        tree[OBJECTIVES] = self._objectives(tree, stages)
        config = Config.from_tree(tree)
        config = dataclasses.replace(config, optimiser=self._resolved(config))
        self._tell(config)
        return Plan(
            method.name,
            asked.n_clusters,
            tuple(self._prior().tolist()),
            asked.seed,
            asked.budget,
            stages,
            config,
            tuple(self.decisions),
            self.data,
            method.labels,
            method.unit_length,
        )

    def _decide(self, what: str, choice: object, reason: str) -> None:
        self.decisions.append(Decision(what, str(choice), reason))

    def _image_shape(self) -> tuple[int, ...]:
        """The shape of rows that are treated as images."""
        given = self.changes.get("data", {})
        if given.get("name") == "vector":
            return ()
        shape = tuple(given.get("shape", ())) or self.data.image_shape
        if self.method.recipe is not None and self.method.recipe.get("data", {}).get("name") == "vector":
            return ()
        named = self.changes.get("encoder", {}).get("name")
        forced = self.asked.user_encoder or given.get("name") == "image" or named == "resnet8"
        forced = forced or self.asked.views not in (AUTO, *(n for n, v in views.items() if not v.of_images))
        if not shape or (named is not None and named != "resnet8" and not forced):
            if self.asked.views in PURPOSES:
                raise UsageError(f"views={self.asked.views!r} is about images, and these rows are vectors: see image_shape")
            return ()
        if min(shape[:2]) < SMALLEST_SIDE and not forced:
            size = " × ".join(map(str, shape[:2]))
            self._decide("data", "vector", f"images of {size} pixels are small: a perceptron does better, and faster")
            return ()
        return tuple(int(v) for v in shape)

    def _density(self) -> Tree:
        named = self.changes.get("density", {}).get("name")
        if named is not None and self.method.density is None and named != NONE:
            raise UsageError(
                f"the method {self.method.name!r} learns no density: name one with it, as "
                f"{self.method.name}+{named}"
            )
        return {"name": named or self.method.density or NONE}

    def _defaults(self, image_shape: tuple[int, ...]) -> Tree:
        density = self._density()
        normalised = density["name"] == NONE or densities.get(density["name"]).normalised
        head = {"labels": self.method.labels}
        if image_shape:
            tree = merge(_IMAGES, {"data": {"shape": image_shape}, "density": density, "head": head})
            chosen = "sgld"
            self._decide("data", "image", f"rows are images of {' × '.join(map(str, image_shape))} pixels and channels")
        else:
            tree = merge(_VECTORS, {"density": density, "head": head})
            few = self.data.n_features <= MAX_IMPORTANCE_FEATURES
            chosen = "importance" if few else "mala"
            if not normalised:
                count = f"{self.data.n_features} feature{'' if self.data.n_features == 1 else 's'}"
                reason = "proposals cover the whole domain" if few else "too many for proposals: persistent chains"
                self._decide("sampler", chosen, f"{count}: {reason}")
        if normalised:
            tree["sampler"] = {"name": NONE}
        elif not image_shape:
            tree["sampler"] = {"name": chosen}
        if self.asked.user_encoder:
            tree["encoder"] = {"name": "user"}
        return merge(tree, _applicable(tree, self._density_defaults(bool(image_shape))))

    def _density_defaults(self, images: bool) -> Tree:
        return {"density": {"l2": 0.001, "largest_gap": 5.0}} if images else {}

    def _size(self, image_shape: tuple[int, ...]) -> Tree:
        """How large the network is and how long it trains: by the budget and the number of rows."""
        budget, n = self.asked.budget, self.data.n_rows
        if not image_shape:
            iterations = {"quick": 1000, "default": 3000, "best": 6000}[budget]
            self._decide("iterations", iterations, f"the {budget} budget of vectors")
            return {"optimiser": {"iterations": iterations}}
        size = {"quick": "small", "default": _size_for(n), "best": "large"}[budget]
        reason = f"{n} pictures" if budget == "default" else f"the {budget} budget"
        self._decide("size", size, f"{reason}: a network of width {_SIZES[size]['encoder']['width']}")
        return _SIZES[size]

    def _views(self, image_shape: tuple[int, ...]) -> Tree:
        asked = self.asked.views
        if asked == NONE:
            self._decide("views", NONE, "asked for")
            return {"views": {"name": "augment"}}
        if asked in PURPOSES:
            self._decide("views", asked, f"asked for: {PURPOSES[asked].summary}")
            return PURPOSES[asked].config
        if asked != AUTO:
            return {"views": {"name": asked}}
        return self._safe_views(image_shape)

    def _safe_views(self, image_shape: tuple[int, ...]) -> Tree:
        """Small moves that no picture minds; flips, colours and neighbours as the data support them."""
        chosen: Tree = {"name": "augment", **_SAFE}
        said = [f"turns up to {_SAFE['rotation']:g}°, small moves and zooms"]
        data = self.data
        if data.border is not None:
            chosen["fill"] = data.border
            said.append("what lies outside has the colour of the border, which is the same in most pictures")
        if data.mirrored is not None and data.mirrored < _MIRRORED:
            chosen["flip"] = 0.5
            said.append("flips, because mirrored pictures are as near to the others as the pictures themselves")
        else:
            said.append("no flips, because mirrored pictures are farther from the others")
        tree: Tree = {"views": chosen}
        if image_shape[2] == 3:
            chosen |= _SAFE_COLOURS
            said.append("crops and changes of colour")
        else:
            chosen["walks"] = True
            tree |= {"similarity": {"name": "pixels"}, OBJECTIVES: {"pseudo-labels": {"share": 0.4}}}
            said.append("neighbours by pixels, because grey pictures that are near show the same")
        self._decide("views", AUTO, "; ".join(said))
        return tree

    def _vector_views(self) -> Tree:
        if self.asked.views not in views:
            raise UsageError(unknown("views", self.asked.views, [AUTO, NONE, *PURPOSES, *views]))
        self._decide("views", self.asked.views, "asked for")
        return {"views": {"name": self.asked.views}}

    def _stages(self, tree: Tree) -> tuple[Stage, ...]:
        """The method's stages, with objectives that join them where the settings ask for that."""
        stages = self.method.stages
        for name, values in tree.get(OBJECTIVES, {}).items():
            cls = objectives.get(name)
            if name in self.method.terms or name not in (set(self.changes.get(OBJECTIVES, {})) | _JOINING(tree)):
                continue
            joined = cls.of(values).join(stages)
            if name in self.changes.get(OBJECTIVES, {}) and (joined is None):
                raise UsageError(
                    f"the method {self.method.name!r} has no objective {name!r}; it has "
                    f"{', '.join(self.method.objectives) or 'none'}. Join them as {self.method.name}+{name}"
                )
            if joined is not None and joined != stages:
                stages = joined
                share = values.get("share", "")
                self._decide(name, share, cls.summary)
        return stages

    def _objectives(self, tree: Tree, stages: Sequence[Stage]) -> Tree:
        terms = dict.fromkeys(term for stage in stages for term in stage.terms if term != GENERATIVE)
        return {name: tree.get(OBJECTIVES, {}).get(name, {}) for name in terms}

    def _resolved(self, config: Config) -> Any:
        """The optimiser with a batch that the data can fill, and iterations for epochs."""
        optimiser, examples = config.optimiser, self.asked.examples
        n_rows, size = self.data.n_rows, optimiser.batch_size
        if examples is not None:
            n_rows = examples.n_rows
            size = max(1, size // examples.n_variables) * examples.n_variables
        size = min(size, n_rows)
        iterations = optimiser.iterations
        if optimiser.epochs:
            iterations = optimiser.epochs * batches_per_epoch(n_rows, size)
        alone = [name for name, o in config.objectives.items() if o.min_rows > size]
        if alone:
            raise UsageError(f"{alone[0]} looks at the whole batch and needs at least 2 rows, not batch_size={size}")
        return dataclasses.replace(optimiser, batch_size=size, iterations=iterations)

    def _prior(self) -> NDArray[np.float64]:
        given, examples = self.asked.prior, self.asked.examples
        if given is None and examples is not None:
            self._decide("prior", "by the constraint", "how often its values occur in examples that satisfy it")
            return check_prior(np.array(examples.prior), self.asked.n_clusters)
        if given is None:
            self._decide("prior", "uniform", "no shares were given")
        return check_prior(None if given is None else np.asarray(given), self.asked.n_clusters)

    def _tell(self, config: Config) -> None:
        o = config.optimiser
        self._decide(
            "training",
            f"{o.iterations} iterations of {o.batch_size} rows",
            f"{o.epochs} epochs" if o.epochs else f"{self.data.n_rows} rows",
        )


def _JOINING(tree: Tree) -> set[str]:  # noqa: N802
    """Objectives that the settings for the data add to a method by themselves."""
    return {name for name, values in tree.get(OBJECTIVES, {}).items() if values.get("share")}


def _applicable(tree: Tree, changes: Mapping[str, Any]) -> Tree:
    """Those changes that are settings of the components in use."""
    kept: Tree = {}
    for section, values in changes.items():
        if section == OBJECTIVES or section in TABLES:
            kept[section] = values
            continue
        name = values.get("name", tree[section].get("name"))
        if name == NONE or tree[section].get("name") == NONE:
            continue
        known = {f.name for f in public_fields(REGISTRIES[section].get(name))}
        found = {key: value for key, value in values.items() if key in known or key == "name"}
        if found:
            kept[section] = found
    return kept


def _check_asked(asked: Asked, method: Method) -> None:
    if asked.budget not in BUDGETS:
        raise UsageError(unknown("budget", asked.budget, BUDGETS))
    if asked.n_clusters < 1:
        raise UsageError(f"n_clusters must be at least 1, not {asked.n_clusters}")
    if asked.views not in (AUTO, NONE, *PURPOSES, *views):
        raise UsageError(unknown("views", asked.views, [AUTO, NONE, *PURPOSES, *views]))
    if method.needs_examples and asked.examples is None:
        raise UsageError(f"{method.name!r} learns from rules: give a constraint and examples of it")
    if asked.examples is not None and not method.needs_examples:
        names = [m.name for m in methods.values() if m.needs_examples]
        raise UsageError(f"{method.name!r} has no objective for rules: use one of {', '.join(names)}")


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


def check_rows(x: NDArray[Any], n_clusters: int) -> None:
    """Refuse data that nothing can be learned from."""
    if len(x) < 2:
        raise DataError(f"n_samples={len(x)}: at least two rows are needed")
    if len(x) < n_clusters:
        raise DataError(f"n_samples={len(x)} should be >= n_clusters={n_clusters}")
    if np.all(x == x[0]):
        raise DataError("all rows are the same: there is nothing to learn from constant columns")


def _size_for(n_rows: int) -> str:
    return "small" if n_rows < 2000 else "medium" if n_rows < 20_000 else "large"


_MIRRORED = 0.55  # share of pictures that a mirror moves away from the others: one half where mirrors change nothing

_VECTORS: Tree = {
    "data": {"name": "vector"},
    "encoder": {"name": "fourier-mlp"},
    "views": {"name": "walk"},
    "similarity": {"name": "euclidean"},
}
_BOTH = {"symmetric": True}  # x is left as it is for its density, so x′ is of another kind
_IMAGES: Tree = {
    "data": {"name": "image"},
    "encoder": {"name": "resnet8"},
    "views": {"name": "augment"},
    "similarity": {"name": "pixels"},
    "sampler": {
        "name": "sgld",
        "step_size": 1.0,
        "noise_std": 0.01,
        "bounds": "clip",
        "start": "gaussian",
        "restart": 0.05,
    },
    "objectives": {
        # the prior above the invariance: else one constant posterior for every image is a way out
        "invariance": {"weight": 25.0, **_BOTH},
        "prior": {"weight": 50.0, **_BOTH},
        "constraint": _BOTH,
        "pseudo-labels": _BOTH,
    },
    "optimiser": {"learning_rate": 5e-4, "decay_from": 0.5, "decay_to": 0.05},
}
_SIZES: dict[str, Tree] = {
    "small": {
        "encoder": {"width": 32},
        "sampler": {"steps": 5, "samples": 32, "chains": 2000},
        "similarity": {"copies": 8},
        "optimiser": {"batch_size": 64, "iterations": 800, "warmup": 50},
    },
    "medium": {
        "encoder": {"width": 64},
        "sampler": {"steps": 10, "samples": 128, "chains": 5000},
        "similarity": {"copies": 16},
        "optimiser": {"batch_size": 128, "iterations": 3000, "warmup": 200},
    },
    "large": {
        "encoder": {"width": 128},
        "sampler": {"steps": 20, "samples": 256, "chains": 10_000},
        "similarity": {"copies": 32},
        "optimiser": {"batch_size": 256, "iterations": 10_000, "warmup": 500},
    },
}
_SAFE: Tree = {"rotation": 10.0, "shear": 5.0, "zoom": (0.85, 1.15), "translation": 0.1, "noise": 0.1}
_SAFE_COLOURS: Tree = {
    "crop_area": (0.3, 1.0),
    "jitter": 0.8,
    "brightness": 0.4,
    "contrast": 0.4,
    "saturation": 0.4,
    "hue": 0.1,
    "grey": 0.2,
    "noise": 0.03,
}
