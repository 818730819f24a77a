from functools import partial

import numpy as np
import pytest
import torch

from gedikit.data import sources
from gedikit.data.addition import addition_examples
from gedikit.data.neighbours import nearest_in_space, neighbour_graph
from gedikit.data.toy import moons
from gedikit.errors import UsageError
from gedikit.methods import get_method
from gedikit.symbolic import Constraint
from gedikit.training import fit, inputs
from gedikit.training.fit import prepare
from gedikit.training.many import Task, fit_many
from gedikit.training.reading import reading_of_clusters, reading_of_rules
from gedikit.training.rules import Rules

CPU = torch.device("cpu")


def addition() -> Constraint:
    return Constraint(lambda a, b, c: a + b == c, domains=(10, 10, 10))


@pytest.fixture(scope="module")
def digits():
    data = sources.load("digits")
    return np.asarray(data.x, dtype=np.float32), np.asarray(data.y)


def read(x, rules, starts=150):
    return reading_of_rules(lambda rows, k: nearest_in_space(x[rows], k), rules, len(x), 0, CPU, starts)


def test_sums_alone_tell_most_digits(digits):
    x, y = digits
    examples = addition_examples(y, 60, 0)
    reading = read(x, Rules(addition(), examples))
    rows = np.unique(examples)
    assert (reading[rows].argmax(-1).numpy() == y[rows]).mean() > 0.85
    torch.testing.assert_close(reading[rows].sum(-1), torch.ones(len(rows)))
    others = np.setdiff1d(np.arange(len(x)), rows)
    assert not reading[others].any()


def test_training_begins_from_the_reading_and_goes_on_with_the_rule(digits):
    x, y = digits
    examples = addition_examples(y, 40, 0)
    method = get_method("gedi-symbols")
    settings = method.settings(iterations=20, log_every=1, batch_size=60, hidden=(16,), features=8, frequencies=8)
    _, history, _ = fit(x, method, settings, n_clusters=10, seed=0, device="cpu", rules=Rules(addition(), examples))
    assert all("reading" in row and "constraint" not in row for row in history.rows[:8])
    assert all("constraint" in row and "reading" not in row for row in history.rows[8:])


def test_the_prior_is_that_of_the_rule(digits):
    x, y = digits
    method = get_method("nesy")
    settings = method.settings(iterations=1, batch_size=60)
    fitted, _, _ = fit(
        x,
        method,
        settings,
        n_clusters=10,
        seed=0,
        device="cpu",
        rules=Rules(addition(), addition_examples(y, 40, 0)),
    )
    np.testing.assert_allclose(fitted.prior, (21 - np.arange(10)) / 165, rtol=1e-6)


SMALL = {"log_every": 1, "batch_size": 60, "hidden": (16,), "features": 8, "frequencies": 8, "bank": 500}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gedi", [True] * 4 + [False] * 16),
        ("gedi-no-gen", [True] * 4 + [False] * 16),
        ("gedi-two-stage", [False] * 10 + [True] * 2 + [False] * 8),
        ("gedi-no-prior", [False] * 20),  # an ablation is about the term that is left out
        ("jem", [False] * 20),
        ("swav", [False] * 20),
    ],
)
def test_methods_that_look_for_balanced_clusters_can_start_from_those_of_neighbours(name, expected):
    x, _ = moons(200, 0)
    method = get_method(name)
    settings = method.settings(iterations=20, spectral_start=0.2, **SMALL)
    _, history, _ = fit(x, method, settings, n_clusters=2, seed=0, device="cpu")
    assert ["reading" in row for row in history.rows] == expected


@pytest.mark.parametrize("augmentation", ["walk", "noise"])
def test_a_spectral_start_is_learned_at_once(augmentation):
    """By noise alone moons are two halves, or one: the start says what hangs together."""
    x, y = moons(600, 0)
    method = get_method("gedi-no-gen")
    settings = method.settings(
        iterations=300, spectral_start=1.0, augmentation=augmentation, **{**SMALL, "hidden": (64,)}
    )
    fitted, _, _ = fit(x, method, settings, n_clusters=2, seed=0, device="cpu")
    right = (fitted.training_labels == y).mean()
    assert max(right, 1 - right) > 0.97


def test_larger_clusters_get_labels_of_larger_prior(generator):
    x = torch.cat([torch.randn(90, 2, generator=generator), torch.randn(30, 2, generator=generator) + 50])
    graph = neighbour_graph(x.numpy(), generator)
    for prior in ([0.75, 0.25], [0.25, 0.75]):
        reading = reading_of_clusters(graph, np.array(prior), 0, CPU)
        assert reading.mean(0).tolist() == prior


def test_rows_in_no_cluster_have_no_target(generator):
    x = torch.randn(200, 2, generator=generator)
    x[:12] = x[0] + 1e-5 * torch.randn(12, 2, generator=generator)
    reading = reading_of_clusters(neighbour_graph(x.numpy(), generator), np.array([0.5, 0.5]), 0, CPU)
    assert not reading[:12].any()
    assert reading.sum() > 150


@pytest.mark.parametrize("walks", ["on", "off"])
def test_pictures_start_from_the_clusters_of_their_anchors(walks, monkeypatch):
    """Of images that are too many for a graph, the others are where the nearest anchor is; walks are not needed."""
    monkeypatch.setattr(inputs, "neighbour_graph", partial(neighbour_graph, max_anchors=40))
    rng = np.random.default_rng(0)
    kind = np.arange(120) % 2
    x = np.zeros((120, 16, 16, 1), dtype=np.uint8)
    for image, k in zip(x, kind, strict=True):
        place = rng.integers(4, 12)
        image[(place, slice(None)) if k else (slice(None), place)] = rng.integers(150, 255)
    method = get_method("gedi-no-gen")
    shape = {"image_walks": walks, "iterations": 4, "width": 4, "spectral_start": 0.5, "augmentation": "digits"}
    settings = method.settings_for((16, 16, 1), "", on_gpu=False, **shape)
    ready = prepare(x.reshape(120, -1), method, settings, n_clusters=2, seed=0, device="cpu")
    assert ready.inputs.graph is not None and len(ready.inputs.graph.rows) == 40
    assert ready.step.reading is not None
    labels = ready.step.reading.argmax(1).numpy()
    assert max(np.mean(labels == kind), np.mean(labels != kind)) > 0.8
    assert ["reading" in ready.step.phase(i).terms for i in range(4)] == [True, True, False, False]


def test_stacked_models_have_no_spectral_start():
    x, _ = moons(100, 0)
    method = get_method("gedi")
    task = Task(x, method.settings(iterations=2, spectral_start=0.5), 0, 2)
    with pytest.raises(UsageError, match="spectral_start gives every model targets of its own"):
        fit_many([task, task], method, device="cpu")
