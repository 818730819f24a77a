"""Constraints on a GPU: the same numbers, also from a captured graph."""

import pytest
import torch
from symbolic_cases import CARRY, addition, carry_query, draw

from gedikit.paper.reproduce.given_sums import addition as added
from gedikit.symbolic import Constraint, best_relabelling

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

KINDS = {
    "table": addition,
    "program": lambda: Constraint.from_program(CARRY, carry_query(2)),
    "chain": lambda: added(12),
}


def value_and_gradients(constraint: Constraint, log_p: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    value = constraint.log_probability(log_p)
    return (value, *torch.autograd.grad(value.sum(), log_p))


@pytest.mark.parametrize("kind", KINDS)
def test_a_captured_graph_follows_its_input(kind):
    if kind == "program":
        pytest.importorskip("problog", reason="programs need gedikit[symbolic]")
    constraint = KINDS[kind]()
    sizes = [v.size for v in constraint.variables]
    held = [x.cuda().requires_grad_() for x in draw(sizes, (32,), seed=0)]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            value_and_gradients(constraint, held)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = value_and_gradients(constraint, held)
    other = [x.requires_grad_() for x in draw(sizes, (32,), seed=1)]
    # using it elsewhere must not take away what the graph reads
    expected = value_and_gradients(constraint, other)
    with torch.no_grad():
        for to, x in zip(held, other, strict=True):
            to.copy_(x)
    graph.replay()
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.cpu(), b)


def test_names_are_found_where_the_posteriors_are():
    a, b = torch.tensor([(a, b) for a in range(10) for b in range(10 - a)]).T
    log_p = [torch.eye(10)[digit].log() for digit in (a, b, a + b)]
    here, there = (best_relabelling([x.to(d) for x in log_p], addition()) for d in ("cpu", "cuda"))
    assert torch.equal(here.namings[0], there.namings[0].cpu())
    assert here.exact
    assert there.exact
    assert there.apply(log_p[0].cuda()).is_cuda
