"""Settings that go with data: what images change about the defaults, and what the paper prints."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gedikit.errors import UsageError

_SMALLEST_SIDE = 16  # below that a perceptron on neighbourhoods does better, and faster

# the paper's table of hyperparameters for images; NESY's weight is in another column there
_PRINTED = {
    "network": "resnet8",
    "width": 128,
    "generative": 1.0,
    "invariance": 50.0,
    "prior": 25.0,
    "sampler": "sgld",
    "steps": 20,
    "step_size": 1.0,
    "noise_std": 0.01,
    "bounds": "none",
    "negatives": 64,
    "buffer": 10_000,
    "buffer_start": "noise",
    "restart": 0.05,
    "batch_size": 64,
    "learning_rate": 1e-4,
    "warmup": 0,
    "decay_from": 1.0,
    "average": 0.0,
    "max_rollbacks": 0,
    "threads": 0,
    "log_every": 100,
}
PRINTED_IMAGES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "svhn": {**_PRINTED, "augmentation": "svhn-printed", "epochs": 20},
        "cifar10": {**_PRINTED, "augmentation": "cifar10-printed", "epochs": 200},
        "cifar100": {
            **_PRINTED,
            "augmentation": "cifar100-printed",
            "epochs": 200,
            "width": 256,
            "prior": 50.0,
        },
        "mnist": {**_PRINTED, "augmentation": "mnist-printed", "epochs": 25, "batch_size": 60, "negatives": 60}
        | {"weight_decay": 1e-4},
    }
)

_PRINTED_TOY = {
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
    # the text says 7k, the appendix 20k
    "iterations": 7000,
    "warmup": 0,
    "decay_from": 1.0,
    "average": 0.0,
    "max_rollbacks": 0,
}
_PRINTED_TOY_BASELINE = {**_PRINTED_TOY, "network": "paper-normalised"}
# what the paper's appendix on synthetic data says of each method of its tables
PRINTED_TOY: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "gedi": _PRINTED_TOY,
        "gedi-no-gen": _PRINTED_TOY,
        "gedi-no-inv": _PRINTED_TOY,
        "gedi-no-prior": _PRINTED_TOY,
        "jem": {**_PRINTED_TOY, "steps": 10},
        "barlow-twins": {**_PRINTED_TOY_BASELINE, "labels": "projection"},
        "swav": _PRINTED_TOY_BASELINE,
    }
)

_WORKS = {
    **_PRINTED,
    "invariance": 25.0,
    "prior": 50.0,  # above the invariance: else one constant posterior for every image is a way out
    "symmetric": "on",  # x is left as it is for its density, so x′ is of another kind
    "energy_l2": 0.001,
    "largest_gap": 5.0,
    "buffer_start": "gaussian",
    "bounds": "clip",
    "learning_rate": 5e-4,
    "warmup": 500,
    "decay_from": 0.5,
    "decay_to": 0.05,
    "average": 0.999,
    "max_rollbacks": 4,
    "batch_size": 256,
    "negatives": 256,
    "iterations": 10_000,
    "checkpoint_every": 2000,
}
_ON_A_CPU = {
    "width": 32,
    "steps": 5,
    "batch_size": 64,
    "negatives": 32,
    "buffer": 2000,
    "walk_copies": 8,
    "iterations": 1000,
    "warmup": 50,
    "log_every": 25,
    "checkpoint_every": 200,
}
# drawings and scans: neighbours by pixels are alike, as those of photographs are not
_GREY = {"image_walks": "on", "walk_copies": 32}
_BY_PIXELS = {**_GREY, "spectral_start": 0.4}
# writing in any colours and light
_BY_OUTLINES = {**_BY_PIXELS, "walk_by": "outlines", "spectral_start": 0.5, "learning_rate": 1e-3}
_AUGMENTATIONS = {
    "mnist": "digits",
    "fashion-mnist": "fashion",
    "cifar10": "cifar10",
    "cifar100": "cifar10",
    "svhn": "svhn",
    "digits": "tiny",
}
_NEIGHBOURS = {"mnist": _BY_PIXELS, "fashion-mnist": _BY_PIXELS, "digits": _BY_PIXELS, "svhn": _BY_OUTLINES}


def check_like(like: str | None) -> None:
    if like is not None and like not in _AUGMENTATIONS:
        raise UsageError(f"like names one of {', '.join(_AUGMENTATIONS)}, not {like!r}")


def source_of(source: str, like: str | None, image_shape: tuple[int, ...]) -> str:
    """Whose recipe to take: that of the data set itself unless it is said to be like another."""
    check_like(like)
    if like is None:
        return source
    if not image_shape:
        raise UsageError(f"like={like!r} is about images, and these rows are treated as vectors: see image_shape")
    return like


def image_recipe(
    image_shape: tuple[int, ...], source: str, *, on_gpu: bool, forced: bool = False, printed: bool = False
) -> dict[str, Any]:
    """The settings that images of this shape change; none where, unless `forced`, they do better as vectors.

    `printed` asks for the paper's own: of the data set if it has a column there, else of CIFAR-10.
    """
    if not image_shape or (min(image_shape[:2]) < _SMALLEST_SIDE and not forced):
        return {}
    if printed:
        return {**PRINTED_IMAGES.get(source, PRINTED_IMAGES["cifar10"]), "image_shape": image_shape}
    recipe = {**_WORKS, "image_shape": image_shape, "augmentation": _AUGMENTATIONS.get(source, "photos")}
    unknown_and_grey = source not in _AUGMENTATIONS and image_shape[2] == 1
    recipe |= _NEIGHBOURS.get(source, _GREY if unknown_and_grey else {})
    return recipe if on_gpu else {**recipe, **_ON_A_CPU}
