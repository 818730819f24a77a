"""Two-dimensional shapes whose clusters a person sees at once and k-means mostly does not."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Labelled = tuple[NDArray[np.float64], NDArray[np.int64]]


def moons(n: int, seed: int) -> Labelled:
    from sklearn.datasets import make_moons

    x, y = make_moons(n, noise=0.05, random_state=seed)
    return x, y


def circles(n: int, seed: int) -> Labelled:
    from sklearn.datasets import make_circles

    x, y = make_circles(n, noise=0.05, factor=0.5, random_state=seed)
    return x, y


def rings(n: int, seed: int) -> Labelled:
    """Three nested rings of radius 1, 2, 3 with equally many points each."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    angle = rng.uniform(0, 2 * np.pi, n)
    x = (y + 1)[:, None] * np.c_[np.cos(angle), np.sin(angle)]
    return _shuffled(x + rng.normal(scale=0.1, size=(n, 2)), y, rng)


def spirals(n: int, seed: int) -> Labelled:
    """Two interleaved arms of one turn that do not touch."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    angle = 2 * np.pi * np.sqrt(rng.uniform(size=n))
    radius = (2 * angle + np.pi) * np.where(y == 0, 1.0, -1.0)
    x = radius[:, None] * np.c_[np.cos(angle), np.sin(angle)]
    return _shuffled(x + rng.normal(scale=0.5, size=(n, 2)), y, rng)


def anisotropic(n: int, seed: int) -> Labelled:
    """Three long, slanted blobs."""
    from sklearn.datasets import make_blobs

    x, y = make_blobs(n, centers=[[-6, -5], [0, 5], [6, -4]], cluster_std=1.0, random_state=seed)
    return x @ np.array([[0.6, -0.6], [-0.4, 0.8]]), y


def varied(n: int, seed: int) -> Labelled:
    """Three blobs with standard deviations 1, 2 and 0.5."""
    from sklearn.datasets import make_blobs

    x, y = make_blobs(n, centers=[[-9, 0], [1, 9], [4, -4]], cluster_std=[1.0, 2.0, 0.5], random_state=seed)
    return x, y


SHAPES: dict[str, Callable[[int, int], Labelled]] = {
    shape.__name__: shape for shape in (moons, circles, rings, spirals, anisotropic, varied)
}
N_CLASSES = {"moons": 2, "circles": 2, "rings": 3, "spirals": 2, "anisotropic": 3, "varied": 3}


def _shuffled(x: NDArray[np.float64], y: NDArray[np.int64], rng: np.random.Generator) -> Labelled:
    order = rng.permutation(len(x))
    return x[order], y[order]
