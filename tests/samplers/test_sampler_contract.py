"""What every sampler must do: prepare for data, draw, end, and sample a trained model."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from contract_cases import ROWS, assert_equal, assert_same_form, copied, each, seeded
from gedikit.samplers import Box, Sampler, SamplerContext, Samples, Source, samplers

D, SAMPLES, CENTER, DEVIATION = 2, 32, 0.3, 0.2
BOX = Box(torch.full((D,), -1.0), torch.full((D,), 1.0))
CPU = torch.device("cpu")
every = pytest.mark.parametrize("sampler", each(samplers))


def log_density(x: Tensor) -> Tensor:
    """A Gaussian well inside the box, normalised."""
    z = (x - CENTER) / DEVIATION
    return -0.5 * z.square().sum(-1) - D * math.log(DEVIATION * math.sqrt(2 * math.pi))


def data(seed: int = 0) -> Tensor:
    return (CENTER + DEVIATION * torch.randn(ROWS, D, generator=seeded(seed))).clamp(-0.99, 0.99)


def small(sampler: Sampler) -> Sampler:
    """With fewer chains and proposals, and steps that suit the density, where it has such."""
    fit = {"samples": SAMPLES, "chains": 60, "bank": 3000, "step_size": 0.002, "noise_std": 0.05}
    return replace(sampler, **{name: value for name, value in fit.items() if hasattr(sampler, name)})


def source(sampler: Sampler, seed: int = 0) -> Source:
    rows = data(seed)
    context = SamplerContext(ROWS, lambda which: rows[which], rows[:20], BOX, 0.1, 0.05, True, seeded(seed), CPU)
    return small(sampler).prepare(context)


def stays_inside(sampler: Sampler) -> bool:
    return getattr(sampler, "bounds", "") != "none"


@every
def test_an_iteration_draws_points_and_remembers_in_the_same_form(sampler):
    drawn_from = source(sampler)
    memory = drawn_from.start()
    before = copied(memory)
    assert_equal(copied(drawn_from.start()), before)
    generator = seeded(1)
    for _ in range(3):
        samples, memory = drawn_from.draw(log_density, memory, generator)
        assert isinstance(samples, Samples)
        assert samples.points.shape == (SAMPLES, D)
        assert samples.points.dtype == torch.float32
        assert not samples.points.requires_grad
        assert torch.isfinite(samples.points).all()
        assert samples.log_q is None or samples.log_q.shape == (SAMPLES,)
        assert samples.acceptance is None or (samples.acceptance.shape == () and 0 <= samples.acceptance <= 1)
        assert_same_form(memory, before)
        if stays_inside(sampler):
            assert BOX.contains(samples.points).all()


@every
def test_the_generator_alone_sets_what_is_drawn(sampler):
    drawn = []
    for seed in (1, 1, 2):
        drawn_from = source(sampler)
        drawn.append(drawn_from.draw(log_density, drawn_from.start(), seeded(seed)))
    (one, memory), (same, its_memory), (other, _) = drawn
    assert torch.equal(one.points, same.points)
    assert_equal(copied(memory), copied(its_memory))
    assert not torch.equal(one.points, other.points)


@every
def test_what_it_prepares_depends_on_the_seed_and_the_data(sampler):
    one, same, other = (source(sampler, seed).start() for seed in (0, 0, 3))
    assert_equal(one, same)
    assert_same_form(other, one)


@every
def test_the_end_of_a_training_leaves_points_to_start_from(sampler):
    drawn_from = source(sampler)
    _, memory = drawn_from.draw(log_density, drawn_from.start(), seeded(1))
    points, log_gamma = drawn_from.final(log_density, memory, 50, seeded(2))
    assert points.shape == (50, D)
    assert torch.isfinite(points).all()
    assert log_gamma is None or log_gamma == pytest.approx(0, abs=0.1)
    assert isinstance(small(sampler).final_step(memory), float)


@every
def test_a_trained_model_is_sampled_from_given_points(sampler):
    drawn_from = source(sampler)
    step = small(sampler).final_step(drawn_from.start())
    start = 0.5 * data()

    def sampled(seed: int) -> tuple[Tensor, object]:
        return small(sampler).sample(log_density, start, steps=5, step_size=step, box=BOX, generator=seeded(seed))

    points, info = sampled(1)
    assert points.shape == start.shape
    assert torch.isfinite(points).all()
    assert not torch.equal(points, start)
    if stays_inside(sampler):
        assert BOX.contains(points).all()
    assert 0 <= info.acceptance <= 1
    assert info.step_size > 0
    assert info.temperature == small(sampler).temperature > 0
    assert torch.equal(sampled(1)[0], points)
    assert not torch.equal(sampled(2)[0], points)


@every
def test_samples_follow_the_density_at_the_temperature_they_report(sampler):
    start = data().repeat(20, 1)
    step = small(sampler).final_step(source(sampler).start())
    points, info = small(sampler).sample(
        log_density, start, steps=150, step_size=step, box=BOX, generator=seeded(0)
    )
    deviation = DEVIATION * math.sqrt(info.temperature)
    torch.testing.assert_close(points.mean(0), torch.full((D,), CENTER), atol=0.03, rtol=0)
    torch.testing.assert_close(points.std(0), torch.full((D,), deviation), atol=0, rtol=0.12)


@every
def test_no_density_draws_points_out_of_the_domain(sampler):
    """One that grows towards a corner and beyond it; only where bounds are off may chains follow."""
    if not stays_inside(sampler):
        pytest.skip("without bounds")

    def outwards(x: Tensor) -> Tensor:
        return 200 * x.sum(-1)

    drawn_from = source(sampler)
    memory, generator = drawn_from.start(), seeded(1)
    for _ in range(3):
        samples, memory = drawn_from.draw(outwards, memory, generator)
        assert BOX.contains(samples.points).all()
    step = small(sampler).final_step(memory)
    points, _ = small(sampler).sample(outwards, data(), steps=10, step_size=step, box=BOX, generator=generator)
    assert BOX.contains(points).all()


@every
def test_chains_from_noise_begin_inside_the_domain(sampler):
    begin = small(sampler).initialisation(data(), BOX)
    points = begin(70, seeded(0))
    assert points.shape == (70, D)
    assert BOX.contains(points).all()


@every
def test_models_side_by_side_draw_what_they_draw_alone(sampler):
    alone = [source(sampler, seed) for seed in (0, 1)]
    together = small(sampler).stack([source(sampler, seed) for seed in (0, 1)])
    memories = [s.start() for s in alone]
    memory = together.start()
    assert_same_form(memory, {name: torch.stack([m[name] for m in memories]) for name in memories[0]})
    generators, own = [seeded(5), seeded(6)], [seeded(5), seeded(6)]
    for _ in range(2):
        samples, memory = together.draw(log_density, memory, generators)
        for i, drawn_from in enumerate(alone):
            expected, memories[i] = drawn_from.draw(log_density, memories[i], own[i])
            torch.testing.assert_close(samples.points[i], expected.points, rtol=1e-5, atol=1e-6)
            for found, wanted in ((samples.log_q, expected.log_q), (samples.acceptance, expected.acceptance)):
                assert (found is None) == (wanted is None)
                if found is not None:
                    torch.testing.assert_close(found[i], wanted, rtol=1e-5, atol=1e-6)
        for name, value in memory.items():
            packed = torch.stack([m[name] for m in memories])
            torch.testing.assert_close(value, packed, rtol=1e-5, atol=1 if value.dtype == torch.uint8 else 1e-6)
