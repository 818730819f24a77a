"""Losses of known labels and of links: closed forms, and the rules they stand for."""

import math

import pytest
import torch

from gedikit.objectives import known_label_loss, known_label_loss_optimum, link_loss, link_loss_optimum
from gedikit.symbolic import Constraint


def posteriors(n: int, c: int, seed: int) -> torch.Tensor:
    drawn = torch.randn(n, c, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.log_softmax(2 * drawn, -1)


def test_known_labels_are_a_cross_entropy():
    log_p = torch.log(torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]))
    value = known_label_loss(log_p, torch.tensor([1, 2]))
    assert float(value) == pytest.approx(-(math.log(0.2) + math.log(0.8)) / 2)
    sure = torch.log_softmax(torch.tensor([[0.0, 200.0], [200.0, 0.0]]), -1)
    assert float(known_label_loss(sure, torch.tensor([1, 0]))) == known_label_loss_optimum()


def test_links_are_the_rule_that_two_symbols_are_the_same():
    a, b = posteriors(6, 4, 0), posteriors(6, 4, 1)
    equal = Constraint(lambda x, y: x == y, domains=(4, 4)).log_probability([a, b])
    other = Constraint(lambda x, y: x != y, domains=(4, 4)).log_probability([a, b])
    every, none = torch.ones(6, dtype=torch.bool), torch.zeros(6, dtype=torch.bool)
    torch.testing.assert_close(link_loss(a, b, every), -equal.mean())
    torch.testing.assert_close(link_loss(a, b, none), -other.mean())
    mixed = torch.arange(6) < 2
    torch.testing.assert_close(link_loss(a, b, mixed), -torch.cat([equal[:2], other[2:]]).mean())


def test_links_that_hold_cost_nothing_and_broken_ones_have_a_gradient():
    sure = torch.log_softmax(torch.tensor([[30.0, 0.0], [0.0, 30.0]], dtype=torch.float64), -1)
    same = torch.ones(2, dtype=torch.bool)
    assert float(link_loss(sure, sure, same)) == pytest.approx(link_loss_optimum(), abs=1e-9)
    assert float(link_loss(sure, sure.flip(0), ~same)) == pytest.approx(link_loss_optimum(), abs=1e-9)
    logits = torch.tensor([[0.4, 0.0]], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(
        link_loss(torch.log_softmax(logits, -1), sure[1:], torch.ones(1, dtype=torch.bool)), logits
    )
    assert gradient[0, 1] < -0.3, "towards the cluster of the other row"
