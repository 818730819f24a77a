"""What is measured of a stored run from its weights: clusters, samples, probes, and other images told apart.

Each measurement is one small file beside the run, written when it is done.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from gedikit.building import precision
from gedikit.data import sources
from gedikit.data.official import OFFICIAL, data_root, is_there
from gedikit.evaluation import (
    FID_NETWORK,
    MADE_IMAGES,
    Inception,
    Statistics,
    as_pixels,
    batch_mean_nmi,
    both_probes,
    clustering_metrics,
    fid_metric,
    image_statistics,
    ood_metrics,
    ood_scores,
)
from gedikit.fitted import FittedModel
from gedikit.model import frozen
from gedikit.paper.reproduce.image_runs import ImageFit, Place, head_commit, images, where
from gedikit.samplers import Sampler
from gedikit.storage import write_bytes, write_text
from gedikit.training.devices import resolve_device

BATCHES = (100, 64)  # over which the paper's NMI may be a mean; 64 is its batch size
SCORES = ("log_density", "gradient_norm", "typicality", "confidence")
_AT_ONCE = 512
_SHOWN, _A_LINE = 100, 10
_LOOKED_AT = 10_000  # training images for the median of their log-density, and made ones to tell apart
Figures = dict[str, Any]


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    samples: int = 10_000
    steps: int = 500
    probe_epochs: int = 100

    @classmethod
    def of(cls, asked: ImageFit) -> "Extent":
        return cls(100, 3, 2) if asked.small else cls()


@dataclass(frozen=True)
class Opened:
    """A stored run with its model and its images."""

    asked: ImageFit
    fitted: FittedModel
    train: sources.Dataset
    test: sources.Dataset

    @property
    def shape(self) -> tuple[int, int, int]:
        assert self.train.image_shape is not None
        return self.train.image_shape

    @property
    def sampler(self) -> Sampler:
        """The method's own chains; a method without a density is given those of GEDI."""
        own = self.fitted.plan.config.sampler
        found = own or replace(self.asked, method="gedi").plan().config.sampler
        assert found is not None
        return found


def open_run(asked: ImageFit, place: Place) -> Opened:
    train, test = images(asked.data, "train"), images(asked.data, "test")
    fitted = place.stored(asked).open(resolve_device(place.device), train.x)
    return Opened(asked, fitted, train, test)


def measure(run: Opened, what: str, place: Place) -> Figures:
    """One measurement, kept beside the run."""
    made = MEASUREMENTS[what](run, Extent.of(run.asked), place)
    commit = place.commit or head_commit()
    content = {"commit": commit, **where(place.device), **made}
    write_text(place.stored(run.asked).path / f"{what}.json", json.dumps(content, indent=1) + "\n")
    return content


def of_clusters(run: Opened, extent: Extent, place: Place) -> Figures:  # noqa: ARG001
    """Agreement with the labels of the test set, whole and as means over batches, with what chance would get."""
    return clusters_against(run.test, run.fitted.labels(run.test.x), run.fitted.assignment.description)


def clusters_against(test: sources.Dataset, clusters: NDArray[np.int64], by: str) -> Figures:
    truth = np.asarray(test.y)
    found = {m.name: m.value for m in clustering_metrics(truth, clusters, test.split, labels_by=by)}
    dealt_out = np.random.default_rng(0).permutation(clusters)
    for size in BATCHES:
        if size <= len(truth):
            for name, labels in ((f"nmi_batches_of_{size}", clusters), (f"chance_batches_of_{size}", dealt_out)):
                found[name] = batch_mean_nmi(truth, labels, size, test.split, seed=0, labels_by=by).value
    return {
        "figures": _rounded(found),
        "protocol": {
            "split": test.split,
            "clusters_by": by,
            "n_clusters_used": len(np.unique(clusters)),
            "chance": "the same clusters dealt out to the images at random",
        },
    }


def of_samples(run: Opened, extent: Extent, place: Place) -> Figures:
    """FID of chains from noise and of where they began, and clusters of the samples beside those of the data."""
    n, steps, sampler = extent.samples, extent.steps, run.sampler
    began, ended = (as_pixels(chains(run.fitted, sampler, n, many, seed=0)) for many in (0, steps))
    labels, of_data = run.fitted.labels(ended), run.fitted.labels(run.test.x)
    shares, in_data = (np.bincount(part, minlength=run.fitted.n_clusters) / len(part) for part in (labels, of_data))
    found = {"shares_apart": float(np.abs(shares - in_data).sum() / 2)}
    network, reference = _inception(place.device), _reference(run.asked.data, place.device)
    for name, rows in (("fid", ended), ("fid_of_starts", began)):
        metric = fid_metric(rows.reshape(-1, *run.shape), reference, network, samples_by=name)
        found[name] = metric.value
    grid = sample_grid(ended[:_SHOWN], labels[:_SHOWN], run.shape)
    write_bytes(place.stored(run.asked).path / "samples.jpg", grid)
    return {
        "figures": _rounded(found),
        "protocol": {
            "samples": f"{n} chains of {steps} steps from {sampler.start_in_words}, seed 0",
            "energy": "its own"
            if run.fitted.models_density
            else "log Σ exp of logits that no density was trained by",
            "reference": f"{run.train.split}",
            "extractor_sha256": network.sha256,
            "shares_apart": "half the sum of the differences of cluster shares of samples and of test images",
        },
        "shares_of_samples": [round(float(v), 4) for v in shares],
        "shares_of_data": [round(float(v), 4) for v in in_data],
    }


def chains(fitted: FittedModel, sampler: Sampler, n: int, steps: int, seed: int) -> NDArray[np.float64]:
    """Rows after so many Langevin steps from noise, in the units of the data; also of a classifier's energy."""
    generator = torch.Generator(fitted.device).manual_seed(seed)
    begin = sampler.initialisation(fitted.reference, fitted.box)
    network, made = fitted.network, []
    network.compute_in(precision(fitted.execution, fitted.device))
    try:
        with frozen(network):
            for start in range(0, n, _AT_ONCE):
                z = begin(min(_AT_ONCE, n - start), generator)
                if steps:
                    z, _ = sampler.sample(
                        network.log_density,
                        z,
                        steps=steps,
                        step_size=fitted.step_size,
                        box=fitted.box,
                        generator=generator,
                    )
                made.append(fitted.scaler.inverse(z.cpu().numpy()))
    finally:
        network.compute_in(torch.float32)
    return np.concatenate(made)


def sample_grid(rows: NDArray[np.uint8], labels: NDArray[np.int64], shape: tuple[int, int, int]) -> bytes:
    """Images ordered by cluster, ten a line, as a small JPEG file."""
    tiles = rows[np.argsort(labels, kind="stable")].reshape(-1, *shape)
    tiles = np.pad(tiles, ((0, -len(tiles) % _A_LINE), (0, 1), (0, 1), (0, 0)), constant_values=255)
    lines = tiles.reshape(-1, _A_LINE, *tiles.shape[1:]).swapaxes(1, 2)
    canvas = lines.reshape(lines.shape[0] * lines.shape[1], -1, shape[2])
    file = BytesIO()
    Image.fromarray(canvas.squeeze(-1) if shape[2] == 1 else canvas).save(file, "jpeg", quality=88)
    return file.getvalue()


def of_probe(run: Opened, extent: Extent, place: Place) -> Figures:  # noqa: ARG001
    """A linear classifier and the nearest neighbours on frozen features."""
    train, test = (torch.from_numpy(run.fitted.features(d.x)).to(run.fitted.device) for d in (run.train, run.test))
    return probed(train, test, run.train, run.test, extent)


def probed(
    features: Tensor, test_features: Tensor, train: sources.Dataset, test: sources.Dataset, extent: Extent
) -> Figures:
    labels, test_labels = (torch.from_numpy(np.asarray(d.y, np.int64)).to(features.device) for d in (train, test))
    splits = {"trained_on": train.split, "split": test.split}
    made = both_probes(features, labels, test_features, test_labels, **splits, seed=0, epochs=extent.probe_epochs)
    return {
        "figures": _rounded({metric.name: metric.value for metric in made}),
        "protocol": {**splits, "epochs": extent.probe_epochs},
    }


def of_other_images(run: Opened, extent: Extent, place: Place) -> Figures:  # noqa: ARG001
    """How well each score tells test images from other data sets' and from made ones."""
    some = np.random.default_rng(0).permutation(len(run.train.x))[:_LOOKED_AT]
    log_densities = run.fitted.log_density(run.train.x[np.sort(some)])

    def scores(rows: NDArray[np.uint8]) -> dict[str, NDArray[np.float64]]:
        return ood_scores(run.fitted.evaluate_with_gradients(rows), log_densities)

    inside = scores(run.test.x)
    found: dict[str, float] = {}
    counts: dict[str, int] = {}
    for name, rows in other_images(run.test).items():
        outside = scores(rows)
        counts[name] = len(rows)
        found |= {f"{name}, {score}": auroc(inside[score], outside[score], score, name) for score in SCORES}
    return {
        "figures": _rounded(found),
        "protocol": {
            "inside": f"{run.asked.data}, {run.test.split}",
            "outside": {name: f"{n} images" for name, n in counts.items()},
            "orientation": "AUROC; larger scores are more in-distribution",
        },
    }


def auroc(inside: NDArray[np.float64], outside: NDArray[np.float64], score: str, name: str) -> float:
    made = ood_metrics(inside, outside, score=score, inside_name="test", outside_name=name)
    return next(metric.value for metric in made if metric.name == "ood_auroc")


def other_images(test: sources.Dataset) -> dict[str, NDArray[np.uint8]]:
    """Test images of the other sets of this size that are there, and made ones."""
    assert test.image_shape is not None
    shape, n = test.image_shape, min(len(test.x), _LOOKED_AT)
    found = {}
    for name in OFFICIAL:
        if name != test.name and is_there(name, data_root()):
            other = images(name, "test")
            if other.image_shape == shape:
                found[name] = other.x
    some = test.x[:n].reshape(-1, *shape)
    return found | {name: make(some, 0).reshape(n, -1) for name, make in MADE_IMAGES.items()}


MEASUREMENTS: Mapping[str, Callable[[Opened, Extent, Place], Figures]] = {
    "clusters": of_clusters,
    "samples": of_samples,
    "probe": of_probe,
    "ood": of_other_images,
}


@lru_cache(maxsize=1)
def _inception(device: str) -> Inception:
    return Inception(data_root() / FID_NETWORK, resolve_device(device))


@lru_cache(maxsize=2)
def _reference(data: str, device: str) -> Statistics:
    train = images(data, "train")
    assert train.image_shape is not None
    return image_statistics(
        train.x.reshape(-1, *train.image_shape),
        _inception(device),
        images=f"{data}, {train.split}",
        cache=data_root() / "statistics",
    )


def _rounded(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 5) for name, value in figures.items()}
