"""Which value each row shows, where clusters outnumber values."""

import doctest
import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from naming_cases import (
    FEW,
    RULES,
    SUMS,
    WEIGHTS,
    OneKind,
    as_seen,
    long_addition,
    random_shows,
    seen,
    weighted,
)
from symbolic_cases import ADDITION, CARRY, DIGITS, addition, carry_query, marginals, worlds
from torch import Tensor

from gedikit.errors import UsageError
from gedikit.symbolic import Constraint, likelihoods, name_clusters

PAGE = Path(__file__).parents[2] / "docs" / "symbolic.md"


ANY_THREE = list(itertools.product(range(3), repeat=3))


def by_hand(prior: Callable[..., float], shows: Tensor, example: Tensor) -> tuple[float, list[Tensor]]:
    """log p(clusters) and p(value | clusters) of one example, from all tuples of values; `prior` adds up to 1."""
    found = worlds(prior, [shows[:, cluster].log() for cluster in example])
    return math.log(sum(found.values())), marginals(found, [len(shows)] * len(example))


def share(*values: int) -> float:
    return WEIGHTS.get(values, 0.0) / sum(WEIGHTS.values())


def less(a: int, b: int) -> float:
    return (a < b) / 3


@pytest.mark.parametrize("rule", RULES)
def test_probabilities_for_given_clusters_are_those_of_going_through_all_tuples(rule):
    clusters = torch.tensor(list(itertools.product(range(4), repeat=3)))
    examples = OneKind(weighted(), clusters, 4, rule)
    shows = random_shows(3, 4, starts=5)
    log_evidence, posterior = examples.evaluate(shows.log())
    for s, (pattern, example) in itertools.product(range(5), enumerate(examples.patterns)):
        log_p, expected = by_hand(share, shows[s], example)
        assert log_evidence[s, pattern].item() == pytest.approx(log_p)
        torch.testing.assert_close(posterior[s, :, :, pattern], torch.stack(expected))


@pytest.mark.parametrize("rule", RULES)
def test_facts_and_evidence_are_the_weights_of_tuples(rule):
    """One reading in four is of anything; whatever was read, a was seen to be small, or the light was bad (0.2)."""
    program = """
    nn(digit, [X], Y, [0,1,2]) :: digit(X, Y).
    0.75::careful. 0.2::dark.
    sum(A, B, C) :- careful, digit(A, X), digit(B, Y), Z is X + Y, digit(C, Z).
    sum(A, B, C) :- \\+ careful, digit(A, _), digit(B, _), digit(C, _).
    plausible(A) :- digit(A, 0).
    plausible(A) :- dark.
    evidence(plausible(a)).
    """
    weights = {(a, b, c): (0.25 + 0.75 * (a + b == c)) * (0.2 + 0.8 * (a == 0)) for a, b, c in ANY_THREE}
    clusters = torch.randint(4, (6, 3), generator=torch.Generator().manual_seed(0))
    examples = OneKind(Constraint.from_program(program, "sum(a, b, c)"), clusters, 4, rule)
    shows = random_shows(3, 4)
    log_evidence, posterior = examples.evaluate(shows.log())
    for pattern, example in enumerate(examples.patterns):
        log_p, expected = by_hand(lambda *x: weights[x] / sum(weights.values()), shows[0], example)
        assert log_evidence[0, pattern].item() == pytest.approx(log_p)
        torch.testing.assert_close(posterior[0, :, :, pattern], torch.stack(expected))


SMALL = {
    "predicate": addition,
    "weights": weighted,
    "program": lambda: Constraint.from_program(ADDITION, "addition(a, b, c)"),
    "facts": lambda: Constraint.from_program(
        DIGITS + "0.3::broken. even(A, B) :- digit(A, X), digit(B, Y), 0 is (X + Y) mod 2. even(_, _) :- broken.\n"
        "sum(A, B) :- even(A, B), digit(A, _), digit(B, _).",
        "sum(a, b)",
    ),
    "a value twice": lambda: addition().renamed({"b": "a"}),
    "one variable": lambda: Constraint(lambda a: a > 2, (10,)),
    "a table with a circuit": lambda: Constraint(lambda a, b, c, d: a <= b <= c <= d, (10,) * 4),
    "a table and a program": lambda: (
        Constraint.from_program(ADDITION, "addition(a, b, c)")
        & Constraint(lambda a, b: a <= b, (10, 10), names=["digit(a)", "digit(b)"])
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_a_circuit_says_what_its_tuples_say(name):
    constraint = SMALL[name]()
    n_values, n_variables = constraint.variables[0].size, len(constraint.variables)
    clusters = torch.randint(6, (20, n_variables), generator=torch.Generator().manual_seed(0))
    tuples, circuit = (OneKind(constraint, clusters, 6, rule) for rule in RULES)
    shows = random_shows(n_values, 6, starts=4)
    for found, expected in zip(circuit.evaluate(shows.log()), tuples.evaluate(shows.log()), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    climbed = [m.climbed(shows, 0.1, 5) for m in (tuples, circuit)]
    torch.testing.assert_close(*climbed, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(*(m.log_likelihoods(shows) for m in (tuples, circuit)))


def test_long_additions_are_what_a_sum_over_all_of_them_says():
    _, clusters = seen(12, 15, 0.2, 0, SUMS)
    examples = OneKind(long_addition(), clusters, 15, likelihoods.ByCircuit)
    shows = random_shows(10, 15)
    log_evidence, posterior = examples.evaluate(shows.log())
    for pattern, example in enumerate(examples.patterns):
        products = shows[0][SUMS, example].prod(1) / len(SUMS)
        assert log_evidence[0, pattern].item() == pytest.approx(math.log(products.sum()))
        for v in range(7):
            expected = torch.zeros(10).double().index_add_(0, SUMS[:, v], products) / products.sum()
            torch.testing.assert_close(posterior[0, v, :, pattern], expected)


@pytest.mark.parametrize("rule", RULES)
def test_expected_rows_count_every_example(rule):
    clusters = torch.tensor([[0, 1, 1], [3, 2, 0], [0, 1, 1], [0, 1, 1], [2, 2, 2]])
    shows = random_shows(3, 4)
    expected = torch.zeros(3, 4, dtype=torch.float64)
    for example in clusters:
        for cluster, posterior in zip(example, by_hand(share, shows[0], example)[1], strict=True):
            expected[:, cluster] += posterior
    found = OneKind(weighted(), clusters, 4, rule).expected_rows(shows.log())
    torch.testing.assert_close(found[0], expected)


@pytest.mark.parametrize("rule", RULES)
def test_products_too_small_for_their_type_are_not_lost(rule):
    """An even number of ones among 12, each cluster shown with a probability of e⁻²⁰ or e⁻²⁵: e⁻²⁴⁰ at most."""
    constraint = Constraint(lambda *x: sum(x) % 2 == 0, (2,) * 12)
    examples = OneKind(constraint, torch.zeros(1, 12, dtype=torch.int64), 2, rule)
    log_evidence, posterior = examples.evaluate(torch.tensor([[[-20.0, 0.0], [-25.0, 0.0]]]))
    ratio = math.exp(-5)
    even, odd = (((1 + ratio) ** n + (1 - ratio) ** n) / 2 for n in (12, 11))
    assert log_evidence.item() == pytest.approx(-240 + math.log(even) - math.log(2**11), rel=1e-6)
    torch.testing.assert_close(posterior[0, :, 0, 0], torch.full((12,), odd / even))


@pytest.mark.parametrize("listed", [1000, 0])
def test_what_is_found_is_what_its_own_probabilities_say(listed, monkeypatch):
    monkeypatch.setattr(likelihoods, "MAX_LISTED", listed)
    clusters = torch.randint(4, (12, 3), generator=torch.Generator().manual_seed(1))
    found = name_clusters(weighted(), clusters, 4, starts=20)
    answers = [by_hand(share, found.shows.double(), example) for example in clusters]
    assert found.log_likelihood == pytest.approx(sum(log_p for log_p, _ in answers), rel=1e-6)
    expected = torch.stack([torch.stack(posterior) for _, posterior in answers])
    torch.testing.assert_close(found.log_posterior.exp(), expected.float())
    assert found.runner_up <= found.log_likelihood


def test_examples_seen_twice_count_twice():
    _, clusters = seen(30, 10, 0.2, 3)
    once = name_clusters(addition(), clusters, 10, starts=20, smoothing=0.1)
    twice = name_clusters(addition(), clusters.repeat(2, 1), 10, starts=20, smoothing=0.2)
    torch.testing.assert_close(twice.shows, once.shows)
    torch.testing.assert_close(twice.log_posterior.exp(), once.log_posterior.exp().repeat(2, 1, 1))
    assert twice.log_likelihood == pytest.approx(2 * once.log_likelihood)


@pytest.mark.parametrize("seed", range(5))
def test_scrambled_digits_get_their_names(seed):
    digits, clusters = seen(100, 10, 0.0, seed)
    found = name_clusters(addition(), clusters, 10, starts=1000, seed=seed)
    assert torch.equal(found.log_posterior.argmax(-1), digits)


def test_many_noisy_clusters_of_a_digit_get_its_name():
    digits, clusters = seen(100, 25, 0.05, 0)
    found = name_clusters(addition(), clusters, 25)
    assert (found.log_posterior.argmax(-1) == digits).float().mean() > 0.9


@pytest.mark.parametrize("seed", range(3))
def test_digits_of_long_additions_get_their_names(seed):
    """Ten million tuples of seven digits; noise alone puts every twentieth of them into a cluster of others."""
    digits, clusters = seen(80, 25, 0.05, seed, SUMS)
    found = name_clusters(long_addition(), clusters, 25, starts=60, seed=seed)
    assert (found.log_posterior.argmax(-1) == digits).float().mean() > 0.93
    named = found.log_posterior.argmax(-1)
    a, b, c = (sum(10**i * named[:, v] for i, v in enumerate(places)) for places in ((0, 1), (2, 3), (4, 5, 6)))
    assert (a + b == c).float().mean() > 0.9


def test_two_variables_keep_to_the_rule():
    """a < b: whatever the clusters, a is never the largest value and b never the smallest."""
    clusters = torch.randint(5, (40, 2), generator=torch.Generator().manual_seed(0))
    found = name_clusters(Constraint(lambda a, b: a < b, (3, 3)), clusters, 5, starts=50)
    assert (found.log_posterior[:, 0, 2] == -torch.inf).all()
    assert (found.log_posterior[:, 1, 0] == -torch.inf).all()
    for example, log_posterior in zip(clusters, found.log_posterior, strict=True):
        _, expected = by_hand(less, found.shows.double(), example)
        torch.testing.assert_close(log_posterior.exp(), torch.stack(expected).float())


def test_values_that_no_tuple_allows_show_every_cluster_alike():
    found = name_clusters(Constraint(lambda a, b: a < b < 2, (3, 3)), torch.tensor([[0, 1], [0, 3]]), 4, starts=5)
    torch.testing.assert_close(found.shows[2], torch.full((4,), 0.25))
    assert found.log_posterior.exp().tolist() == [[[1, 0, 0], [0, 1, 0]]] * 2


@pytest.mark.parametrize(
    ("constraint", "rule"),
    {
        "1000 tuples": (lambda: table(1000), likelihoods.ByTuples),
        "more than 1000 tuples": (lambda: table(1001), likelihoods.ByCircuit),
        "more than 1000 tuples of little weight": (lambda: table(1001, 0.01), likelihoods.ByCircuit),
        "a small program": (SMALL["program"], likelihoods.ByTuples),
        "too many tuples to look at": (long_addition, likelihoods.ByCircuit),
    }.values(),
)
def test_few_tuples_are_gone_through_one_by_one(constraint, rule):
    made = constraint()
    n_variables = len(made.variables)
    rules = likelihoods._rules(
        as_seen(made, torch.zeros(3, n_variables, dtype=torch.int64)), [(made.variables[0].size, 4)]
    )
    assert [type(one) for one, _ in rules] == [rule]


def table(n: int, weight: float = 1.0) -> Constraint:
    pairs = torch.cartesian_prod(torch.arange(40), torch.arange(40))
    return Constraint.from_table(pairs[:n], (40, 40), [weight] * n)


def test_the_examples_of_the_page_run():
    blocks = re.findall(r"```pycon\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert any("name_clusters" in block for block in blocks)
    for block in blocks:
        test = doctest.DocTestParser().get_doctest(block, {}, "docs/symbolic.md", str(PAGE), 0)
        failed, tried = doctest.DocTestRunner().run(test)
        assert tried
        assert not failed


REFUSED = {
    "values": (
        lambda: name_clusters(Constraint(lambda a, b: a > b, (3, 2)), torch.zeros(2, 2).long(), 3),
        "name_clusters needs variables with the same values",
    ),
    "values of a program": (
        lambda: name_clusters(long_addition() & Constraint(lambda x: x, (2,)), torch.zeros(2, 8).long(), 3),
        "name_clusters needs variables with the same values",
    ),
    "columns of a program": (
        lambda: name_clusters(long_addition(), FEW, 5),
        r"clusters has shape \(2, 3\): give a line for every example and a cluster for each of 7 variables",
    ),
    "too high for a program": (
        lambda: name_clusters(long_addition(), FEW.repeat(1, 3)[:, :7], 4),
        "clusters has 4, which is none of 4 clusters",
    ),
    "columns": (
        lambda: name_clusters(addition(), FEW[:, :2], 5),
        r"clusters has shape \(2, 2\): give a line for every example and a cluster for each of 3 variables",
    ),
    "one example": (lambda: name_clusters(addition(), FEW[0], 5), r"clusters has shape \(3,\)"),
    "no example": (lambda: name_clusters(addition(), FEW[:0], 5), r"clusters has shape \(0, 3\)"),
    "type": (lambda: name_clusters(addition(), FEW.float(), 5), r"clusters has numbers of type torch.float32"),
    "too high": (lambda: name_clusters(addition(), FEW, 4), "clusters has 4, which is none of 4 clusters"),
    "negative": (lambda: name_clusters(addition(), FEW - 1, 5), "clusters has -1, which is none of 5 clusters"),
    "no clusters": (lambda: name_clusters(addition(), FEW, 0), "clusters has 4, which is none of 0 clusters"),
    "starts": (lambda: name_clusters(addition(), FEW, 5, starts=0), "starts must be at least 1 .*, not 0 and 0.1"),
    "smoothing": (
        lambda: name_clusters(addition(), FEW, 5, smoothing=0.0),
        "smoothing positive and finite, not 2000 and 0.0",
    ),
    "too large": (
        lambda: name_clusters(
            Constraint.from_program(CARRY, carry_query(2), max_nodes=50), torch.zeros(2, 7).long(), 10
        ),
        "stopped after .* at .* nodes, beyond max_seconds=60 or max_nodes=50",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    call, sentence = REFUSED[name]
    with pytest.raises(UsageError, match=sentence):
        call()
