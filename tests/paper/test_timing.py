"""The published loop and its times: it must be the same training as ours, and be counted fairly."""

import copy
import math

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from gedikit import objectives
from gedikit.bench.measure import bench_settings, compare, cudnn_flags, forward_flop, prepared, timed
from gedikit.bench.published import PlainClassifier, PublishedLoop
from gedikit.building import build_model
from gedikit.cli.app import app
from gedikit.data.augment import PRESETS, Augmentation
from gedikit.data.image_views import scaled
from gedikit.methods import get_method
from gedikit.settings import Settings


def network(settings: Settings, seed: int = 0):
    """Untrained, with biases."""
    generator = torch.Generator().manual_seed(seed)
    n_features = math.prod(settings.image_shape)
    made = build_model(get_method("gedi"), settings, n_features, 10, 0.03, generator)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim == 1:
                parameter.normal_(0, 0.3, generator=generator)
    return made


def channels_first(rows: torch.Tensor, settings: Settings) -> torch.Tensor:
    return rows.reshape(-1, *settings.image_shape).permute(0, 3, 1, 2)


def loop(settings: Settings, augmentation: Augmentation = PRESETS["none"], n: int = 6) -> PublishedLoop:
    pixels = np.random.default_rng(0).integers(0, 256, (n, math.prod(settings.image_shape)), dtype=np.uint8)
    torch.manual_seed(0)
    return PublishedLoop(network(settings), torch.from_numpy(pixels), augmentation, settings)


def test_the_published_network_is_ours():
    settings = bench_settings(4, 12, 1, 16)
    ours = network(settings)
    x = torch.rand(5, 768, generator=torch.Generator().manual_seed(1)) * 2 - 1
    plain = PlainClassifier(ours)
    found, wanted = plain(channels_first(x, settings)), ours.logits(x)
    assert found.shape == (5, 10)
    assert wanted.std() > 0.1
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert {id(p) for p in plain.parameters()} == {id(p) for p in ours.parameters()}, "the weights are shared"


def test_the_published_losses_are_ours():
    settings = bench_settings(6, 8, 1, 16)
    published = loop(settings, Augmentation(flip=1.0), n=9)  # every view is the mirror image
    ours = copy.deepcopy(published.network)
    before = torch.random.get_rng_state()
    rows = torch.randint(0, 9, (6,))
    torch.randn(6, 16, 16, 3)  # the noise of x, whose size is 0 here
    samples = samples_after_one_step(published.buffer.clone(), ours, settings)
    torch.random.set_rng_state(before)
    generative, invariance, prior = published.step()
    with torch.no_grad():
        x = scaled(published.pixels[rows]).permute(0, 3, 1, 2)
        logits = ours(x)
        log_p, view_log_p = torch.log_softmax(logits, -1), torch.log_softmax(ours(x.flip(3)), -1)
        wanted = (
            objectives.generative(torch.logsumexp(logits, -1), torch.logsumexp(ours(samples), -1)),
            objectives.invariance(log_p, view_log_p),
            objectives.prior(log_p, torch.full((10,), -math.log(10))),
        )
        other_way = objectives.invariance(view_log_p, log_p)
    assert generative == pytest.approx(float(wanted[0]), rel=1e-4)
    assert invariance == pytest.approx(float(wanted[1]), rel=1e-5)
    assert prior == pytest.approx(float(wanted[2]), rel=1e-5)
    assert abs(float(other_way) / invariance - 1) > 1e-4, "the direction matters here"


def samples_after_one_step(buffer: torch.Tensor, network, settings: Settings) -> torch.Tensor:
    """The chains of a loop's first iteration, from torch's own generator in the order it is asked in."""
    slots = torch.randint(0, len(buffer), (settings.negatives,))
    fresh = torch.empty(settings.negatives, *buffer.shape[1:]).uniform_(-1, 1)
    restarted = torch.rand(settings.negatives) < settings.restart
    x = torch.where(restarted[:, None, None, None], fresh, buffer[slots]).requires_grad_()
    (score,) = torch.autograd.grad(torch.logsumexp(network(x), 1).sum(), x)
    return (x + settings.step_size * score + settings.noise_std * torch.randn(x.shape)).detach()


def test_an_iteration_of_the_published_loop_trains():
    settings = bench_settings(4, 8, 2, 16)
    published = loop(settings, PRESETS["cifar10-printed"])
    weights = [p.detach().clone() for p in published.network.parameters()]
    chains = published.buffer.clone()
    losses = published.step()
    assert all(math.isfinite(value) for value in losses)
    assert losses[1] > 0
    assert losses[2] >= math.log(10) - 1e-5, "no smaller than the entropy of the prior"
    moved = [
        float((p.detach() - w).abs().max()) for p, w in zip(published.network.parameters(), weights, strict=True)
    ]
    assert moved == pytest.approx([settings.learning_rate] * len(moved), rel=0.05), "Adam's first step"
    changed = (published.buffer != chains).flatten(1).any(1)
    assert 1 <= int(changed.sum()) <= 4, "only the chains of this batch"


@pytest.mark.parametrize(("width", "side"), [(8, 16), (12, 32)])
def test_operations_are_counted_for_the_network_as_printed(width, side):
    settings = bench_settings(4, width, 1, side)
    plain = PlainClassifier(network(settings))
    with FlopCounterMode(display=False) as counter:
        plain(torch.zeros(3, 3, side, side))
    assert forward_flop(settings) == pytest.approx(counter.get_total_flops() / 3, rel=0.01)


def test_both_loops_are_timed_at_a_tiny_size():
    settings = bench_settings(4, 8, 1, 16)
    timing = compare(settings, "cpu", repeats=1, blocks=1)
    assert timing.batch_size == 4
    assert list(timing.published) == ["as PyTorch comes"]
    assert all(0 < seconds < 10 for seconds in (*timing.published.values(), timing.ours, timing.sampling))
    assert timing.flop == pytest.approx(4 * forward_flop(settings) * (2 + 9))
    assert timing.sampling_flop == pytest.approx(4 * forward_flop(settings) * 2)
    assert timing.start > 0
    assert timing.memory == 0


def test_what_is_timed_is_the_printed_recipe():
    settings = bench_settings(32, 24, 7, 16)
    assert (settings.batch_size, settings.negatives, settings.width, settings.steps) == (32, 32, 24, 7)
    assert (settings.image_shape, settings.sampler, settings.network) == ((16, 16, 3), "sgld", "resnet8")
    assert (settings.invariance, settings.prior, settings.generative) == (50, 25, 1)
    assert (settings.step_size, settings.noise_std, settings.restart) == (1, 0.01, 0.05)
    ready = prepared(bench_settings(4, 8, 1, 16), "cpu")
    assert ready.x.dtype == np.uint8
    assert ready.x.shape == (2048, 768)


def test_a_time_is_that_of_one_call():
    calls = []
    seconds = timed(lambda: calls.append(1), 5, torch.device("cpu"))
    assert len(calls) == 6, "one that is not counted and five that are"
    assert 0 < seconds < 0.1


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
