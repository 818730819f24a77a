"""One iteration: its losses are those of the paper, its update is Adam's, its phases are on the host."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from step_cases import prepared

from gedikit.config import Optimiser
from gedikit.densities import cluster_log_density
from gedikit.training.step import learning_rate

LOSSES = ("invariance", "prior", "generative")


def parts(ready, state):
    """x, x′ and the model's samples of the next iteration, drawn as the iteration draws them."""
    phase = ready.step.phase(state.iteration)
    batch = ready.views.batch(ready.plan.config.optimiser.batch_size, state.iteration, phase.level, state.generator)
    x, view = ready.views(batch, phase.level, state.generator)
    samples = None
    if ready.source is not None:
        samples, _ = ready.source.draw(state.network.log_density, state.memory["sampler"], state.generator)
    return x, view, samples


def by_hand(ready, state) -> dict[str, torch.Tensor]:
    """The losses of Proposition 1 from plain sums of probabilities."""
    x, view, samples = parts(ready, state)
    logits, view_logits = state.network.logits(x), state.network.logits(view)
    p, view_p = torch.softmax(logits, -1), torch.softmax(view_logits, -1)
    shares = torch.tensor(ready.plan.prior)
    density = torch.log(torch.exp(logits).sum(-1))
    losses = {
        "invariance": -(view_p * torch.log(p)).sum(-1).mean(),
        "prior": -(shares * torch.log(p.mean(0))).sum(),
    }
    if samples is not None:
        model = torch.log(torch.exp(state.network.logits(samples.points)).sum(-1))
        losses["energy_gap"] = density.mean() - model.mean()
        if samples.log_q is None:
            losses["generative"] = model.mean() - density.mean()
        else:
            weights = torch.exp(model - samples.log_q)
            losses["generative"] = torch.log(weights.mean()) - density.mean()
            losses["energy_gap"] = density.mean() - (weights * model).sum() / weights.sum()
            losses["effective_samples"] = weights.sum() ** 2 / (len(weights) * weights.square().sum())
        losses["energy_l2"] = density.square().mean() + model.square().mean()
        losses["log_density"] = density.mean()
    mean = p.mean(0)
    entropy = -(mean * mean.log()).sum()
    losses["mutual_information"] = entropy + (p * p.log()).sum(-1).mean()
    return losses


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"sampler.name": "mala", "sampler.chains": 40},
        {"sampler.name": "sgld", "sampler.chains": 40, "density.l2": 0.1},
        {"views.name": "noise", "head.temperature": 0.5},
        {"objectives.invariance.weight": 3, "objectives.prior.weight": 0.5, "density.weight": 7},
    ],
)
def test_the_losses_of_an_iteration_are_those_computed_by_hand(config):
    ready = prepared(prior=[0.7, 0.3], **config)
    wanted = by_hand(ready, ready.new_state())
    (row,) = ready.step(ready.new_state(), measure=True)
    assert set(LOSSES) <= row.keys()
    for name, value in wanted.items():
        if name != "energy_l2" or config.get("density.l2"):
            assert row[name] == pytest.approx(value.item(), rel=1e-4, abs=1e-5), name


def test_the_gradient_is_that_of_the_weighted_sum_and_the_update_adams():
    weights = {"objectives.invariance.weight": 3.0, "objectives.prior.weight": 0.5, "density.weight": 7.0}
    ready = prepared(**weights, **{"density.l2": 0.2})
    reference = ready.new_state()
    losses = by_hand(ready, reference)
    total = sum(
        weight * losses[name]
        for name, weight in (("invariance", 3.0), ("prior", 0.5), ("generative", 7.0), ("energy_l2", 0.2))
    )
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(total, list(reference.network.parameters()))])
    state = ready.new_state()
    before = state.weights.detach().clone()
    (row,) = ready.step(state, measure=True)
    torch.testing.assert_close(state.weights.grad, gradient, rtol=1e-3, atol=1e-5)
    assert row["gradient_norm"] == pytest.approx(gradient.norm().item(), rel=1e-4)
    rate = learning_rate(ready.plan.config.optimiser, 0)
    step = before - state.weights.detach()
    torch.testing.assert_close(step, rate * gradient / (gradient.abs() + 1e-8), rtol=1e-2, atol=1e-2 * rate)
    # the average keeps 1/10 of what it was in the first iteration, so that it forgets the start
    torch.testing.assert_close(state.average_weights, 0.1 * before + 0.9 * state.weights.detach())


def test_gradients_that_are_longer_than_usual_are_shortened_and_others_are_not():
    free, clipped = prepared(), prepared(**{"optimiser.clip": 2.0})
    state, other = free.new_state(), clipped.new_state()
    usual = None
    for iteration in range(4):
        other.weights.data.copy_(state.weights.data)
        if iteration == 3:  # all weights of the loss at once, as when another objective begins
            clipped.step.weights.update({name: 100 * weight for name, weight in clipped.step.weights.items()})
        free.step(state)
        (row,) = clipped.step(other, measure=True)
        gradient, norm = state.weights.grad, row["gradient_norm"]
        if iteration < 3:
            torch.testing.assert_close(other.weights.grad, gradient)
            usual = norm if usual is None else usual + 0.02 * (norm - usual)
        else:
            assert norm == pytest.approx(100 * gradient.norm().item(), rel=1e-4)
            torch.testing.assert_close(other.weights.grad, gradient * (2 * usual / gradient.norm()))
            usual *= 1.02
        assert other.memory["gradient"]["usual_norm"].item() == pytest.approx(usual, rel=1e-5)


def test_objectives_are_minimised_with_symmetric_views_where_asked():
    ready = prepared("gedi-no-gen", **{"objectives.invariance.symmetric": True, "objectives.prior.symmetric": True})
    state = ready.new_state()
    x, view, _ = parts(ready, state)
    p, q = (torch.softmax(state.network.logits(part), -1) for part in (x, view))
    shares = torch.tensor(ready.plan.prior)
    (row,) = ready.step(ready.new_state(), measure=True)
    cross = -((q * p.log()).sum(-1).mean() + (p * q.log()).sum(-1).mean()) / 2
    priors = -((shares * p.mean(0).log()).sum() + (shares * q.mean(0).log()).sum()) / 2
    assert row["invariance"] == pytest.approx(cross.item(), rel=1e-4)
    assert row["prior"] == pytest.approx(priors.item(), rel=1e-4)


def test_a_normalised_density_is_trained_by_its_likelihood():
    pytest.importorskip("zuko", reason="flows need gedikit[flow]")
    ready = prepared("swav+flow")
    state = ready.new_state()
    x, _, samples = parts(ready, state)
    assert samples is None
    (row,) = ready.step(ready.new_state(), measure=True)
    assert row["generative"] == pytest.approx(-state.network.log_density(x).mean().item(), rel=1e-5)
    assert "energy_gap" not in row


# watched losses


@pytest.mark.parametrize(
    ("name", "minimised", "watched"),
    [
        ("gedi", {"invariance", "prior"}, set()),
        ("gedi-no-inv", {"prior"}, {"watched_invariance"}),
        ("gedi-no-prior", {"invariance"}, {"watched_prior"}),
        ("jem", set(), {"watched_invariance", "watched_prior"}),
        ("swav", set(), {"watched_invariance", "watched_prior"}),
        ("simclr", set(), set()),  # its posterior is left to chance
    ],
)
def test_what_is_not_minimised_is_watched_where_the_posterior_counts(name, minimised, watched):
    ready = prepared(name)
    (row,) = ready.step(ready.new_state(), measure=True)
    assert row.keys() & {"invariance", "prior"} == minimised
    assert {key for key in row if key.startswith("watched_")} == watched
    assert ("mutual_information" in row) == (name != "simclr")


def test_watched_losses_are_computed_by_the_same_formulas():
    ready = prepared("jem", prior=[0.6, 0.4])
    wanted = by_hand(ready, ready.new_state())
    state = ready.new_state()
    (row,) = ready.step(state, measure=True)
    assert row["watched_invariance"] == pytest.approx(wanted["invariance"].item(), rel=1e-4)
    assert row["watched_prior"] == pytest.approx(wanted["prior"].item(), rel=1e-4)
    unwatched = ready.new_state()
    assert ready.step(unwatched) == []
    assert torch.equal(unwatched.weights, state.weights), "measuring changes nothing"


# phases


def test_stages_are_phases_of_the_training():
    ready = prepared("gedi-two-stage")
    phases = [ready.step.phase(i) for i in range(20)]
    assert [p.terms for p in phases] == [("generative",)] * 10 + [("invariance", "prior")] * 10
    assert len(set(phases)) < 12, "few graphs are captured"
    state = ready.new_state()
    rows = [ready.step(state, measure=True)[0] for _ in range(12)]
    assert all("generative" in row and "invariance" not in row for row in rows[:10])
    assert all("invariance" in row and "generative" not in row for row in rows[10:])


def test_walks_shorten_from_level_to_level():
    ready = prepared(n=200, **{"views.hold": 0.2, "views.end": 0.8})
    levels = [ready.step.phase(i).level for i in range(20)]
    assert levels == sorted(levels, reverse=True)
    assert len(set(levels[:5])) == 1 and levels[0] > 0
    assert set(levels[16:]) == {0}


def test_a_phase_says_what_objectives_say_and_whether_it_is_measured():
    ready = prepared("swav", **{"objectives.swav.queue": 60, "head.freeze": 2})
    phases = [ready.step.phase(i) for i in range(4)]
    assert [p.of_objectives for p in phases] == [(False,), (False,), (True,), (True,)], "60 rows are two batches"
    assert [p.frozen_prototypes for p in phases] == [True, True, False, False]
    assert ready.step.phase(0, measure=True) == replace(phases[0], measure=True) != phases[0]


def test_prototypes_are_frozen_while_all_else_moves():
    ready = prepared("swav", **{"head.freeze": 3})
    state = ready.new_state()
    centers, encoder = state.network.centers.detach().clone(), next(state.network.encoder.parameters())
    kept = encoder.detach().clone()
    for _ in range(3):
        ready.step(state)
        assert torch.equal(state.network.centers, centers)
    assert torch.equal(state.average.centers, centers)
    assert not torch.equal(encoder, kept)
    ready.step(state)
    assert not torch.equal(state.network.centers, centers)


def test_targets_are_renewed_as_often_as_the_objective_says():
    ready = prepared("deepcluster", **{"objectives.deepcluster.every": 4})
    state = ready.new_state()
    seen = []
    for _ in range(9):
        ready.step(state)
        seen.append(state.memory["deepcluster"]["centroids"].clone())
    changed = [not torch.equal(a, b) for a, b in itertools.pairwise(seen)]
    assert changed == [i in (3, 7) for i in range(8)], "before iterations 0, 4 and 8"
    assert seen[0].any()


# learning rates


def test_learning_rate_warms_up_stays_and_decays():
    o = Optimiser(iterations=1000, warmup=100, decay_from=0.5, decay_to=0.01, learning_rate=2.0)
    assert learning_rate(o, 0) == pytest.approx(0.02)
    assert learning_rate(o, 49) == pytest.approx(1.0)
    assert learning_rate(o, 99) == 2.0
    assert learning_rate(o, 300) == 2.0
    assert learning_rate(o, 500) == 2.0
    assert learning_rate(o, 750) == pytest.approx(0.2)
    assert learning_rate(o, 1000) == pytest.approx(0.02)
    values = [learning_rate(o, i) for i in range(1000)]
    assert values[:100] == sorted(values[:100])
    assert values[500:] == sorted(values[500:], reverse=True)


@pytest.mark.parametrize("changes", [{"decay_to": 0.0}, {"decay_from": 1.0}])
def test_learning_rates_that_do_not_decay(changes):
    o = Optimiser(**{"iterations": 100, "warmup": 0, "learning_rate": 0.5, **changes})
    assert {learning_rate(o, i) for i in range(100)} == {0.5}


def test_the_rate_of_an_iteration_is_that_of_the_schedule_times_the_rollbacks_scale():
    ready = prepared(**{"optimiser.warmup": 4, "optimiser.decay_from": 0.5, "optimiser.decay_to": 0.1})
    state = ready.new_state()
    found = []
    for i in range(20):
        if i == 15:
            state.rate_scale = 0.5
        ready.step(state)
        found.append(state.optimiser.param_groups[0]["lr"])
    o = ready.plan.config.optimiser
    wanted = [learning_rate(o, i) * (0.5 if i >= 15 else 1) for i in range(20)]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert state.iteration == 20


def test_averaged_weights_forget_the_first_iterations():
    ready = prepared(**{"optimiser.average": 0.3})
    state = ready.new_state()
    for i in range(6):
        before = state.average_weights.clone()
        ready.step(state)
        keep = min(0.3, (i + 1) / (i + 10))
        torch.testing.assert_close(state.average_weights, keep * before + (1 - keep) * state.weights.detach())


def test_measurements_are_finite_numbers_of_the_models_own_units():
    ready = prepared()
    (row,) = ready.step(ready.new_state(), measure=True)
    assert all(isinstance(value, float) and math.isfinite(value) for value in row.values())
    assert 0 < row["effective_samples"] <= 1
    assert 0 <= row["mutual_information"] <= math.log(2)
    x, _, samples = parts(ready, ready.new_state())
    network = ready.new_state().network
    every = torch.cat([cluster_log_density(network.logits(part)) for part in (x, samples.points)])
    assert row["largest_log_density"] >= every.abs().max().item() * (1 - 1e-5)
