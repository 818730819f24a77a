"""Every decision about a fit, from the kind of data down to single settings."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from gedikit.components import Component, Tree, merge
from gedikit.components.component import public_fields, unknown
from gedikit.config import NONE, OBJECTIVES, REGISTRIES, Config, Optimiser
from gedikit.densities import densities
from gedikit.densities.base import GENERATIVE
from gedikit.encoders import encoders
from gedikit.errors import UsageError
from gedikit.methods import Method, methods
from gedikit.modalities.image import Image, check_image_shape
from gedikit.objectives import objectives
from gedikit.objectives.base import Stage
from gedikit.partitions.neighbourhood import MAX_ANCHORS
from gedikit.planning.defaults import (
    EXAMPLE,
    FAINT,
    IMAGE_DENSITY,
    IMAGES,
    MIRRORED,
    RULES_ON_IMAGES,
    SAFE,
    SAFE_COLOURS,
    SIZES,
    STARTED,
    STARTED_BY_IMAGES,
    STARTED_FEW,
    STARTED_IMAGES,
    STARTED_LEAST,
    STARTED_MANY,
    STARTED_RATE,
    VECTORS,
)
from gedikit.planning.groups import GroupDecisions
from gedikit.planning.plans import ASKED, AUTO, BUDGETS, PRIORS, UNIFORM, Asked, Plan
from gedikit.profile import DataProfile
from gedikit.samplers import samplers
from gedikit.starts import ImageStart, Starts
from gedikit.views import views
from gedikit.views.image_views import batches_per_epoch
from gedikit.views.purposes import PURPOSES

SMALLEST_SIDE = 16  # smaller images are treated as vectors: a perceptron on neighbours does better, and faster
# beyond this, uniform and Gaussian proposals miss what the model can put mass on: use chains
MAX_IMPORTANCE_FEATURES = 3
_COPIES, _PROGRAM = 7, 0.4  # of a table in memory at once; GiB without any (docs/tables.md has the measurement)


def plan(data: DataProfile, asked: Asked, starts: Starts | None = None) -> Plan:
    """Decide everything about a fit; `starts` look for groups in the rows where nothing was asked about them."""
    return _Planner(data, asked, starts).plan()


class _Planner(GroupDecisions):
    """Decides from the kind of data down to single settings; what a user set comes last and wins."""

    def plan(self) -> Plan:
        asked, method = self.asked, self.method
        _check_asked(asked, method)
        image_shape = self._image_shape()
        if not image_shape:
            self._tell_large()
        n_clusters, prior, shares = self._groups(image_shape)
        tree = self._components(image_shape)
        if method.recipe is None:
            begun = self._begun(image_shape, n_clusters, prior, shares)
            started = begun is not None or (shares != UNIFORM and not image_shape and self._can_start())
            size, chosen = self._size(image_shape, started), self._views(image_shape, begun)
            decided = [chosen, size, self._rules(image_shape)]  # in this order: what is chosen is then sized
            if started:
                decided.append(self._started(begun))
        else:
            self._decide("recipe", method.name, "a published recipe fixes all its settings")
            decided = [method.recipe]
        for settings in (*decided, method.changes):
            tree = merge(tree, _of_components_in(tree, settings))
        tree = merge(tree, self.changes)
        self._refuse_unused(tree)
        _refuse_without_noise(tree)
        tree = self._known(tree)
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
            self.agreement,
        )

    def _tell_large(self) -> None:
        """Say how much memory many numbers take, and that neighbours are looked for among some of many rows."""
        n, d = self.data.n_rows, self.data.n_features
        needed = _COPIES * n * d * 8 / 2**30
        if needed >= 1:
            why = f"{n:,} × {d:,} numbers, up to {_COPIES} copies of them at once, beside the program itself"
            self._decide("memory", f"about {needed + _PROGRAM:.1f} GiB", why)
        if self.starts is not None and n > MAX_ANCHORS:
            why = f"drawn from {n:,}; all others belong with the nearest of them"
            self._decide("neighbours", f"among {MAX_ANCHORS:,} rows", why)

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
            return merge(VECTORS, tree)
        tree = merge(merge(IMAGES, {"data": {"shape": image_shape}}), tree)
        return merge(tree, _of_components_in(tree, {"density": IMAGE_DENSITY}))

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
        encoder = self._given("encoder", "name") or VECTORS["encoder"]["name"]
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
                iterations = max(STARTED_LEAST, round(iterations * (STARTED_FEW if few else STARTED_MANY)))
                reason = f"{reason}, with a partition to start from"
            elif self.faint:
                iterations = round(iterations * FAINT)
                reason = f"{reason}, whose groups overlap"
            if self._given("optimiser", "iterations") is None and not self._given("optimiser", "epochs"):
                self._decide("iterations", iterations, reason)
            rate = {"learning_rate": STARTED_RATE} if started else {}
            return {"optimiser": {"iterations": iterations, **rate}}
        size = {"quick": "small", "default": _size_for(n), "best": "large"}[budget]
        reason = f"{n} pictures" if budget == "default" else f"the {budget} budget"
        width = self._given("encoder", "width") or SIZES[size]["encoder"]["width"]
        self._decide("size", size, reason if self.asked.user_encoder else f"{reason}: a network of width {width}")
        if not started:
            return SIZES[size]
        fewer = round(SIZES[size]["optimiser"]["iterations"] * STARTED_IMAGES)
        return merge(SIZES[size], {"optimiser": {"iterations": fewer}})

    def _views(self, image_shape: tuple[int, ...], begun: ImageStart | None) -> Tree:
        asked = self.asked.views
        if asked == AUTO and self._given("views", "name") is not None:
            self._decide("views", AUTO, ASKED)
            return {}
        if asked == AUTO:
            return self._safe_views(image_shape, begun) if image_shape else {}
        if asked in PURPOSES:
            self._decide("views", asked, f"{ASKED}: {PURPOSES[asked].summary}")
            return PURPOSES[asked].config
        self._decide("views", asked, ASKED)
        if asked == NONE:
            return {"views": {"name": "augment"} if image_shape else {"name": "noise", "noise": 0.0}}
        return {"views": {"name": asked}}

    def _safe_views(self, image_shape: tuple[int, ...], begun: ImageStart | None) -> Tree:
        """Small moves that no picture minds; flips, colours and neighbours as the data support them."""
        chosen: Tree = {"name": "augment", **SAFE}
        said = [f"rotation up to {SAFE['rotation']:g}°, small translations and zooms"]
        data = self.data
        if data.border is not None:
            chosen["fill"] = data.border
            said.append("regions outside are filled with the border colour, which most images share")
        if data.mirrored is None:
            said.append("no flips: too little is known of the images")
        elif data.mirrored < MIRRORED:
            chosen["flip"] = 0.5
            said.append("flips: mirror images are as near to the other images as the images themselves")
        else:
            said.append("no flips: mirror images are farther from the other images")
        tree: Tree = {"views": chosen}
        if begun is not None and begun.walks:
            chosen["walks"] = True
            said.append(f"views from neighbours: images with similar {begun.similarity} are of one group")
        elif begun is not None:
            said.append("no crops: the groups to start from are told by the layout of images")
        elif image_shape[2] == 3:
            chosen |= SAFE_COLOURS
            said.append("crops and colour jitter")
        else:
            chosen["walks"] = True
            tree |= {"similarity": {"name": "pixels"}, OBJECTIVES: {"pseudo-labels": {"share": 0.4}}}
            said.append("views from neighbours: grey images with similar pixels tend to show the same thing")
        self._decide("views", AUTO, "; ".join(said))
        return tree

    def _rules(self, image_shape: tuple[int, ...]) -> Tree:
        """Settings of a fit that learns from rules."""
        examples = self.asked.examples
        if examples is None:
            return {}
        tree = RULES_ON_IMAGES if image_shape else {}
        if examples.n_variables > EXAMPLE:
            usual = objectives.get("constraint")().weight
            weight = usual * EXAMPLE / examples.n_variables
            why = f"an example has {examples.n_variables} images: each counts as one of {EXAMPLE}"
            self._decide("weight of the rules", f"{weight:.3g}", why)
            tree = merge(tree, {OBJECTIVES: {"constraint": {"weight": weight}}})
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

    def _known(self, tree: Tree) -> Tree:
        """The settings with the objectives for what is known of rows."""
        known = self.asked.known
        if known is None or not known.guides:
            return tree
        if not self.method.trains_posterior:
            raise UsageError(
                f"the method {self.method.name!r} reads clusters off by {self.method.labels}: known labels and "
                "links are for methods that train p(y|x), such as 'gedi'"
            )
        names = (["known-labels"] if known.labels is not None else []) + (["links"] if known.n_linked else [])
        return merge(tree, {OBJECTIVES: {name: tree[OBJECTIVES].get(name, {}) for name in names}})

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

    def _started(self, begun: ImageStart | None) -> Tree:
        """Settings of a fit that starts from a partition; walks whose length a user set are as they were."""
        walks = {"hold", "end"} & self.changes.get("views", {}).keys()
        settings = {section: values for section, values in STARTED.items() if section != "views" or not walks}
        if begun is None:
            return settings
        alike: Tree = {"similarity": {"name": begun.similarity}} if begun.walks else {}
        return merge(settings, {**alike, **STARTED_BY_IMAGES})


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
    n_labels = 0 if asked.known is None else asked.known.n_labels
    if asked.n_clusters is not None and n_labels > asked.n_clusters:
        raise UsageError(
            f"the largest known label is {n_labels - 1}, which takes {n_labels} clusters, not "
            f"n_clusters={asked.n_clusters}"
        )
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


def _size_for(n_rows: int) -> str:
    return "small" if n_rows < 2000 else "medium" if n_rows < 20_000 else "large"
