"""What every density must do as a part of a network."""

import copy
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from contract_cases import each, prepared, seeded
from gedikit.densities import Density, MultiNoiseModule, densities
from gedikit.densities.base import GENERATIVE, DensityContext
from gedikit.encoders import EncoderContext, FourierMLP
from gedikit.fitted import load_weights
from gedikit.model import EnergyClassifier
from gedikit.training.state import stack

CLUSTERS, FEATURES = 3, 2
every = pytest.mark.parametrize("density", each(densities))


def network(density: Density, seed: int = 0) -> EnergyClassifier:
    generator = seeded(seed)
    encoding = FourierMLP(hidden=(16,), features=6, frequencies=4).build(
        EncoderContext(FEATURES, (), 0.1, None, generator, noise=density.level(0.1))
    )
    rows = prepared(False).all_rows()[: density.n_references]
    context = DensityContext(FEATURES, CLUSTERS, encoding.n_embedding, 0.1, generator, rows, rows[::3])
    module = density.build(context)
    made = EnergyClassifier(
        encoding.encoder, encoding.projector, CLUSTERS, encoding.n_embedding, density=module, generator=generator
    )
    if isinstance(module, MultiNoiseModule):  # its head starts with zeros, which would hide the network
        torch.nn.init.normal_(module.head.weight, std=0.2, generator=generator)
        with torch.no_grad():
            module._normalise(module._of_proposals(made, seeded(seed)), torch.tensor(1.0))
    return made


@dataclass(frozen=True)
class Batch:
    """What a density sees of an iteration."""

    network: EnergyClassifier
    weighted: bool
    x: Tensor = field(default_factory=lambda: points(24))

    @property
    def held_out(self) -> Tensor:
        return torch.arange(len(self.x)) % 4 == 3

    @property
    def log_p(self) -> Tensor:
        return self.network.logits(self.x).log_softmax(-1)

    @property
    def data_log_density(self) -> Tensor:
        return self.network.log_density(self.x)

    @property
    def sample_log_density(self) -> Tensor | None:
        return None if self.network.density.normalised else self.network.log_density(points(5, 6))

    @property
    def log_q(self) -> Tensor | None:
        return torch.randn(5, generator=seeded(7)) if self.weighted else None

    @property
    def generator(self) -> torch.Generator:
        return seeded(8)


def points(n: int = 7, seed: int = 5) -> Tensor:
    return torch.randn(n, FEATURES, generator=seeded(seed))


@every
def test_one_log_density_a_point_with_a_gradient_for_points_and_weights(density):
    made, x = network(density), points().requires_grad_()
    value = made.log_density(x)
    assert value.shape == (7,)
    assert value.dtype == torch.float32
    assert torch.isfinite(value).all()
    score, *gradients = torch.autograd.grad(value.sum(), [x, *made.parameters()], materialize_grads=True)
    assert torch.isfinite(score).all()
    assert (score.abs().amax(-1) > 0).all()
    assert any(g.abs().max() > 0 for g in gradients)
    torch.testing.assert_close(made.score(x), score)


@every
def test_points_do_not_know_of_each_other(density):
    made, x = network(density), points()
    with torch.no_grad():
        together = made.log_density(x)
        torch.testing.assert_close(torch.cat([made.log_density(row[None]) for row in x]), together)


@every
def test_embeddings_that_are_known_already_change_nothing(density):
    made, x = network(density), points()
    with torch.no_grad():
        z = made.embed(x)
        torch.testing.assert_close(made.density.log_density(made, x, z), made.log_density(x))
        if made.density.from_logits:
            torch.testing.assert_close(made.cluster_scores(z).logsumexp(-1), made.log_density(x))


@every
def test_the_seed_sets_its_weights(density):
    one, same, other = (network(density, seed) for seed in (0, 0, 1))
    with torch.no_grad():
        assert torch.equal(one.log_density(points()), same.log_density(points()))
        assert not torch.equal(one.log_density(points()), other.log_density(points()))


@every
def test_it_says_whether_it_is_normalised_and_then_is(density):
    made = network(density)
    assert density.normalised == made.density.normalised
    if not density.normalised:
        with pytest.raises(NotImplementedError):
            made.density.sample(3, seeded(0))
        return
    n, half = 400, 8.0
    axis = (torch.arange(n) + 0.5) * (2 * half / n) - half
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, FEATURES)
    with torch.no_grad():
        mass = made.log_density(grid).double().exp().sum() * (2 * half / n) ** 2
    assert float(mass) == pytest.approx(1, abs=0.01)


EXACT = [p for p in each(densities) if p.values[0].normalised and not p.values[0].noised]


@pytest.mark.parametrize("density", EXACT)
def test_what_is_normalised_is_sampled_exactly(density):
    """Samples are as likely as the density says points are on average: the mean of exp(log p) over them is ∫ p²."""
    made = network(density)
    with torch.no_grad():
        samples = made.density.draw(made, 40_000, None, seeded(1))
        assert samples.shape == (40_000, FEATURES)
        again, same, other = (made.density.draw(made, 5, None, seeded(seed)) for seed in (2, 2, 3))
        assert torch.equal(again, same)
        assert not torch.equal(again, other)
        n, half = 400, 8.0
        axis = (torch.arange(n) + 0.5) * (2 * half / n) - half
        grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, FEATURES)
        square = made.log_density(grid).double().mul(2).exp().sum() * (2 * half / n) ** 2
        found = made.log_density(samples).double().exp().mean()
    assert float(found) == pytest.approx(float(square), rel=0.02)


@every
@pytest.mark.parametrize("weighted", [False, True], ids=["samples", "proposals"])
def test_its_losses_are_those_that_have_a_weight(density, weighted):
    made = network(density)
    losses = density.batch_losses(Batch(made, weighted))
    assert set(losses) == {name for name, weight in density.weights.items() if weight}
    assert density.weights[GENERATIVE] == density.weight
    for value in losses.values():
        assert value.shape == ()
        assert torch.isfinite(value)
    gradients = torch.autograd.grad(losses[GENERATIVE], list(made.parameters()), materialize_grads=True)
    assert any(g.abs().max() > 0 for g in gradients)


@pytest.mark.parametrize("density", [p for p in each(densities) if not p.values[0].noised])
def test_data_that_is_more_likely_has_a_smaller_loss(density):
    made = network(density)
    with torch.no_grad():
        data, model = made.log_density(points()), made.log_density(points(5, 6))
    given = (None, None) if density.normalised else (model, None)
    assert density.losses(data + 0.1, *given)[GENERATIVE] < density.losses(data, *given)[GENERATIVE]


@pytest.mark.parametrize("density", [p for p in each(densities) if p.values[0].stackable])
def test_models_side_by_side_have_the_densities_and_losses_they_have_alone(density):
    alone = [network(density, seed) for seed in (0, 1)]
    together = stack(alone)
    x, others = (torch.stack([points(n, seed) for seed in (5, 6)]) for n in (7, 4))
    with torch.no_grad():
        data, model = together.log_density(x), together.log_density(others)
        own = [(m.log_density(a), m.log_density(b)) for m, a, b in zip(alone, x, others, strict=True)]
        torch.testing.assert_close(data, torch.stack([a for a, _ in own]), rtol=1e-5, atol=1e-5)
        losses = density.losses(data, model, None)
        for i, (a, b) in enumerate(own):
            for name, value in density.losses(a, b, None).items():
                assert losses[name].shape == (2,)
                torch.testing.assert_close(losses[name][i], value, rtol=1e-5, atol=1e-5)


@every
def test_a_copy_of_the_network_has_the_same_density(density):
    made = network(density)
    with torch.no_grad():
        assert torch.equal(copy.deepcopy(made).log_density(points()), made.log_density(points()))
    again = network(density, seed=9)
    load_weights(again, made.state_dict())
    with torch.no_grad():
        assert torch.equal(again.log_density(points()), made.log_density(points()))
