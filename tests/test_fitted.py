"""A fitted model: what it says, and that a file says the same."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from gedikit import GEDI
from gedikit.data.toy import moons
from gedikit.errors import StorageError, UsageError
from gedikit.fitted import FittedModel, density_quantiles

X = moons(90, 0)[0]
SMALL = {"encoder.hidden": (16,), "encoder.features": 6, "encoder.frequencies": 8, "optimiser.batch_size": 30}
SAMPLED = {**SMALL, "sampler.samples": 30}
IMAGES = {
    "encoder.width": 4,
    "sampler.samples": 8,
    "sampler.chains": 20,
    "sampler.steps": 2,
    "similarity.copies": 2,
}


def pictures(n: int = 30) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, 16 * 16), dtype=np.uint8)


def encoder() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(2, 5), nn.Tanh())


CASES = {
    "importance": ({"config": {**SAMPLED, "sampler.bank": 300}}, X),
    "mala": ({"config": {**SAMPLED, "sampler.name": "mala", "sampler.chains": 40}}, X),
    "sgld": ({"config": {**SAMPLED, "sampler.name": "sgld", "sampler.chains": 40, "density.l2": 0.1}}, X),
    "references": ({"method": "ebclr", "config": {**SAMPLED, "density.references": 17}}, X),
    "all references": ({"method": "simclr+contrastive-energy", "config": SAMPLED}, X),
    "critic": ({"method": "cpc", "config": SMALL}, X),
    "flow": ({"method": "swav+flow", "config": {**SMALL, "density.hidden": (8,), "density.transforms": 1}}, X),
    "batch norm": ({"method": "barlow-twins-as-printed", "batch_size": 30}, X),
    "user encoder": ({"encoder": encoder(), "config": {"sampler.bank": 300}}, X),
    "image": ({"image_shape": (16, 16, 1), "config": IMAGES, "batch_size": 8}, pictures()),
    "prior": ({"prior": [0.8, 0.2], "config": SAMPLED}, X),
}


@pytest.fixture(scope="module")
def fitted():
    """Models of all cases, each fitted once."""
    known: dict[str, GEDI] = {}

    def of(name: str) -> GEDI:
        if name == "flow":
            pytest.importorskip("zuko", reason="flows need gedikit[flow]")
        if name not in known:
            given, x = CASES[name]
            known[name] = GEDI(2, **{"max_iter": 6, "random_state": 0, "device": "cpu", **given}).fit(x)
        return known[name]

    return of


def again(model: GEDI, path) -> GEDI:
    model.save(path)
    own = encoder() if model.encoder is not None else None
    return GEDI.load(path, device="cpu", encoder=own)


@pytest.mark.parametrize("name", CASES)
def test_a_file_says_the_same_bit_for_bit(name, fitted, tmp_path):
    model, x = fitted(name), CASES[name][1]
    loaded = again(model, tmp_path / "model.safetensors")
    for ask in (GEDI.predict, GEDI.predict_proba, GEDI.score_samples, GEDI.transform, GEDI.outlier_score):
        np.testing.assert_array_equal(ask(loaded, x), ask(model, x))
    np.testing.assert_array_equal(loaded.labels_, model.labels_)
    assert loaded.plan_ == model.plan_
    assert loaded.fitted_.execution == model.fitted_.execution
    assert loaded.normalised_ == model.normalised_
    ours, theirs = loaded.fitted_, model.fitted_
    weights, expected = ours.network.state_dict(), theirs.network.state_dict()
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[key], tensor) for key, tensor in expected.items())
    assert ours.info == theirs.info
    assert np.array_equal(ours.step_size, theirs.step_size, equal_nan=True)
    if model.fitted_.models_density:
        for given in ({}, {"start": "noise"}, {"cluster": 1}):
            one, other = (m.sample(7, steps=3, random_state=1, **given)[0] for m in (loaded, model))
            np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(loaded.diagnose(x).numbers["prior"], model.diagnose(x).numbers["prior"])


def test_what_a_density_or_an_objective_keeps_is_in_the_file(fitted, tmp_path):
    bank = again(fitted("references"), tmp_path / "one").fitted_.network.density.references
    assert bank.shape == (17, 2)
    scaled = fitted("references").fitted_.scaler.transform(X)
    assert all((np.abs(scaled - row.numpy()).sum(1) == 0).any() for row in bank), "rows of the data"
    assert again(fitted("all references"), tmp_path / "two").fitted_.network.density.references.shape == (90, 2)
    critic = again(fitted("critic"), tmp_path / "three").fitted_.network.heads["cpc"].weight
    assert critic.shape == (6, 6)
    assert not torch.equal(critic, torch.eye(6) / 6**0.5), "it was trained"


# what it says


@pytest.mark.parametrize("name", CASES)
def test_predictions_are_what_every_question_alone_says(name, fitted):
    model, x = fitted(name).fitted_, CASES[name][1]
    said = model.predictions(x)
    p = np.sort(model.posterior(x), axis=1)
    np.testing.assert_array_equal(said.labels, model.labels(x))
    np.testing.assert_array_equal(said.log_density, model.log_density(x))
    np.testing.assert_allclose(said.confidence, p[:, -1], rtol=1e-10)
    np.testing.assert_allclose(np.exp(said.second_log_p), p[:, -2], rtol=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_gradients_come_with_what_is_said_without_them(name, fitted):
    model, x = fitted(name).fitted_, CASES[name][1]
    beyond = x if x.dtype == np.uint8 else x * 3
    with_gradients, without = list(model.evaluate_with_gradients(beyond)), list(model.evaluate(beyond))
    for (scores, density, gradient), (same_scores, same_density) in zip(with_gradients, without, strict=True):
        torch.testing.assert_close(scores, same_scores)
        torch.testing.assert_close(density, same_density)
        torch.testing.assert_close(gradient, model.network.score(model.to_scaled(beyond)))
        assert not (scores.requires_grad or density.requires_grad)


@pytest.mark.parametrize("name", CASES)
def test_a_fit_leaves_the_predictions_of_its_rows(name, fitted):
    model, x = fitted(name).fitted_, CASES[name][1]
    said = model.training_predictions
    np.testing.assert_array_equal(said.labels, model.training_labels)
    np.testing.assert_array_equal(said.labels, model.labels(x))
    np.testing.assert_array_equal(said.log_density, model.log_density(x))
    np.testing.assert_array_equal(model.quantiles, density_quantiles(said.log_density))


def test_a_read_model_has_no_predictions_of_rows_it_does_not_have(fitted, tmp_path):
    assert again(fitted("mala"), tmp_path / "model").fitted_.training_predictions is None


def test_no_rows_have_no_predictions(fitted):
    said = fitted("mala").fitted_.predictions(np.empty((0, 2)))
    assert [len(part) for part in (said.labels, said.log_p, said.second_log_p, said.log_density)] == [0] * 4


def test_one_cluster_is_its_own_second():
    model = GEDI(1, max_iter=3, random_state=0, config=SAMPLED).fit(X).fitted_
    said = model.predictions(X)
    np.testing.assert_array_equal(said.log_p, said.second_log_p)
    assert (said.confidence == 1).all()


def test_what_is_said_of_a_row_does_not_depend_on_the_rows_beside_it(fitted):
    model = fitted("importance")
    many = np.tile(X, (14, 1))  # more than a block
    alone = np.concatenate([model.score_samples(X[i : i + 1]) for i in range(5)])
    np.testing.assert_array_equal(model.score_samples(many)[:5], alone)
    np.testing.assert_array_equal(model.score_samples(many)[-90:], model.score_samples(X))
    np.testing.assert_array_equal(model.predict_proba(many)[1100:1105], model.predict_proba(many[1100:1105]))


def test_bytes_are_scaled_as_the_same_numbers_are(fitted):
    model = fitted("image").fitted_
    x = pictures()
    torch.testing.assert_close(model.to_scaled(x), model.to_scaled(x.astype(np.float64)), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(model.labels(x), model.labels(x.astype(np.float64)))


def test_beyond_the_domain_the_density_falls_from_the_nearest_wall(fitted):
    model = fitted("importance").fitted_
    low, high = model.bounds()
    wall = np.array([high[0], (low[1] + high[1]) / 2])
    outside = wall + np.outer([0.0, 0.5, 1.0, 2.0], [model.scaler.scale[0], 0])
    found = model.log_density(outside)
    expected = found[0] - 0.5 * np.array([0, 0.25, 1, 4]) / model.bandwidth**2
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_the_outlier_score_is_a_share_of_the_training_data(fitted):
    model = fitted("importance").fitted_
    density = model.log_density(X)
    score = model.outlier_score(X)
    order = np.argsort(density)
    assert score[order[0]] == 1 and score[order[-1]] == 0
    assert (np.diff(score[order]) <= 0).all()
    assert model.outlier_score_of(np.array([density.min() - 1, density.max() + 1])).tolist() == [1, 0]


# samples


def test_no_steps_are_the_chains_themselves_each_once_before_any_twice(fitted):
    model = fitted("mala").fitted_
    n = len(model.buffer)
    found, _ = model.sample(n, steps=0)
    expected = model.scaler.inverse(model.buffer.numpy())
    assert {tuple(row) for row in found} == {tuple(row) for row in expected}
    twice, _ = model.sample(2 * n, steps=0)
    for half in (twice[:n], twice[n:]):
        np.testing.assert_array_equal(np.sort(half, axis=0), np.sort(expected, axis=0))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"n": 0}, "the number of samples must be at least 1, not 0"),
        ({"n": 2, "steps": -1}, "the number of steps must not be negative, not -1"),
        ({"n": 2, "start": "data"}, "start must be one of buffer, noise, not 'data'"),
        ({"n": 2, "cluster": 2}, "cluster must lie between 0 and 1, not 2"),
    ],
)
def test_samples_that_there_cannot_be_are_refused(given, sentence, fitted):
    with pytest.raises(UsageError, match=sentence):
        fitted("mala").fitted_.sample(**given)


def test_a_sampled_model_is_left_as_it_was(fitted):
    model = fitted("image")
    before = {name: tensor.clone() for name, tensor in model.fitted_.network.state_dict().items()}
    buffer = model.fitted_.buffer.clone()
    first, _ = model.sample(4, random_state=0)
    second, _ = model.sample(4, random_state=0)
    np.testing.assert_array_equal(first, second)
    assert torch.equal(model.fitted_.buffer, buffer)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.fitted_.network.state_dict().items())
    assert not any(p.requires_grad for p in model.fitted_.network.parameters())


# files that are not whole


def rewritten(model: GEDI, path, change) -> None:
    """The file of a model with something changed in it."""
    model.save(path)
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["gedikit"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(tensors, header)
    save_file(tensors, path, metadata={"gedikit": json.dumps(header)})


def without(part: str):
    """Removes a tensor, or a part of the header by its path."""

    def change(tensors, header):
        if part in tensors:
            del tensors[part]
            return
        *path, last = part.split("/")
        for key in path:
            header = header[key]
        del header[last]

    return change


NO_FIT = "its weights do not fit the network it describes"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (without("plan"), "plan is missing"),
        (without("plan/method"), "method is missing"),
        (without("plan/config/encoder"), "encoder is missing"),
        (without("scaler.mean"), r"scaler\.mean is missing"),
        (without("buffer"), "buffer is missing"),
        (without("network.centers"), NO_FIT),
        (lambda tensors, _: tensors.update({"network.centers": torch.zeros(3, 2)}), NO_FIT),
        (lambda _, header: header.update(bandwidth="wide"), "what it holds does not fit together"),
    ],
)
def test_files_that_do_not_hold_together_are_named(change, sentence, fitted, tmp_path):
    path = tmp_path / "model"
    rewritten(fitted("importance"), path, change)
    with pytest.raises(StorageError, match=f"model is damaged: {sentence}"):
        GEDI.load(path)


def test_files_that_are_cut_short_or_no_models_are_named(fitted, tmp_path):
    path = tmp_path / "model.safetensors"
    fitted("importance").save(path)
    whole = path.read_bytes()
    for cut in (0, 7, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(StorageError, match=r"model\.safetensors is damaged or not a model"):
            GEDI.load(path)
    with pytest.raises(StorageError, match="there is no model at"):
        GEDI.load(tmp_path / "nothing")
    save_file({"a": torch.zeros(2)}, path)
    with pytest.raises(StorageError, match="was not written by gedikit"):
        GEDI.load(path)


def test_a_checkpoint_is_no_model_and_a_newer_file_says_so(fitted, tmp_path):
    path = tmp_path / "model"
    rewritten(fitted("importance"), path, lambda _, header: header.update(kind="checkpoint"))
    with pytest.raises(StorageError, match="holds a checkpoint, not a model"):
        GEDI.load(path)
    rewritten(fitted("importance"), path, lambda _, header: header.update(format=99))
    with pytest.raises(StorageError, match=r"has format 99, newer than .*: upgrade gedikit"):
        GEDI.load(path)


def test_a_component_that_is_not_there_is_asked_for(fitted, tmp_path):
    def from_elsewhere(tensors, header):  # noqa: ARG001
        header["plan"]["config"]["sampler"]["name"] = "hmc"
        header["plan"]["needs"] = {"sampler": "their_package"}

    path = tmp_path / "model"
    rewritten(fitted("importance"), path, from_elsewhere)
    with pytest.raises(UsageError, match="this needs the sampler 'hmc' of the module 'their_package': import that"):
        GEDI.load(path)


def test_what_is_known_of_a_fit_is_kept_with_it(fitted):
    info = fitted("importance").fitted_.info
    assert (info["iterations"], info["n_samples"], info["sampler"], info["events"]) == (6, 90, "importance", [])
    assert set(info["optima"]) == {"invariance", "prior", "mutual_information"}
    assert set(info["versions"]) == {"gedikit", "torch", "python"}
    assert fitted("critic").fitted_.info["sampler"] == "none"
    assert isinstance(fitted("importance").fitted_, FittedModel)
