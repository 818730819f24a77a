"""Proposition 1 in numbers."""

import math

import pytest
import torch

from gedikit.paper.theory import proposition_1
from gedikit.paper.theory.proposition import certain_labels, discriminative_terms

UNIFORM = torch.full((3,), 1 / 3, dtype=torch.float64).log()


@pytest.mark.parametrize("seed", range(4))
def test_every_step_of_the_proof(seed):
    checks = proposition_1(seed)
    assert len(checks) == 6
    for check in checks:
        assert check.largest_error < 1e-10, check
        assert check.smallest_margin > 1e-6, check
        assert check.holds


def test_the_optimum_in_numbers():
    log_p = torch.log_softmax(certain_labels([2, 2, 2]), -1)
    assert discriminative_terms(log_p, log_p, UNIFORM).item() == pytest.approx(-6 * math.log(3), abs=1e-12)


def test_a_smaller_ceiling_would_be_exceeded():
    """−n H(p(y)) is the least upper bound: the optimum breaks any ceiling below it, and −n ln n too."""
    log_p = torch.log_softmax(certain_labels([2, 2, 2]), -1)
    value = discriminative_terms(log_p, log_p, UNIFORM).item()
    assert value > -6 * math.log(3) - 1e-6
    assert value > -6 * math.log(6) + 1


@pytest.mark.parametrize("counts", [[3, 2, 1], [4, 1, 1], [6, 0, 0]])
def test_certain_labels_in_other_shares_fall_short_by_the_divergence(counts):
    log_p = torch.log_softmax(certain_labels(counts), -1)
    gap = -6 * math.log(3) - discriminative_terms(log_p, log_p, UNIFORM).item()
    shares = log_p.exp().mean(0)
    divergence = (UNIFORM.exp() * (UNIFORM - shares.log())).sum().item()
    assert divergence > 0.05
    assert gap == pytest.approx(6 * divergence, rel=1e-9)


def test_uncertain_balanced_labels_fall_short_by_their_entropy():
    log_p = torch.log_softmax(certain_labels([2, 2, 2], gap=1.0), -1)
    gap = -6 * math.log(3) - discriminative_terms(log_p, log_p, UNIFORM).item()
    assert gap == pytest.approx(torch.special.entr(log_p.exp()).sum().item(), rel=1e-9)


def test_swapped_views_cost_the_logit_gap():
    log_p = torch.log_softmax(certain_labels([2, 2, 2]), -1)
    gap = -6 * math.log(3) - discriminative_terms(log_p, log_p.roll(2, 0), UNIFORM).item()
    assert gap == pytest.approx(6 * 40.0, rel=1e-6)
