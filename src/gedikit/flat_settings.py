"""Flat settings of 0.1 in the words of 0.2: `new_config` says in sections what `options=` said."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Flat = Mapping[str, Any]  # settings by name

OBJECTIVES = (
    *("invariance", "prior", "constraint", "pseudo-labels", "uniformity"),
    *("infonce", "simclr", "cpc", "protocpc", "kscl", "barlow-twins", "vicreg", "w-mse", "corinfomax", "mec"),
    *("swav", "deepcluster", "sela"),
)
DENSITIES = ("cluster-energy", "contrastive-energy", "flow")
ENERGIES, CHAINS = ("cluster-energy", "contrastive-energy"), ("mala", "sgld")
ENCODERS = {
    "default": "fourier-mlp",
    "paper": "paper-mlp",
    "paper-normalised": "paper-mlp",
    "resnet8": "resnet8",
}
OF_BOTH_VIEWS = ("invariance", "prior", "constraint", "pseudo-labels")

# methods whose names do not say what they are made of: objectives, density
_BOUND = ("invariance", "prior")
MADE_OF: dict[str, tuple[tuple[str, ...], str | None]] = {
    "gedi": (_BOUND, "cluster-energy"),
    "gedi-no-gen": (_BOUND, None),
    "gedi-no-inv": (("prior",), "cluster-energy"),
    "gedi-no-prior": (("invariance",), "cluster-energy"),
    "gedi-two-stage": (_BOUND, "cluster-energy"),
    "jem": ((), "cluster-energy"),
    "ebclr": (("infonce",), "contrastive-energy"),
    "bound": (_BOUND, None),
    "nesy": (("constraint",), None),
    "gedi-nesy": (("constraint", "uniformity"), "cluster-energy"),
    "gedi-symbols": ((*_BOUND, "pseudo-labels", "constraint"), "cluster-energy"),
}


def made_of(method: str) -> tuple[tuple[str, ...], str | None]:
    """The objectives of a method, and its density if it has one."""
    objectives: tuple[str, ...] = ()
    density = None
    for part in method.removesuffix("-as-printed").split("+"):
        if part in DENSITIES:
            density = part
        else:
            more, other = MADE_OF.get(part, ((part,), None))
            objectives, density = (*objectives, *more), density or other
    return objectives, density


def _in(section: str, components: Sequence[str], name: str) -> tuple[tuple[str, str, str], ...]:
    return tuple((section, component, name) for component in components)


def _anywhere(section: str, names: Sequence[str]) -> dict[str, tuple[tuple[str, str, str], ...]]:
    return {name: ((section, "", name),) for name in names}


# flat setting → (section, the component that has it or "" for all, its name there)
PLACES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "generative": _in("density", DENSITIES, "weight"),
    "energy_l2": _in("density", ENERGIES, "l2"),
    "largest_gap": _in("density", ENERGIES, "largest_gap"),
    "references": _in("density", ("contrastive-energy",), "references"),
    "flow_transforms": _in("density", ("flow",), "transforms"),
    "flow_hidden": _in("density", ("flow",), "hidden"),
    "invariance": _in("objectives", ("invariance",), "weight"),
    "prior": _in("objectives", ("prior",), "weight"),
    "constraint": _in("objectives", ("constraint",), "weight"),
    "reading": _in("objectives", ("pseudo-labels",), "weight"),
    "spectral_start": _in("objectives", ("pseudo-labels",), "share"),
    "uniformity": _in("objectives", ("uniformity",), "weight"),
    "symmetric": _in("objectives", OF_BOTH_VIEWS, "symmetric"),
    "discriminative": _in("objectives", OBJECTIVES[5:], "weight"),
    "similarity": _in("objectives", ("infonce",), "similarity"),
    "similarity_temperature": (
        *_in("objectives", ("infonce", "simclr", "kscl"), "temperature"),
        *_in("density", ("contrastive-energy",), "temperature"),
    ),
    "shots": _in("objectives", ("kscl",), "shots"),
    "teacher_temperature": _in("objectives", ("protocpc",), "teacher_temperature"),
    "off_diagonal": _in("objectives", ("barlow-twins",), "off_diagonal"),
    "vicreg_invariance": _in("objectives", ("vicreg",), "invariance"),
    "vicreg_variance": _in("objectives", ("vicreg",), "variance"),
    "vicreg_covariance": _in("objectives", ("vicreg",), "covariance"),
    "shrinkage": _in("objectives", ("w-mse",), "shrinkage"),
    "corinfomax_invariance": _in("objectives", ("corinfomax",), "invariance"),
    "covariance_momentum": _in("objectives", ("corinfomax",), "momentum"),
    "distortion": _in("objectives", ("mec",), "distortion"),
    "sinkhorn_epsilon": _in("objectives", ("swav", "sela"), "epsilon"),
    "sinkhorn_iterations": _in("objectives", ("swav",), "iterations"),
    "queue": _in("objectives", ("swav",), "queue"),
    "assign_every": _in("objectives", ("deepcluster", "sela"), "every"),
    "freeze_prototypes": (("head", "", "freeze"),),
    "head": (("head", "", "cosine"),),
    "temperature": (("head", "", "temperature"),),
    "labels": (("head", "", "labels"),),
    "network": (("encoder", "", "name"),),
    "width": _in("encoder", ("resnet8",), "width"),
    **{
        name: _in("encoder", ("fourier-mlp",), name)
        for name in ("hidden", "features", "activation", "projection", "frequencies", "detail")
    },
    "image_shape": _in("data", ("image",), "shape"),
    "scaling": _in("data", ("vector",), "scaling"),
    "margin": _in("data", ("vector",), "margin"),
    "augmentation": (("views", "", "name"),),
    "noise": _in("views", ("walk", "noise"), "noise"),
    "noise_unit": _in("views", ("walk", "noise"), "unit"),
    "image_walks": _in("views", ("augment",), "walks"),
    "walk_hold": _in("views", ("walk", "augment"), "hold"),
    "walk_end": _in("views", ("walk", "augment"), "end"),
    "walk_by": _in("similarity", ("pixels", "outlines"), "name"),
    "walk_copies": _in("similarity", ("pixels", "outlines"), "copies"),
    "neighbours": _in("similarity", ("euclidean", "pixels", "outlines"), "neighbours"),
    "sampler": (("sampler", "", "name"),),
    "negatives": _in("sampler", ("importance", *CHAINS), "samples"),
    "bank": _in("sampler", ("importance",), "bank"),
    "buffer": _in("sampler", CHAINS, "chains"),
    "buffer_start": _in("sampler", CHAINS, "start"),
    "restart": _in("sampler", CHAINS, "restart"),
    "buffer_dtype": _in("sampler", CHAINS, "storage"),
    "steps": _in("sampler", CHAINS, "steps"),
    "step_size": (*_in("sampler", ("importance", "mala"), "first_step"), ("sampler", "sgld", "step_size")),
    "noise_std": _in("sampler", ("sgld",), "noise_std"),
    "bounds": _in("sampler", ("sgld",), "bounds"),
    **_anywhere("optimiser", ("iterations", "epochs", "batch_size", "learning_rate", "warmup", "decay_from")),
    **_anywhere("optimiser", ("decay_to", "average", "weight_decay", "max_rollbacks")),
    **_anywhere("execution", ("precision", "log_every", "checkpoint_every", "threads")),
    "acceleration": (("execution", "", "compile"),),
}
# values that are written otherwise
VALUES: dict[str, Callable[[Any], Any]] = {
    "symmetric": lambda value: value == "on",
    "image_walks": lambda value: value == "on",
    "head": lambda value: value == "cosine",
    "acceleration": lambda value: value != "off",
    "network": lambda value: ENCODERS[value],
    "image_shape": list,
    "hidden": list,
    "flow_hidden": list,
}

# the augmentations of 0.1 that recipes name, every field of them
_UNCHANGED = {
    "rotation": 0.0,
    "shear": 0.0,
    "zoom": (1.0, 1.0),
    "translation": 0.0,
    "shift": 0,
    "crop_area": (1.0, 1.0),
    "crop_ratio": (3 / 4, 4 / 3),
    "flip": 0.0,
    "fill": None,
    "jitter": 0.0,
    "brightness": 0.0,
    "contrast": 0.0,
    "saturation": 0.0,
    "hue": 0.0,
    "grey": 0.0,
    "noise": 0.0,
}
_PHOTOS = {
    **_UNCHANGED,
    **{"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1},
    **{"flip": 0.5, "jitter": 0.8, "grey": 0.2, "noise": 0.03},
}
_PRINTED = {
    **_UNCHANGED,
    **{"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1, "shift": 4, "jitter": 0.1, "grey": 0.1},
}
AUGMENTATIONS: dict[str, dict[str, Any]] = {
    "digits": {
        **_UNCHANGED,
        **{"rotation": 15.0, "shear": 10.0, "zoom": (0.8, 1.2), "translation": 0.1, "fill": -1.0, "noise": 0.1},
    },
    "cifar10": {**_PHOTOS, "crop_area": (0.2, 1.0)},
    "svhn": {**_PHOTOS, "flip": 0.0, "rotation": 6.0, "zoom": (0.85, 1.15), "translation": 0.1},
    "photos": {**_PHOTOS, "crop_area": (0.3, 1.0)},
    "fashion": {
        **_UNCHANGED,
        **{"crop_area": (0.4, 1.0), "flip": 0.5, "jitter": 0.8, "brightness": 0.4, "contrast": 0.4, "noise": 0.05},
    },
    "tiny": {
        **_UNCHANGED,
        **{"rotation": 10.0, "zoom": (0.9, 1.1), "translation": 1 / 8, "fill": -1.0, "noise": 0.1},
    },
    "none": _UNCHANGED,
    "svhn-printed": {**_PRINTED, "noise": 0.03},
    "cifar10-printed": {**_PRINTED, "flip": 0.5, "noise": 0.03},
    "cifar100-printed": {**_PRINTED, "flip": 0.5, "noise": 0.03},
    "mnist-printed": {**_PRINTED, "noise": 0.2},
}


def new_config(method: str, options: Flat, n_features: int = 2) -> dict[str, Any]:
    """The settings of 0.2, "section.setting", that say what flat options of 0.1 said.

    Options about components that the fit does not have said nothing, and are left out.
    """
    components = _components(method, options, n_features)
    config: dict[str, Any] = {}
    for name, value in options.items():
        if value == "auto" and name in ("sampler", "labels"):
            continue
        for section, component, setting in PLACES[name]:
            if section in components and (not component or component in components[section]):
                path = [section, component, setting] if section == "objectives" else [section, setting]
                config[".".join(path)] = VALUES.get(name, lambda same: same)(value)
    if options.get("network") == "paper-normalised":
        config["encoder.batch_norm"] = True
    elif "resnet8" in components["encoder"]:
        config["encoder.batch_norm"] = False  # what recipes as printed ask for today
    if options.get("image_shape"):
        config["data.name"] = "image"
    augmentation = AUGMENTATIONS.get(options.get("augmentation", ""))
    if augmentation is not None:
        config["views.name"] = "augment"
        config |= {f"views.{name}": _plain(value) for name, value in augmentation.items()}
    return config


def _components(method: str, options: Flat, n_features: int) -> dict[str, tuple[str, ...]]:
    """The sections of a fit, and which components they hold."""
    objectives, density = made_of(method)
    images, printed = bool(options.get("image_shape")), method.endswith("-as-printed")
    share = options.get("spectral_start", 0)
    if share and {"invariance", "prior"} <= {*objectives}:
        objectives = (*objectives, "pseudo-labels")
    views = options.get("augmentation", "noise" if printed else "walk")
    sections: dict[str, tuple[str, ...]] = {
        "objectives": objectives,
        "head": (),
        "encoder": (ENCODERS[options.get("network", "paper" if printed else "default")],),
        "data": ("image" if images else "vector",),
        "views": ("augment" if images else views,),
        "optimiser": (),
        "execution": (),
    }
    if density is not None:
        sections["density"] = (density,)
    if density in ENERGIES:
        by_itself = "sgld" if printed else "importance" if n_features <= 3 else "mala"
        asked = options.get("sampler", "auto")
        sections["sampler"] = (by_itself if asked == "auto" else asked,)
    walks = options.get("image_walks") == "on" if images else views == "walk"
    if walks or "pseudo-labels" in objectives:
        sections["similarity"] = (options.get("walk_by", "pixels") if images else "euclidean",)
    return sections


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
