"""Models that 0.1 wrote are read as they are: data_files/v01/make_models.py says how they were made."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from sklearn.base import clone
from torch import nn

from gedikit import GEDI
from gedikit.errors import StorageError, UsageError
from gedikit.legacy import plan_of
from gedikit.planning import Plan

FILES = Path(__file__).parent / "data_files" / "v01"
NAMES = sorted(path.stem for path in FILES.glob("*.safetensors"))
WITHOUT_DENSITY = ("gedi-no-gen", "cpc", "swav", "barlow-twins-as-printed", "image-as-printed")


@pytest.fixture(scope="module")
def expected() -> dict[str, np.ndarray]:
    with np.load(FILES / "expected.npz") as file:
        return dict(file)


def encoder() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 6), nn.Tanh())


def header(path: Path) -> dict[str, Any]:
    with safe_open(path, framework="pt") as file:
        found: dict[str, Any] = json.loads(file.metadata()["gedikit"])
        return found


def load(name: str, path: Path | None = None) -> GEDI:
    own = encoder() if name == "user-encoder" else None
    return GEDI.load(path or FILES / f"{name}.safetensors", device="cpu", encoder=own)


def same(found: np.ndarray, wanted: np.ndarray, made_with: np.ndarray, rtol: float = 0.0) -> None:
    """Bit for bit, or up to `rtol`, where the numbers are computed by the same kernels."""
    here = [torch.__version__, torch.backends.cpu.get_cpu_capability()]
    if list(made_with) == here:
        np.testing.assert_allclose(found, wanted, rtol=rtol)
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3 * max(1.0, float(np.abs(wanted).max())))


def test_all_that_matters_is_among_the_files():
    assert {"gedi", "cpc", "ebclr", "swav", "jem-mala", "image", "gedi-no-gen"} <= set(NAMES)
    for name in NAMES:
        path = FILES / f"{name}.safetensors"
        assert path.stat().st_size < 60_000
        assert header(path)["format"] == 1


@pytest.mark.parametrize("name", NAMES)
def test_what_a_model_says_is_what_it_said(name, expected):
    if name == "swav-flow":
        pytest.importorskip("zuko", reason="flows need gedikit[flow]")
    model = load(name)
    x, made_with = expected[f"{name}/x"], expected["made_with"]
    same(model.predict_proba(x), expected[f"{name}/proba"], made_with)
    log_normaliser = header(FILES / f"{name}.safetensors")["log_normaliser"]  # was left to the user
    assert model.normalised_ == (log_normaliser is not None)
    same(model.score_samples(x), expected[f"{name}/score"] - (log_normaliser or 0), made_with)
    same(model.transform(x), expected[f"{name}/features"], made_with)
    # between quantiles that are now normalised too
    same(model.outlier_score(x), expected[f"{name}/outlier"], made_with, rtol=1e-12)
    np.testing.assert_array_equal(model.labels_, expected[f"{name}/labels"])
    if name in WITHOUT_DENSITY:
        with pytest.raises(UsageError, match="learns no density to sample from"):
            model.sample(2)
        return
    same(model.sample(5, steps=3, random_state=3)[0], expected[f"{name}/samples"], made_with)
    same(model.sample(5, steps=3, start="noise", random_state=4)[0], expected[f"{name}/from_noise"], made_with)
    same(model.sample(5, steps=3, cluster=1, random_state=5)[0], expected[f"{name}/of_a_cluster"], made_with)


def test_settings_are_found_under_their_new_names():
    def config(name):
        return load(name).plan_.config

    gedi = config("gedi")
    assert gedi.objectives["invariance"].weight == 7.5
    assert (gedi.encoder.hidden, gedi.encoder.features, gedi.optimiser.batch_size) == ((8,), 4, 20)
    assert (gedi.sampler.name, gedi.sampler.bank, gedi.sampler.samples) == ("importance", 200, 20)
    mala = config("jem-mala").sampler
    assert (mala.name, mala.chains, mala.steps) == ("mala", 50, 2)
    swav = config("swav")
    assert (swav.objectives["swav"].queue, swav.head.temperature, swav.head.cosine) == (30, 0.2, True)
    assert config("ebclr").density.references == 6
    alone = load("gedi-no-gen").plan_
    assert alone.config.density is None and alone.config.sampler is None
    assert alone.config.views.name == "noise"
    assert [stage.until for stage in alone.stages if "pseudo-labels" in stage.terms] == [0.5]
    image = config("image")
    assert (image.data.shape, image.encoder.width, image.sampler.name) == ((16, 16, 1), 4, "sgld")
    assert image.views.walks and image.similarity.copies == 2
    printed = load("image-as-printed").plan_
    assert printed.method == "barlow-twins-as-printed-cifar10"
    assert printed.config.head.labels == "k-means"
    assert load("barlow-twins-as-printed").plan_.config.head.labels == "projection"
    assert load("user-encoder").plan_.config.encoder.name == "user"
    assert load("gedi-symbols").values_.tolist() == [0, 1]


@pytest.mark.parametrize("name", NAMES)
def test_saved_again_it_is_a_model_of_this_version(name, tmp_path):
    if name == "swav-flow":
        pytest.importorskip("zuko", reason="flows need gedikit[flow]")
    model = load(name)
    path = tmp_path / "model.safetensors"
    model.save(path)
    written = header(path)
    assert written["format"] == 2
    assert "settings" not in written
    assert Plan.from_tree(written["plan"]) == model.plan_
    again = load(name, path)
    assert again.plan_ == model.plan_
    x = model.fitted_.scaler.inverse(model.fitted_.reference.numpy())
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))
    np.testing.assert_array_equal(again.score_samples(x), model.score_samples(x))


def test_a_model_can_be_fitted_again_as_it_was_asked_for(expected):
    model = load("gedi")
    from sklearn.datasets import make_moons

    x, _ = make_moons(40, noise=0.05, random_state=0)
    again = clone(model).fit(x)
    same(again.predict_proba(expected["gedi/x"]), expected["gedi/proba"], expected["made_with"])
    np.testing.assert_array_equal(again.labels_, model.labels_)


def test_a_model_has_no_starting_partition():
    """Other shares than equal ones were given then, and nothing was looked for in the rows."""
    settings = header(FILES / "gedi.safetensors")["settings"]
    for prior, shares in (([0.5, 0.5], "uniform"), ([0.7, 0.3], "given")):
        made, _ = plan_of("gedi", settings, prior=prior, seed=0, n_rows=40, n_features=2)
        assert (list(made.prior), made.shares) == (prior, shares)
        assert [stage.terms for stage in made.stages] == [("generative", "invariance", "prior")]
        assert (made.config.views.hold, made.config.views.end) == (0.3, 0.8)


def test_many_columns_keep_the_density_of_then():
    made, _ = plan_of("gedi", {}, prior=[0.5, 0.5], seed=0, n_rows=40, n_features=8)
    assert (made.config.density.name, made.config.sampler.name) == ("cluster-energy", "mala")


def test_an_encoder_of_ones_own_is_asked_for_as_before():
    with pytest.raises(UsageError, match="was trained with an encoder of your own"):
        GEDI.load(FILES / "user-encoder.safetensors")


def test_an_old_file_that_is_damaged_is_named(tmp_path):
    path = tmp_path / "model.safetensors"
    shutil.copy(FILES / "gedi.safetensors", path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StorageError, match=r"model\.safetensors is damaged"):
        GEDI.load(path)


def test_an_old_file_without_a_part_says_which_part(tmp_path):
    with safe_open(FILES / "gedi.safetensors", framework="pt") as file:
        meta = json.loads(file.metadata()["gedikit"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    del meta["settings"]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"gedikit": json.dumps(meta)})
    with pytest.raises(StorageError, match=r"model\.safetensors is damaged: settings is missing"):
        GEDI.load(tmp_path / "model.safetensors")
