"""Lemmas 3, 6 and 9: the library's losses against the paper's bounds, and against bounds made wrong on purpose."""

import math

import pytest
import torch
import torch.nn.functional as F

from gedikit.objectives import corinfomax, infonce, sinkhorn, swav
from gedikit.paper.theory import disagreement, lemma_3, lemma_6, lemma_9
from gedikit.paper.theory.cluster_based import assignment_objective, cluster_bound, entropy, posteriors, shortfall
from gedikit.paper.theory.contrastive import discriminative_term
from gedikit.paper.theory.draws import Draws
from gedikit.paper.theory.negative_free import (
    batch_normalised,
    constant,
    maximised_objective,
    negative_free_bound,
    printed_objective,
    sigma,
    without_trace,
)

SEEDS = (0, 1, 2)


@pytest.fixture
def draws() -> Draws:
    return Draws(11)


@pytest.mark.parametrize("lemma", [lemma_3, lemma_6, lemma_9])
@pytest.mark.parametrize("seed", SEEDS)
def test_bound_and_loss_agree_to_rounding(lemma, seed):
    for check in lemma(seed):
        assert check.largest_error < 1e-12, check
        assert check.smallest_margin > 0.05, check
        assert check.holds


def test_discriminative_term_of_two_rows_by_hand():
    z = torch.tensor([[1.0, 0.0], [0.0, 2.0]], dtype=torch.float64)
    expected = math.log(1 / (1 + math.exp(-1))) + math.log(1 / (1 + math.exp(-4)))
    assert discriminative_term(z, z, temperature=1.0, similarity="dot").item() == pytest.approx(expected)


@pytest.mark.parametrize("similarity", ["cosine", "euclidean", "dot"])
def test_another_similarity_temperature_or_factor_is_noticed(draws, similarity):
    z, view = draws.normal(5, 3), draws.normal(5, 3)
    right = {"temperature": 0.5, "similarity": similarity}
    other = {"temperature": 0.5, "similarity": "euclidean" if similarity == "cosine" else "cosine"}

    def wrong(factor: float, settings: dict[str, object]):
        return disagreement(
            lambda a, b: discriminative_term(a, b, **right),
            lambda a, b: factor * infonce(a, b, **settings),
            z,
            view,
        )

    assert wrong(-5, right)["gradient"] < 1e-13
    assert wrong(-4, right)["gradient"] > 1e-2
    assert wrong(-5, other)["gradient"] > 1e-2
    assert wrong(-5, right | {"temperature": 0.4})["gradient"] > 1e-2


def test_information_without_its_constant_is_noticed(draws):
    z = draws.normal(5, 3)
    settings = {"temperature": 0.5, "similarity": "dot"}
    found = disagreement(
        lambda a: discriminative_term(a, a, **settings),
        lambda a: -5 * infonce(a, a, **settings) + 5 * math.log(5),
        z,
    )
    assert found["gradient"] < 1e-13
    assert found["value"] > 0.1


def test_gaussian_divergences_by_hand():
    """One dimension: Σ = 2 + β = 3, ‖g − g′‖² = 1 + 1, γ = 2."""
    g, view = torch.tensor([[1.0], [-1.0]]).double(), torch.tensor([[2.0], [0.0]]).double()
    spread = (3 - 1 - math.log(3)) / 2
    moved = 2 * (2 + 2 * 1 - 1 - math.log(2)) / 2
    assert negative_free_bound(g, view, 2.0, 1.0).item() == pytest.approx(-spread - moved)
    assert maximised_objective(g, view, 2.0, 1.0).item() == pytest.approx(math.log(3) - 4)


def test_the_printed_sign_has_another_gradient(draws):
    g, view = draws.normal(7, 3), draws.normal(7, 3)

    def half(objective):
        return disagreement(without_trace, lambda a, b, **s: objective(a, b, **s) / 2, g, view, gamma=1.5, beta=0.2)

    assert max(half(maximised_objective).values()) < 1e-13
    assert min(half(printed_objective).values()) > 0.5


def test_a_wrong_constant_of_lemma_6_is_noticed(draws):
    g, view = draws.normal(7, 3), draws.normal(7, 3)
    rest = without_trace(g, view, 1.5, 0.2) + constant(7, 3, 1.5) - constant(6, 3, 1.5)
    assert abs(rest - maximised_objective(g, view, 1.5, 0.2) / 2).item() > 0.1


def test_mean_instead_of_sum_is_noticed_by_the_determinant(draws):
    """Definition 5 sums outer products; with the mean, β must be divided by n as well."""
    g = F.normalize(draws.normal(7, 3), dim=-1)
    right = corinfomax(g, g, invariance=0.0, epsilon=0.2 / 7)
    wrong = corinfomax(g, g, invariance=0.0, epsilon=0.2)
    expected = 3 * math.log(7) - torch.logdet(sigma(g, 0.2))
    assert right.item() == pytest.approx(expected.item(), abs=1e-12)
    assert abs(wrong - expected).item() > 0.1


def test_batch_normalisation_fixes_the_trace_and_the_sphere_does_not(draws):
    g = draws.normal(7, 3)
    assert torch.trace(sigma(batch_normalised(g), 0.5)).item() == pytest.approx((7 + 0.5) * 3)
    on_sphere = F.normalize(g, dim=-1)
    expected = 7 * (1 - on_sphere.mean(0).square().sum()) + 0.5 * 3
    assert torch.trace(sigma(on_sphere, 0.5)).item() == pytest.approx(expected.item())


def test_written_out_posteriors_are_a_softmax(draws):
    g, centres = draws.normal(6, 3), draws.normal(4, 3)
    torch.testing.assert_close(posteriors(g, centres, 0.7), torch.softmax(g @ centres.mT / 0.7, -1))


def test_codes_that_carry_a_gradient_are_noticed(draws):
    """SwAV stops the gradient at its codes; a bound whose codes follow the parameters has another gradient."""
    g, view, centres = draws.normal(6, 3), draws.normal(6, 3), draws.normal(4, 3)

    def soft(a, b, u):
        p, q = (torch.softmax(x @ u.mT, -1) for x in (a, b))
        return cluster_bound(p.log(), q)

    def stopped(a, b, u):
        p, q = torch.softmax(a @ u.mT, -1), torch.softmax(b @ u.mT, -1).detach()
        return cluster_bound(p.log(), q)

    found = disagreement(soft, stopped, g, view, centres)
    assert found["value"] < 1e-14
    assert found["gradient"] > 1e-2


def test_one_row_more_or_another_temperature_is_noticed(draws):
    g, centres = F.normalize(draws.normal(6, 3), dim=-1), F.normalize(draws.normal(4, 3), dim=-1)
    codes = sinkhorn(g @ centres.mT, epsilon=0.5)

    def wrong(n: int, temperature: float) -> float:
        return disagreement(
            lambda a, u: cluster_bound(posteriors(a, u, 0.5).log(), codes),
            lambda a, u: entropy(codes) - n * swav(a @ u.mT, a @ u.mT, temperature=temperature, epsilon=0.5),
            g,
            centres,
        )["gradient"]

    assert wrong(6, 0.5) < 1e-13
    assert wrong(7, 0.5) > 1e-2
    assert wrong(6, 0.6) > 1e-2


def test_trace_form_by_hand():
    scores = torch.tensor([[1.0, 0.0], [0.0, 3.0]], dtype=torch.float64)
    half = torch.full((2, 2), 0.5, dtype=torch.float64)
    assert assignment_objective(half, scores, 0.1).item() == pytest.approx(2.0 + 0.1 * 2 * math.log(2))


def test_codes_at_another_epsilon_are_beaten(draws):
    """The comparison with rivals is not vacuous: Sinkhorn's codes for ε ≠ τ lose to those for ε = τ."""
    scores = F.normalize(draws.normal(8, 3), dim=-1) @ F.normalize(draws.normal(4, 3), dim=-1).mT
    best, sharper, flatter = (sinkhorn(scores, epsilon=e, iterations=1000) for e in (0.2, 0.1, 0.4))
    assert (shortfall(torch.stack([sharper, flatter]), best, scores, 0.2) > 1e-2).all()
    assert shortfall(best, flatter, scores, 0.2).item() < -1e-2


def test_unbalanced_codes_may_do_better_than_sinkhorn(draws):
    """Only among balanced assignments are Sinkhorn's best: q = p attains 0, which no others exceed."""
    scores = F.normalize(draws.normal(8, 3), dim=-1) @ F.normalize(draws.normal(4, 3), dim=-1).mT
    codes = sinkhorn(scores, epsilon=0.2, iterations=1000)
    assert shortfall(torch.softmax(scores / 0.2, -1), codes, scores, 0.2).item() < -1e-2
