"""Rules that carry a state from position to position: against all worlds, programs, and closed forms."""

import math
import random
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from symbolic_cases import CARRY, carry_query, draw, marginals, worlds

from gedikit.errors import UsageError
from gedikit.symbolic import Constraint
from gedikit.symbolic.chain import Chain
from gedikit.symbolic.circuit import CPU


def add(carry: int, a: int, b: int, c: int) -> int | None:
    carry, digit = divmod(a + b + carry, 10)
    return carry if c == digit else None


def last(carry: int, c: int) -> int | None:
    return carry if c == carry else None


def sums(n: int) -> Constraint:
    """Numbers of n digits, the last digit first."""
    return Constraint.from_chain([add] * n + [last], [(10, 10, 10)] * n + [10], start=0)


def certain(values: list[int], sizes: list[int]) -> list[torch.Tensor]:
    return [torch.eye(n, dtype=torch.float64)[v].log() for v, n in zip(values, sizes, strict=True)]


def automaton(seed: int) -> tuple[Constraint, list[int]]:
    """Four positions with one to three variables, up to five states, steps drawn at random."""
    rng = random.Random(seed)
    domains = [tuple(rng.randint(1, 3) for _ in range(rng.randint(1, 2))) for _ in range(4)]
    n_states, breaks = rng.randint(1, 5), rng.random() / 2

    def drawn():
        table: dict[tuple[int, ...], int | None] = {}

        def step(state, *values):
            return table.setdefault((state, *values), None if rng.random() < breaks else rng.randrange(n_states))

        return step

    steps = [drawn(), drawn()] * 2
    accept = [s for s in range(n_states) if rng.random() < 0.7]
    try:
        constraint = Constraint.from_chain(steps, domains, start=0, accept=accept)
    except UsageError as error:
        assert "is false whatever the values" in str(error)
        return automaton(seed + 10_000)
    constraint.weight = lambda *v: float(run(steps, domains, v) in accept)  # type: ignore[attr-defined]
    return constraint, [n for d in domains for n in d]


def run(steps, domains, values):
    """The state after all positions, step by step."""
    state, rest = 0, list(values)
    for step, domain in zip(steps, domains, strict=True):
        state = step(state, *rest[: len(domain)])
        rest = rest[len(domain) :]
        if state is None:
            return None
    return state


@pytest.mark.parametrize("seed", range(25))
def test_random_automata_have_the_probabilities_of_their_worlds(seed):
    constraint, sizes = automaton(seed)
    log_p = [x.requires_grad_() for x in draw(sizes, (), seed)]
    found = worlds(constraint.weight, log_p)
    value = constraint.log_probability(log_p)
    assert value.item() == pytest.approx(math.log(sum(found.values())), abs=1e-9)
    for gradient, expected in zip(torch.autograd.grad(value, log_p), marginals(found, sizes), strict=True):
        torch.testing.assert_close(gradient, expected)
    best = constraint.body.worlds(torch.cat([x.detach() for x in log_p]), 4)
    assert [math.exp(w) for _, w in best] == pytest.approx(sorted(found.values(), reverse=True)[:4])
    assert [found[world] for world, _ in best] == pytest.approx([math.exp(w) for _, w in best])
    every = constraint.satisfaction()
    assert all(
        every[w].item() == constraint.weight(*w) for w in [tuple(x) for x in (every >= 0).nonzero().tolist()]
    )


@pytest.mark.parametrize("seed", range(5))
def test_gradients_agree_with_finite_differences_in_any_batch(seed):
    constraint, sizes = automaton(seed)
    log_p = [x.requires_grad_() for x in draw(sizes, (2, 3), seed)]
    assert constraint.log_probability(log_p).shape == (2, 3)
    assert torch.autograd.gradcheck(lambda *x: constraint.log_probability(x), log_p)


def test_long_addition_is_that_of_the_table_and_of_the_program():
    tuples = [
        (x % 10, y % 10, (x + y) % 10, x // 10, y // 10, (x + y) // 10 % 10, (x + y) // 100)
        for x in range(100)
        for y in range(100)
    ]
    chain = sums(2)
    names = [v.name for v in chain.variables]
    assert names == ["a0", "b0", "c0", "a1", "b1", "c1", "c2"]
    program = Constraint.from_program(CARRY, carry_query(2))
    log_p = [x.requires_grad_() for x in draw((10,) * 7, (3,))]
    as_program = [log_p[names.index(v.name.removeprefix("digit(").removesuffix(")"))] for v in program.variables]
    values = [
        chain.log_probability(log_p),
        Constraint.from_table(tuples, (10,) * 7).log_probability(log_p),
        program.log_probability(as_program),
    ]
    for other in values[1:]:
        torch.testing.assert_close(values[0], other, rtol=1e-12, atol=1e-12)
        gradients = (torch.autograd.grad(v.sum(), log_p, retain_graph=True) for v in (values[0], other))
        torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)


def test_a_carry_over_fifty_places_decides():
    """Every digit is certain but the first of one number, and only a digit in the middle of the sum tells it."""
    n = 100
    x = [9] * 50 + [3] * 50
    y = [0] * 50 + [4] * 50
    y[0] = 1  # 1 + 999…9 carries into place 50
    total = sum(d * 10**i for i, d in enumerate(x)) + sum(d * 10**i for i, d in enumerate(y))
    digits = {f"a{i}": d for i, d in enumerate(x)} | {f"b{i}": d for i, d in enumerate(y)}
    digits |= {f"c{i}": total // 10**i % 10 for i in range(n + 1)}
    chain = sums(n)
    assert digits["c50"] == 8
    p = {name: torch.eye(10, dtype=torch.float64)[d] for name, d in digits.items()}
    p |= {f"c{i}": torch.full((10,), 0.1, dtype=torch.float64) for i in range(50)}
    p["b0"] = torch.tensor([0.75, 0.25] + [0.0] * 8, dtype=torch.float64)
    log_p = [p[v.name].log().requires_grad_() for v in chain.variables]
    value = chain.log_probability(log_p)
    assert value.item() == pytest.approx(math.log(0.25) - 50 * math.log(10))
    gradients = torch.autograd.grad(value, log_p)
    for v, gradient in zip(chain.variables, gradients, strict=True):
        torch.testing.assert_close(gradient, torch.eye(10, dtype=torch.float64)[digits[v.name]])
    found = chain.explain([x.detach() for x in log_p])
    assert [w.values for w in found.worlds] == [digits]


def test_single_precision_keeps_six_digits_at_a_hundred_places():
    chain = sums(100)
    log_p = [x.float().requires_grad_() for x in draw((10,) * 301, (4,))]
    exact = [x.detach().double().requires_grad_() for x in log_p]
    values = [chain.log_probability(x) for x in (log_p, exact)]
    torch.testing.assert_close(values[0].double(), values[1], rtol=1e-6, atol=0)
    gradients = [torch.autograd.grad(v.sum(), x) for v, x in zip(values, (log_p, exact), strict=True)]
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=1e-3)


def test_a_known_sum_is_an_input_and_the_rest_follows():
    """These two images sum to 13: one circuit for all sums, known digits as log one-hot rows."""
    chain = sums(1)
    a, b = (x.requires_grad_() for x in draw((10, 10)))
    for total in range(19):
        value = chain.log_probability([a, b, *certain([total % 10, total // 10], [10, 10])])
        pairs = [(i, total - i) for i in range(10) if 0 <= total - i < 10]
        expected = [a.exp()[i] * b.exp()[j] for i, j in pairs]
        assert value.exp().item() == pytest.approx(sum(expected).item())
        (gradient,) = torch.autograd.grad(value, a)
        share = torch.zeros(10, dtype=torch.float64)
        for (i, _), p in zip(pairs, expected, strict=True):
            share[i] = (p / sum(expected)).item()
        torch.testing.assert_close(gradient, share)


def test_what_is_known_to_be_wrong_leaves_gradients_that_are_numbers():
    chain = sums(3)
    values = {"a": [1, 2, 3], "b": [4, 5, 6], "c": [5, 7, 0, 0]}  # 321 + 654 = 975, not 75
    known = certain([values[v.name[0]][int(v.name[1:])] for v in chain.variables], [10] * 10)
    log_p = [x.requires_grad_() for x in known]
    value = chain.log_probability(log_p)
    assert value.item() == -math.inf
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(value, log_p))
    nearly = [torch.where(x.detach() == -math.inf, -1e4, x.detach()).requires_grad_() for x in log_p]
    value = chain.log_probability(nearly)
    assert value.item() == pytest.approx(-1e4)  # c2 = 9 is the only way with one digit wrong
    gradient = torch.autograd.grad(value, nearly)[8]
    torch.testing.assert_close(gradient, torch.eye(10, dtype=torch.float64)[9])


@pytest.mark.parametrize("make", [sums, lambda n: Constraint.from_program(CARRY, carry_query(n))])
def test_size_grows_with_length_and_depth_with_its_logarithm(make):
    bodies = [make(n).body for n in (2, 4, 8)]
    assert [len(body.diagram.nodes) for body in bodies] == [33 * n for n in (2, 4, 8)]
    assert all(body.circuit.n_products < 150 * n for body, n in zip(bodies, (2, 4, 8), strict=True))
    levels = [len(body.circuit._parts[CPU].levels) for body in bodies]
    assert [b - a for a, b in pairwise(levels)] == [1, 1]


def test_a_program_of_fifty_places_is_that_chain():
    """In a process of its own, without the checks of types that this one makes."""
    script = f"""
import sys, torch
sys.path.insert(0, {str(Path(__file__).parent)!r})
torch.set_num_threads(1)
from symbolic_cases import CARRY, carry_query, draw
from test_chains import sums
from gedikit.symbolic import Constraint
chain, program = sums(50), Constraint.from_program(CARRY, carry_query(50))
log_p = dict(zip([v.name for v in chain.variables], draw((10,) * 151, (3,)), strict=True))
values = [
    chain.log_probability([log_p[v.name] for v in chain.variables]),
    program.log_probability([log_p[v.name[6:-1]] for v in program.variables]),
]
torch.testing.assert_close(*values, rtol=1e-12, atol=0)
print(len(chain.body.diagram.nodes), len(program.body.diagram.nodes))
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.split() == ["1650", "1650"]


def test_a_step_is_asked_once_about_every_state_and_all_values():
    asked = Counter()

    def step(state, a, b):
        asked[state, a, b] += 1
        return (state + a * b) % 3

    Constraint.from_chain(step, [(3, 2)] * 50, start=0)
    assert len(asked) == 3 * 3 * 2
    assert set(asked.values()) == {1}


def test_wide_states_are_read_one_after_the_other_and_narrow_ones_side_by_side():
    """A product of matrices with 50 rows takes 50 times as long as a row and a matrix."""
    wide = Constraint.from_chain(lambda s, x: (s + x) % 50, [10] * 64, start=0, accept=[7])
    narrow = Constraint.from_chain(lambda s, x: (s + x) % 2, [10] * 64, start=0, accept=[1])
    assert wide.body.circuit.n_products < 64 * 50 * 10
    assert len(narrow.body.circuit._parts[CPU].levels) < 10
    log_p = draw((10,) * 64)
    for constraint, modulus, rest in ((wide, 50, 7), (narrow, 2, 1)):
        shares = torch.eye(modulus, dtype=torch.float64)[0]
        for x in log_p:
            shares = sum(p * shares.roll(i) for i, p in enumerate(x.exp()))
        assert constraint.log_probability(log_p).exp().item() == pytest.approx(shares[rest].item())


def test_states_may_be_anything_and_any_may_be_the_first():
    """No value twice in a row: the state is the last value, at first None."""
    proper = Constraint.from_chain(
        lambda before, x: None if x == before else x, [(("red", "green", "blue"),)] * 5, start=None
    )
    assert proper.satisfaction().sum().item() == 3 * 2**4
    parity = Constraint.from_chain(lambda odd, x: odd != x, [((False, True),)] * 5, start=False, accept=[True])
    assert parity.satisfaction().sum().item() == 16


def test_chains_in_the_same_order_join_to_a_chain():
    at_most = Constraint.from_chain(lambda n, x: n + x if n + x <= 3 else None, [2] * 6, start=0)
    even = Constraint.from_chain(
        lambda odd, x: (odd + x) % 2, [2] * 4, start=0, accept=[0], names=["x1", "y", "x4", "z"]
    )
    both = at_most & even
    assert isinstance(both.body, Chain)
    assert [v.name for v in both.variables] == [*(f"x{i}" for i in range(6)), "y", "z"]
    every = both.satisfaction()
    for w in [tuple(x) for x in (every >= 0).nonzero().tolist()]:
        assert every[w].item() == (sum(w[:6]) <= 3 and (w[1] + w[6] + w[4] + w[7]) % 2 == 0)
    backwards = Constraint.from_chain(lambda n, x: x if x >= n else None, [2] * 6, start=0).renamed(
        {f"x{i}": f"x{5 - i}" for i in range(6)}
    )
    falling = (at_most & backwards).satisfaction()
    assert [tuple(x) for x in falling.nonzero().tolist()] == [tuple([1] * n + [0] * (6 - n)) for n in range(4)]
    none = Constraint.from_chain(lambda n, x: n + x, [2] * 6, start=0, accept=[5])
    with pytest.raises(UsageError, match="allow no values in common"):
        at_most & none


def test_a_table_joins_a_chain():
    ordered = sums(1) & Constraint(lambda a0, b0: a0 < b0, domains=(10, 10))
    assert ordered.satisfaction().sum().item() == 45


def test_variables_of_a_chain_may_be_renamed_and_made_one():
    chain = sums(2)
    other = chain.renamed({"a0": "first", "c2": "last"})
    assert isinstance(other.body, Chain)
    assert [v.name for v in other.variables] == ["first", "b0", "c0", "a1", "b1", "c1", "last"]
    log_p = draw((10,) * 7)
    assert torch.equal(other.log_probability(log_p), chain.log_probability(log_p))
    doubled = chain.renamed({"b0": "a0", "b1": "a1"})
    log_p = draw((10,) * 5)
    p = [x.exp() for x in log_p]
    expected = sum(
        p[0][x % 10] * p[1][2 * x % 10] * p[2][x // 10] * p[3][2 * x // 10 % 10] * p[4][2 * x // 100]
        for x in range(100)
    )
    assert doubled.log_probability(log_p).exp().item() == pytest.approx(expected.item())


def test_a_chain_says_what_it_implies():
    assert sums(2).least_loss() == 0
    prior = sums(1).implied_prior().marginals
    assert prior["c1"][1].item() == pytest.approx(0.45)
    assert prior["a0"].tolist() == pytest.approx([0.1] * 10)


def fails(carry, a):
    return carry // (a - 1)


REFUSED = {
    "fails": (
        lambda: Constraint.from_chain(fails, [3] * 2, start=0),
        r"the chain of 2 positions by fails, at position 0 in state 0 for 1, fails: ZeroDivisionError",
    ),
    "false for none": (
        lambda: Constraint.from_chain(lambda n, x: x > 0 and n + x, [3] * 2, start=0),
        r"in state 0 for 0, gives False, which Python takes for the state 0: give None where the rule is broken",
    ),
    "never": (
        lambda: Constraint.from_chain(lambda n, x: n + x, [2] * 3, start=0, accept=[7]),
        r"is false whatever the values.*`accept` has none of the states that it ends in, 0, 1, 2, 3$",
    ),
    "broken": (
        lambda: Constraint.from_chain(lambda n, x: n + 1 if n + x < 2 else None, [2] * 4, start=0),
        r"is false whatever the values.*its step is None for all values at position 2",
    ),
    "unhashable": (lambda: Constraint.from_chain(lambda n, x: [n, x], [2], start=0), r"unhashable type: 'list'"),
    "steps": (lambda: Constraint.from_chain([last], [2] * 3, start=0), r"domains has 3 positions for 1 steps"),
    "parameters": (
        lambda: Constraint.from_chain(add, [(10, 10)], start=0),
        r"position 0 has 2 variables, so its step needs 3 parameters, the state first: it has 4",
    ),
    "names": (
        lambda: Constraint.from_chain(last, [2] * 2, start=0, names=["a", ("b", "c")]),
        r"names must be shaped like domains",
    ),
    "values for domains": (
        lambda: Constraint.from_chain(last, [("red", "green")], start=0),
        r"has the domains \('red', 'green'\): give one for each variable.* such as \(\('red', 'green'\),\) for a",
    ),
    "no variables": (lambda: Constraint.from_chain(lambda n: n, [2, ()], start=0), r"position 1 has no variables"),
    "calls": (
        lambda: Constraint.from_chain(lambda n, *x: (n, x), [(10,) * 7], start=0),
        r"more than 2e\+06 times: there are at least 1 states up to position 0, each with 10000000 tuples",
    ),
    "tuples": (
        lambda: Constraint.from_chain(last, [10] * 400, start=0).satisfaction(),
        r"has 10\^400 tuples of values",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_chains_that_are_refused(name):
    make, sentence = REFUSED[name]
    with pytest.raises(UsageError, match=sentence):
        make()


def test_chains_with_too_many_states_are_refused_with_an_estimate(monkeypatch):
    def whole_number():
        Constraint.from_chain(lambda n, x: 2 * n + x, [2] * 40, start=1)

    monkeypatch.setattr("gedikit.symbolic.chain.MAX_CALLS", 1000)
    with pytest.raises(UsageError, match=r"its step more than 1e\+03 times: there are at least 501 states up to"):
        whole_number()
    monkeypatch.setattr("gedikit.symbolic.chain.MAX_NODES", 100)
    with pytest.raises(
        UsageError, match=r"has 127 nodes up to position 6 and 128 states there, about 7e\+02 in all"
    ):
        whole_number()
