"""The published loop and its times: it must be the same training as ours, and be counted fairly."""

import copy
import math

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from gedikit import densities, objectives
from gedikit.building import build_network
from gedikit.cli.app import app
from gedikit.paper import timing
from gedikit.paper.published_loop import ImageLoop, PlainClassifier, VectorLoop
from gedikit.paper.recipes import printed
from gedikit.paper.timing import bench_plan, compare, cudnn_flags, forward_flop, prepared
from gedikit.planning import Asked, Plan, plan
from gedikit.profile import DataProfile
from gedikit.views.augment import Augment
from gedikit.views.image_views import scaled


def network(plan: Plan, seed: int = 0):
    """Untrained, with biases."""
    generator = torch.Generator().manual_seed(seed)
    n_features = plan.data.n_features
    no_rows = torch.empty(0, n_features)
    made = build_network(plan, n_features, 0.03, generator, no_rows, no_rows)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim == 1:
                parameter.normal_(0, 0.3, generator=generator)
    return made


def channels_first(rows: torch.Tensor, plan: Plan) -> torch.Tensor:
    return rows.reshape(-1, *plan.config.data.image_shape).permute(0, 3, 1, 2)


def loop(plan: Plan, n: int = 6) -> ImageLoop:
    pixels = np.random.default_rng(0).integers(0, 256, (n, plan.data.n_features), dtype=np.uint8)
    torch.manual_seed(0)
    return ImageLoop(network(plan), torch.from_numpy(pixels), plan)


def test_the_published_network_is_ours():
    plan = bench_plan(4, 12, 1, 16)
    ours = network(plan)
    x = torch.rand(5, 768, generator=torch.Generator().manual_seed(1)) * 2 - 1
    plain = PlainClassifier(ours)
    found, wanted = plain(channels_first(x, plan)), ours.logits(x)
    assert found.shape == (5, 10)
    assert wanted.std() > 0.1
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert {id(p) for p in plain.parameters()} == {id(p) for p in ours.parameters()}, "the weights are shared"


def test_the_published_losses_are_ours():
    plan = bench_plan(6, 8, 1, 16)
    mirrored = plan.replaced(views=Augment(flip=1.0))  # every view is the mirror image
    published = loop(mirrored, n=9)
    ours = copy.deepcopy(published.network)
    before = torch.random.get_rng_state()
    rows = torch.randint(0, 9, (6,))
    torch.randn(6, 16, 16, 3)  # the noise of x, whose size is 0 here
    samples = samples_after_one_step(published.buffer.clone(), ours, plan)
    torch.random.set_rng_state(before)
    generative, invariance, prior = published.step()
    with torch.no_grad():
        x = channels_first(scaled(published.pixels[rows]), plan)
        logits = ours(x)
        log_p, view_log_p = torch.log_softmax(logits, -1), torch.log_softmax(ours(x.flip(3)), -1)
        wanted = (
            densities.generative(torch.logsumexp(logits, -1), torch.logsumexp(ours(samples), -1)),
            objectives.invariance(log_p, view_log_p),
            objectives.prior(log_p, torch.full((10,), -math.log(10))),
        )
        other_way = objectives.invariance(view_log_p, log_p)
    assert generative == pytest.approx(float(wanted[0]), rel=1e-4)
    assert invariance == pytest.approx(float(wanted[1]), rel=1e-5)
    assert prior == pytest.approx(float(wanted[2]), rel=1e-5)
    assert abs(float(other_way) / invariance - 1) > 1e-4, "the direction matters here"


def samples_after_one_step(buffer: torch.Tensor, network, plan: Plan) -> torch.Tensor:
    """The chains of a loop's first iteration, from torch's own generator in the order it is asked in."""
    sampler = plan.config.sampler
    slots = torch.randint(0, len(buffer), (sampler.samples,))
    fresh = torch.empty(sampler.samples, *buffer.shape[1:]).uniform_(-1, 1)
    restarted = torch.rand(sampler.samples) < sampler.restart
    x = torch.where(restarted[:, None, None, None], fresh, buffer[slots]).requires_grad_()
    (score,) = torch.autograd.grad(torch.logsumexp(network(x), 1).sum(), x)
    return (x + sampler.step_size * score + sampler.noise_std * torch.randn(x.shape)).detach()


def test_an_iteration_of_the_published_loop_trains():
    plan = bench_plan(4, 8, 2, 16)
    published = loop(plan)
    weights = [p.detach().clone() for p in published.network.parameters()]
    chains = published.buffer.clone()
    losses = published.step()
    assert all(math.isfinite(value) for value in losses)
    assert losses[1] > 0
    assert losses[2] >= math.log(10) - 1e-5, "no smaller than the entropy of the prior"
    moved = [
        float((p.detach() - w).abs().max()) for p, w in zip(published.network.parameters(), weights, strict=True)
    ]
    assert moved == pytest.approx([plan.config.optimiser.learning_rate] * len(moved), rel=0.05), "Adam's first step"
    changed = (published.buffer != chains).flatten(1).any(1)
    assert 1 <= int(changed.sum()) <= 4, "only the chains of this batch"


@pytest.mark.parametrize(("width", "side"), [(8, 16), (12, 32)])
def test_operations_are_those_that_are_computed(width, side):
    plan = bench_plan(4, width, 1, side)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(plan).log_density(torch.zeros(3, 3 * side**2))
    shortcut = 2 * 3 * width * side**2 / 4  # a sum of products, which the counter does not see
    assert forward_flop(plan) == pytest.approx(counter.get_total_flops() / 3 + shortcut, rel=1e-6)


def test_both_loops_are_timed_at_a_tiny_size():
    plan = bench_plan(4, 8, 1, 16)
    found = compare(plan, "cpu", repeats=1, blocks=1)
    assert found.batch_size == 4
    assert list(found.published) == ["as PyTorch comes"]
    assert all(seconds > 0 for seconds in (*found.published.values(), found.ours, found.sampling))
    assert found.flop == pytest.approx(4 * forward_flop(plan) * (2 + 9))
    assert found.sampling_flop == pytest.approx(4 * forward_flop(plan) * 2)
    assert found.start > 0
    assert found.memory == 0


def test_what_is_timed_is_the_printed_recipe():
    c = bench_plan(32, 24, 7, 16).config
    assert (c.optimiser.batch_size, c.sampler.samples, c.encoder.width, c.sampler.steps) == (32, 32, 24, 7)
    assert (c.data.image_shape, c.sampler.name, c.encoder.name) == ((16, 16, 3), "sgld", "resnet8")
    weights = (c.objectives["invariance"].weight, c.objectives["prior"].weight, c.density.weight)
    assert weights == (50, 25, 1)
    assert (c.sampler.step_size, c.sampler.noise_std, c.sampler.restart) == (1, 0.01, 0.05)
    ready = prepared(bench_plan(4, 8, 1, 8), "cpu")
    assert ready.x.dtype == np.uint8
    assert ready.x.shape == (2048, 192)


def test_the_published_loop_trains_on_points_too():
    x = torch.rand(50, 2, generator=torch.Generator().manual_seed(0))
    made = plan(DataProfile(50, 2), Asked(2, printed("gedi").name))
    torch.manual_seed(0)
    published = VectorLoop(network(made), x, made)
    points, views = published.batch()
    assert points.shape == views.shape == (50, 2)
    assert float((points - views).std()) == pytest.approx(0.03, rel=0.3)
    before = published.network.centers.detach().clone()
    assert all(math.isfinite(value) for value in published.step())
    moved = (published.network.centers.detach() - before).abs().max()
    assert float(moved) == pytest.approx(1e-3, rel=0.05), "Adam's first step"


def test_a_time_is_that_of_one_call(monkeypatch):
    calls = []
    clock = iter([100.0, 110.0])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    assert timing.timed(lambda: calls.append(1), 5, torch.device("cpu")) == 2
    assert len(calls) == 6, "one that is not counted and five that are"


def test_flags_are_put_back():
    before = torch.backends.cudnn.benchmark
    with pytest.raises(KeyError), cudnn_flags(benchmark=not before):
        assert torch.backends.cudnn.benchmark is not before
        raise KeyError
    assert torch.backends.cudnn.benchmark is before


def test_the_command_prints_a_table():
    asked = ["bench", "--batch", "4", "--batch", "6", "--width", "8", "--steps", "1", "--side", "16"]
    done = CliRunner().invoke(app, [*asked, "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert "ResNet-8 of width 8, 16 × 16 × 3 pixels, 1 SGLD steps, method gedi" in done.output
    for line in ("batch 4", "batch 6", "published loop as PyTorch comes", "gedikit is faster by", "TFLOP/s"):
        assert line in done.output
    rows = [line.split() for line in done.output.splitlines() if line.strip().startswith("gedikit ")]
    assert len(rows) == 2
    assert all(float(row[1]) > 0 and float(row[2].replace(",", "")) > 0 for row in rows)
