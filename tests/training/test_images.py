"""Training on images, from bytes to clusters, on a CPU."""

import math

import numpy as np
import pytest
import torch
from image_cases import EVERY, SHAPE, SMALL, agreement, pictures, planned, prepared

from gedikit import GEDI
from gedikit.errors import DataError, UsageError
from gedikit.modalities.image import as_bytes
from gedikit.training import fit
from gedikit.training.fit import fingerprint
from gedikit.training.rows import of_all_rows
from gedikit.views.base import Views


@pytest.mark.parametrize(("method", "iterations"), [("gedi-no-gen", 100), ("gedi", 100)])
def test_a_fit_finds_the_two_kinds(method, iterations):
    x, kinds = pictures(192)
    config = {"encoder.width": 16, "optimiser.warmup": 10, "optimiser.average": 0.97}
    if method == "gedi":
        config |= {"sampler.samples": 16, "sampler.chains": 200, "sampler.steps": 2}
    model = GEDI(
        2, method=method, image_shape=SHAPE, max_iter=iterations, batch_size=32, learning_rate=1e-3,
        views="photos", config=config, random_state=0, device="cpu",
    ).fit(x)  # fmt: skip
    assert model.plan_.config.encoder.name == "resnet8"
    assert agreement(model.labels_, kinds) > 0.95
    unseen, their_kinds = pictures(100, seed=1)
    assert agreement(model.predict(unseen), their_kinds) > 0.95
    assert model.transform(unseen).shape == (100, 16)


def test_same_seed_same_model_and_another_seed_another():
    x, _ = pictures(60)
    weights = []
    for seed in (3, 3, 4):
        ready = prepared(x, seed=seed)
        state = ready.new_state()
        for _ in range(3):
            ready.step(state)
        weights.append(state.weights.detach())
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_the_seed_sets_the_views_too():
    x, _ = pictures(60)
    views = [prepared(x, seed=seed).views for seed in (3, 3, 4)]
    orders = [v.batch(16, 0, 0, torch.Generator())[0].tolist() for v in views]
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize(
    ("n", "batch_size", "epochs", "iterations"), [(70, 16, 3, 12), (64, 16, 3, 12), (10, 16, 5, 5), (70, 16, 0, 7)]
)
def test_epochs_are_so_many_iterations(n, batch_size, epochs, iterations):
    config = {"optimiser.epochs": epochs, "optimiser.batch_size": batch_size, "optimiser.iterations": 7}
    optimiser = planned(pictures(n)[0], config=config).config.optimiser
    assert optimiser.iterations == iterations
    assert optimiser.batch_size == min(n, batch_size)


def test_a_fit_of_two_epochs_runs_their_iterations():
    x, _ = pictures(48)
    asked = planned(x, "gedi-no-gen", config={"optimiser.epochs": 2})
    done = fit(asked, x, execution=EVERY)
    assert done.state.iteration == done.fitted.info["iterations"] == len(done.history.rows) == 6
    assert done.fitted.plan.config.optimiser.epochs == 2


@pytest.mark.parametrize(
    ("shape", "config", "kind", "sentence"),
    [
        (
            (16, 20, 3),
            {},
            DataError,
            r"rows of 768 values are no images of 16 × 20 pixels with 3 channel\(s\), which have 960",
        ),
        (
            (16, 24, 2),
            {},
            UsageError,
            r"image_shape must be \(height, width, channels\) with 1 or 3 channels, not \(16, 24, 2\)",
        ),
        (
            (16, 48),
            {},
            UsageError,
            r"image_shape must be \(height, width, channels\) with 1 or 3 channels, not \(16, 48\)",
        ),
        ((6, 128, 1), {}, UsageError, "the sides of an image must be multiples of 4 from 8 on, not 6"),
        (
            (),
            {"encoder.name": "resnet8", "views.name": "walk", "sampler.name": "mala"},
            UsageError,
            r"the encoder 'resnet8' is for images: data\.shape must say \(height, width, channels\)",
        ),
        (
            (),
            {"encoder.name": "fourier-mlp", "views.name": "augment"},
            UsageError,
            r"the views 'augment' are for images: data\.shape must say",
        ),
    ],
)
def test_what_does_not_fit_together_is_said_in_a_sentence(shape, config, kind, sentence):
    with pytest.raises(kind, match=sentence):
        prepared(pictures(40)[0], shape=shape, views="photos" if shape else "auto", config=config)


@pytest.mark.parametrize("views", ["walk", "noise"])
def test_views_of_vectors_take_images_as_rows(views):
    x, _ = pictures(40)
    ready = prepared(x, "gedi-no-gen", views="auto", config={"views.name": views})
    state = ready.new_state()
    assert all(math.isfinite(value) for value in ready.step(state, measure=True)[0].values())
    assert ready.plan.config.data.image_shape == SHAPE


@pytest.mark.parametrize(("dtype", "high"), [(np.uint8, 255), (np.float64, 1.0), (np.float32, 16.0)])
def test_units_and_range_of_the_pictures_are_those_of_the_samples(dtype, high):
    x, kinds = pictures(32)
    x[0, :2] = [0, 255]
    given = x if dtype is np.uint8 else (x / 255 * high).astype(dtype)
    asked = planned(x, config={"optimiser.iterations": 2})
    fitted = fit(asked, given, execution=EVERY).fitted
    made, _ = fitted.sample(6, steps=2)
    assert made.shape == (6, 768)
    assert -1e-9 <= made.min() < 0.1 * high
    assert 0.9 * high < made.max() <= high * (1 + 1e-6)
    low, top = fitted.bounds()
    np.testing.assert_allclose([low.min(), low.max(), top.min(), top.max()], [0, 0, high, high], atol=1e-5)
    assert len(kinds) == len(fitted.training_labels)
    # whatever the units, the network was given the same pictures
    plain = fit(asked, x, execution=EVERY).fitted
    np.testing.assert_allclose(fitted.features(given), plain.features(x), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.0, 16.0), (-3.0, 5.0)])
def test_floats_become_the_bytes_they_came_from(low, high):
    levels = np.arange(256)[None].repeat(2, 0)
    scaler, pixels = as_bytes(low + levels * (high - low) / 255)
    assert pixels.dtype == np.uint8
    assert np.array_equal(pixels, levels)
    np.testing.assert_allclose(scaler.transform(np.full((1, 256), low)), -1, atol=1e-6)
    np.testing.assert_allclose(scaler.inverse(np.ones((1, 256))), high, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "terms"),
    [
        ("gedi", {"generative", "invariance", "prior", "energy_l2"}),
        ("jem", {"generative"}),
        ("gedi-two-stage", {"generative"}),
        ("swav", {"swav"}),
        ("barlow-twins", {"barlow-twins"}),
        ("simclr", {"simclr"}),
        ("kscl", {"kscl"}),
        ("deepcluster", {"deepcluster"}),
        ("sela", {"sela"}),
        ("protocpc", {"protocpc"}),
        ("ebclr", {"generative", "infonce"}),
        ("swav+cluster-energy", {"generative", "swav"}),
    ],
)
def test_every_family_takes_images(method, terms):
    ready = prepared(pictures(40)[0], method, config={"density.references": 8} if method == "ebclr" else {})
    state = ready.new_state()
    before = state.weights.detach().clone()
    (row,) = ready.step(state, measure=True)
    assert terms <= row.keys()
    assert all(math.isfinite(value) for value in row.values()), row
    assert row["gradient_norm"] > 0
    moved = (state.weights.detach() - before).abs()
    # Adam's first step is the learning rate along every coordinate that has a gradient
    optimiser = ready.plan.config.optimiser
    first = optimiser.learning_rate / optimiser.warmup
    assert float(moved.max()) == pytest.approx(first, rel=0.05)
    assert (moved > first / 2).float().mean() > 0.5


def test_the_second_stage_of_two_takes_images():
    ready = prepared(pictures(40)[0], "gedi-two-stage", config={"optimiser.iterations": 2})
    state = ready.new_state()
    rows = [ready.step(state, measure=True)[0] for _ in range(2)]
    assert "generative" in rows[0] and "invariance" not in rows[0]
    assert {"invariance", "prior"} <= rows[1].keys() and "generative" not in rows[1]


def test_a_density_is_learned_of_pictures_with_noise_alone():
    """Methods without a density see two strong views, those with one see x itself."""
    x, _ = pictures(40)
    light = {name: prepared(x, name).views.light for name in ("gedi", "gedi-no-gen")}
    strong = prepared(x).views.strong
    assert light["gedi-no-gen"] == strong
    assert light["gedi"] != strong
    assert light["gedi"].noise == strong.noise > 0
    assert not light["gedi"].flip and not light["gedi"].jitter and light["gedi"].crop_area == (1, 1)


def test_blocks_of_rows_are_let_go_of_one_by_one():
    """A pass over all pictures holds one block of them as floats, not all."""
    alive, most = [], 0

    class Blocks(Views):
        n_rows = 4096 * 3 + 5

        def points(self, start, stop):
            alive.append(stop - start)
            return torch.arange(float(start), float(stop))[:, None]

    def function(block):
        nonlocal most
        most = max(most, len(alive))
        alive.clear()
        return 2 * block

    out = of_all_rows(function, Blocks())
    assert most == 1
    assert torch.equal(out[:, 0], 2 * torch.arange(4096 * 3 + 5.0))


def test_grey_pictures_may_leave_out_their_channel():
    x, _ = pictures(40, (16, 20, 1))
    model = GEDI(2, max_iter=2, config=SMALL, random_state=0, device="cpu").fit(x.reshape(-1, 16, 20))
    assert model.plan_.config.data.image_shape == (16, 20, 1)
    assert np.array_equal(model.predict(x.reshape(-1, 16, 20, 1)), model.labels_)
    with pytest.raises(ValueError, match="320 features"):
        model.predict(x[:, :-4].reshape(-1, 4, 79))


def test_pictures_with_their_channels_first_are_refused():
    x = pictures(40)[0].reshape(-1, 3, 16, 16)
    with pytest.raises(
        DataError, match=r"1 or 3 channels in their last dimension, not the shape \(40, 3, 16, 16\)"
    ):
        GEDI(2).fit(x)


def test_a_fingerprint_tells_bytes_apart():
    x, _ = pictures(40)
    other = x.copy()
    other[39, 767] ^= 1
    assert fingerprint(x) == fingerprint(x.copy()) == fingerprint(np.asfortranarray(x))
    assert fingerprint(x) != fingerprint(other)
    assert fingerprint(x) != fingerprint(x.reshape(80, -1))
    assert fingerprint(x) != fingerprint(x[::-1])
