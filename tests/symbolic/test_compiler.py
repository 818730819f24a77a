"""Formulas drawn at random: a circuit against going through all worlds."""

import itertools
import math
import re
import signal
import threading
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from symbolic_cases import draw

from gedikit.errors import UsageError
from gedikit.symbolic.budget import Budget
from gedikit.symbolic.compiled import Compiled
from gedikit.symbolic.compiler import compiled
from gedikit.symbolic.formula import All, Fact, Is, Not, Some, leaves
from gedikit.symbolic.variables import Variable

VARIABLES = (Variable("a", (0, 1, 2)), Variable("b", (0, 1)), Variable("c", (0, 1, 2, 3)))
FACTS = (
    Fact("coin", (math.log(0.3), math.log(0.7))),
    Fact("die", tuple(map(math.log, (0.2, 0.3, 0.5)))),
    Fact("never", (-math.inf, 0.0)),
)
CHOICES = VARIABLES + FACTS
LEAVES = st.sampled_from([Is(c, i) for c in CHOICES for i in range(c.size)])
FORMULAS = st.recursive(
    LEAVES,
    lambda parts: st.one_of(
        st.builds(Not, parts),
        st.builds(lambda x: All(tuple(x)), st.lists(parts, max_size=3)),
        st.builds(lambda x: Some(tuple(x)), st.lists(parts, max_size=3)),
    ),
    max_leaves=12,
)


def holds(formula, world) -> bool:
    match formula:
        case Is(choice, value):
            return world[choice] == value
        case Not(part):
            return not holds(part, world)
        case All(parts):
            return all(holds(p, world) for p in parts)
        case Some(parts):
            return any(holds(p, world) for p in parts)


def satisfied(formula, log_p) -> dict[tuple[int, ...], float]:
    """The probability of every assignment of the variables together with the formula; facts are summed out."""
    found: dict[tuple[int, ...], float] = {}
    for positions in itertools.product(*(range(c.size) for c in CHOICES)):
        if holds(formula, dict(zip(CHOICES, positions, strict=True))):
            terms = [x[i].item() for x, i in zip(log_p, positions, strict=False)]
            terms += [f.log_p[i] for f, i in zip(FACTS, positions[len(VARIABLES) :], strict=True)]
            key = positions[: len(VARIABLES)]
            found[key] = found.get(key, 0.0) + math.exp(sum(terms))
    return {k: p for k, p in found.items() if p > 0}


def circuit_of(formula):
    return compiled([formula], Budget(60, 10**6)).circuit(VARIABLES)


def columns(log_p) -> torch.Tensor:
    return torch.cat(log_p)[:, None]


@settings(max_examples=150, deadline=None)
@given(formula=FORMULAS, seed=st.integers(0, 2**31))
def test_a_circuit_has_the_probability_and_the_marginals_of_its_formula(formula, seed):
    formula = All((formula, *(Some(tuple(Is(v, i) for i in range(v.size))) for v in VARIABLES)))
    log_p = draw([v.size for v in VARIABLES], (), seed)
    found = satisfied(formula, log_p)
    x = columns(log_p).requires_grad_()
    value = circuit_of(formula)(x)[0, 0]
    total = sum(found.values())
    assert value.exp().item() == pytest.approx(total, abs=1e-12)
    if not total:
        return
    gradient = torch.autograd.grad(value, x)[0][:, 0].split([v.size for v in VARIABLES])
    for v, share in enumerate(gradient):
        expected = [sum(p for w, p in found.items() if w[v] == i) / total for i in range(len(share))]
        assert share.tolist() == pytest.approx(expected, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(formula=FORMULAS, seed=st.integers(0, 2**31), k=st.integers(1, 5))
def test_the_best_worlds_are_those_of_the_list(formula, seed, k):
    formula = All((formula, *(Some(tuple(Is(v, i) for i in range(v.size))) for v in VARIABLES)))
    log_p = draw([v.size for v in VARIABLES], (), seed)
    found = satisfied(formula, log_p)
    if not found:
        return
    best = Compiled(VARIABLES, formula, All(()), Budget(60, 10**6), "it").worlds(columns(log_p)[:, 0], k)
    expected = sorted(found.values(), reverse=True)[:k]
    assert [math.exp(w) for _, w in best] == pytest.approx(expected, rel=1e-9)
    for world, weight in best:
        assert math.exp(weight) == pytest.approx(found[world], rel=1e-9)


def test_variables_that_do_not_matter_keep_their_posterior():
    """Neither the first nor the last choice of a formula is left out of any product."""
    formula = Some((Is(VARIABLES[0], 1), Is(VARIABLES[2], 3)))
    circuit = circuit_of(All((formula, Some((Is(VARIABLES[1], 0), Is(VARIABLES[1], 1))))))
    log_p = draw([v.size for v in VARIABLES])
    x = columns(log_p).requires_grad_()
    (gradient,) = torch.autograd.grad(circuit(x)[0, 0], x)
    torch.testing.assert_close(gradient[3:5, 0], log_p[1].exp())


def test_a_formula_deeper_than_python_recurses_compiles():
    formula = Is(VARIABLES[0], 0)
    for _ in range(3000):
        formula = Not(Some((formula, Is(FACTS[2], 0))))
    log_p = draw([v.size for v in VARIABLES])
    assert len(list(leaves(formula))) == 3001
    assert circuit_of(formula)(columns(log_p)).exp().item() == pytest.approx(log_p[0][0].exp().item())


def test_what_goes_wrong_on_the_large_stack_is_passed_on():
    before = threading.stack_size()
    with pytest.raises(ZeroDivisionError):
        Budget(60, 10).spend_on(lambda: 1 // 0)
    assert Budget(60, 10).spend_on(lambda: threading.current_thread() is threading.main_thread()) is False
    assert threading.stack_size() == before


def test_an_interrupt_ends_the_compilation():
    budget, stopped = Budget(60, 10), threading.Event()

    def work() -> None:
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        try:
            while True:
                budget.check(0)
                time.sleep(0.01)
        finally:
            stopped.set()

    with pytest.raises(KeyboardInterrupt):
        budget.spend_on(work)
    assert stopped.wait(10)


def test_a_diagram_beyond_the_limit_says_how_large_it_would_be():
    """Six choices among eight values that all differ: before the last, five have to be remembered."""
    choices = [Variable(f"x{i}", tuple(range(8))) for i in range(6)]
    apart = [
        Not(Some(tuple(All((Is(a, v), Is(b, v))) for v in range(8)))) for a, b in itertools.combinations(choices, 2)
    ]
    with pytest.raises(UsageError) as error:
        compiled([All(tuple(apart))], Budget(60, 3000))
    said = re.search(
        r"(\d+)% of its steps were done.* would be (\S+) nodes or more, at most (\S+),", str(error.value)
    )
    assert 0 < int(said[1]) < 100
    assert 3000 <= float(said[2]) < float(said[3]) == float(f"{6 * 8**5:.1g}")
    assert "5 values have to be remembered at once (x0, x1, x2, x3, …)" in str(error.value)
    assert len(compiled([All(tuple(apart))], Budget(60, 10**6)).nodes) < 6 * 8**5
