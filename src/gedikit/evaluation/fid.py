"""Fréchet Inception distance of images (Heusel et al., 2017), with the conditions it was measured under."""

import contextlib
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Float64, UInt8
from torch import Tensor

from gedikit.errors import DataError, StorageError, UsageError
from gedikit.evaluation.inception import RANGE, RESIZE, Inception, check_images
from gedikit.evaluation.metric import Metric
from gedikit.storage import read_tensors, write_tensors

_KIND = "statistics of image features"
_USUAL_N = 10_000
_HASHED_AT_ONCE = 4096


@dataclass(frozen=True)
class Statistics:
    """Mean and covariance (divided by n − 1) of image features, and where they come from."""

    mean: Float64[Tensor, " d"]
    covariance: Float64[Tensor, "d d"]
    n: int
    images: str = "not stated"
    extractor_sha256: str = "not stated"


class RunningMoments:
    """Mean and covariance of rows that come in blocks, in float64 (Chan, Golub & LeVeque, 1983)."""

    def __init__(self) -> None:
        self.n = 0
        self._mean = self._scatter = torch.zeros(())

    def add(self, rows: Float[Tensor, "n d"]) -> None:
        block = rows.double()
        mean = block.mean(0)
        centred = block - mean
        scatter = centred.T @ centred
        if self.n == 0:
            self.n, self._mean, self._scatter = len(block), mean, scatter
            return
        total = self.n + len(block)
        shift = mean - self._mean
        self._scatter = self._scatter + scatter + torch.outer(shift, shift) * (self.n * len(block) / total)
        self._mean = self._mean + shift * (len(block) / total)
        self.n = total

    def statistics(self, images: str = "not stated", extractor_sha256: str = "not stated") -> Statistics:
        if self.n < 2:
            raise DataError(f"a covariance needs at least two images, not {self.n}")
        return Statistics(self._mean, self._scatter / (self.n - 1), self.n, images, extractor_sha256)


def stream_statistics(
    blocks: Iterable[UInt8[np.ndarray, "n h w c"]], extractor: Inception, *, images: str
) -> Statistics:
    """Statistics of images that come in blocks, each of which passes the network at once."""
    moments = RunningMoments()
    for block in blocks:
        moments.add(extractor.features(block))
    return moments.statistics(images, extractor.sha256)


def image_statistics(
    pixels: UInt8[np.ndarray, "n h w c"],
    extractor: Inception,
    *,
    images: str,
    batch_size: int = 100,
    cache: Path | str | None = None,
) -> Statistics:
    """Statistics of an array of images; `images` says which they are, such as "cifar10 train".

    With a `cache` directory they are computed once for each content, network and resize; a damaged entry is
    replaced.
    """
    check_images(pixels)
    if batch_size < 1:
        raise UsageError(f"batch_size must be at least 1, not {batch_size}")
    blocks = (pixels[i : i + batch_size] for i in range(0, len(pixels), batch_size))
    if cache is None:
        return stream_statistics(blocks, extractor, images=images)
    path = Path(cache) / f"fid-{_cache_key(pixels, extractor)}.safetensors"
    with contextlib.suppress(StorageError):
        tensors, meta = read_tensors(path, _KIND)
        return Statistics(tensors["mean"], tensors["covariance"], meta["n"], images, extractor.sha256)
    found = stream_statistics(blocks, extractor, images=images)
    meta = {"n": found.n, "images": images, "extractor_sha256": extractor.sha256, "resize": RESIZE, "range": RANGE}
    write_tensors(path, {"mean": found.mean, "covariance": found.covariance}, meta, _KIND)
    return found


def frechet_distance(a: Statistics, b: Statistics) -> float:
    """‖μ₁ − μ₂‖² + tr Σ₁ + tr Σ₂ − 2 tr (Σ₁^½ Σ₂ Σ₁^½)^½, in float64 on the device of `a`.

    The last trace is the sum of the square roots of the eigenvalues of RᵀΣ₂R for any R with RRᵀ = Σ₁. That matrix
    is symmetric, so nothing becomes complex, and R keeps only directions that Σ₁ has: covariances of few images are
    singular, and the square root of a rounding error is not small.
    """
    if a.mean.shape != b.mean.shape:
        raise DataError(f"features of {len(a.mean)} and {len(b.mean)} dimensions have no distance")
    few, many = sorted((a, b), key=lambda statistics: statistics.n)
    device = a.mean.device
    few_covariance, many_covariance = few.covariance.to(device), many.covariance.to(device)
    root = _factor(few_covariance)
    inner = root.T @ many_covariance @ root
    cross = torch.linalg.eigvalsh((inner + inner.T) / 2).clamp(min=0).sqrt().sum()
    shift = (few.mean.to(device) - many.mean.to(device)).square().sum()
    distance = shift + few_covariance.trace() + many_covariance.trace() - 2 * cross
    return max(0.0, float(distance))


def fid_metric(
    samples: UInt8[np.ndarray, "n h w c"],
    reference: Statistics,
    extractor: Inception,
    *,
    samples_by: str,
    batch_size: int = 100,
) -> Metric:
    """FID of generated images; `samples_by` says how they were drawn, and stays with the figure."""
    return fid_of_statistics(
        image_statistics(samples, extractor, images=samples_by, batch_size=batch_size), reference
    )


def fid_between_splits(
    train: UInt8[np.ndarray, "n h w c"],
    test: UInt8[np.ndarray, "m h w c"],
    extractor: Inception,
    *,
    dataset: str,
    batch_size: int = 100,
    cache: Path | str | None = None,
) -> Metric:
    """FID of the test images against the training images: what a perfect generator would get, about.

    For all of CIFAR-10 the literature has about 3.15; another value means another network or another resize.
    """
    reference = image_statistics(train, extractor, images=f"{dataset} train", batch_size=batch_size, cache=cache)
    samples = image_statistics(test, extractor, images=f"{dataset} test", batch_size=batch_size, cache=cache)
    return fid_of_statistics(samples, reference)


def fid_of_statistics(samples: Statistics, reference: Statistics) -> Metric:
    """FID from the statistics of both sides, which must come from the same network."""
    if samples.extractor_sha256 != reference.extractor_sha256:
        raise UsageError(
            "samples and reference were measured with different networks: their distance means nothing"
        )
    protocol = {
        "definition": "Fréchet distance of Gaussians fitted to Inception features; lower is better",
        "extractor_sha256": reference.extractor_sha256,
        "n_features": len(reference.mean),
        "resize": RESIZE,
        "range": RANGE,
        "precision": "features float32, statistics and distance float64",
        "covariance": "divided by n − 1",
        "samples": samples.images,
        "n_samples": samples.n,
        "reference": reference.images,
        "n_reference": reference.n,
        "warnings": [
            warning
            for side, statistics in (("samples", samples), ("reference", reference))
            for warning in _caveats(side, statistics)
        ],
    }
    return Metric("fid", frechet_distance(samples, reference), protocol)


def _caveats(side: str, statistics: Statistics) -> list[str]:
    n, d = statistics.n, len(statistics.mean)
    caveats = []
    if n < _USUAL_N:
        caveats.append(f"{n} {side} are below {_USUAL_N}: biased upwards, compare only at the same number")
    if n <= d:
        caveats.append(f"{n} {side} do not exceed the {d} features: the covariance is singular, the bias is large")
    return caveats


def _factor(covariance: Float64[Tensor, "d d"]) -> Float64[Tensor, "d r"]:
    """R with RRᵀ = covariance and as many columns as it has rank."""
    values, vectors = torch.linalg.eigh(covariance)
    kept = values > values.amax() * len(values) * torch.finfo(values.dtype).eps
    root: Tensor = vectors[:, kept] * values[kept].sqrt()
    return root


def _cache_key(pixels: UInt8[np.ndarray, "n h w c"], extractor: Inception) -> str:
    digest = hashlib.sha256("\n".join((str(pixels.shape), extractor.sha256, RESIZE, RANGE)).encode())
    for i in range(0, len(pixels), _HASHED_AT_ONCE):
        digest.update(pixels[i : i + _HASHED_AT_ONCE].tobytes())
    return digest.hexdigest()
