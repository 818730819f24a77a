"""Nearly certain, nearly impossible and impossible constraints."""

import pytest
import torch
from symbolic_cases import ADDITION, CARRY, addition, carry_query

from gedikit.symbolic import Constraint

KINDS = {
    "table": addition,
    "program": lambda: Constraint.from_program(ADDITION, "addition(a, b, c)"),
}
kinds = pytest.mark.parametrize("kind", KINDS)


def certain(digits: list[int], other: float) -> list[torch.Tensor]:
    """One row a digit: all but `digits` have log-probability `other`."""
    rows = torch.full((len(digits), 1, 10), other)
    for row, digit in zip(rows, digits, strict=True):
        row[0, digit] = 0.0
    return [x.requires_grad_() for x in rows.unbind()]


@kinds
@pytest.mark.parametrize("other", [-1e4, -torch.inf])
def test_a_certain_constraint_has_log_probability_zero_and_finite_gradients(kind, other):
    log_p = certain([2, 3, 5], other)
    value = KINDS[kind]().log_probability(log_p)
    assert value.item() == 0.0
    gradients = torch.autograd.grad(value.sum(), log_p)
    for gradient, digit in zip(gradients, (2, 3, 5), strict=True):
        torch.testing.assert_close(gradient, torch.eye(10)[digit][None])


@kinds
def test_a_nearly_impossible_constraint_says_what_would_help(kind):
    """2 + 3 = 6 needs one of three labels to change: each is worth −1e4."""
    log_p = certain([2, 3, 6], -1e4)
    value = KINDS[kind]().log_probability(log_p)
    assert value.item() == pytest.approx(-1e4 + torch.tensor(3.0).log().item(), rel=1e-6)
    gradients = torch.autograd.grad(value.sum(), log_p)
    for gradient, wanted, seen in zip(gradients, (3, 4, 5), (2, 3, 6), strict=True):
        assert gradient[0, wanted].item() == pytest.approx(1 / 3, abs=1e-3)
        assert gradient[0, seen].item() == pytest.approx(2 / 3, abs=1e-3)


@kinds
def test_an_impossible_constraint_has_probability_zero_and_gradients_that_are_numbers(kind):
    log_p = certain([2, 3, 6], -torch.inf)
    value = KINDS[kind]().log_probability(log_p)
    assert value.item() == -torch.inf
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(value.sum(), log_p))


def test_rows_with_and_without_a_chance_do_not_mix():
    both = [
        torch.cat([a, b]) for a, b in zip(certain([2, 3, 6], -torch.inf), certain([2, 3, 5], -1e4), strict=True)
    ]
    for kind in KINDS.values():
        assert kind().log_probability(both).tolist() == [-torch.inf, 0.0]


def test_probabilities_far_below_the_smallest_float_keep_their_gradients():
    """Ten digits that are all wrong by e^-80 have a probability of about e^-800 in single precision."""
    constraint = Constraint.from_program(CARRY, carry_query(3))
    logits = torch.zeros(10, 1, 10)
    logits[..., 9] = 80.0
    log_p = [x.requires_grad_() for x in torch.log_softmax(logits, -1).unbind()]
    value = constraint.log_probability(log_p)
    assert -400 < value.item() < -80
    exact = constraint.log_probability([x.detach().double() for x in log_p])
    assert value.item() == pytest.approx(exact.item(), rel=1e-6)
    gradients = torch.autograd.grad(value.sum(), log_p)
    for gradient in gradients:
        assert gradient.sum().item() == pytest.approx(1.0, abs=1e-4)


def test_evidence_that_cannot_hold_leaves_probability_zero_and_gradients_that_are_numbers():
    program = "nn(net, [X], Y, [0, 1, 2]) :: a(X, Y).\nq :- a(x, 2).\ne :- \\+ a(x, 0).\nevidence(e)."
    constraint = Constraint.from_program(program, "q")
    log_p = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.3, 0.2]]).log().requires_grad_()
    value = constraint.log_probability([log_p])
    assert value.tolist() == [-torch.inf, pytest.approx(torch.tensor(0.4).log().item())]
    (gradient,) = torch.autograd.grad(value.sum(), log_p)
    assert torch.isfinite(gradient[0]).all()
    torch.testing.assert_close(gradient[1], torch.tensor([0.0, -0.6, 0.6]))
    assert constraint.satisfaction().tolist() == [0.0, 0.0, 1.0]
