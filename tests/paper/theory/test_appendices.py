"""Appendices A to D in numbers."""

import math

import pytest
import torch

from gedikit.objectives import protocpc
from gedikit.paper.theory import appendices
from gedikit.paper.theory.draws import Draws
from gedikit.paper.theory.information import CODES, POINTS, World, elbo, random_world
from gedikit.paper.theory.information_bounds import infonce_bound, uba_bound


@pytest.fixture
def world() -> World:
    """Four equally likely points, two of which share a code: I(X; Z) = H(Z) = 1.5 ln 2."""
    return World(torch.full((4,), 0.25, dtype=torch.float64).log(), torch.tensor([0, 1, 2, 0]))


@pytest.mark.parametrize("seed", range(4))
def test_appendices(seed):
    checks = appendices(seed)
    assert len(checks) == 6
    for check in checks:
        assert check.largest_error < 1e-12, check
        assert check.smallest_margin > 1e-5, check
        assert check.holds


def test_information_of_four_points_by_hand(world):
    assert world.information.item() == pytest.approx(1.5 * math.log(2))
    assert world.entropy.item() == pytest.approx(2 * math.log(2))
    assert uba_bound(world.scores(world.best_critic), world.p).item() == pytest.approx(1.5 * math.log(2))


def test_information_is_the_sum_over_the_joint():
    world = random_world(Draws(5))
    joint = torch.zeros(POINTS, CODES, dtype=torch.float64)
    joint[torch.arange(POINTS), world.code] = world.p
    outer = joint.sum(1, keepdim=True) * joint.sum(0, keepdim=True)
    expected = torch.special.xlogy(joint, joint / outer).sum()
    assert world.information.item() == pytest.approx(expected.item())


def test_scores_have_their_pairs_on_the_diagonal(world):
    critic = Draws(0).normal(POINTS, CODES)
    scores = world.scores(critic)
    assert scores[3, 1] == critic[1, world.code[3]]
    tuples = torch.tensor([[2, 2, 0], [3, 1, 0]])
    assert world.scores(critic, tuples)[1, 0, 2] == critic[0, world.code[3]]


def test_a_critic_that_misses_a_code_is_short_of_the_information(world):
    worse = world.best_critic.clone()
    worse[0, 1] = 3.0
    assert uba_bound(world.scores(worse), world.p).item() < world.information.item() - 0.1


def test_elbo_without_the_priors_constant_would_break_the_bound(world):
    """With the best critic −H(X) + I_UBA lies above E log p(x); the constant −ln |Z| puts it below."""
    uba = uba_bound(world.scores(world.best_critic), world.p)
    uniform = torch.full((CODES,), -math.log(CODES), dtype=torch.float64)
    bound = (world.p * elbo(world, world.log_p[:, None] + world.best_critic, uniform)).sum()
    assert (uba - world.entropy).item() > -world.entropy.item() + 0.5
    assert bound.item() == pytest.approx((uba - world.entropy).item() - math.log(CODES))
    assert bound.item() < -world.entropy.item()


def test_elbo_needs_the_density_in_its_score(world):
    """f = f̃ without log p(x) gives another number where p(x) is not uniform."""
    skewed = World(torch.tensor([0.7, 0.1, 0.1, 0.1], dtype=torch.float64).log(), world.code)
    critic = Draws(1).normal(POINTS, CODES)
    uniform = torch.full((CODES,), -math.log(CODES), dtype=torch.float64)
    claimed = uba_bound(skewed.scores(critic), skewed.p) - skewed.entropy - math.log(CODES)
    right = (skewed.p * elbo(skewed, skewed.log_p[:, None] + critic, uniform)).sum()
    wrong = (skewed.p * elbo(skewed, critic, uniform)).sum()
    assert right.item() == pytest.approx(claimed.item())
    assert abs(wrong - claimed).item() > 0.01


def test_infonce_of_pairs_by_hand(world):
    """n = 2, best critic: ln 2 unless both points share a code, which has probability 3/8."""
    pairs = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    expected = infonce_bound(world.scores(world.best_critic, pairs)).mean()
    assert expected.item() == pytest.approx(5 / 8 * math.log(2))
    assert expected.item() < world.information.item()


def test_one_batch_alone_can_exceed_the_information():
    """The bound is on the expectation: a pair of distinct codes gives ln 2, more than a skewed H(Z)."""
    skewed = World(torch.tensor([0.97, 0.01, 0.01, 0.01], dtype=torch.float64).log(), torch.tensor([0, 1, 2, 0]))
    one = infonce_bound(skewed.scores(skewed.best_critic, torch.tensor([0, 1])))
    assert one.item() > skewed.information.item()


def test_protocpc_with_the_wrong_teacher_side_is_not_a_bound():
    """Jensen needs the same teachers in both: mixing in another batch's breaks the inequality somewhere."""
    draws = Draws(0)
    student, soft, other = draws.normal(200, 6, 4), *draws.log_distributions(2, 200, 6, 4).exp()
    scores = torch.log_softmax(student / 0.5, -1) @ soft.mT
    right = infonce_bound(scores) + protocpc(student, soft, temperature=0.5)
    wrong = infonce_bound(scores) + protocpc(student, other, temperature=0.5)
    assert right.min() > 0
    assert wrong.min() < -0.1
