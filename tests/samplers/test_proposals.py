import math

import pytest
import torch

from gedikit.densities import log_normaliser
from gedikit.samplers import Box, ProposalBank, Proposals

BOX = Box(torch.tensor([-2.0, -1.0]), torch.tensor([2.0, 1.0]))


@pytest.fixture
def proposals() -> Proposals:
    return Proposals(torch.tensor([[0.5, 0.1], [-0.6, -0.2]]), (0.05, 0.15), BOX)


def test_q_integrates_to_one_over_the_domain(proposals):
    n = 400
    axes = [lo + (torch.arange(n) + 0.5) / n * (hi - lo) for lo, hi in zip(BOX.low, BOX.high, strict=True)]
    grid = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    mass = proposals.log_prob(grid).double().exp().sum() * math.exp(BOX.log_volume) / n**2
    assert mass.item() == pytest.approx(1.0, abs=1e-3)


def test_samples_follow_q(proposals, generator):
    """E_q[q_uniform/q] over the samples is 1 exactly when the samples have density q."""
    x = proposals.sample(100_000, generator)
    assert BOX.contains(x).all()
    ratio = torch.exp(-BOX.log_volume - proposals.log_prob(x))
    assert ratio.mean().item() == pytest.approx(1.0, abs=0.02)
    inside = ((x - torch.tensor([0.5, 0.1])).norm(dim=-1) < 0.1).float().mean().item()
    near = (1 - math.exp(-0.5 * 4)) / 6 + (1 - math.exp(-0.5 * (0.1 / 0.15) ** 2)) / 6 + math.pi * 0.01 / 8 / 3
    assert inside == pytest.approx(near, abs=0.01)


def test_bank_estimates_a_known_integral_and_resamples_it(proposals, generator):
    """f = unnormalised N(centre, 0.1²): log Γ is known, and resampling gives its mean and deviation."""
    bank = ProposalBank.build(proposals, 50_000, generator)
    center = torch.tensor([0.5, 0.1])

    f = -0.5 * ((bank.points - center) / 0.1).square().sum(-1)
    assert log_normaliser(f, bank.log_q).item() == pytest.approx(math.log(2 * math.pi * 0.01), abs=0.02)
    x = bank.resample(f, 20_000, generator)
    torch.testing.assert_close(x.mean(0), center, atol=0.005, rtol=0)
    torch.testing.assert_close(x.std(0), torch.full((2,), 0.1), atol=0.005, rtol=0)


def test_q_is_exact_where_kernels_reach_over_the_wall():
    """A centre in the corner and a wide kernel: most of it lies outside and is cut off."""
    edge = Proposals(torch.tensor([[1.9, 0.9]]), (0.5,), BOX)
    n = 400
    axes = [lo + (torch.arange(n) + 0.5) / n * (hi - lo) for lo, hi in zip(BOX.low, BOX.high, strict=True)]
    grid = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    mass = edge.log_prob(grid).double().exp().sum() * math.exp(BOX.log_volume) / n**2
    assert mass.item() == pytest.approx(1.0, abs=1e-3)
