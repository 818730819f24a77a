"""The paper's recipes: what it prints, as methods with -as-printed in their names, and what works on its images.

A recipe that is printed fixes every setting. One that works is asked for like any other fit: by what the pictures
of a data set are of, and by the size that its figures were recorded with.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from gedikit.components import Tree, merge
from gedikit.methods import Method, methods, register_method
from gedikit.objectives.base import PAPER
from gedikit.paper.theory.constant_posteriors import PRIOR_FIRST, least_prior_ratio
from gedikit.planning import UNIFORM, Asked

PRINTED = "-as-printed"

_UNCHANGING = {"warmup": 0, "decay_from": 1.0, "average": 0.0, "max_rollbacks": 0}
_TOY: Tree = {
    "data": {"name": "vector", "scaling": "none"},
    "encoder": {"name": "paper-mlp"},
    "views": {"name": "noise", "noise": 0.03, "unit": "absolute"},
    "sampler": {
        "name": "sgld",
        "samples": 400,
        "chains": 10_000,
        "start": "noise",
        "restart": 0.05,
        "steps": 1,
        "step_size": 0.01**2 / 2,
        "noise_std": 0.01,
        "bounds": "none",
    },
    "objectives": {"invariance": {"weight": 50.0}, "prior": {"weight": 10.0}},
    # the text says 7k, the appendix 20k
    "optimiser": {"iterations": 7000, **_UNCHANGING},
}
_NORMALISED = {"encoder": {"batch_norm": True}}
# what the paper's appendix on synthetic data says of each method of its tables
TOY: Mapping[str, Tree] = MappingProxyType(
    {
        "gedi": {},
        "gedi-no-gen": {},
        "gedi-no-inv": {},
        "gedi-no-prior": {},
        "jem": {"sampler": {"steps": 10}},
        "barlow-twins": {**_NORMALISED, "head": {"labels": "projection"}},
        "swav": _NORMALISED,
    }
)

# the paper gives the probabilities and the noise; padding by 4 mirrored pixels and the strengths are customary
_AUGMENT: Tree = {
    "name": "augment",
    **{"shift": 4, "jitter": 0.1, "grey": 0.1},
    **{"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1},
}
# the paper's table of hyperparameters for images; NESY's weight is in another column there
_IMAGES: Tree = {
    "data": {"name": "image"},
    "encoder": {"name": "resnet8", "width": 128},
    "views": _AUGMENT,
    "density": {"weight": 1.0, "l2": 0.0, "largest_gap": 0.0},
    "objectives": {
        "invariance": {"weight": 50.0, "symmetric": False},
        "prior": {"weight": 25.0, "symmetric": False},
        "constraint": {"symmetric": False},
    },
    "sampler": {
        "name": "sgld",
        "samples": 64,
        "chains": 10_000,
        "start": "noise",
        "restart": 0.05,
        "steps": 20,
        "step_size": 1.0,
        "noise_std": 0.01,
        "bounds": "none",
    },
    "similarity": {"name": "pixels", "copies": 0},
    "optimiser": {"batch_size": 64, "learning_rate": 1e-4, "decay_to": 0.01, **_UNCHANGING},
}
_LARGER = {"encoder": {"width": 256}, "objectives": {"prior": {"weight": 50.0}}}
_SIXTY = {"optimiser": {"epochs": 25, "batch_size": 60, "weight_decay": 1e-4}, "sampler": {"samples": 60}}
IMAGES: Mapping[str, Tree] = MappingProxyType(
    {
        "svhn": merge(_IMAGES, {"views": {"noise": 0.03}, "optimiser": {"epochs": 20}}),
        "cifar10": merge(_IMAGES, {"views": {"flip": 0.5, "noise": 0.03}, "optimiser": {"epochs": 200}}),
        "cifar100": merge(
            merge(_IMAGES, _LARGER), {"views": {"flip": 0.5, "noise": 0.03}, "optimiser": {"epochs": 200}}
        ),
        "mnist": merge(merge(_IMAGES, _SIXTY), {"views": {"noise": 0.2}}),
    }
)
# what the pictures of a data set are of
WORKING: Mapping[str, str] = MappingProxyType(
    {
        "mnist": "drawings",
        "fashion-mnist": "things",
        "cifar10": "photos",
        "cifar100": "photos",
        "svhn": "writing",
    }
)
_USUAL_CLUSTERS = 10
BATCH_NORMALISED = ("barlow-twins", "swav")
ON_IMAGES = ("gedi", "gedi-no-gen", "jem", "barlow-twins", "swav", "gedi-nesy")


def printed(name: str, data: str | None = None) -> Method:
    """The method as printed for synthetic data, or for one of the paper's data sets of images."""
    return methods[f"{name}{PRINTED}" + (f"-{data}" if data else "")]


def working(data: str, *, small: bool = False) -> dict[str, Any]:
    """What to ask of a fit to one of the data sets of images, as `Asked`, `GEDI` and `FitRequest` take it.

    Of the size that fits on a GPU were recorded with, or with `small` those on a CPU.
    """
    return {"views": WORKING[data], "budget": "quick" if small else "best"}


def prior_weight(n_clusters: int) -> float:
    """The weight of PRIOR for images: as far above what the theory demands as that of ten clusters, or farther.

    The more clusters, the more there is to gain by one certain label for every image: a fixed ratio to INV that
    suffices for ten clusters does not for a hundred.
    """
    usual = PRIOR_FIRST[1]
    return float(round(usual * max(1.0, least_prior_ratio(n_clusters) / least_prior_ratio(_USUAL_CLUSTERS))))


def on_images(
    data: str, method: str, n_clusters: int, seed: int, epochs: int, *, small: bool = False, printed: bool = False
) -> Asked:
    """What a row of the tables of images asks for: the paper's network by the recipe that works, or as printed."""
    config: Tree = {"optimiser": {"epochs": epochs}}
    if printed:
        return Asked(n_clusters, f"{method}{PRINTED}-{data}", UNIFORM, seed=seed, config=config)
    if method in BATCH_NORMALISED:
        config = merge(config, _NORMALISED)
    width = IMAGES.get(data, _IMAGES)["encoder"]["width"]
    if width != _IMAGES["encoder"]["width"] and not small:
        config = merge(config, {"encoder": {"width": width}})
    if "prior" in methods[method].objectives and prior_weight(n_clusters) != PRIOR_FIRST[1]:
        config = merge(config, {"objectives": {"prior": {"weight": prior_weight(n_clusters)}}})
    return Asked(n_clusters, method, UNIFORM, seed=seed, config=config, **working(data, small=small))


def _register() -> None:
    for name, changes in TOY.items():
        _add(name, PRINTED, merge(_TOY, changes), "synthetic data")
    for name in ON_IMAGES:
        own = _NORMALISED if name in BATCH_NORMALISED else {}
        for data, recipe in IMAGES.items():
            _add(name, f"{PRINTED}-{data}", merge(recipe, own), data)


def _add(name: str, suffix: str, recipe: Tree, about: str) -> None:
    method = methods.named(name)
    used = {section: values for section, values in recipe.items() if section != "objectives"}
    used["objectives"] = {
        term: values for term, values in recipe["objectives"].items() if term in method.objectives
    }
    if method.density is None:
        used.pop("sampler", None)
        used.pop("density", None)
    register_method(
        replace(
            method,
            name=name + suffix,
            summary=f"the paper's recipe for {about} as printed; fits with a density usually diverge",
            reference=f"{PAPER}, appendices on synthetic and real data",
            recipe=used,
        )
    )


_register()
