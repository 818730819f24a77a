"""Training on images, from bytes to clusters, on a CPU."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from gedikit import GEDI
from gedikit.errors import DataError, UsageError
from gedikit.methods import get_method
from gedikit.recipes import image_recipe
from gedikit.sampling import Box, ReplayBuffer
from gedikit.storage import read_tensors, write_tensors
from gedikit.training import fit
from gedikit.training.fit import fingerprint, prepare, resolve
from gedikit.training.inputs import as_bytes
from gedikit.training.terms import of_all_rows

SHAPE = (16, 16, 3)
SMALL = {"width": 8, "batch_size": 16, "negatives": 8, "buffer": 64, "steps": 2, "log_every": 1}


def pictures(n: int, shape: tuple[int, int, int] = SHAPE, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Of two kinds: bright above or bright below, in any colour."""
    rng = np.random.default_rng(seed)
    half = shape[0] // 2
    images = rng.integers(0, 60, (n, *shape))
    kinds = rng.integers(0, 2, n)
    colour = rng.integers(80, 195, (n, 1, 1, shape[2]))
    for image, kind, light in zip(images, kinds, colour, strict=True):
        image[half * kind : half * kind + half] += light
    return images.astype(np.uint8).reshape(n, -1), kinds


def settings(method: str = "gedi", shape: tuple[int, int, int] = SHAPE, **changes):
    recipe = image_recipe(shape, "folder", on_gpu=False)
    return get_method(method).settings({**recipe, **SMALL}, **changes)


def prepared(x: np.ndarray, method: str = "gedi", seed: int = 0, **changes):
    asked = settings(method, **changes)
    return prepare(x, get_method(method), asked, n_clusters=2, seed=seed, device="cpu")


def small_encoder(n_features: int = 6) -> nn.Module:
    torch.manual_seed(0)
    conv = nn.Conv2d(3, n_features, 4, stride=4)
    return nn.Sequential(conv, nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def agreement(labels: np.ndarray, kinds: np.ndarray) -> float:
    return max(np.mean(labels == kinds), np.mean(labels != kinds))


@pytest.mark.parametrize(("method", "iterations"), [("gedi-no-gen", 100), ("gedi", 100)])
def test_a_fit_finds_the_two_kinds(method, iterations):
    x, kinds = pictures(192)
    options = {"width": 16, "negatives": 16, "buffer": 200, "steps": 2, "warmup": 10, "average": 0.97}
    model = GEDI(
        2, method=method, image_shape=SHAPE, max_iter=iterations, batch_size=32, learning_rate=1e-3,
        options=options, random_state=0, device="cpu",
    ).fit(x)  # fmt: skip
    assert model.fitted_.settings.network == "resnet8"
    assert agreement(model.labels_, kinds) > 0.95
    unseen, their_kinds = pictures(100, seed=1)
    assert agreement(model.predict(unseen), their_kinds) > 0.95
    assert model.transform(unseen).shape == (100, 16)


@pytest.mark.parametrize(
    "changes", [{}, {"buffer_dtype": "uint8"}, {"sampler": "mala"}, {"image_walks": "on", "spectral_start": 0.7}]
)
def test_stopped_and_restored_goes_on_bit_for_bit(tmp_path, changes):
    ready = prepared(pictures(70)[0], iterations=10, **changes)
    whole = ready.new_state()
    losses = []
    for i in range(10):
        losses += ready.step(whole, measure=True)
        if i == 5:
            write_tensors(tmp_path / "state.safetensors", whole.tensors(), whole.meta(), "checkpoint")
    again = prepared(pictures(70)[0], iterations=10, **changes)
    state = again.new_state()
    state.restore(*read_tensors(tmp_path / "state.safetensors", "checkpoint"))
    assert state.iteration == 6
    repeated = [row for _ in range(4) for row in again.step(state, measure=True)]
    assert repeated == losses[6:]
    wanted, found = whole.tensors(), state.tensors()
    assert wanted.keys() == found.keys() >= {"weights", "average_weights", "buffer", "generator", "chain_step"}
    for name, tensor in wanted.items():
        assert torch.equal(tensor, found[name]), name
    one, other = (
        r.inputs.views(r.inputs.views.batch(16, 6, 0, s.generator), 0, s.generator)
        for r, s in ((ready, whole), (again, state))
    )
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


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
    views = [prepared(x, seed=seed).inputs.views for seed in (3, 3, 4)]
    orders = [v.batch(16, 0, 0, torch.Generator())[0].tolist() for v in views]
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize(
    ("n", "batch_size", "epochs", "iterations"), [(70, 16, 3, 12), (64, 16, 3, 12), (10, 16, 5, 5), (70, 16, 0, 7)]
)
def test_epochs_are_so_many_iterations(n, batch_size, epochs, iterations):
    asked = settings(epochs=epochs, batch_size=batch_size, iterations=7)
    assert resolve(asked, n, 768).iterations == iterations


def test_a_fit_of_two_epochs_runs_their_iterations():
    x, _ = pictures(48)
    asked = settings(method="gedi-no-gen", epochs=2)
    fitted, history, state = fit(x, get_method("gedi-no-gen"), asked, n_clusters=2, device="cpu")
    assert state.iteration == fitted.info["iterations"] == len(history.rows) == 6
    assert fitted.settings.epochs == 2


@pytest.mark.parametrize(("dtype", "most"), [("float32", 0.0), ("bfloat16", 2**-9), ("uint8", 1 / 255)])
def test_chains_come_back_within_the_rounding_of_what_they_wait_in(dtype, most):
    x = torch.rand(40, 12, generator=torch.Generator().manual_seed(0)) * 2 - 1
    x[0, :2] = torch.tensor([-1.0, 1.0])
    buffer = ReplayBuffer(x, getattr(torch, dtype))
    box = Box(torch.full((12,), -1.0), torch.full((12,), 1.0))
    slots, drawn = buffer.draw(30, restart=0.0, start=box.uniform, generator=torch.Generator().manual_seed(1))
    assert drawn.dtype == torch.float32
    assert (drawn - x[slots]).abs().max() <= most * (1 + 1e-4)
    assert torch.equal(buffer.first(40)[0, :2], x[0, :2]), "the walls are kept"
    moved = -x[:3]
    buffer.write(torch.tensor([7, 0, 9]), moved)
    assert (buffer.first(40)[[7, 0, 9]] - moved).abs().max() <= most * (1 + 1e-4)
    assert buffer.positions.dtype == getattr(torch, dtype)
    if most:
        assert (drawn - x[slots]).abs().max() > most / 8, "it was rounded"


def test_bytes_keep_their_256_levels_for_ever():
    levels = torch.arange(256, dtype=torch.float32)[None] / 127.5 - 1
    buffer = ReplayBuffer(levels, torch.uint8)
    assert buffer.positions[0].tolist() == list(range(256))
    for _ in range(3):
        buffer.write(torch.tensor([0]), buffer.first(1))
    assert buffer.positions[0].tolist() == list(range(256))
    assert torch.equal(buffer.first(1), levels)


def test_chains_outside_the_pixels_wait_at_the_wall():
    buffer = ReplayBuffer(torch.tensor([[-7.0, 1.2, 0.0]]), torch.uint8)
    assert buffer.positions.tolist() == [[0, 255, 128]]


@pytest.mark.parametrize("dtype", ["bfloat16", "uint8"])
def test_training_runs_on_small_chains_and_stays_near(dtype):
    x, _ = pictures(40)
    generative, first = [], []
    for name in ("float32", dtype):
        ready = prepared(x, buffer_dtype=name)
        state = ready.new_state()
        assert state.buffer.positions.dtype == getattr(torch, name)
        first.append(state.buffer.first(64))
        generative.append([ready.step(state, measure=True)[0]["generative"] for _ in range(3)])
        assert state.buffer.positions.dtype == getattr(torch, name)
        assert not torch.equal(state.buffer.first(64), first[-1]), "chains are written back"
    assert (first[0] - first[1]).abs().max() < 2 / 255
    assert generative[1] == pytest.approx(generative[0], rel=0.05, abs=0.05)


def test_what_chains_cannot_wait_in_is_refused():
    with pytest.raises(UsageError, match="buffer_dtype must be one of float32, bfloat16, uint8, not 'float16'"):
        settings(buffer_dtype="float16")
    asked = get_method("gedi").settings(buffer_dtype="uint8", buffer=20)
    with pytest.raises(UsageError, match="buffer_dtype 'uint8' is for the pixels of images"):
        prepare(np.random.default_rng(0).normal(size=(30, 4)), get_method("gedi"), asked, n_clusters=2)


@pytest.mark.parametrize(
    ("changes", "kind", "sentence"),
    [
        (
            {"image_shape": (16, 20, 3)},
            DataError,
            r"rows of 768 values are no images of 16 × 20 pixels with 3 channel\(s\), which have 960",
        ),
        (
            {"image_shape": (16, 24, 2)},
            UsageError,
            r"image_shape must be \(height, width, channels\) with 1 or 3 channels, not \(16, 24, 2\)",
        ),
        (
            {"image_shape": (16, 48)},
            UsageError,
            r"image_shape must be \(height, width, channels\) with 1 or 3 channels, not \(16, 48\)",
        ),
        ({"image_shape": (6, 128, 1)}, UsageError, "the sides of an image must be multiples of 4 from 8 on, not 6"),
        (
            {"image_shape": (), "augmentation": "walk", "sampler": "mala"},
            UsageError,
            r"network 'resnet8' is for images: image_shape must say \(height, width, channels\)",
        ),
        ({"augmentation": "walk"}, UsageError, "images need an augmentation from none, cifar10, .*, not 'walk'"),
        (
            {"image_shape": (), "network": "default"},
            UsageError,
            "augmentation 'photos' is for images: image_shape says what rows are",
        ),
    ],
)
def test_what_does_not_fit_together_is_said_in_a_sentence(changes, kind, sentence):
    with pytest.raises(kind, match=sentence):
        prepared(pictures(40)[0], **changes)


@pytest.mark.parametrize(("dtype", "high"), [(np.uint8, 255), (np.float64, 1.0), (np.float32, 16.0)])
def test_units_and_range_of_the_pictures_are_those_of_the_samples(dtype, high):
    x, kinds = pictures(32)
    x[0, :2] = [0, 255]
    given = x if dtype is np.uint8 else (x / 255 * high).astype(dtype)
    asked = settings(iterations=2)
    fitted, _, _ = fit(given, get_method("gedi"), asked, n_clusters=2, device="cpu")
    made, _ = fitted.sample(6, steps=2)
    assert made.shape == (6, 768)
    assert -1e-9 <= made.min() < 0.1 * high
    assert 0.9 * high < made.max() <= high * (1 + 1e-6)
    low, top = fitted.bounds()
    np.testing.assert_allclose([low.min(), low.max(), top.min(), top.max()], [0, 0, high, high], atol=1e-5)
    assert len(kinds) == len(fitted.training_labels)
    # whatever the units, the network was given the same pictures
    plain, _, _ = fit(x, get_method("gedi"), asked, n_clusters=2, device="cpu")
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
    ready = prepared(pictures(40)[0], method, references=8)
    state = ready.new_state()
    before = state.weights.detach().clone()
    (row,) = ready.step(state, measure=True)
    assert terms <= row.keys()
    assert all(math.isfinite(value) for value in row.values()), row
    assert row["gradient_norm"] > 0
    moved = (state.weights.detach() - before).abs()
    # Adam's first step is the learning rate along every coordinate that has a gradient
    first = ready.settings.learning_rate / ready.settings.warmup
    assert float(moved.max()) == pytest.approx(first, rel=0.05)
    assert (moved > first / 2).float().mean() > 0.5


def test_the_second_stage_of_two_takes_images():
    ready = prepared(pictures(40)[0], "gedi-two-stage", iterations=2)
    state = ready.new_state()
    rows = [ready.step(state, measure=True)[0] for _ in range(2)]
    assert "generative" in rows[0] and "invariance" not in rows[0]
    assert {"invariance", "prior"} <= rows[1].keys() and "generative" not in rows[1]


def test_a_density_is_learned_of_pictures_with_noise_alone():
    """Methods without a density see two strong views, those with one see x itself."""
    x, _ = pictures(40)
    light = {name: prepared(x, name).inputs.views.light for name in ("gedi", "gedi-no-gen")}
    strong = prepared(x).inputs.views.strong
    assert light["gedi-no-gen"] == strong
    assert light["gedi"] != strong
    assert light["gedi"].noise == strong.noise > 0
    assert not light["gedi"].flip and not light["gedi"].jitter and light["gedi"].crop_area == (1, 1)


def test_blocks_of_rows_are_let_go_of_one_by_one():
    """A pass over all pictures holds one block of them as floats, not all."""
    alive, most = [], 0

    class Views:
        n_rows = 4096 * 3 + 5

        def points(self, start, stop):
            alive.append(stop - start)
            return torch.arange(float(start), float(stop))[:, None]

    def function(block):
        nonlocal most
        most = max(most, len(alive))
        alive.clear()
        return 2 * block

    out = of_all_rows(function, Views())
    assert most == 1
    assert torch.equal(out[:, 0], 2 * torch.arange(4096 * 3 + 5.0))


def test_an_encoder_of_ones_own_is_copied_saved_and_asked_for_again(tmp_path):
    x, _ = pictures(40)
    images = x.reshape(-1, *SHAPE)
    encoder = small_encoder()
    before = copy.deepcopy(encoder.state_dict())
    model = GEDI(2, encoder=encoder, max_iter=3, options=SMALL | {"warmup": 1}, random_state=0, device="cpu")
    assert model.fit(images).fitted_.settings.image_shape == SHAPE
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(tensor, before[name]), "what was brought is left as it was"
    trained = model.fitted_.network.encoder.module.state_dict()
    assert any(not torch.equal(trained[name], before[name]) for name in before)
    assert model.transform(images).shape == (40, 6)
    assert np.array_equal(model.predict(images), model.predict(x))
    assert np.array_equal(model.predict(images), model.labels_)

    path = tmp_path / "model.safetensors"
    model.save(path)
    with pytest.raises(UsageError, match="was trained with an encoder of your own: give one of the same kind as"):
        GEDI.load(path)
    other = small_encoder()
    with torch.no_grad():
        other[0].weight.zero_()
    loaded = GEDI.load(path, encoder=other, device="cpu")
    assert not other[0].weight.any(), "it was only asked how it is made"
    assert loaded.encoder is other
    assert np.array_equal(loaded.predict_proba(images), model.predict_proba(images))
    np.testing.assert_array_equal(loaded.transform(x), model.transform(x))


def test_frozen_layers_of_an_encoder_stay_as_they_are():
    x, _ = pictures(40)
    encoder = nn.Sequential(*small_encoder(), nn.Linear(6, 5))
    encoder[0].requires_grad_(False)
    ready = prepare(x, get_method("gedi"), settings(), n_clusters=2, device="cpu", encoder=encoder)
    assert ready.network.encoder.module is not encoder, "what moves to a device is a copy"
    state = ready.new_state()
    for _ in range(2):
        ready.step(state)
    module = state.network.encoder.module
    assert torch.equal(module[0].weight, encoder[0].weight)
    assert not torch.equal(module[4].weight, encoder[4].weight)


def test_encoders_with_batch_statistics_are_refused():
    encoder = nn.Sequential(nn.Conv2d(3, 4, 4, stride=4), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(UsageError, match=r"the encoder has a BatchNorm2d: .* such as GroupNorm"):
        GEDI(2, encoder=encoder, device="cpu").fit(pictures(40)[0].reshape(-1, *SHAPE))


def test_grey_pictures_may_leave_out_their_channel():
    x, _ = pictures(40, (16, 20, 1))
    model = GEDI(2, max_iter=2, options=SMALL, random_state=0, device="cpu").fit(x.reshape(-1, 16, 20))
    assert model.fitted_.settings.image_shape == (16, 20, 1)
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


def test_memories_of_terms_stay_where_a_captured_graph_reads_them(tmp_path):
    ready = prepared(pictures(60)[0], "swav", queue=40)
    state = ready.new_state()
    memory = dict(state.memory)
    assert memory.keys() == {"queue", "view_queue"}
    seen = []
    for _ in range(4):
        ready.step(state)
        assert all(state.memory[name] is tensor for name, tensor in memory.items())
        seen.append(memory["queue"].clone())
    assert seen[0][:16].any() and not seen[0][16:].any(), "16 rows come in at a time"
    assert torch.equal(seen[1][16:32], seen[0][:16]), "and push the others on"
    assert torch.equal(seen[3][32:], seen[1][:8])

    path = tmp_path / "state.safetensors"
    write_tensors(path, state.tensors(), state.meta(), "checkpoint")
    ready.step(state)
    named = {name: tensor.data_ptr() for name, tensor in state.tensors().items() if name != "generator"}
    state.restore(*read_tensors(path, "checkpoint"))
    assert torch.equal(memory["queue"], seen[3])
    assert all(state.memory[name] is tensor for name, tensor in memory.items())
    assert named == {name: tensor.data_ptr() for name, tensor in state.tensors().items() if name != "generator"}


def test_in_place_copies_what_was_rebound_into_what_was_there():
    ready = prepared(pictures(40)[0], "gedi", sampler="mala")
    state = ready.new_state()
    state.memory["something"] = kept = torch.zeros(3)
    step = state.chain_step
    with state.in_place():
        state.memory["something"] = torch.ones(3)
        state.chain_step = state.chain_step * 2
    assert state.memory["something"] is kept
    assert kept.tolist() == [1, 1, 1]
    assert state.chain_step is step
    before = float(step)
    ready.step(state)
    assert state.chain_step is step
    assert float(step) != before, "the size of a step was adapted where it lies"
