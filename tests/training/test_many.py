"""A stack of models is the models: every member equals the fit it replaces."""

import numpy as np
import pytest
import torch

from gedikit.data.toy import circles, moons
from gedikit.errors import UsageError
from gedikit.methods import get_method
from gedikit.training import Observer, fit
from gedikit.training.many import Task, fit_many


def tasks_of(method, n=3, **changes):
    settings = method.settings(**{"iterations": 40, "log_every": 10, "batch_size": 64, "negatives": 64} | changes)
    shapes = (moons, circles)
    return [Task(shapes[i % 2](150, i)[0], settings, 5 + i, 2) for i in range(n)]


def assert_same(outcome, task, method, rtol=1e-4):
    alone, history, _ = fit(task.x, method, task.settings, n_clusters=task.n_clusters, seed=task.seed, device="cpu")
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
        ("gedi", {"sampler": "mala", "buffer": 100, "steps": 2}),
        ("gedi-as-printed", {"buffer": 100}),
        ("jem-as-printed", {"buffer": 100, "steps": 3}),
        ("gedi-two-stage", {}),
        ("swav", {"queue": 100, "freeze_prototypes": 10}),
        # its sharp codes amplify rounding a thousandfold every few iterations
        ("swav-as-printed", {"iterations": 3, "log_every": 1}),
        ("barlow-twins-as-printed", {}),
        ("deepcluster", {"assign_every": 15}),
        ("sela", {"assign_every": 15}),
        ("corinfomax", {}),
        ("protocpc", {}),
        ("cpc", {}),
        ("kscl", {}),
        ("w-mse+contrastive-energy", {"references": 30, "features": 16}),
    ],
)
def test_every_member_equals_its_own_fit(name, changes):
    method = get_method(name)
    tasks = tasks_of(method, **changes)
    for task, outcome in zip(tasks, fit_many(tasks, method, device="cpu"), strict=True):
        assert_same(outcome, task, method)


def test_members_may_differ_in_their_weights_and_share_their_preparation(monkeypatch):
    from gedikit.training import many

    prepared = []
    original = many.prepare
    monkeypatch.setattr(many, "prepare", lambda *a, **k: prepared.append(1) or original(*a, **k))
    method = get_method("gedi")
    base = tasks_of(method, n=1)[0]
    tasks = [
        Task(base.x, base.settings.replace(invariance=i, prior=p), base.seed, 2)
        for i, p in ((0, 30), (10, 0), (5, 5))
    ]
    outcomes = fit_many(tasks, method, device="cpu")
    assert len(prepared) == 1
    for task, outcome in zip(tasks, outcomes, strict=True):
        assert outcome.fitted.settings == task.settings
        assert_same(outcome, task, method)


def test_a_member_that_runs_away_rolls_back_as_it_would_alone_and_disturbs_nobody():
    """An absurd weight breaks one member only; it must go through the same returns as its own fit."""
    method = get_method("gedi")
    told = []

    class Listener(Observer):
        def event(self, text):
            told.append(text)

    settings = method.settings(
        iterations=60, log_every=5, batch_size=64, sampler="sgld", step_size=1e-4, energy_l2=0.0, max_rollbacks=6
    )
    x = moons(150, 0)[0]
    tasks = [Task(x, settings.replace(generative=weight), 3, 2) for weight in (1.0, 1e30)]
    good, bad = fit_many(tasks, method, device="cpu", observer=Listener())
    assert_same(good, tasks[0], method)
    assert any(text.startswith("member 1: ") for text in told)
    assert not any(text.startswith("member 0: ") for text in told)
    try:
        alone = fit(x, method, tasks[1].settings, n_clusters=2, seed=3, device="cpu")[0]
    except Exception as error:
        assert bad.failure == str(error)
    else:
        assert bad.fitted.info["events"] == alone.info["events"]
        np.testing.assert_allclose(bad.fitted.log_density(x), alone.log_density(x), rtol=1e-3, atol=1e-3)


def test_a_recipe_as_printed_that_diverges_is_told_and_the_others_go_on():
    method = get_method("gedi-as-printed")
    settings = method.settings(iterations=300, log_every=10)
    x = moons(200, 0)[0]
    tasks = [Task(x, settings.replace(generative=w), 0, 2) for w in (1e6, 0.0)]
    diverged, fine = fit_many(tasks, method, device="cpu")
    assert diverged.fitted is None
    assert "training diverged at iteration" in diverged.failure
    assert fine.failure is None
    assert fine.history.rows[-1]["iteration"] == 300


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t: Task(t.x[:100], t.settings, 0, 2), "data of one shape"),
        (lambda t: Task(t.x, t.settings, 0, 3), "one number of clusters"),
        (lambda t: Task(t.x, t.settings.replace(batch_size=32), 0, 2), "not in batch_size"),
    ],
)
def test_what_cannot_be_stacked_is_refused(change, sentence):
    method = get_method("gedi")
    task = tasks_of(method, n=1)[0]
    with pytest.raises(UsageError, match=sentence):
        fit_many([task, change(task)], method)


def test_no_tasks_and_flows_are_refused():
    with pytest.raises(UsageError, match="at least one task"):
        fit_many([], get_method("gedi"))
    method = get_method("swav+flow")
    with pytest.raises(UsageError, match="one by one"):
        fit_many(tasks_of(method, n=1), method)
