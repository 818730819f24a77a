"""Pictures of two kinds, and small trainings on them."""

import numpy as np

from gedikit.methods import get_method
from gedikit.recipes import image_recipe
from gedikit.training.fit import prepare

SHAPE = (16, 16, 3)
SMALL = {"width": 8, "batch_size": 16, "negatives": 8, "buffer": 64, "steps": 2, "log_every": 1}


def pictures(n: int, shape: tuple[int, int, int] = SHAPE, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Of two kinds: bright above or bright below, in any colour."""
    rng = np.random.default_rng(seed)
    half = shape[0] // 2
    images = rng.integers(0, 60, (n, *shape))
    kinds = rng.integers(0, 2, n)
    colour = rng.integers(80, 195, (n, 1, 1, shape[2]))
    for image, kind, light in zip(images, kinds, colour, strict=True):
        image[half * kind : half * kind + half] += light
    return images.astype(np.uint8).reshape(n, -1), kinds


def settings(method: str = "gedi", shape: tuple[int, int, int] = SHAPE, **changes):
    recipe = image_recipe(shape, "folder", on_gpu=False)
    return get_method(method).settings({**recipe, **SMALL}, **changes)


def prepared(x: np.ndarray, method: str = "gedi", seed: int = 0, **changes):
    asked = settings(method, **changes)
    return prepare(x, get_method(method), asked, n_clusters=2, seed=seed, device="cpu")


def agreement(labels: np.ndarray, kinds: np.ndarray) -> float:
    return max(np.mean(labels == kinds), np.mean(labels != kinds))
