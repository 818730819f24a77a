"""What takes no training, for beside every table of images: principal components of pixels, and a Gaussian."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from sklearn.cluster import KMeans

from gedikit.data import sources
from gedikit.paper.reproduce.image_measures import Extent, auroc, clusters_against, other_images, probed
from gedikit.paper.reproduce.image_runs import Place, head_commit, images, read_json
from gedikit.storage import write_text
from gedikit.training.devices import resolve_device

COMPONENTS = 128  # as many as the network has features
_STARTS = 3
_FLOOR = 1e-3  # variance of a scaled pixel below which it is noise


@dataclass(frozen=True)
class Pixels:
    """Images in [−1, 1] with the principal axes of the training images."""

    train: sources.Dataset
    test: sources.Dataset

    @cached_property
    def moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Mean, variances along the principal axes from the largest on, and the axes in columns."""
        d = self.train.x.shape[1]
        total, products = np.zeros(d), np.zeros((d, d))
        for block in np.array_split(self.train.x, max(1, len(self.train.x) // 5000)):
            z = _scaled(block)
            total, products = total + z.sum(0), products + z.T @ z
        mean = total / len(self.train.x)
        variances, axes = np.linalg.eigh(products / len(self.train.x) - np.outer(mean, mean))
        return mean, np.maximum(variances[::-1], 0.0), axes[:, ::-1]

    def components(self, x: NDArray[np.uint8]) -> NDArray[np.float32]:
        mean, _, axes = self.moments
        return _in_blocks(x, lambda z: ((z - mean) @ axes[:, :COMPONENTS]).astype(np.float32))

    def log_density(self, x: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Of the Gaussian with these moments, up to a constant."""
        mean, variances, axes = self.moments
        scale = np.sqrt(variances + _FLOOR)
        return _in_blocks(x, lambda z: -0.5 * np.square(((z - mean) @ axes) / scale).sum(1))


def compute_baselines(data: str, page: str, place: Place, console: Console) -> None:
    """Those of a page, kept beside the runs unless they are there."""
    path = baseline_path(place, data, page)
    if path.exists():
        return
    pixels = _pixels(data)
    made = {"commit": place.commit or head_commit(), **_BASELINES[page](pixels, place)}
    write_text(path, json.dumps(made, indent=1) + "\n")
    console.print(f"{data}: baselines without training")


@lru_cache(maxsize=1)
def _pixels(data: str) -> Pixels:
    return Pixels(images(data, "train"), images(data, "test"))


def baseline_path(place: Place, data: str, page: str) -> Path:
    return place.runs.parent / "baselines" / f"{data}-{page}.json"


def stored_baselines(place: Place, data: str, page: str) -> dict[str, Any] | None:
    path = baseline_path(place, data, page)
    return read_json(path) if path.exists() else None


def _of_clusters(pixels: Pixels, place: Place) -> dict[str, Any]:  # noqa: ARG001
    n_clusters = len(np.unique(np.asarray(pixels.train.y)))
    found = KMeans(n_clusters, n_init=_STARTS, random_state=0).fit(pixels.components(pixels.train.x))
    by = f"k-means on {COMPONENTS} principal components of the training pixels, best of {_STARTS}"
    return clusters_against(pixels.test, found.predict(pixels.components(pixels.test.x)).astype(np.int64), by)


def _of_probe(pixels: Pixels, place: Place) -> dict[str, Any]:
    device = resolve_device(place.device)
    train, test = (torch.from_numpy(pixels.components(d.x)).to(device) for d in (pixels.train, pixels.test))
    return probed(train, test, pixels.train, pixels.test, Extent())


def _of_other_images(pixels: Pixels, place: Place) -> dict[str, Any]:  # noqa: ARG001
    inside = pixels.log_density(pixels.test.x)
    found = {
        f"{name}, log_density": round(auroc(inside, pixels.log_density(rows), "log_density", name), 5)
        for name, rows in other_images(pixels.test).items()
    }
    return {
        "figures": found,
        "protocol": {"score": "log-density of a Gaussian with the moments of training pixels"},
    }


_BASELINES: Mapping[str, Callable[[Pixels, Place], dict[str, Any]]] = {
    "images": _of_clusters,
    "probe": _of_probe,
    "ood": _of_other_images,
}


def _scaled(x: NDArray[np.uint8]) -> NDArray[np.float64]:
    return x / 127.5 - 1.0


def _in_blocks(x: NDArray[np.uint8], of: Callable[[NDArray[np.float64]], NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate([of(_scaled(block)) for block in np.array_split(x, max(1, len(x) // 5000))])
