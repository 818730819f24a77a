import pytest
import torch

from gedikit.samplers import SGLD, Box, ReplayBuffer, run_mala, sgld_step, temperature


def gaussian(x: torch.Tensor) -> torch.Tensor:
    """N(1, 0.5²) in every coordinate, unnormalised."""
    return -0.5 * ((x - 1.0) / 0.5).square().sum(-1)


WIDE = Box(torch.full((2,), -20.0), torch.full((2,), 20.0))


def test_sgld_step_is_the_published_formula():
    """x + α∇f + σε, with ε the generator's own numbers: no ½, no clamping."""
    x = torch.tensor([[0.0, 2.0]])
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(3))
    moved = sgld_step(gaussian, x, step_size=0.1, noise_std=0.02, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(moved, x + 0.1 * (-(x - 1.0) / 0.25) + 0.02 * noise)


def test_sgld_settles_at_the_reported_temperature(generator):
    """At temperature T the stationary variance of a Gaussian is T times its own."""
    alpha, sigma = 0.002, 0.03
    x, info = SGLD(step_size=alpha, noise_std=sigma, bounds="none").sample(
        gaussian, torch.ones(4000, 2), steps=800, step_size=0, box=WIDE, generator=generator
    )
    t = temperature(alpha, sigma)
    assert info.temperature == pytest.approx(0.225) == t
    assert x.var().item() == pytest.approx(t * 0.25, rel=0.05)


def test_mala_samples_a_gaussian_exactly(generator):
    x, info = run_mala(gaussian, torch.zeros(4000, 2), steps=300, step_size=0.4, box=WIDE, generator=generator)
    assert 0.4 < info.acceptance < 0.75
    assert info.temperature == 1.0
    torch.testing.assert_close(x.mean(0), torch.ones(2), atol=0.03, rtol=0)
    torch.testing.assert_close(x.std(0), torch.full((2,), 0.5), atol=0.02, rtol=0)


def test_mala_keeps_a_uniform_density_uniform_in_its_box(generator):
    """Where the density is flat, rejection at the walls leaves the uniform law alone."""
    box = Box(torch.zeros(1), torch.ones(1))
    x, _ = run_mala(
        lambda z: z.sum(-1) * 0,
        torch.rand(20000, 1, generator=generator),
        steps=60,
        step_size=0.3,
        box=box,
        generator=generator,
    )
    assert box.contains(x).all()
    counts = torch.histc(x, bins=10, min=0, max=1) / 2000
    assert counts.sub(1).abs().max() < 0.1


def test_a_proposal_without_density_is_never_accepted(generator):
    def broken(x):
        return torch.where(x.sum(-1) > 0, torch.nan, 0.0) + 0 * x.sum(-1)

    x, _ = run_mala(broken, torch.full((500, 1), -1.0), steps=50, step_size=1.0, box=WIDE_1D, generator=generator)
    assert (x <= 0).all()


WIDE_1D = Box(torch.full((1,), -50.0), torch.full((1,), 50.0))


@pytest.mark.parametrize("bounds", ["reflect", "reject"])
def test_sgld_stays_inside_when_bounded(bounds, generator):
    box = Box(torch.full((2,), -0.1), torch.full((2,), 0.1))
    x, _ = SGLD(step_size=0.01, noise_std=0.2, bounds=bounds).sample(
        gaussian, torch.zeros(500, 2), steps=50, step_size=0, box=box, generator=generator
    )
    assert box.contains(x).all()


def test_reflection_folds_as_often_as_it_takes():
    box = Box(torch.tensor([0.0]), torch.tensor([1.0]))
    x = torch.tensor([[-0.2], [1.3], [2.4], [-3.6], [0.5]])
    torch.testing.assert_close(box.reflect(x), torch.tensor([[0.2], [0.7], [0.4], [0.4], [0.5]]))


def test_replay_returns_what_was_written_and_restarts_the_asked_share(generator):
    buffer = ReplayBuffer(torch.zeros(100, 2))
    slots, x = buffer.draw(50, restart=0.0, start=WIDE.uniform, generator=generator)
    assert (x == 0).all()
    buffer.write(slots, torch.ones(50, 2))
    assert set(buffer.positions.flatten().tolist()) == {0.0, 1.0}
    assert (buffer.positions[slots] == 1).all()
    _, x = ReplayBuffer(torch.zeros(10, 2)).draw(20_000, restart=0.05, start=WIDE.uniform, generator=generator)
    assert (x != 0).any(-1).float().mean().item() == pytest.approx(0.05, abs=0.006)
