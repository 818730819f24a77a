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

from gedikit.components import Component, Tree, expand, merge
from gedikit.components.component import public_fields, unknown
from gedikit.config import EXECUTION, NONE, OBJECTIVES, REGISTRIES, Config, Optimiser, check_sections
from gedikit.densities import densities
from gedikit.densities.base import GENERATIVE
from gedikit.encoders import encoders
from gedikit.errors import DataError, UsageError
from gedikit.methods import Method, methods
from gedikit.modalities.image import Image, check_image_shape
from gedikit.objectives import objectives
from gedikit.objectives.base import Stage
from gedikit.profile import DataProfile
from gedikit.samplers import samplers
from gedikit.starts import Starts
from gedikit.views import views
from gedikit.views.image_views import batches_per_epoch
from gedikit.views.purposes import PURPOSES

BUDGETS = ("quick", "default", "best")
AUTO = "auto"
UNIFORM, GIVEN = "uniform", "given"
PRIORS = (AUTO, UNIFORM)
ASKED = "asked for"
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

    n_clusters: int | None = None  # None: as many as the data has
    method: str = "gedi"
    prior: Sequence[float] | NDArray[Any] | str = AUTO  # shares of the clusters, or a word of PRIORS
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
    shares: str = GIVEN  # where the prior is from: the data (auto), uniform, or given

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


def plan(data: DataProfile, asked: Asked, starts: Starts | None = None) -> Plan:
    """Decide everything about a fit; `starts` look for groups in the rows where nothing was asked about them."""
    return _Planner(data, asked, starts).plan()


class _Planner:
    """Decides from the kind of data down to single settings; what a user set comes last and wins."""

    def __init__(self, data: DataProfile, asked: Asked, starts: Starts | None):
        self.data, self.asked, self.starts = data, asked, starts
        self.method = methods[asked.method]
        self.changes, _ = split_execution(asked.config)
        self.decisions: list[Decision] = []

    def plan(self) -> Plan:
        asked, method = self.asked, self.method
        _check_asked(asked, method)
        image_shape = self._image_shape()
        n_clusters, prior, shares = self._groups(image_shape)
        tree = self._components(image_shape)
        if method.recipe is None:
            started = shares != UNIFORM and not image_shape and asked.examples is None and self._aligns()
            size, chosen = self._size(image_shape, started), self._views(image_shape)
            decided = [chosen, size]  # in this order: what is chosen is then sized
            if started:
                decided.append(self._started())
        else:
            self._decide("recipe", method.name, "a published recipe fixes all its settings")
            decided = [method.recipe]
        for settings in (*decided, method.changes):
            tree = merge(tree, _of_components_in(tree, settings))
        tree = merge(tree, self.changes)
        self._refuse_unused(tree)
        _refuse_without_noise(tree)
        stages = self._stages(tree[OBJECTIVES])
        terms = dict.fromkeys(term for stage in stages for term in stage.terms if term != GENERATIVE)
        tree[OBJECTIVES] = {name: tree[OBJECTIVES].get(name, {}) for name in terms}
        config = Config.from_tree(tree)
        config = dataclasses.replace(config, optimiser=self._optimiser(config))
        return Plan(
            method.name,
            n_clusters,
            tuple(prior.tolist()),
            asked.seed,
            asked.budget,
            stages,
            config,
            tuple(self.decisions),
            self.data,
            method.labels,
            method.unit_length,
            shares,
        )

    def _given(self, section: str, name: str) -> Any:
        """What the user set, if anything."""
        return self.changes.get(section, {}).get(name)

    def _decide(self, what: str, choice: object, reason: str) -> None:
        """Note a decision; where the user named the component, it was theirs."""
        named = self._given(what, "name")
        if named is not None:
            choice, reason = named, ASKED
        self.decisions.append(Decision(what, str(choice), reason))

    def _image_shape(self) -> tuple[int, ...]:
        """(height, width, channels) of rows that are treated as images, else ()."""
        asked, kind, encoder = self.asked, self._given("data", "name"), self._given("encoder", "name")
        shape = Image.of({"shape": self._given("data", "shape") or self.data.image_shape}).shape
        recipe = (self.method.recipe or {}).get("data", {}).get("name")
        about_images = asked.views in PURPOSES or (asked.views in views and views.get(asked.views).of_images)
        if not shape or "vector" in (kind, recipe):
            if about_images:
                raise UsageError(
                    f"views={asked.views!r} is about images, and these rows are vectors: "
                    "image_shape says the height, width and channels of images"
                )
            return ()
        height, width, channels = check_image_shape(shape, self.data.n_features)
        if not (asked.user_encoder or "image" in (kind, recipe) or about_images or asked.views == NONE):
            if encoder is not None and not encoders.get(encoder).of_images:
                reason = f"the encoder {encoder} was asked for; if it is for images, set data.name"
                self._decide("data", "vector", reason)
                return ()
            if min(height, width) < SMALLEST_SIDE and encoder is None:
                small = f"images of {height} × {width} pixels are small"
                self._decide("data", "vector", f"{small}: a perceptron does better, and faster")
                return ()
        pixels = f"{height} × {width} pixels in {'colour' if channels == 3 else 'grey'}"
        self._decide("data", "image", f"rows are images of {pixels}")
        return shape

    def _components(self, image_shape: tuple[int, ...]) -> Tree:
        """A component for every section, with the settings that this kind of data always has."""
        density = self._density(image_shape)
        tree: Tree = {
            "head": {"labels": self.method.labels},
            "density": {"name": density},
            "sampler": {"name": self._sampler(density, bool(image_shape))},
            OBJECTIVES: {},
        }
        if self.asked.user_encoder:
            tree["encoder"] = {"name": "user"}
        if not image_shape:
            return merge(_VECTORS, tree)
        tree = merge(merge(_IMAGES, {"data": {"shape": image_shape}}), tree)
        return merge(tree, _of_components_in(tree, {"density": _IMAGE_DENSITY}))

    def _density(self, image_shape: tuple[int, ...]) -> str:
        own, given = self.method.density, self._given("density", "name")
        if given is None and self.method.any_density and self._takes_noise(image_shape):
            own = "multi-noise-energy"
            self._decide("density", own, f"{self.data.n_features} columns of numbers: normalised, without chains")
        if own is None and given not in (None, NONE):
            together = "+".join((*self.method.objectives, str(given)))
            raise UsageError(f"the method {self.method.name!r} learns no density: take the method {together!r}")
        if own is not None and given == NONE:
            raise UsageError(
                f"the method {self.method.name!r} learns a density; take one that does not, such as 'gedi-no-gen'"
            )
        return str(given or own or NONE)

    def _takes_noise(self, image_shape: tuple[int, ...]) -> bool:
        """Whether the density is learned at many noise levels: that of many columns, unless settings forbid it."""
        if image_shape or self.data.n_features <= MAX_IMPORTANCE_FEATURES:
            return False
        if self.asked.user_encoder or self.method.recipe is not None or "sampler" in self.changes:
            return False
        encoder = self._given("encoder", "name") or _VECTORS["encoder"]["name"]
        of_another = set(self.changes.get("density", {})) - set(_settings(densities.get("multi-noise-energy")))
        return encoders.get(encoder).takes_noise and not of_another

    def _sampler(self, density: str, images: bool) -> str:
        """What draws from a density that is known up to its normaliser."""
        if density == NONE or densities.get(density).normalised:
            return NONE
        n = self.data.n_features
        if images:
            name, reason = "sgld", "images have too many values for proposals: persistent chains"
        elif n <= MAX_IMPORTANCE_FEATURES:
            name, reason = "importance", f"{n} feature{'' if n == 1 else 's'}: proposals cover the whole domain"
        else:
            name, reason = "mala", f"{n} features: too many for proposals: persistent chains"
        self._decide("sampler", name, reason)
        return name

    def _size(self, image_shape: tuple[int, ...], started: bool) -> Tree:
        """How large the network is and how long it trains: by the budget and the number of rows."""
        budget, n = self.asked.budget, self.data.n_rows
        if not image_shape:
            iterations = {"quick": 1000, "default": 3000, "best": 6000}[budget]
            reason = f"the {budget} budget of vectors"
            if started:
                few = self.data.n_features <= MAX_IMPORTANCE_FEATURES
                iterations = round(iterations * (_STARTED_FEW if few else _STARTED_MANY))
                reason = f"{reason}, with a partition to start from"
            if self._given("optimiser", "iterations") is None and not self._given("optimiser", "epochs"):
                self._decide("iterations", iterations, reason)
            return {"optimiser": {"iterations": iterations}}
        size = {"quick": "small", "default": _size_for(n), "best": "large"}[budget]
        reason = f"{n} pictures" if budget == "default" else f"the {budget} budget"
        width = self._given("encoder", "width") or _SIZES[size]["encoder"]["width"]
        self._decide("size", size, reason if self.asked.user_encoder else f"{reason}: a network of width {width}")
        return _SIZES[size]

    def _views(self, image_shape: tuple[int, ...]) -> Tree:
        asked = self.asked.views
        if asked == AUTO and self._given("views", "name") is not None:
            self._decide("views", AUTO, ASKED)
            return {}
        if asked == AUTO:
            return self._safe_views(image_shape) if image_shape else {}
        if asked in PURPOSES:
            self._decide("views", asked, f"{ASKED}: {PURPOSES[asked].summary}")
            return PURPOSES[asked].config
        self._decide("views", asked, ASKED)
        if asked == NONE:
            return {"views": {"name": "augment"} if image_shape else {"name": "noise", "noise": 0.0}}
        return {"views": {"name": asked}}

    def _safe_views(self, image_shape: tuple[int, ...]) -> Tree:
        """Small moves that no picture minds; flips, colours and neighbours as the data support them."""
        chosen: Tree = {"name": "augment", **_SAFE}
        said = [f"rotation up to {_SAFE['rotation']:g}°, small translations and zooms"]
        data = self.data
        if data.border is not None:
            chosen["fill"] = data.border
            said.append("regions outside are filled with the border colour, which most images share")
        if data.mirrored is None:
            said.append("no flips: too little is known of the images")
        elif data.mirrored < _MIRRORED:
            chosen["flip"] = 0.5
            said.append("flips: mirror images are as near to the other images as the images themselves")
        else:
            said.append("no flips: mirror images are farther from the other images")
        tree: Tree = {"views": chosen}
        if image_shape[2] == 3:
            chosen |= _SAFE_COLOURS
            said.append("crops and colour jitter")
        else:
            chosen["walks"] = True
            tree |= {"similarity": {"name": "pixels"}, OBJECTIVES: {"pseudo-labels": {"share": 0.4}}}
            said.append("views from neighbours: grey images with similar pixels tend to show the same thing")
        self._decide("views", AUTO, "; ".join(said))
        return tree

    def _refuse_unused(self, tree: Tree) -> None:
        """Settings that nothing would read are refused, by the name of the component that has them."""
        density, sampler = tree["density"]["name"], tree["sampler"]["name"]
        sampled = density != NONE and not densities.get(density).normalised
        if sampled and sampler == NONE:
            raise UsageError(f"the density {density!r} is learned with a sampler: {', '.join(samplers)}")
        for section, values in self.changes.items():
            settings = [name for name in values if name != "name"]
            if section == "sampler" and not sampled and (settings or sampler != NONE):
                why = "there is no density" if density == NONE else f"the density {density!r} is sampled exactly"
                raise UsageError(f"sampler.{[*settings, 'name'][0]} has no effect with {self.method.name!r}: {why}")
            if section == "density" and density == NONE and settings:
                raise UsageError(f"density.{settings[0]} has no effect: {self.method.name!r} learns no density")
            if section in REGISTRIES:
                for name in settings:
                    self._refuse_of_another(section, tree[section]["name"], name)

    def _refuse_of_another(self, section: str, used: str, name: str) -> None:
        registry = REGISTRIES[section]
        having = [other for other, component in registry.items() if name in _settings(component)]
        if having and name not in _settings(registry.get(used)):
            raise UsageError(
                f"{section}.{name} is a setting of {' and '.join(having)}, and the {registry.kind} here is {used}: "
                f"set {section}.name as well, or leave {section}.{name} out"
            )

    def _stages(self, settings: Mapping[str, Any]) -> tuple[Stage, ...]:
        """The method's stages, with objectives that join them by themselves where their settings say so."""
        stages = self.method.stages
        for name, values in settings.items():
            if name in self.method.terms:
                continue
            objective = objectives.get(name).of(values)
            joined = objective.join(stages)
            if joined is None and name in self.changes.get(OBJECTIVES, {}):
                own, density = self.method.objectives, self.method.density
                together = "+".join((*own, name, *([] if density is None else [density])))
                raise UsageError(
                    f"the method {self.method.name!r} has no objective {name!r}; it has "
                    f"{', '.join(own) or 'a density alone'}: take the method {together!r} for all of them"
                )
            if joined is not None and joined != stages:
                stages = joined
                until = [f"{stage.until:.0%}" for stage in stages if name in stage.terms]
                self._decide(name, f"until {', '.join(until)} of the training", objective.summary)
        return stages

    def _optimiser(self, config: Config) -> Optimiser:
        """The optimiser with a batch that the data can fill, and iterations for epochs."""
        optimiser, examples = config.optimiser, self.asked.examples
        n_rows, size = self.data.n_rows, optimiser.batch_size
        if examples is not None:
            n_rows = examples.n_rows
            size = max(1, size // examples.n_variables) * examples.n_variables
        size = min(size, n_rows)
        alone = [name for name, objective in config.objectives.items() if objective.min_rows > size]
        if alone:
            least = config.objectives[alone[0]].min_rows
            raise UsageError(
                f"{alone[0]} looks at the whole batch and needs at least {least} rows, not batch_size={size}"
            )
        iterations, reason = optimiser.iterations, f"{self.data.n_rows} rows"
        if optimiser.epochs:
            iterations = optimiser.epochs * batches_per_epoch(n_rows, size)
            reason = f"{optimiser.epochs} epochs of {self.data.n_rows} rows"
        self._decide("training", f"{iterations} iterations of {size} rows", reason)
        return dataclasses.replace(optimiser, batch_size=size, iterations=iterations)

    def _groups(self, image_shape: tuple[int, ...]) -> tuple[int, NDArray[np.float64], str]:
        """The number of clusters, their shares, and where these are from."""
        asked, examples = self.asked, self.asked.examples
        n_clusters = asked.n_clusters
        if examples is not None:
            n_clusters = n_clusters or len(examples.prior)
            self._decide("prior", "by the constraint", "how often its values occur in examples that satisfy it")
            return n_clusters, check_prior(np.array(examples.prior), n_clusters), GIVEN
        if n_clusters is None:
            n_clusters = self._number(image_shape)
        if not isinstance(asked.prior, str):
            self._decide("prior", GIVEN, ASKED)
            return n_clusters, check_prior(np.asarray(asked.prior), n_clusters), GIVEN
        uniform = check_prior(None, n_clusters)
        if asked.prior == UNIFORM:
            self._decide("prior", UNIFORM, ASKED)
            return n_clusters, uniform, UNIFORM
        if image_shape or self.starts is None or self.method.recipe is not None or not self._aligns():
            why = "a published recipe" if self.method.recipe is not None else "the method looks for equal shares"
            if image_shape and self.method.recipe is None:
                why = "no shares were given"
            self._decide("prior", UNIFORM, why)
            return n_clusters, uniform, UNIFORM
        start = self.starts.find(n_clusters, self._scaling())
        shares = start.choice.chosen.shares
        said = ", ".join(f"{share:.0%}" for share in shares[:_SHOWN])
        more = "" if len(shares) <= _SHOWN else ", …"
        reason = f"shares of the starting partition ({start.choice.chosen.name}): {said}{more}"
        self._decide("prior", AUTO, reason)
        return n_clusters, shares, AUTO

    def _number(self, image_shape: tuple[int, ...]) -> int:
        """How many groups the rows have."""
        if image_shape:
            self._decide("n_clusters", _IMAGE_CLUSTERS, "the number is not looked for in images: give n_clusters")
            return _IMAGE_CLUSTERS
        if self.starts is None:
            raise UsageError("n_clusters is looked for in the rows, and there are none here: give it")
        number = self.starts.find(None, self._scaling()).number
        assert number is not None
        reason = f"groups of neighbours with few links between them; next would be {number.runner_up}"
        self._decide("n_clusters", number.n_clusters, reason)
        return number.n_clusters

    def _started(self) -> Tree:
        """Settings of a fit that starts from a partition; walks whose length a user set are as they were."""
        walks = {"hold", "end"} & self.changes.get("views", {}).keys()
        return {section: values for section, values in _STARTED.items() if section != "views" or not walks}

    def _aligns(self) -> bool:
        """Whether the method can start from a partition: it has both invariance and prior."""
        return any({"invariance", "prior"} <= {*stage.terms} for stage in self.method.stages)

    def _scaling(self) -> str:
        return str(self._given("data", "scaling") or AUTO)


def _of_components_in(tree: Tree, settings: Mapping[str, Any]) -> Tree:
    """Those settings that the components of a tree have."""
    kept: Tree = {}
    for section, values in settings.items():
        if section not in REGISTRIES:
            kept[section] = values
            continue
        used = tree[section]["name"]
        named = values.get("name", used)
        if NONE not in (used, named):
            known = {"name", *_settings(REGISTRIES[section].get(named))}
            kept[section] = {name: value for name, value in values.items() if name in known}
    return kept


def _refuse_without_noise(tree: Tree) -> None:
    """A density of noised rows needs an encoder that takes their noise level."""
    density, encoder = tree["density"]["name"], tree["encoder"]["name"]
    if density == NONE or not densities.get(density).noised or encoders.get(encoder).takes_noise:
        return
    taking = [name for name, component in encoders.items() if component.takes_noise]
    raise UsageError(
        f"the density {density!r} asks the network about noised rows, and the encoder {encoder!r} takes no noise "
        f"level: set encoder.name to {' or '.join(taking)}, or take another density"
    )


def _settings(component: type[Component]) -> list[str]:
    return [field.name for field in public_fields(component)]


def _check_asked(asked: Asked, method: Method) -> None:
    if asked.budget not in BUDGETS:
        raise UsageError(unknown("budget", asked.budget, BUDGETS))
    if asked.n_clusters is not None and asked.n_clusters < 1:
        raise UsageError(f"n_clusters must be at least 1, not {asked.n_clusters}")
    if isinstance(asked.prior, str) and asked.prior not in PRIORS:
        raise UsageError(unknown("prior", asked.prior, PRIORS))
    if asked.views not in (AUTO, NONE, *PURPOSES, *views):
        raise UsageError(unknown("views", asked.views, [AUTO, NONE, *PURPOSES, *views]))
    if asked.views != AUTO and method.recipe is not None:
        raise UsageError(f"{method.name!r} is a published recipe, which fixes its views: leave views at {AUTO!r}")
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


_IMAGE_CLUSTERS = 8
# share of the iterations that a fit takes which starts from a partition, with few and with many columns
_STARTED_FEW, _STARTED_MANY = 0.4, 0.2
_SHOWN = 8  # shares in a sentence
_MIRRORED = 0.56  # flips are used where mirroring moves at most this share of the images away from the others

_VECTORS: Tree = {
    "data": {"name": "vector"},
    "encoder": {"name": "fourier-mlp"},
    "views": {"name": "walk"},
    "similarity": {"name": "euclidean"},
}
# the partition says which rows belong together; walks are single steps that settle where the borders run
_STARTED: Tree = {
    "views": {"hold": 0.0, "end": 0.01},
    "objectives": {"pseudo-labels": {"share": 0.7}},
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
_IMAGE_DENSITY: Tree = {"l2": 0.001, "largest_gap": 5.0}
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
