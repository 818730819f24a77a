"""What holds for all objectives: gradients, order of rows, models side by side."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objective_cases import CASES, QUEUE

from gedikit.objectives import batch

SEEDS = st.integers(0, 2**32 - 1)
names = pytest.mark.parametrize("name", CASES)


def differentiable(case, drawn):
    for spec, tensor in zip(case.inputs, drawn, strict=True):
        tensor.requires_grad_(spec.learned)
    return drawn


def with_gradients(case, drawn):
    """Value, and gradients of the embeddings."""
    drawn = differentiable(case, [t.detach().clone() for t in drawn])
    value = case.loss(*drawn)
    return value.detach(), torch.autograd.grad(value.sum(), [t for t in drawn if t.requires_grad])


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if not case.codes])
def test_gradients_agree_with_finite_differences(name):
    case = CASES[name]
    assert torch.autograd.gradcheck(case.loss, differentiable(case, case.draw(0)), atol=1e-6, rtol=1e-4)


@names
@settings(max_examples=5, deadline=None)
@given(seed=SEEDS)
def test_order_of_rows_does_not_matter(name, seed):
    case = CASES[name]
    drawn = case.draw(seed)
    order = torch.randperm(drawn[0].shape[-2], generator=torch.Generator().manual_seed(seed))
    shuffled = [
        tensor
        if spec.rows is None or len(order) != tensor.shape[spec.rows]
        else tensor.index_select(spec.rows, order)
        for spec, tensor in zip(case.inputs, drawn, strict=True)
    ]
    value, gradients = with_gradients(case, drawn)
    other_value, other_gradients = with_gradients(case, shuffled)
    torch.testing.assert_close(other_value, value, rtol=1e-10, atol=1e-10)
    learned = [spec for spec in case.inputs if spec.learned]
    for spec, gradient, other in zip(learned, gradients, other_gradients, strict=True):
        expected = gradient if spec.rows is None else gradient.index_select(spec.rows, order)
        torch.testing.assert_close(other, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("shape", [(5, 3), (2, 4, 3)])
def test_moments_of_a_tensor_with_itself_have_the_derivatives_of_a_product(shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(batch.moment(x, x), batch.moment(x, x.clone()))
    assert torch.autograd.gradcheck(lambda a: batch.moment(a, a), x)
    assert torch.autograd.gradgradcheck(lambda a: batch.moment(a, a), x)


PAIRED = [n for n, case in CASES.items() if [i.rows for i in case.inputs].count(None) < len(case.inputs) - 1]


@pytest.mark.parametrize("name", PAIRED)
def test_rows_belong_together(name):
    """Shuffling the last tensor alone changes every loss but those that compare two separate samples."""
    case = CASES[name]
    last = max(i for i, spec in enumerate(case.inputs) if spec.rows is not None and spec.shape != QUEUE.shape)
    drawn = case.draw(0)
    drawn[last] = drawn[last].roll(1, case.inputs[last].rows)
    same = torch.isclose(case.loss(*drawn), case.loss(*case.draw(0)), rtol=1e-6)
    assert same == (name in ("generative", "energy_l2"))


@names
@pytest.mark.parametrize("members", [(3,), (2, 2)])
def test_models_side_by_side_get_the_values_and_gradients_they_get_alone(name, members):
    case = CASES[name]
    count = torch.Size(members).numel()
    alone = [case.draw(seed) for seed in range(count)]
    together = [torch.stack(t).reshape(*members, *t[0].shape) for t in zip(*alone, strict=True)]
    values, gradients = with_gradients(case, together)
    assert values.shape == members
    for i, drawn in enumerate(alone):
        value, own_gradients = with_gradients(case, drawn)
        torch.testing.assert_close(values.flatten()[i], value, rtol=1e-12, atol=1e-12)
        for all_members, own in zip(gradients, own_gradients, strict=True):
            one = all_members.reshape(count, *own.shape)[i]
            torch.testing.assert_close(one, own, rtol=1e-9, atol=1e-12)
