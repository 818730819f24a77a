"""Pseudo-labels: clusters of neighbours as first targets, named by a constraint where there is one."""

from functools import partial

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from gedikit.config import Execution
from gedikit.data import sources
from gedikit.data.addition import addition_examples, given_sums
from gedikit.data.toy import moons
from gedikit.errors import UsageError
from gedikit.methods import methods
from gedikit.objectives import pseudo_labels
from gedikit.objectives.pseudo_labels import labels_by_clusters, labels_by_constraint, labels_by_partition
from gedikit.paper.reproduce.given_sums import sum_examples
from gedikit.planning import Asked, plan
from gedikit.profile import DataProfile
from gedikit.starts import Starts
from gedikit.symbolic import Constraint, Symbols
from gedikit.symbolic.examples import parted
from gedikit.training import fit
from gedikit.training.fit import prepare
from gedikit.training.many import Task, fit_many
from gedikit.training.rules import Rules
from gedikit.views import similarity
from gedikit.views.neighbours import Likeness, nearest_in_space, neighbour_graph

CPU = torch.device("cpu")
EVERY = Execution(device="cpu", log_every=1)
SMALL = {
    "optimiser.batch_size": 60,
    "encoder.hidden": (16,),
    "encoder.features": 8,
    "encoder.frequencies": 8,
}


def planned(x, method="gedi", n_clusters=2, rules=None, shape=(), views="auto", **config):
    examples = None if rules is None else rules.profile()
    return plan(DataProfile.of(x, shape), Asked(n_clusters, method, views=views, config=config, examples=examples))


def addition() -> Constraint:
    return Constraint(lambda a, b, c: a + b == c, domains=(10, 10, 10))


@pytest.fixture(scope="module")
def digits():
    data = sources.load("digits")
    return np.asarray(data.x, dtype=np.float32), np.asarray(data.y)


def likeness(x) -> Likeness:
    def likest(rows, anchors, k):
        return NearestNeighbors(n_neighbors=k).fit(x[anchors]).kneighbors(x[rows], return_distance=False)

    return Likeness(lambda rows, k: nearest_in_space(x[rows], k), likest)


def labelled(x, rules, starts=150):
    return labels_by_constraint(likeness(x), rules, len(x), 0, CPU, starts)


def test_examples_that_are_too_many_are_named_through_those_most_like_them(digits, monkeypatch):
    x, y = digits
    given = given_sums(y, 600, 0, 1)
    rules = Rules.of([sum_examples(given)], symbols=Symbols.of({"digit": 10}))
    monkeypatch.setattr(pseudo_labels, "_MOST_ROWS", 400)
    drawn, others = parted(rules.placed, 400, 0)
    assert (sum(map(len, drawn)), sum(map(len, others))) == (200, 400)
    targets = labelled(x, rules)
    named, nameless = (np.unique(part[0].rows[:, :2]) for part in (drawn, others))
    by_rule = (targets[nameless].argmax(-1).numpy() == y[nameless]).mean()
    alone = labels_by_constraint(
        likeness(x), Rules.of([drawn[0].examples], symbols=rules.symbols), len(x), 0, CPU, 150
    )
    assert not alone[np.setdiff1d(nameless, named)].any()
    nearest = likeness(x).likest(nameless, named, 10)
    by_likeness = (alone[named[nearest]].mean(1).argmax(-1).numpy() == y[nameless]).mean()
    assert by_rule > 0.99
    assert 0.9 < by_likeness < 0.97


def test_sums_alone_tell_most_digits(digits):
    x, y = digits
    examples = addition_examples(y, 60, 0)
    targets = labelled(x, Rules.of(addition(), examples))
    rows = np.unique(examples)
    assert (targets[rows].argmax(-1).numpy() == y[rows]).mean() > 0.85
    torch.testing.assert_close(targets[rows].sum(-1), torch.ones(len(rows)))
    others = np.setdiff1d(np.arange(len(x)), rows)
    assert not targets[others].any()


def test_training_begins_from_pseudo_labels_and_goes_on_with_the_rule(digits):
    x, y = digits
    rules = Rules.of(addition(), addition_examples(y, 40, 0))
    asked = planned(x, "gedi-symbols", 10, rules, **SMALL, **{"optimiser.iterations": 20})
    history = fit(asked, x, execution=EVERY, rules=rules).history
    assert all("pseudo-labels" in row and "constraint" not in row for row in history.rows[:8])
    assert all("constraint" in row and "pseudo-labels" not in row for row in history.rows[8:])


def test_the_prior_is_that_of_the_rule(digits):
    x, y = digits
    rules = Rules.of(addition(), addition_examples(y, 40, 0))
    asked = planned(x, "nesy", 10, rules, **{"optimiser.iterations": 1, "optimiser.batch_size": 60})
    fitted = fit(asked, x, execution=EVERY, rules=rules).fitted
    np.testing.assert_allclose(fitted.prior, (21 - np.arange(10)) / 165, rtol=1e-6)


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
    config = {**SMALL, "optimiser.iterations": 20, "objectives.pseudo-labels.share": 0.2}
    if methods[name].density is not None:
        config["sampler.bank"] = 500
    history = fit(planned(x, name, **config), x, execution=EVERY).history
    assert ["pseudo-labels" in row for row in history.rows] == expected


@pytest.mark.parametrize("views", ["walk", "noise"])
def test_a_spectral_start_is_learned_at_once(views):
    """By noise alone moons are two halves, or one: the start says what hangs together."""
    x, y = moons(600, 0)
    config = {**SMALL, "encoder.hidden": (64,), "optimiser.iterations": 300, "objectives.pseudo-labels.share": 1.0}
    asked = planned(x, "gedi-no-gen", **config, **{"views.name": views})
    fitted = fit(asked, x, execution=EVERY).fitted
    right = (fitted.training_labels == y).mean()
    assert max(right, 1 - right) > 0.97


def test_larger_clusters_get_labels_of_larger_prior(generator):
    x = torch.cat([torch.randn(90, 2, generator=generator), torch.randn(30, 2, generator=generator) + 50])
    graph = neighbour_graph(x.numpy(), generator)
    for prior in ([0.75, 0.25], [0.25, 0.75]):
        targets = labels_by_clusters(graph, np.array(prior), 0, CPU)
        assert targets.mean(0).tolist() == prior


def test_groups_of_a_partition_get_labels_by_their_size():
    groups = np.array([0, 2, 1, 0, 1, 0])  # by falling size
    targets = labels_by_partition(groups, np.array([0.3, 0.2, 0.5]), CPU)
    assert targets.argmax(1).tolist() == [2, 1, 0, 2, 0, 2]
    assert targets.sum(1).tolist() == [1.0] * 6


@pytest.mark.parametrize(("prior", "label_of_large"), [("auto", 0), ([0.75, 0.25], 0), ([0.25, 0.75], 1)])
def test_rows_start_in_the_groups_that_the_plan_was_made_from(prior, label_of_large, generator):
    """Also where the partition is looked for again, as in a run that is resumed."""
    x = torch.cat([torch.randn(30, 2, generator=generator) + 12, torch.randn(90, 2, generator=generator)]).numpy()
    starts = Starts(x, 0)
    made = plan(DataProfile.of(x), Asked(2, "gedi-no-gen", prior, config=SMALL), starts)
    large = np.arange(120) >= 30
    for given in (starts, None):
        ready = prepare(made, x, execution=EVERY, starts=given)
        targets = ready.step.objectives["pseudo-labels"]._targets.argmax(1).numpy()
        np.testing.assert_array_equal(targets == label_of_large, large)


def test_rows_in_no_cluster_have_no_target(generator):
    x = torch.randn(200, 2, generator=generator)
    x[:12] = x[0] + 1e-5 * torch.randn(12, 2, generator=generator)
    targets = labels_by_clusters(neighbour_graph(x.numpy(), generator), np.array([0.5, 0.5]), 0, CPU)
    assert not targets[:12].any()
    assert targets.sum() > 150


@pytest.mark.parametrize("walks", [True, False])
def test_pictures_start_from_the_clusters_of_their_anchors(walks, monkeypatch):
    """Of images that are too many for a graph, the others are where the nearest anchor is; walks are not needed."""
    graphs = []

    def few_anchors(*args, **kwargs):
        graphs.append(partial(neighbour_graph, max_anchors=40)(*args, **kwargs))
        return graphs[-1]

    monkeypatch.setattr(similarity, "neighbour_graph", few_anchors)
    rng = np.random.default_rng(0)
    kind = np.arange(120) % 2
    x = np.zeros((120, 16, 16, 1), dtype=np.uint8)
    for image, k in zip(x, kind, strict=True):
        place = rng.integers(4, 12)
        image[(place, slice(None)) if k else (slice(None), place)] = rng.integers(150, 255)
    rows = x.reshape(120, -1)
    config = {"views.walks": walks, "optimiser.iterations": 4, "encoder.width": 4}
    config["objectives.pseudo-labels.share"] = 0.5
    asked = planned(rows, "gedi-no-gen", shape=(16, 16, 1), views="drawings", **config)
    ready = prepare(asked, rows, execution=EVERY)
    assert [len(graph.rows) for graph in graphs] == [40], "built once"
    labels = ready.step.objectives["pseudo-labels"]._targets.argmax(1).numpy()
    assert max(np.mean(labels == kind), np.mean(labels != kind)) > 0.8
    assert ["pseudo-labels" in ready.step.phase(i).terms for i in range(4)] == [True, True, False, False]


def test_stacked_models_have_no_spectral_start():
    x, _ = moons(100, 0)
    task = Task(x, planned(x, **{"optimiser.iterations": 2, "objectives.pseudo-labels.share": 0.5}))
    with pytest.raises(UsageError, match="pseudo-labels give every model targets of its own"):
        fit_many([task, task])
