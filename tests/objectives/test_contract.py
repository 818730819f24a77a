"""What every objective must do, called on what a real network says of real batches."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from contract_cases import assert_equal, assert_same_form, copied, each, settings, vectors
from gedikit.known import Known
from gedikit.objectives import Objective, objectives
from gedikit.objectives.base import Memory
from gedikit.planning import Asked, plan
from gedikit.profile import DataProfile
from gedikit.symbolic import Constraint
from gedikit.training.fit import Setup, prepare
from gedikit.training.outputs import BatchOutputs
from gedikit.training.rules import Rules
from gedikit.training.state import TrainState, stack
from gedikit.training.step import _Training as Trainer
from gedikit.views.stacked import StackedViews

CLUSTERS, BATCH, ITERATIONS = 3, 12, 20
every = pytest.mark.parametrize("objective", each(objectives))


@dataclass(frozen=True)
class Case:
    """A fit that is ready for its first iteration."""

    ready: Setup
    objective: Objective  # bound to the data

    def outputs(self, state: TrainState, iteration: int = 0) -> BatchOutputs:
        views = self.ready.views
        level = views.level(0.0)
        batch = views.batch(BATCH, iteration, level, state.generator)
        x, view = views(batch, level, state.generator)
        others = [views(batch, level, state.generator, i)[1] for i in range(1, self.objective.n_views)]
        phases = {self.objective.name: self.objective.phase(iteration, BATCH)}
        wanted = (view, *others)[: self.objective.n_views]
        step = self.ready.step
        rows, drawn = batch[:2]
        return BatchOutputs(state, rows, x, view, wanted, None, step.log_prior, step.held_out, phases, drawn)

    def trainer(self, state: TrainState) -> Trainer:
        return Trainer(state, self.ready.views)

    @property
    def optimum(self) -> float | None:
        return self.ready.optima.get(self.objective.name)


@cache
def case(objective: Objective, seed: int = 0) -> Case:
    """With a density beside the objective, as `name+cluster-energy` has it."""
    rules = None
    if objective.needs_examples:
        constraint = Constraint(lambda a, b: a <= b, domains=(CLUSTERS, CLUSTERS))
        rules = Rules.of(constraint, [[i, i + 1] for i in range(0, 30, 2)])
    config: dict[str, Any] = {
        "objectives": {objective.name: settings(objective)},
        "encoder": {"hidden": [16], "features": 6, "frequencies": 4},
        "sampler": {"bank": 100, "samples": 8},
        "optimiser": {"iterations": ITERATIONS, "batch_size": BATCH, "learning_rate": 0.03, "warmup": 0},
    }
    asked = Asked(
        CLUSTERS,
        f"{objective.name}+cluster-energy",
        seed=seed,
        config=config,
        examples=None if rules is None else rules.profile(),
    )
    x = vectors()
    labels = np.where(np.arange(len(x)) % 4 == 0, np.arange(len(x)) % CLUSTERS, -1)
    known = None if rules else Known.of(len(x), None, labels, [[1, 2], [5, 9]], [[3, 6]])
    ready = prepare(plan(DataProfile.of(x), asked), x, rules=rules, known=known)
    return Case(ready, ready.step.objectives[objective.name])


def called(objective: Objective, seed: int = 0) -> tuple[Case, TrainState, BatchOutputs, Memory]:
    made = case(objective, seed)
    state = made.ready.new_state()
    return made, state, made.outputs(state), state.memory[objective.name]


@every
def test_the_loss_of_a_batch_is_one_finite_number_that_moves_weights(objective):
    made, state, out, memory = called(objective)
    value, _ = made.objective(out, memory)
    assert value.shape == ()
    assert value.dtype == torch.float32
    assert torch.isfinite(value)
    gradients = torch.autograd.grad(value, list(state.network.parameters()), materialize_grads=True)
    assert all(torch.isfinite(g).all() for g in gradients)
    assert any(g.abs().max() > 1e-7 for g in gradients)


@every
def test_what_is_remembered_keeps_its_form_and_what_was_given_is_left_alone(objective):
    made, state, out, memory = called(objective)
    before = copied(memory)
    _, kept = made.objective(out, memory)
    assert_equal(memory, before)
    assert_same_form(kept, before)
    assert not any(tensor.requires_grad for tensor in kept.values())
    again, _ = made.objective(out, copied(before))
    assert torch.equal(again, made.objective(out, memory)[0])
    state.memory[objective.name] = kept
    _, after = made.objective(made.outputs(state, 1), kept)
    assert_same_form(after, before)


@every
def test_a_look_at_all_the_data_keeps_the_form_of_what_is_remembered(objective):
    made, state, _, memory = called(objective)
    assert made.objective.refresh_every(ITERATIONS) >= 0
    for iteration in (0, 1):
        state.iteration = iteration
        with torch.no_grad():
            refreshed = made.objective.refresh(made.trainer(state), memory)
        assert_same_form(refreshed, memory)
        value, _ = made.objective(made.outputs(state), refreshed)
        assert torch.isfinite(value)


@every
def test_no_value_lies_below_the_known_optimum(objective):
    """Before, while and after it is minimised."""
    made = case(objective)
    if made.optimum is None:
        pytest.skip("no optimum is known")
    state = made.ready.new_state()
    lowest = made.optimum - 1e-4 * (1 + abs(made.optimum))
    for _ in range(ITERATIONS):
        (row,) = made.ready.step(state, measure=True)
        assert row[objective.name] >= lowest


@every
def test_autocast_does_not_reach_the_loss(objective):
    made, _, out, memory = called(objective)
    out = Beforehand(out)
    value, kept = made.objective(out, memory)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again, others = made.objective(out, memory)
    assert torch.equal(again, value)
    assert_equal(others, kept)


class Beforehand(BatchOutputs):
    """What the network says, once: whatever is asked again was computed before."""

    def __init__(self, out: BatchOutputs):
        self.__dict__ |= out.__dict__
        self._known: dict[tuple[str, int], Tensor] = {}

    def _once(self, name: str, x: Tensor) -> Tensor:
        key = name, x.data_ptr()
        if key not in self._known:
            self._known[key] = getattr(super(), name)(x)
        return self._known[key]

    def cluster_logits(self, z: Tensor) -> Tensor:
        return self._once("cluster_logits", z)

    def teacher_logits(self, x: Tensor) -> Tensor:
        return self._once("teacher_logits", x)

    def logits(self, x: Tensor) -> Tensor:
        return self._once("logits", x)


@every
def test_models_side_by_side_get_the_values_they_get_alone(objective):
    alone = [called(objective, seed) for seed in (0, 1)]
    bound = alone[0][0].objective
    values = [bound(out, memory)[0] for _, _, out, memory in alone]
    state, out = side_by_side([(made, state, out) for made, state, out, _ in alone])
    memory = {name: torch.stack([m[name] for *_, m in alone]) for name in alone[0][3]}
    started = bound.start(Trainer(state, StackedViews([made.ready.views for made, *_ in alone])))
    assert_same_form(started, memory)
    together, kept = bound(out, memory)
    assert together.shape == (2,)
    torch.testing.assert_close(together, torch.stack(values), rtol=1e-5, atol=1e-6)
    assert_same_form(kept, memory)


def side_by_side(alone: list[tuple[Case, TrainState, BatchOutputs]]) -> tuple[TrainState, BatchOutputs]:
    """The same rows and views, seen by one network that is a stack of all."""
    first = alone[0][0].ready
    state = TrainState.new(
        stack([made.ready.network for made, *_ in alone]),
        [torch.Generator().manual_seed(made.ready.plan.seed) for made, *_ in alone],
        first.plan.config.optimiser,
        first.execution,
    )
    outs = [out for *_, out in alone]
    views = [torch.stack(parts) for parts in zip(*(out.views for out in outs), strict=True)]
    x = torch.stack([out._points[:BATCH] for out in outs])
    return state, BatchOutputs(
        state,
        torch.stack([out.rows for out in outs]),
        x,
        torch.stack([out._view for out in outs]),
        views,
        None,
        torch.stack([made.ready.step.log_prior for made, *_ in alone]),
        alone[0][0].ready.step.held_out,
        outs[0].phases,
        torch.stack([out.drawn for out in outs]),
    )


@pytest.mark.filterwarnings("ignore::gedikit.errors.GediWarning")  # there are fewer rows than clusters
@every
def test_a_batch_of_its_fewest_rows_has_a_loss(objective):
    made, state, out, memory = called(objective)
    n = max(made.objective.min_rows, 2 if objective.needs_examples else 1)
    few = BatchOutputs(
        state,
        out.rows[:n],
        out._points[:n],
        out._view[:n],
        [view[:n] for view in out.views],
        None,
        out.log_prior,
        made.ready.step.held_out,
        out.phases,
        out.drawn[: n // 2] if objective.needs_examples else None,
    )
    value, _ = made.objective(few, memory)
    assert value.shape == ()
    assert torch.isfinite(value)


@every
def test_it_says_what_it_is(objective):
    assert objective.summary
    assert objective.n_views >= 0
    assert objective.labels in ("posterior", "projection", "k-means")
    assert replace(objective, weight=2.0).weight == 2.0
    assert case(objective).objective.weight == objective.weight
