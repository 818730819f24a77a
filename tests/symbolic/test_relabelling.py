"""Which cluster is which digit."""

import itertools

import pytest
import torch
from symbolic_cases import ADDITION, addition

from gedikit.symbolic import Constraint, best_relabelling

PAIRS = torch.tensor([(a, b) for a in range(10) for b in range(10 - a)])


def clusters(n: int, noise: float, seed: int, certainty: float = 30.0) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Log-posteriors of n noisy additions under scrambled names, and the digit that each cluster is."""
    generator = torch.Generator().manual_seed(seed)
    terms = PAIRS[torch.randint(len(PAIRS), (n,), generator=generator)]
    digits = torch.cat([terms, terms.sum(1, keepdim=True)], 1)
    wrong = torch.rand(digits.shape, generator=generator) < noise
    digits = torch.where(wrong, torch.randint(10, digits.shape, generator=generator), digits)
    cluster_of = torch.randperm(10, generator=generator)
    logits = certainty * torch.nn.functional.one_hot(cluster_of[digits], 10).float()
    return list(torch.log_softmax(logits, -1).unbind(1)), cluster_of.argsort()


def test_a_hundred_noisy_examples_tell_the_digits_in_99_of_100_trials():
    constraint, right = addition(), 0
    for seed in range(100):
        log_p, truth = clusters(100, 0.05, seed)
        found = best_relabelling(log_p, constraint)
        right += torch.equal(found.namings[0], truth)
    assert right >= 99


def test_soft_labels_tell_the_digits_too():
    for seed in range(3):
        log_p, truth = clusters(100, 0.05, seed, certainty=3.0)
        found = best_relabelling(log_p, addition(), soft=True)
        assert torch.equal(found.namings[0], truth)
        renamed = [found.apply(x) for x in log_p]
        expected = addition().log_probability(renamed).exp().sum().item()
        assert found.satisfied[0].item() == pytest.approx(expected, rel=1e-5)


def test_renamed_posteriors_satisfy_what_the_search_counted():
    log_p, _ = clusters(60, 0.1, 5)
    found = best_relabelling(log_p, addition())
    satisfied = addition().log_probability([found.apply(x) for x in log_p]).exp()
    assert found.satisfied[0].item() == pytest.approx(satisfied.round().sum().item())


def small() -> Constraint:
    return Constraint(lambda a, b, c: (a + 2 * b) % 5 == c, (5, 5, 5))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_the_best_namings_are_those_of_all_namings(seed, noise):
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randint(5, (2, 15), generator=generator)
    labels = torch.stack([a, b, (a + 2 * b) % 5], 1)
    wrong = torch.rand(labels.shape, generator=generator) < noise
    labels = torch.where(wrong, torch.randint(5, labels.shape, generator=generator), labels)
    every = torch.tensor(list(itertools.permutations(range(5))))
    a, b, c = every[:, labels].unbind(-1)
    scores = ((a + 2 * b) % 5 == c).sum(1).float().sort(descending=True).values
    found = best_relabelling([torch.eye(5)[labels[:, v]].log() for v in range(3)], small(), starts=1, k=3)
    assert found.exact
    torch.testing.assert_close(found.satisfied, scores[:3])
    assert found.margin == (scores[0] - scores[1]).item()


def test_examples_that_do_not_tell_two_clusters_apart_leave_no_margin():
    """Nothing but 0 + 0 = 0 is seen: all other names are open."""
    found = best_relabelling([torch.eye(10)[torch.zeros(20).long()].log()] * 3, addition())
    assert found.margin == 0
    assert found.satisfied.tolist() == [20, 20]
    assert found.namings[:, 0].tolist() == [0, 0]
    assert found.namings[0].tolist() == list(range(10))
    assert found.as_named == 20


def test_programs_are_searched_like_tables():
    log_p, truth = clusters(80, 0.0, 3)
    found = best_relabelling(log_p, Constraint.from_program(ADDITION, "addition(a, b, c)"))
    assert torch.equal(found.namings[0], truth)
    assert found.exact


def test_the_same_seed_finds_the_same_namings():
    log_p, _ = clusters(100, 1.0, 0)
    a, b = (best_relabelling(log_p, addition(), seed=4) for _ in range(2))
    assert torch.equal(a.namings, b.namings)


@pytest.mark.parametrize("soft", [False, True])
def test_only_names_that_the_examples_ask_for_change(soft):
    """1 and 2 are exchanged; 8 and 9 are never seen, so that exchanging them too would be as good."""
    terms = PAIRS[PAIRS.sum(1) < 8]
    digits = torch.cat([terms, terms.sum(1, keepdim=True)], 1)
    exchanged = torch.tensor([0, 2, 1, 3, 4, 5, 6, 7, 8, 9])
    labels = exchanged[digits]
    log_p = torch.log_softmax(16 * torch.nn.functional.one_hot(labels, 10).float(), -1).unbind(1)
    found = best_relabelling(log_p, addition(), soft=soft)
    assert found.namings[0].tolist() == exchanged.tolist()
    assert found.satisfied.tolist() == pytest.approx([len(terms)] * 2, rel=1e-4)
    assert found.margin == pytest.approx(0, abs=1e-3)
    assert found.as_named == pytest.approx((labels[:, 0] + labels[:, 1] == labels[:, 2]).sum().item(), rel=1e-4)
    assert found.exact
    again = best_relabelling([found.apply(x) for x in log_p], addition(), soft=soft)
    assert again.namings[0].tolist() == list(range(10))
    assert again.as_named == pytest.approx(len(terms), rel=1e-4)


def test_a_single_value_has_a_single_naming():
    found = best_relabelling([torch.zeros(4, 1)] * 2, Constraint(lambda a, b: a == b, (1, 1)))
    assert (found.namings.tolist(), found.satisfied.tolist(), found.as_named) == ([[0]], [4.0], 4.0)
    assert found.exact


def test_arrays_are_named_like_tensors():
    log_p, truth = clusters(80, 0.0, 3)
    found = best_relabelling([x.numpy() for x in log_p], addition())
    assert torch.equal(found.namings[0], truth)
    torch.testing.assert_close(found.apply(log_p[0].numpy()), found.apply(log_p[0]))
