"""A stack of models is the models: every member equals the fit it replaces."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gedikit.config import Execution
from gedikit.data.toy import circles, moons
from gedikit.errors import UsageError
from gedikit.methods import methods
from gedikit.planning import Asked, plan
from gedikit.profile import DataProfile
from gedikit.training import Callback, fit
from gedikit.training.many import Task, fit_many

EVERY_TENTH = Execution(device="cpu", log_every=10)


def task_of(x, method, seed=0, n_clusters=2, **config):
    return Task(x, plan(DataProfile.of(x), Asked(n_clusters, method, seed=seed, config=config)))


def tasks_of(method, n=3, **changes):
    config = {"optimiser.iterations": 40, "optimiser.batch_size": 64}
    if methods[method].density in ("cluster-energy", "contrastive-energy"):
        config["sampler.samples"] = 64
    shapes = (moons, circles)
    return [task_of(shapes[i % 2](150, i)[0], method, 5 + i, **(config | changes)) for i in range(n)]


def weighted(task, **weights):
    """The same task with other weights of its objectives, or of its density."""
    config = task.plan.config
    objectives = {
        name: objective.replace(weight=weights.get(name, objective.weight))
        for name, objective in config.objectives.items()
    }
    density = config.density.replace(weight=weights.get("density", config.density.weight))
    return Task(task.x, task.plan.replaced(objectives=objectives, density=density))


def with_batch(task, size):
    return Task(task.x, task.plan.replaced(optimiser=task.plan.config.optimiser.replace(batch_size=size)))


def assert_same(outcome, task, execution=EVERY_TENTH, rtol=1e-4):
    done = fit(task.plan, task.x, execution=execution)
    alone, history = done.fitted, done.history
    assert outcome.failure is None
    assert [r["iteration"] for r in outcome.history.rows] == [r["iteration"] for r in history.rows]
    for ours, theirs in zip(outcome.history.rows, history.rows, strict=True):
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            assert ours[key] == pytest.approx(value, rel=rtol, abs=1e-5), key
    weights, expected = outcome.fitted.network.state_dict(), alone.network.state_dict()
    assert weights.keys() == expected.keys()
    np.testing.assert_allclose(outcome.fitted.posterior(task.x), alone.posterior(task.x), rtol=1e-2, atol=1e-3)
    if alone.network.batch_normalised:
        return  # some weights have no influence at all and drift with the rounding
    for name, value in expected.items():
        torch.testing.assert_close(weights[name], value, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(outcome.fitted.training_labels, alone.training_labels)
    np.testing.assert_allclose(outcome.fitted.log_density(task.x), alone.log_density(task.x), rtol=1e-3, atol=1e-3)
    assert outcome.fitted.info["events"] == alone.info["events"]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("gedi", {}),
        ("gedi", {"sampler.name": "mala", "sampler.chains": 100, "sampler.steps": 2}),
        ("gedi-as-printed", {"sampler.chains": 100}),
        ("jem-as-printed", {"sampler.chains": 100, "sampler.steps": 3}),
        ("gedi-two-stage", {}),
        ("swav", {"objectives.swav.queue": 100, "head.freeze": 10}),
        # its sharp codes amplify rounding a thousandfold every few iterations
        ("swav-as-printed", {"optimiser.iterations": 3}),
        ("barlow-twins-as-printed", {}),
        ("deepcluster", {"objectives.deepcluster.every": 15}),
        ("sela", {"objectives.sela.every": 15}),
        ("corinfomax", {}),
        ("protocpc", {}),
        ("cpc", {}),
        ("kscl", {}),
        ("w-mse+contrastive-energy", {"density.references": 30, "encoder.features": 16}),
    ],
)
def test_every_member_equals_its_own_fit(name, changes):
    tasks = tasks_of(name, **changes)
    execution = replace(EVERY_TENTH, log_every=1) if name == "swav-as-printed" else EVERY_TENTH
    for task, outcome in zip(tasks, fit_many(tasks, execution=execution), strict=True):
        assert_same(outcome, task, execution)


def test_members_may_differ_in_their_weights_and_share_their_preparation(monkeypatch):
    from gedikit.training import many

    prepared = []
    original = many.prepare
    monkeypatch.setattr(many, "prepare", lambda *a, **k: prepared.append(1) or original(*a, **k))
    base = tasks_of("gedi", n=1)[0]
    tasks = [weighted(base, invariance=i, prior=p) for i, p in ((0, 30), (10, 0), (5, 5))]
    outcomes = fit_many(tasks, execution=EVERY_TENTH)
    assert len(prepared) == 1
    for task, outcome in zip(tasks, outcomes, strict=True):
        assert outcome.fitted.plan == task.plan
        assert_same(outcome, task)


def test_a_member_that_runs_away_rolls_back_as_it_would_alone_and_disturbs_nobody():
    """An absurd weight breaks one member only; it must go through the same returns as its own fit."""
    told = []

    class Listener(Callback):
        def on_event(self, text):
            told.append(text)

    config = {
        "optimiser.iterations": 60,
        "optimiser.batch_size": 64,
        "optimiser.max_rollbacks": 6,
        "sampler.name": "sgld",
        "sampler.step_size": 1e-4,
    }
    x = moons(150, 0)[0]
    execution = replace(EVERY_TENTH, log_every=5)
    tasks = [weighted(task_of(x, "gedi", 3, **config), density=weight) for weight in (1.0, 1e30)]
    good, bad = fit_many(tasks, execution=execution, callbacks=[Listener()])
    assert_same(good, tasks[0], execution)
    assert any(text.startswith("member 1: ") for text in told)
    assert not any(text.startswith("member 0: ") for text in told)
    try:
        alone = fit(tasks[1].plan, x, execution=execution).fitted
    except Exception as error:
        assert bad.failure == str(error)
    else:
        assert bad.fitted.info["events"] == alone.info["events"]
        np.testing.assert_allclose(bad.fitted.log_density(x), alone.log_density(x), rtol=1e-3, atol=1e-3)


def test_a_recipe_as_printed_that_diverges_is_told_and_the_others_go_on():
    x = moons(200, 0)[0]
    task = task_of(x, "gedi-as-printed", **{"optimiser.iterations": 300})
    tasks = [weighted(task, density=weight) for weight in (1e6, 0.0)]
    diverged, fine = fit_many(tasks, execution=EVERY_TENTH)
    assert diverged.fitted is None
    assert "training diverged at iteration" in diverged.failure
    assert fine.failure is None
    assert fine.history.rows[-1]["iteration"] == 300


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t: task_of(t.x[:100], "gedi"), "data of one shape"),
        (lambda t: task_of(t.x, "gedi", n_clusters=3), "one number of clusters"),
        (lambda t: with_batch(t, 32), r"not in optimiser\.batch_size"),
        (lambda t: task_of(t.x, "gedi-no-inv"), "not in method"),
    ],
)
def test_what_cannot_be_stacked_is_refused(change, sentence):
    task = tasks_of("gedi", n=1)[0]
    with pytest.raises(UsageError, match=sentence):
        fit_many([task, change(task)])


def test_no_tasks_and_flows_are_refused():
    with pytest.raises(UsageError, match="at least one task"):
        fit_many([])
    with pytest.raises(UsageError, match="one by one"):
        fit_many(tasks_of("swav+flow", n=1))


def test_callbacks_see_every_iteration_and_the_median_of_the_members():
    seen, rows = [], []

    class Listener(Callback):
        def on_step(self, fit):
            seen.append(fit.iteration)

        def on_metrics(self, fit, metrics):  # noqa: ARG002
            rows.append(metrics)

    tasks = tasks_of("gedi", n=3, **{"optimiser.iterations": 20})
    outcomes = fit_many(tasks, execution=EVERY_TENTH, callbacks=[Listener()])
    assert seen == list(range(1, 21))
    assert [row["iteration"] for row in rows] == [10, 20]
    for name in ("prior", "generative"):
        assert rows[1][name] == np.median([o.history.rows[1][name] for o in outcomes])
