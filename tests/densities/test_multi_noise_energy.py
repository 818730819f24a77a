"""The multi-noise energy: exact at every level, whatever constants float, and sampled from noise."""

import copy
import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, spearmanr

from gedikit import GEDI
from gedikit.densities.mixture import NoisedMixture, fit_mixture
from gedikit.densities.multi_noise_energy import contrastive_loss, noised_posterior_loss
from gedikit.evaluation import energy_distance

SHARES = np.array([0.5, 0.3, 0.2])


def groups(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of three Gaussians with axes of their own, their groups, and the true log-density."""
    rng = np.random.default_rng(0)
    means, roots = 2 * rng.normal(size=(3, d)), 0.35 * rng.normal(size=(3, d, d))
    covariances = roots @ roots.transpose(0, 2, 1) + 0.3 * np.eye(d)
    rng = np.random.default_rng(seed)
    y = rng.choice(3, n, p=SHARES)
    x = np.stack([rng.multivariate_normal(means[k], covariances[k]) for k in y])
    parts = [math.log(SHARES[k]) + multivariate_normal(means[k], covariances[k]).logpdf(x) for k in range(3)]
    return x, y, np.logaddexp.reduce(parts)


def bent(n: int, seed: int) -> np.ndarray:
    """Rows along a curve, which no Gaussian follows."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 1.5 * np.pi, n)
    return np.stack([np.cos(angle), np.sin(angle)], 1) + 0.05 * rng.normal(size=(n, 2))


def mixture_of(x: np.ndarray, sigma: float = 0.05) -> NoisedMixture:
    rows = torch.from_numpy(x).float()
    return fit_mixture(rows[::2], rows[1::2], sigma, 0.1, torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def model() -> GEDI:
    return GEDI(3, random_state=0, max_iter=300).fit(groups(1500, 8, seed=1)[0])


@pytest.fixture(scope="module")
def curve() -> GEDI:
    asked = {"density.name": "multi-noise-energy"}
    return GEDI(1, random_state=0, max_iter=300, config=asked).fit(bent(600, seed=1))


@pytest.mark.parametrize("sigma", [0.05, 0.2, 0.6, 1.5, 3.0])
def test_the_mixture_is_exact_at_every_level(sigma):
    """As the density of rows of the mixture that noise was added to."""
    mixture, generator = mixture_of(bent(800, seed=0)), torch.Generator().manual_seed(1)
    rows = mixture.sample(300_000, generator)
    noised = rows + sigma * torch.randn(rows.shape, generator=generator)
    corners = torch.tensor([[0.0, 0.0], [1.0, 0.0], [-0.7, 0.7], [2.0, -1.0]])
    side = 0.2
    for corner in corners:
        within = ((noised >= corner) & (noised < corner + side)).all(1).double().mean()
        inside = corner + side * torch.rand(4000, 2, generator=generator)
        told = mixture.log_density(inside, torch.full((4000, 1), sigma)).double().exp().mean() * side**2
        assert float(within) == pytest.approx(float(told), rel=0.1, abs=1e-3)


@pytest.mark.parametrize("n_features", [5, 80])
def test_a_mixture_of_wide_rows_is_normalised_too(n_features):
    """E_q[u/q] = 1 for any density u: here a Gaussian in the middle of the data."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, n_features, generator=generator) * torch.linspace(2, 0.3, n_features)
    mixture = fit_mixture(x[::2], x[1::2], 0.1, 0.5, generator)
    level = torch.full((20_000, 1), 0.5)
    samples = mixture.sample(20_000, generator)
    noised = samples + 0.5 * torch.randn(samples.shape, generator=generator)
    spread = noised.std(0) * 0.98
    inside = torch.distributions.Normal(noised.mean(0), spread).log_prob(noised).sum(1)
    weights = (inside - mixture.log_density(noised, level)).double()
    assert float(torch.logsumexp(weights, 0) - math.log(20_000)) == pytest.approx(0, abs=0.35)


@pytest.mark.parametrize("place", [0.0, 0.3, 0.5, 0.8, 1.0])
def test_levels_of_a_fit_in_the_plane_integrate_to_one(curve, place):
    density, network = curve.fitted_.network.density, curve.fitted_.network
    low, high = density.levels
    sigma = low ** (1 - place) * high**place
    half = 4 + 5 * sigma
    axis = (torch.arange(400) + 0.5) * (2 * half / 400) - half
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    with torch.no_grad():
        levels = torch.full((len(grid), 1), sigma)
        mass = density.at_level(network, grid, levels).double().exp().sum() * (2 * half / 400) ** 2
    assert float(mass) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("place", [0.0, 0.3, 0.5, 0.8, 1.0])
def test_levels_of_a_fit_in_eight_dimensions_integrate_to_one(model, place):
    """By importance sampling from the mixture, with other samples than those Γ was measured by."""
    density, network, generator = (
        model.fitted_.network.density,
        model.fitted_.network,
        torch.Generator().manual_seed(77),
    )
    low, high = density.levels
    sigma = low ** (1 - place) * high**place
    samples = density.mixture.sample(20_000, generator)
    noised = samples + sigma * torch.randn(samples.shape, generator=generator)
    level = torch.full((len(noised), 1), sigma)
    with torch.no_grad():
        weights = density.at_level(network, noised, level) - density.mixture.log_density(noised, level)
    assert float(torch.logsumexp(weights, 0) - math.log(20_000)) == pytest.approx(0, abs=0.05)


def test_scores_are_log_likelihoods_of_eight_columns(model):
    test, _, truth = groups(1000, 8, seed=2)
    told = model.score_samples(test)
    assert model.normalised_
    assert told.mean() == pytest.approx(truth.mean(), abs=0.3)
    assert np.sqrt(np.mean((told - truth) ** 2)) < 0.8
    assert spearmanr(told, truth)[0] > 0.97
    moved = GEDI(3, random_state=0, max_iter=300).fit(10 * groups(1500, 8, seed=1)[0] + 3)
    assert moved.score(10 * test + 3) == pytest.approx(model.score(test) - 8 * math.log(10), abs=0.01)


def test_constants_that_float_at_the_start_change_no_result(curve):
    """A constant that is added to f at every level is gone from the density."""
    density, network, x = curve.fitted_.network.density, curve.fitted_.network, bent(50, seed=3)
    before = curve.score_samples(x)
    with torch.no_grad():
        density.head.bias += 7.0
        density.calibrate(network, torch.from_numpy(curve.fitted_.scaler.transform(bent(90, 4))), torch.Generator())
    after = curve.score_samples(x)
    with torch.no_grad():
        density.head.bias -= 7.0
        density.calibrate(network, torch.from_numpy(curve.fitted_.scaler.transform(bent(90, 4))), torch.Generator())
    np.testing.assert_allclose(after, curve.score_samples(x), atol=1e-4)
    assert np.abs(before.mean() - after.mean()) < 0.3


def test_samples_come_from_noise_and_belong_to_the_cluster_asked_for(model):
    x, _, _ = groups(1500, 8, seed=1)
    new, _ = model.sample(1000, random_state=0)
    rng = np.random.default_rng(0)
    assert energy_distance(new, x) < 3 * energy_distance(groups(1000, 8, seed=5)[0], x) + 0.02
    assert energy_distance(new, x) < 0.2 * energy_distance(x + rng.normal(size=x.shape), x)
    for cluster in range(3):
        _, labels = model.sample(200, cluster=cluster, random_state=0)
        assert np.mean(labels == cluster) > 0.95


def test_what_is_learned_is_told_from_the_mixture():
    """The loss is that of a classifier: equal at 2 log 2, smaller where f tells data from the mixture."""
    nothing = torch.zeros(5)
    assert float(contrastive_loss(nothing, nothing)) == pytest.approx(2 * math.log(2))
    assert contrastive_loss(nothing + 1, nothing - 1) < contrastive_loss(nothing, nothing)
    assert contrastive_loss(nothing + 3, nothing + 3) > contrastive_loss(
        nothing, nothing
    )  # a constant does not pay
    log_p = torch.tensor([[0.7, 0.3], [0.1, 0.9]]).log()
    entropy = -(log_p.exp() * log_p).sum(1).mean()
    assert float(noised_posterior_loss(log_p, log_p)) == pytest.approx(float(entropy))
    assert noised_posterior_loss(log_p, log_p.flip(1)) > entropy


def test_a_saved_density_says_the_same(model, tmp_path):
    x, _, _ = groups(100, 8, seed=6)
    model.save(tmp_path / "model.safetensors")
    again = GEDI.load(tmp_path / "model.safetensors")
    assert np.array_equal(again.score_samples(x), model.score_samples(x))
    assert np.array_equal(again.sample(5, random_state=0)[0], model.sample(5, random_state=0)[0])


def test_the_flow_tells_the_same_log_density(model):
    """At noise that rows and levels share: the mixture alone is exact, and what was learned must agree with it."""
    x, *_ = groups(64, 8, seed=3)
    network, density = model.fitted_.network, model.fitted_.network.density
    z = model.fitted_.to_scaled(x)
    generator = torch.Generator().manual_seed(0)
    followed = density.flow_log_density(network, z, generator)
    assert float((followed - network.log_density(z)).mean()) == pytest.approx(0, abs=0.1)
    assert abs(model.fitted_.info["density"]["flow_gap"]) < 0.2


def test_levels_that_are_not_of_the_same_data_are_noticed(model):
    network = copy.deepcopy(model.fitted_.network)
    z = model.fitted_.to_scaled(groups(64, 8, seed=3)[0])
    levels = network.density.log_normalisers
    levels[: len(levels) // 2] -= 5  # the smaller levels hold e⁵ times the mass
    followed = network.density.flow_log_density(network, z, torch.Generator().manual_seed(0))
    assert float((network.log_density(z) - followed).mean()) > 4
