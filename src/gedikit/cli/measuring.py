"""What can be measured of a model: against labels, as a density, as features, as a generator, on other data."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from gedikit.data import sources
from gedikit.data.official import data_root
from gedikit.errors import UsageError
from gedikit.evaluation import (
    FID_NETWORK,
    MADE_IMAGES,
    Inception,
    Metric,
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
from gedikit.report.measured import density_metrics, label_metrics
from gedikit.runs import Run, is_planned
from gedikit.training.callbacks import Callback, FitView, Metrics
from gedikit.views.image_views import scaled

_PAPER_BATCH = 100
_BLOCK = 1000


def headline_metrics(fitted: FittedModel, dataset: sources.Dataset) -> list[Metric]:
    """Agreement with labels where there are any, and the density where one was learned."""
    metrics = []
    if dataset.y is not None:
        clusters = fitted.labels(dataset.x)
        metrics += label_metrics(fitted, dataset.y, clusters, dataset.split)
        if metrics and dataset.name in sources.BUILTIN and fitted.plan.config.data.image_shape:
            by = fitted.assignment.description
            metrics.append(batch_mean_nmi(dataset.y, clusters, _PAPER_BATCH, dataset.split, seed=0, labels_by=by))
    return [*metrics, *density_metrics(fitted, dataset.x, dataset.split, dataset.encoding)]


def probe_metrics(fitted: FittedModel, train: sources.Dataset, test: sources.Dataset, seed: int) -> list[Metric]:
    """How much of the labels a linear layer or the neighbours find in the features."""
    if train.y is None or test.y is None:
        raise UsageError("probes are trained and tested on labels, and this data has none")
    known = [~pd.isna(d.y) for d in (train, test)]
    features = [
        torch.from_numpy(fitted.features(d.x[rows])).to(fitted.device)
        for d, rows in zip((train, test), known, strict=True)
    ]
    codes, _ = pd.factorize(np.concatenate([train.y[known[0]], test.y[known[1]]]), sort=True)
    labels = torch.from_numpy(codes.astype(np.int64)).to(fitted.device).split([len(f) for f in features])
    return both_probes(
        features[0], labels[0], features[1], labels[1], trained_on=train.split, split=test.split, seed=seed
    )


def fid_metrics(
    fitted: FittedModel, train: sources.Dataset, n: int, steps: int, seed: int, images: NDArray[Any] | None = None
) -> list[Metric]:
    """Fréchet distance between n generated images and the training images."""
    if train.image_shape is None:
        raise UsageError("FID compares images, and this data has none")
    if not fitted.models_density:
        raise UsageError(f"{fitted.method!r} learns no density to generate images by")
    extractor = Inception(data_root() / FID_NETWORK, fitted.device)
    reference = image_statistics(
        _pictures(train.x, train.image_shape),
        extractor,
        images=f"{train.name}, {train.split}",
        cache=data_root() / "statistics",
    )
    if images is None:
        images, _ = fitted.sample(n, steps=steps, start="noise", seed=seed)
    made = _pictures(as_pixels(images), train.image_shape)
    sampler = fitted.plan.config.sampler
    begin = "an exact sampler" if sampler is None else sampler.start_in_words
    by = f"{steps} Langevin steps from {begin}, seed {seed}"
    return [fid_metric(made, reference, extractor, samples_by=by)]


def outlier_metrics(
    fitted: FittedModel, inside: sources.Dataset, outside: Mapping[str, NDArray[Any]]
) -> list[Metric]:
    """How well each score tells the data from other data, given by name."""
    if not fitted.models_density:
        raise UsageError(f"{fitted.method!r} learns no density to tell outliers by")
    scores = ood_scores(fitted.evaluate_with_gradients(inside.x), fitted.quantiles)
    metrics = []
    for name, rows in outside.items():
        others = ood_scores(fitted.evaluate_with_gradients(rows), fitted.quantiles)
        for score, values in scores.items():
            made = ood_metrics(values, others[score], score=score, inside_name=inside.name, outside_name=name)
            metrics += [Metric(f"{f.name} ({name}, {score})", f.value, f.protocol) for f in made]
    return metrics


def outside_rows(name: str, inside: sources.Dataset, seed: int) -> NDArray[Any]:
    """Images that are none of `inside`: made ones, a built-in set, or those of a file or folder."""
    shape = inside.image_shape
    if shape is None:
        raise UsageError("outliers are told from images, and this data has none")
    if name in MADE_IMAGES:
        made = MADE_IMAGES[name](_pictures(inside.x, shape), seed)
        return made.reshape(len(made), -1)
    if name not in sources.BUILTIN and not Path(name).exists():
        raise UsageError(f"--ood takes {', '.join(MADE_IMAGES)}, built-in images, a file or a folder, not {name!r}")
    other = sources.load(name, split="test", image_size=shape[0], image_channels=shape[2])
    if other.image_shape != shape:
        size = "no images" if other.image_shape is None else f"images of {_size(other.image_shape)}"
        raise UsageError(f"{name} has {size}; to be told from {inside.name} they must be {_size(shape)}")
    return other.x


def _size(shape: tuple[int, int, int]) -> str:
    return f"{shape[0]} × {shape[1]} pixels in {'grey' if shape[2] == 1 else 'colour'}"


def _pictures(x: NDArray[Any], shape: tuple[int, int, int]) -> NDArray[Any]:
    return x.reshape(-1, *shape)


class TestSetEvaluation(Callback):
    """Every so often evaluates the averaged network on labelled images."""

    def __init__(self, run: Run, test: sources.Dataset, every: int, log_every: int, tell: Callable[[str], None]):
        self.run, self.test, self.every, self.log_every, self.tell = run, test, every, log_every, tell
        self.next = every

    def on_start(self, fit: FitView) -> None:  # noqa: ARG002
        before = self.run.evaluations()
        last = int(before[-1]["iteration"]) if before else 0
        self.next = (last // self.every + 1) * self.every

    def on_metrics(self, fit: FitView, metrics: Metrics) -> None:  # noqa: ARG002
        if fit.iteration < self.next or not is_planned(fit, self.log_every):
            return
        self.next = (fit.iteration // self.every + 1) * self.every
        by = "argmax of the averaged network's posterior"
        made = clustering_metrics(np.asarray(self.test.y), self._clusters(fit), self.test.split, labels_by=by)
        values = {metric.name: round(metric.value, 4) for metric in made}
        self.run.append(self.run.evaluations_path, json.dumps({"iteration": fit.iteration, **values}))
        told = "  ".join(f"{name.upper()} {value:.3f}" for name, value in values.items())
        self.tell(f"iteration {fit.iteration}: {told} ({self.test.split})")

    def _clusters(self, fit: FitView) -> NDArray[np.int64]:
        device = fit.state.weights.device
        found = []
        with torch.no_grad():
            for start in range(0, len(self.test.x), _BLOCK):
                raw = torch.from_numpy(np.ascontiguousarray(self.test.x[start : start + _BLOCK]))
                found.append(fit.state.average.logits(scaled(raw.to(device))).argmax(-1).cpu())
        return torch.cat(found).numpy()
