"""Theorem 1 and the fourth mode in numbers."""

import math

import pytest
import torch

from gedikit.paper.theory import around_best_constant, fourth_mode, interpolation, landscape_table, theorem_1
from gedikit.paper.theory.constant_posteriors import best_constant, constant_loss, peaked_at
from gedikit.paper.theory.domain import Domain, Solution, joint, losses
from gedikit.paper.theory.landscape import (
    CERTAIN,
    INFORMATION,
    MODES,
    OBJECTIVE,
    cluster_collapse,
    excesses,
    healthy,
    label_inconsistency,
    posterior_ignores_x,
    representation_collapse,
)

YES_NO = {
    "L_GEN": [True, False, False, False],
    "L_INV": [False, False, True, True],
    "L_PRIOR": [False, True, False, True],
    OBJECTIVE: [True, True, True, True],
    INFORMATION: [True, True, False, True],
}


def kl(p: torch.Tensor, q: torch.Tensor) -> float:
    return (p * (p / q).log()).sum().item()


@pytest.mark.parametrize("seed", (0, 1))
def test_theorem_1(seed):
    for check in theorem_1(seed):
        assert check.largest_error < 1e-9, check
        assert check.smallest_margin > 0.2, check
        assert check.holds


@pytest.mark.parametrize("clusters", [2, 3, 5])
def test_the_table_has_the_papers_entries(clusters):
    rows = {row.loss: row.cells for row in landscape_table(clusters)}
    assert {loss: [cell.penalised for cell in cells] for loss, cells in rows.items()} == YES_NO
    assert all([cell.mode for cell in cells] == list(MODES) for cells in rows.values())


@pytest.mark.parametrize("clusters", [2, 4])
def test_the_tables_numbers_by_hand(clusters):
    domain = Domain(clusters)
    nats = {row.loss: [cell.nats for cell in row.cells] for row in landscape_table(clusters, peak=0.9)}
    uniform = torch.full((clusters,), 1 / clusters, dtype=torch.float64)
    v = torch.full((clusters,), 0.1 / (clusters - 1), dtype=torch.float64)
    v[0] = 0.9
    density = domain.log_density.exp() / domain.n_cells
    flat = torch.full_like(density, 1 / domain.n_cells)
    assert nats["L_GEN"] == pytest.approx([kl(density, flat), 0, 0, 0], abs=1e-12)
    assert nats["L_INV"] == pytest.approx([0, 0, CERTAIN, torch.special.entr(v).sum().item()], abs=1e-9)
    collapsed = torch.softmax(CERTAIN * torch.eye(clusters, dtype=torch.float64)[0], -1)
    assert nats["L_PRIOR"] == pytest.approx([0, kl(uniform, collapsed), 0, kl(uniform, v)], abs=1e-9)
    assert nats[INFORMATION] == pytest.approx([0, 0, math.log(clusters), 0], abs=1e-9)
    for column in (1, 2, 3):
        parts = sum(nats[loss][column] for loss in ("L_GEN", "L_INV", "L_PRIOR"))
        assert nats[OBJECTIVE][column] == pytest.approx(parts)


def test_no_single_constant_suits_every_loss():
    """The sum penalises a constant g by more than the losses do one by one: their best k differ."""
    for clusters in (2, 3, 10):
        cells = {row.loss: row.cells[0].nats for row in landscape_table(clusters)}
        assert cells[OBJECTIVE] - cells["L_GEN"] > 0.69


def test_the_domain_is_what_it_says():
    domain = Domain(3)
    density = domain.log_density.exp() / domain.n_cells
    assert density.sum().item() == pytest.approx(1.0)
    for cells in (domain.points, domain.views):
        torch.testing.assert_close(torch.bincount(cells) / len(cells), density.float())
    assert torch.equal(domain.labels[domain.points], domain.labels[domain.views])
    peaks = (density[1:-1] > density[:-2]) & (density[1:-1] > density[2:])
    assert peaks.sum() == 3


def test_generative_loss_is_the_cross_entropy_of_normalised_densities():
    domain = Domain(2)
    logits = torch.randn(domain.n_cells, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model = torch.softmax(torch.logsumexp(logits, -1), -1) * domain.n_cells
    data = domain.log_density.exp() / domain.n_cells
    expected = -(data * model.log()).sum().item()
    assert losses(domain, Solution(logits))["L_GEN"].item() == pytest.approx(expected)


def test_healthy_labels_with_a_wrong_density_are_penalised_by_the_generative_loss_alone():
    domain = Domain(2)
    certain = CERTAIN * torch.eye(2, dtype=torch.float64)[domain.labels]
    found = excesses(domain, Solution(joint(domain.log_density.flip(0) * 0.5, certain)))
    assert found["L_GEN"] > 0.01
    assert found["L_INV"] == pytest.approx(0, abs=1e-9)
    assert found["L_PRIOR"] == pytest.approx(0, abs=1e-9)


def test_unbounded_penalties_grow_with_certainty():
    """L_INV of inconsistent labels is the logit gap itself: a looser label would be penalised less."""
    domain = Domain(2)
    order = label_inconsistency(domain).order
    for gap in (5.0, 10.0, 20.0):
        logits = joint(domain.log_density, gap * torch.eye(2, dtype=torch.float64)[domain.labels])
        assert losses(domain, Solution(logits, order))["L_INV"].item() == pytest.approx(gap, rel=0.01)


def test_swaps_within_a_cluster_cost_nothing():
    """The definition asks for all permutations, as some leave even the invariance loss where it is."""
    domain = Domain(2)
    swap = torch.arange(len(domain.points))
    swap[: domain.rows_a_mode] = swap[: domain.rows_a_mode].flip(0)
    assert not torch.equal(domain.points[swap], domain.points)
    before, after = (excesses(domain, Solution(healthy(domain).logits, order)) for order in (None, swap))
    assert after == pytest.approx(before, abs=1e-12)


def test_failure_modes_meet_their_definitions():
    domain = Domain(3)
    constant = representation_collapse(domain, OBJECTIVE).logits
    assert (constant == constant[0]).all()
    assert (torch.softmax(cluster_collapse(domain).logits, -1)[:, 0] > 1 - 1e-12).all()
    ignoring = posterior_ignores_x(domain, 0.9).logits
    assert ignoring.std(0).min() > 0.1
    torch.testing.assert_close(torch.softmax(ignoring, -1)[:, 0], torch.full((15,), 0.9, dtype=torch.float64))


def test_fourth_mode():
    for check in fourth_mode():
        assert check.largest_error < 1e-10, check
        assert check.smallest_margin > 0.5, check
        assert check.holds


def test_invariance_first_prefers_a_peaked_constant():
    found = around_best_constant((50.0, 25.0))
    assert found.peak == pytest.approx(0.8985, abs=1e-4)
    assert found.curvature == pytest.approx(1.936, abs=1e-3)
    assert found.uniform_curvature == pytest.approx(-2.5)
    assert found.uniform_value == pytest.approx(75 * math.log(10))
    assert found.value < found.uniform_value - 40


def test_prior_first_prefers_the_uniform_constant():
    found = around_best_constant((25.0, 50.0))
    assert found.peak == pytest.approx(0.1)
    assert found.curvature == pytest.approx(2.5)
    assert found.value == found.uniform_value


@pytest.mark.parametrize(("clusters", "ratio"), [(2, 1.0), (3, 1.040), (10, 1.388), (20, 1.682)])
def test_how_far_the_prior_must_outweigh_invariance(clusters, ratio):
    """With more than two clusters a prior just above invariance leaves a peaked constant the best one."""
    assert best_constant((1.0, ratio - 0.01), clusters).max() > 0
    assert best_constant((1.0, ratio + 0.01), clusters).max() == 0


@pytest.mark.parametrize("weights", [(50.0, 25.0), (25.0, 50.0)])
def test_descents_from_random_constants_end_at_the_best_one(weights):
    best = constant_loss(best_constant(weights, 10), weights).item()
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        logits = (2 * torch.randn(10, dtype=torch.float64, generator=generator)).requires_grad_()
        optimiser = torch.optim.LBFGS([logits], max_iter=200, line_search_fn="strong_wolfe")

        def closure(optimiser=optimiser, logits=logits):
            optimiser.zero_grad()
            loss = constant_loss(logits, weights)
            loss.backward()
            return loss

        optimiser.step(closure)
        assert constant_loss(logits, weights).item() == pytest.approx(best, abs=1e-6)


def test_a_constant_that_is_not_the_best_has_a_slope():
    logits = peaked_at(0.8, 10).requires_grad_()
    constant_loss(logits, (50.0, 25.0)).backward()
    assert logits.grad.abs().max() > 0.1


def test_leaving_the_saddle_lowers_the_objective():
    """A small step towards labels that depend on x lowers 50 L_INV + 25 L_PRIOR; one for all x alike raises it."""
    weights, domain = (50.0, 25.0), Domain(10)
    start = best_constant(weights, 10)
    labels = torch.eye(10, dtype=torch.float64)[domain.labels]

    def objective(posterior_logits):
        found = losses(domain, Solution(joint(domain.log_density, posterior_logits)))
        return (weights[0] * found["L_INV"] + weights[1] * found["L_PRIOR"]).item()

    here = objective(start)
    assert objective(start + 0.1 * (labels - 0.1)) < here - 1e-3
    assert objective(start + 0.1 * labels[:1]) > here + 1e-3
    assert objective(start + 0.1 * labels[-1:]) > here + 1e-3


def test_interpolation_runs_from_uniform_to_collapse():
    found = interpolation(2)
    assert [constant.peak for constant in found] == pytest.approx([0.5, 0.7, 0.9, 0.99, 1.0])
    assert found[0].invariance == pytest.approx(math.log(2))
    assert found[0].prior == pytest.approx(0, abs=1e-12)
    assert found[-1].invariance == pytest.approx(0, abs=1e-9)
    assert [c.invariance for c in found] == sorted((c.invariance for c in found), reverse=True)
    assert [c.prior for c in found] == sorted(c.prior for c in found)
    assert all(abs(c.information) < 1e-12 for c in found)
