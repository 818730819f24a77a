"""How much of the labels is in frozen features: a linear classifier and the nearest neighbours."""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from gedikit.errors import DataError, UsageError
from gedikit.evaluation.metric import Metric

_SIMILARITIES_AT_ONCE = 2**25  # 128 MiB of cosines in a block


def linear_probe(
    train_features: Float[Tensor, "n h"],
    train_labels: Int[Tensor, " n"],
    test_features: Float[Tensor, "m h"],
    test_labels: Int[Tensor, " m"],
    *,
    seed: int,
    epochs: int = 100,
    learning_rate: float = 1e-3,
    batch_size: int = 100,
    momentum: float = 0.9,
) -> list[Metric]:
    """Test accuracy of a linear classifier on frozen features: as they are, and standardised.

    The protocol of Sansone & Manhaeve, *Unifying Self-Supervised Clustering and Energy-Based Models*: SGD with
    momentum on the cross-entropy. How far that gets in a fixed number of steps depends on the scale of the
    features; the second classifier takes the scale away, standardising with training statistics. Both are trained
    side by side, from the same initial weights on the same batches, and do not touch each other.
    """
    _check(train_features, train_labels, test_features, test_labels)
    if epochs < 1 or batch_size < 1:
        raise UsageError(f"a probe needs at least one epoch and one row a batch, not {epochs} and {batch_size}")
    classes, targets = train_labels.unique(return_inverse=True)
    scaling = _training_scale(train_features)
    weights = fit_linear(
        _both_scalings(train_features, scaling),
        targets,
        len(classes),
        torch.Generator().manual_seed(seed),
        epochs=epochs,
        learning_rate=learning_rate,
        batch_size=batch_size,
        momentum=momentum,
    )
    predictions = classes[(_both_scalings(test_features, scaling) @ weights.mT).argmax(-1)]
    accuracies = (predictions == test_labels).double().mean(-1).tolist()
    shared = {
        "definition": "test accuracy of a linear classifier trained on frozen features",
        "loss": "cross-entropy, no weight decay",
        "optimiser": "SGD with momentum, constant learning rate",
        "learning_rate": learning_rate,
        "momentum": momentum,
        "batch_size": batch_size,
        "epochs": epochs,
        "initial_weights": "uniform within 1/√h, bias too",
        "seed": seed,
        **_sizes(train_features, test_features, len(classes)),
    }
    return [
        Metric(name, accuracy, {**shared, "features": text})
        for (name, text), accuracy in zip(
            (
                ("linear_probe", "as they are"),
                ("linear_probe_standardised", "standardised by training mean and deviation"),
            ),
            accuracies,
            strict=True,
        )
    ]


@torch.no_grad()
def fit_linear(
    inputs: Float[Tensor, "s n h"],
    targets: Int[Tensor, " n"],
    n_classes: int,
    generator: torch.Generator,
    *,
    epochs: int,
    learning_rate: float,
    batch_size: int,
    momentum: float,
) -> Float[Tensor, "s c h"]:
    """Weights of one linear softmax classifier for each of the s versions of the same rows.

    The last column of `inputs` is the constant 1. The gradient is written out, (p − y)X/n, so that a step is a few
    small operations; classes come before rows because softmax is several times faster along columns on a CPU.
    `generator` draws on the CPU: batches are the same on every device.
    """
    n_versions, n, h = inputs.shape
    bound = 1 / math.sqrt(max(h - 1, 1))
    start = (torch.rand(n_classes, h, generator=generator) * 2 - 1) * bound
    weights = start.to(inputs.device).repeat(n_versions, 1, 1)
    velocity = torch.zeros_like(weights)
    one_hot = functional.one_hot(targets, n_classes).T.to(inputs.dtype, memory_format=torch.contiguous_format)
    for _ in range(epochs):
        for rows in torch.randperm(n, generator=generator).to(inputs.device).split(batch_size):
            x = inputs.index_select(1, rows)
            residual = torch.softmax(weights @ x.mT, 1).sub_(one_hot.index_select(1, rows))
            velocity.baddbmm_(residual, x, beta=momentum, alpha=1 / len(rows))
            weights.sub_(velocity, alpha=learning_rate)
    return weights


@torch.no_grad()
def knn_probe(
    train_features: Float[Tensor, "n h"],
    train_labels: Int[Tensor, " n"],
    test_features: Float[Tensor, "m h"],
    test_labels: Int[Tensor, " m"],
    *,
    k: int = 20,
) -> list[Metric]:
    """Test accuracy of the majority among the k training rows of largest cosine."""
    _check(train_features, train_labels, test_features, test_labels)
    if not 1 <= k <= len(train_features):
        raise UsageError(f"k must be between 1 and the {len(train_features)} training rows, not {k}")
    classes, targets = train_labels.unique(return_inverse=True)
    directions = functional.normalize(train_features.float())
    rows_at_once = max(1, _SIMILARITIES_AT_ONCE // len(train_features))
    predictions = []
    for block in functional.normalize(test_features.float()).split(rows_at_once):
        nearest = (block @ directions.T).topk(k).indices
        predictions.append(classes[_majority(targets[nearest], len(classes))])
    accuracy = (torch.cat(predictions) == test_labels).double().mean().item()
    protocol = {
        "definition": "test accuracy of the majority label among the nearest training rows",
        "k": k,
        "similarity": "cosine",
        "votes": "unweighted; a tie goes to the class of the nearest row among those tied",
        **_sizes(train_features, test_features, len(classes)),
    }
    return [Metric("knn_probe", accuracy, protocol)]


def both_probes(
    train_features: Float[Tensor, "n h"],
    train_labels: Int[Tensor, " n"],
    test_features: Float[Tensor, "m h"],
    test_labels: Int[Tensor, " m"],
    *,
    trained_on: str,
    split: str,
    seed: int,
    epochs: int = 100,
) -> list[Metric]:
    """A linear classifier and the neighbours, with the names of the splits in their protocols."""
    given = (train_features, train_labels, test_features, test_labels)
    made = [*linear_probe(*given, seed=seed, epochs=epochs), *knn_probe(*given)]
    return [Metric(m.name, m.value, {**m.protocol, "split": split, "trained_on": trained_on}) for m in made]


def _majority(votes: Int[Tensor, "m k"], n_classes: int) -> Int[Tensor, " m"]:
    """The most frequent class of each row; `votes` come nearest first, and the earliest vote decides ties."""
    k = votes.shape[1]
    counts = torch.zeros(len(votes), n_classes, device=votes.device)
    counts.scatter_add_(1, votes, torch.ones_like(votes, dtype=counts.dtype))
    closeness = torch.arange(k, 0, -1, device=votes.device) / (k + 1)
    earliest = torch.zeros_like(counts).scatter_reduce_(1, votes, closeness.expand(len(votes), k), "amax")
    return (counts + earliest).argmax(1)


def _training_scale(features: Float[Tensor, "n h"]) -> tuple[Float[Tensor, " h"], Float[Tensor, " h"]]:
    """Mean and deviation; a feature that does not vary gets the deviation 1, so that it becomes 0."""
    exact = features.double()
    mean, deviation = exact.mean(0), exact.std(0, correction=0)
    constant = deviation <= 1e-7 * exact.abs().amax(0)
    return mean.float(), torch.where(constant, 1.0, deviation).float()


@torch.no_grad()
def _both_scalings(
    features: Float[Tensor, "n h"], scaling: tuple[Float[Tensor, " h"], Float[Tensor, " h"]]
) -> Float[Tensor, "2 n h1"]:
    mean, deviation = scaling
    raw = features.float()
    return functional.pad(torch.stack([raw, (raw - mean) / deviation]), (0, 1), value=1.0)


def _check(train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor) -> None:
    for role, features, labels in (("training", train, train_labels), ("test", test, test_labels)):
        if features.ndim != 2 or len(features) == 0:
            raise DataError(f"{role} features must be rows of numbers, not of shape {tuple(features.shape)}")
        if labels.shape != features.shape[:1]:
            raise DataError(f"{tuple(labels.shape)} {role} labels do not fit {len(features)} rows of features")
        if not features.isfinite().all():
            raise DataError(f"{role} features hold values that are not finite")
    if train.shape[1] != test.shape[1]:
        raise DataError(f"training rows have {train.shape[1]} features, test rows {test.shape[1]}")


def _sizes(train: Tensor, test: Tensor, n_classes: int) -> dict[str, Any]:
    return {
        "split": "test",
        "n_train": len(train),
        "n_test": len(test),
        "n_features": train.shape[1],
        "n_classes": n_classes,
    }
