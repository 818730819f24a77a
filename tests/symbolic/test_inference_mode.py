"""What is made or first used without gradients can be trained with later."""

import pytest
import torch
from symbolic_cases import ADDITION, addition

from gedikit.symbolic import Constraint, Examples

KINDS = {
    "table": addition,
    "table as a circuit": lambda: Constraint(lambda a, b, c: (a + b) % 30 == c, (30, 30, 30)),
    "program": lambda: Constraint.from_program(ADDITION, "addition(a, b, c)"),
    "evidence": lambda: Constraint.from_program(ADDITION + "evidence(addition(a, b, c)).", "digit(a, 1)"),
}
kinds = pytest.mark.parametrize("kind", KINDS)


def trained(constraint: Constraint, device: str) -> list[torch.Tensor]:
    log_p = [torch.full((2, v.size), 1 / v.size, device=device).log() for v in constraint.variables]
    log_p = [x.requires_grad_() for x in log_p]
    return list(torch.autograd.grad(constraint.log_probability(log_p).sum(), log_p))


@kinds
def test_training_follows_making_and_asking(kind):
    expected = trained(KINDS[kind](), "cpu")
    with torch.inference_mode():
        constraint = KINDS[kind]()
        constraint.log_probability([torch.zeros(1, v.size) for v in constraint.variables])
    torch.testing.assert_close(trained(constraint, "cpu"), expected)


@kinds
def test_training_follows_asking_on_another_device(kind):
    constraint = KINDS[kind]()
    with torch.inference_mode():
        constraint.log_probability([torch.zeros(1, v.size, device="meta") for v in constraint.variables])
    assert [g.shape for g in trained(constraint, "meta")] == [(2, v.size) for v in constraint.variables]


@kinds
def test_explanations_and_priors_need_no_gradients(kind):
    constraint = KINDS[kind]()
    log_p = [torch.full((v.size,), 1 / v.size).log() for v in constraint.variables]
    expected, prior = constraint.explain(log_p), constraint.implied_prior()
    with torch.inference_mode():
        found, same = constraint.explain([x.clone() for x in log_p]), constraint.implied_prior()
    assert found.log_probability == expected.log_probability
    assert found.worlds == expected.worlds
    torch.testing.assert_close(found.marginals, expected.marginals)
    torch.testing.assert_close(same.marginals, prior.marginals)


def test_examples_may_be_listed_without_gradients():
    with torch.inference_mode():
        examples = Examples(addition(), torch.tensor([[0, 1, 2], [1, 1, 2]]))
    log_p = torch.full((3, 10), 0.1).log().requires_grad_()
    value = examples.log_probability(log_p)
    assert value.exp().tolist() == pytest.approx([0.055, 0.05])
    (gradient,) = torch.autograd.grad(value.sum(), log_p)
    assert gradient.sum(1).tolist() == pytest.approx([1, 2, 2])
