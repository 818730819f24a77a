"""How names are searched for: starts, rounds and blocks."""

import itertools
import math

import pytest
import torch
from naming_cases import CPU, FEW, SUMS, OneKind, as_seen, long_addition, random_shows, seen, weighted
from symbolic_cases import addition
from torch import Tensor

from gedikit.symbolic import Constraint, Naming, likelihoods, name_clusters, naming
from gedikit.symbolic.likelihoods import Shows


def test_every_step_explains_the_examples_better():
    examples = OneKind(addition(), seen(50, 15, 0.3, 0)[1], 15)
    shows = random_shows(10, 15, starts=8)
    before = examples.log_likelihoods(shows)
    for _ in range(30):
        shows = examples.climbed(shows, 1e-9, 1)
        now = examples.log_likelihoods(shows)
        assert (now > before - 1e-6).all()
        before = now


def test_smoothing_is_that_many_rows_of_every_value_over_all_clusters():
    clusters = torch.tensor([[0, 1, 1], [3, 2, 0], [2, 2, 2]])
    examples, shows = OneKind(weighted(), clusters, 5), random_shows(3, 5)
    rows = examples.expected_rows(shows.log())
    expected = (rows + 0.4) / (rows.sum(-1, keepdim=True) + 2)
    torch.testing.assert_close(examples.climbed(shows, 2.0, 1), expected)


def assert_same(a: Naming, b: Naming) -> None:
    torch.testing.assert_close(a.shows, b.shows)
    torch.testing.assert_close(a.log_posterior.exp(), b.log_posterior.exp())
    assert (a.log_likelihood, a.runner_up) == pytest.approx((b.log_likelihood, b.runner_up))


def test_the_same_seed_finds_the_same_names():
    _, clusters = seen(40, 15, 0.2, 0)
    a, b, other = (name_clusters(addition(), clusters, 15, starts=30, seed=seed) for seed in (4, 4, 5))
    assert torch.equal(a.shows, b.shows)
    assert torch.equal(a.log_posterior, b.log_posterior)
    assert (a.log_likelihood, a.runner_up) == (b.log_likelihood, b.runner_up)
    assert not torch.equal(a.shows, other.shows)


@pytest.mark.parametrize("work", [55 * 30, 55 * 40 * 7])
def test_blocks_do_not_change_the_result(work, monkeypatch):
    _, clusters = seen(40, 15, 0.2, 0)
    whole = name_clusters(addition(), clusters, 15, starts=30)
    sizes = []
    evaluate = likelihoods.Part.evaluate
    monkeypatch.setattr(
        likelihoods.Part, "evaluate", lambda m, shows: sizes.append(len(shows[0])) or evaluate(m, shows)
    )
    monkeypatch.setattr(likelihoods, "WORK", work)
    assert_same(name_clusters(addition(), clusters, 15, starts=30), whole)
    assert max(sizes) == max(1, work // (55 * len(clusters.unique(dim=0))))


@pytest.mark.parametrize(("starts", "patterns"), [(1, 5), (3, 12)])
def test_blocks_of_a_circuit_do_not_change_the_result(starts, patterns, monkeypatch):
    _, clusters = seen(12, 15, 0.2, 0, SUMS)
    constraint = long_addition()
    whole = name_clusters(constraint, clusters, 15, starts=4)
    sizes = []
    call = likelihoods.ByCircuit.__call__

    def recorded(rule: likelihoods.ByCircuit, shows: Shows, part: likelihoods.Seen) -> likelihoods.Answer:
        sizes.append((len(shows[0]), len(part.clusters)))
        return call(rule, shows, part)

    monkeypatch.setattr(likelihoods.ByCircuit, "__call__", recorded)
    monkeypatch.setattr(likelihoods, "WORK", likelihoods.ByCircuit(constraint, CPU).numbers * starts * patterns)
    assert_same(name_clusters(constraint, clusters, 15, starts=4), whole)
    assert max(sizes) == (starts, patterns)


@pytest.fixture
def climbs(monkeypatch) -> list[tuple[Tensor, Tensor, likelihoods.Model, int]]:
    """Of every round: where starts were, where they went, by which examples and in how many steps."""
    calls = []
    climbed = naming._climbed

    def recorded(shows: Shows, examples: likelihoods.Model, smoothing: float, steps: int) -> Shows:
        calls.append((shows[0], climbed(shows, examples, smoothing, steps)[0], examples, steps))
        return [calls[-1][1]]

    monkeypatch.setattr(naming, "_climbed", recorded)
    return calls


def assert_best_went_on(climbs: list[tuple[Tensor, Tensor, likelihoods.Model, int]], found: Naming) -> None:
    for (_, before, *_), (kept, _, examples, _) in itertools.pairwise(climbs):
        expected = naming._log_likelihoods([before], examples).sort(descending=True).values[: len(kept)]
        torch.testing.assert_close(naming._log_likelihoods([kept], examples), expected)
    _, finished, examples, _ = climbs[-1]
    best, runner_up, *_ = naming._log_likelihoods([finished], examples).sort(descending=True).values.tolist()
    assert (found.log_likelihood, found.runner_up) == (best, runner_up)


def test_the_best_after_a_few_steps_are_the_ones_that_go_on(climbs, monkeypatch):
    _, clusters = seen(40, 10, 0.2, 0)
    monkeypatch.setattr(naming, "FINALISTS", 3)
    found = name_clusters(addition(), clusters, 10, starts=12)
    rounds = [(len(shows), int(examples.parts[0].counts.sum()), steps) for shows, _, examples, steps in climbs]
    assert rounds == [(12, 40, 25), (3, 40, 55)]
    assert_best_went_on(climbs, found)


def test_a_circuit_gives_most_starts_up_by_part_of_the_examples(climbs, monkeypatch):
    _, clusters = seen(30, 10, 0.2, 0)
    constants = {"MAX_LISTED": 0, "FINALISTS": 6, "LAST_FINALISTS": 3, "PART": 12, "ROWS_A_PROBABILITY": 0}
    for name, value in constants.items():
        monkeypatch.setattr(likelihoods if hasattr(likelihoods, name) else naming, name, value)
    found = name_clusters(addition(), clusters, 10, starts=20)
    rounds = [(len(shows), int(examples.parts[0].counts.sum()), steps) for shows, _, examples, steps in climbs]
    assert rounds == [(20, 12, 10), (6, 12, 15), (3, 30, 55)]
    assert_best_went_on(climbs, found)
    assert found.log_posterior.shape == (30, 3, 10)


@pytest.mark.parametrize(("n_unknown", "size"), [(10, 100), (150, 100), (160, 107), (1000, 150)])
def test_part_of_the_examples_has_two_rows_for_every_probability(n_unknown, size):
    clusters = torch.arange(450).reshape(150, 3)
    examples = as_seen(Constraint(lambda a, b, c: a + b == c, (3, 3, 3)), clusters)
    part = naming._part([examples], n_unknown, torch.Generator().manual_seed(0))[0].clusters
    assert part.shape == (size, 3)
    assert len(part.unique()) == 3 * size  # none is drawn twice
    assert ((part[:, 0] % 3 == 0) & (part[:, 1:] - part[:, :1] == torch.tensor([1, 2])).all(1)).all()


def test_gradients_may_be_off(monkeypatch):
    monkeypatch.setattr(likelihoods, "MAX_LISTED", 0)
    constraint, clusters = weighted(), torch.tensor([[0, 1, 1], [3, 2, 0], [2, 2, 2]])
    found = [name_clusters(constraint, clusters, 4, starts=3).shows]
    with torch.inference_mode():
        found.append(name_clusters(constraint, clusters, 4, starts=3).shows)
    assert torch.equal(*found)
    assert not found[0].requires_grad


def test_a_single_start_has_no_runner_up():
    assert name_clusters(addition(), FEW, 5, starts=1).runner_up == -math.inf
