"""Fits of the paper's images on tiny stand-ins: resumed, opened from their weights, measured, put into tables."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy.stats import multivariate_normal
from sklearn.metrics import normalized_mutual_info_score
from torch import Tensor, nn

import gedikit
from gedikit.data import sources
from gedikit.errors import DivergenceError, UsageError
from gedikit.paper.recipes import prior_weight
from gedikit.paper.reproduce import image_measures, image_runs, image_tables, images
from gedikit.paper.reproduce.image_baselines import Pixels
from gedikit.paper.reproduce.image_runs import ImageFit, Place, StoredRun, fit_run, loss_differences
from gedikit.paper.reproduce.images import METHODS, Selection
from gedikit.paper.reproduce.paper import COMPARISON, IMAGE_FID, IMAGE_NMI, IMAGE_OOD, IMAGE_PROBE
from gedikit.paper.theory.constant_posteriors import best_constant, least_prior_ratio

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
QUIET = Console(quiet=True)
ASKED = ImageFit("cifar10", "gedi", 400, 1, small=True)
BASELINES = {
    "images": {"nmi": 0.08, "acc": 0.21, "ari": 0.04},
    "probe": {"linear_probe": 0.25, "linear_probe_standardised": 0.3, "knn_probe": 0.4},
    "ood": {"cifar100, log_density": 0.61},
}
STORED = Path(__file__).parents[3] / "results" / "images" / "runs"


class Corners(nn.Module):
    """A stand-in for the network of the FID."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([*x.mean((2, 3)).unbind(1), x[:, 0, 0, 0], x.square().mean((1, 2, 3))], 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Forty images a part in ten colours, where the files of CIFAR-10 and CIFAR-100 are looked for."""
    root = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    colours = rng.integers(0, 256, (10, 3, 1, 1))

    def rows(n: int) -> np.ndarray:
        y = np.arange(n) % 10
        x = colours[y] + rng.normal(0, 20, (n, 3, 32, 32))
        return np.concatenate([y[:, None], x.reshape(n, -1).clip(0, 255)], 1).astype(np.uint8)

    (root / "cifar-10-batches-bin").mkdir()
    (root / "cifar-100-binary").mkdir()
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        (root / "cifar-10-batches-bin" / f"{name}.bin").write_bytes(rows(40).tobytes())
    for name in ("train", "test"):
        one = rows(100)
        (root / "cifar-100-binary" / f"{name}.bin").write_bytes(np.concatenate([one[:, :1], one], 1).tobytes())
    (root / "inception").mkdir()
    traced = torch.jit.trace(Corners(), torch.zeros(2, 3, 299, 299))
    traced.save(str(root / "inception" / "fid_inception_v3.pt"))
    return root


@pytest.fixture(autouse=True)
def data(folder, monkeypatch):
    monkeypatch.setenv("GEDIKIT_DATA", str(folder))
    monkeypatch.setattr("gedikit.fitted._BLOCK", 64)  # rows are padded to that many
    for cached in (image_runs.images, image_measures._inception, image_measures._reference):
        cached.cache_clear()


@pytest.fixture(scope="module")
def fitted(folder, tmp_path_factory):
    """A stored run of GEDI and of Barlow Twins."""
    patch = pytest.MonkeyPatch()
    patch.setenv("GEDIKIT_DATA", str(folder))
    image_runs.images.cache_clear()
    out = tmp_path_factory.mktemp("fitted")
    place = Place(out / "runs", out / "unfinished", "cpu", commit="abc1234")
    for method in ("gedi", "barlow-twins"):
        fit_run(replace(ASKED, method=method), place)
    patch.undo()
    return place


@pytest.fixture
def place(fitted, tmp_path):
    shutil.copytree(fitted.runs, tmp_path / "runs")
    return replace(fitted, runs=tmp_path / "runs", unfinished=tmp_path / "unfinished")


def test_the_prior_outweighs_what_the_theory_demands_by_the_number_of_clusters():
    for clusters, ratio in ((2, 1.00), (3, 1.04), (5, 1.16), (10, 1.39), (20, 1.68), (100, 2.56)):
        assert least_prior_ratio(clusters) == pytest.approx(ratio, abs=0.005)
        assert prior_weight(clusters) / 25 > 1.4 * least_prior_ratio(clusters)
    for clusters in (10, 100):
        above, below = (best_constant((1.0, f * least_prior_ratio(clusters)), clusters) for f in (1.01, 0.99))
        assert above.abs().max() == 0
        assert torch.softmax(below, -1).max() > 0.4
    assert prior_weight(10) == 50


def test_plans_have_the_papers_networks():
    of = {(data, method): ImageFit(data, method, 400, 3).plan().config for data in IMAGE_NMI for method in METHODS}
    for (data, method), config in of.items():
        assert config.encoder.width == (256 if data == "cifar100" else 128)
        assert config.encoder.batch_norm == (method in ("barlow-twins", "swav"))
        assert config.optimiser.epochs == 3
        assert config.optimiser.batch_size == (64 if "printed" in method else 256)
    weights = {data: of[data, "gedi"].objectives["prior"].weight for data in IMAGE_NMI}
    assert weights == {"svhn": 50, "cifar10": 50, "cifar100": 92}
    assert of["cifar100", "gedi-as-printed"].objectives["prior"].weight == 50


def test_three_seeds_without_chains_and_as_many_as_can_be_paid_with_them():
    fits = Selection().fits()
    assert len(fits) == len({asked.name for asked in fits})
    seeds = {key: sum((a.data, a.method) == key for a in fits) for key in {(a.data, a.method) for a in fits}}
    for data, chains in (("svhn", 3), ("cifar10", 2), ("cifar100", 1)):
        assert [seeds[data, method] for method in COMPARISON] == [chains, 3, 3, 3, chains]
    assert seeds["svhn", "gedi-as-printed"] == seeds["cifar10", "gedi-as-printed"] == 1
    assert {a.method for a in Selection(["cifar100"]).fits()} == {*COMPARISON}
    chosen = Selection(["svhn"], ["swav"], [7], 2).fits()
    assert [(a.name, a.epochs) for a in chosen] == [("svhn-swav-7", 2)]
    with pytest.raises(UsageError, match="cifar100"):
        Selection(["cifar1000"])


@pytest.mark.skipif(not STORED.exists(), reason="not in a checkout")
def test_recorded_runs_have_the_plan_that_is_made_today():
    found = images.stored_fits(Place(STORED, Path()))
    assert len(found) >= 8
    for asked in found:
        assert StoredRun(STORED / asked.name).changes(asked) == []


def test_a_stopped_fit_goes_on_to_the_same_weights(place, tmp_path):
    parts = replace(place, runs=tmp_path / "again", deadline=0.0)
    assert fit_run(ASKED, parts) == "begun: 1 of 3 iterations"
    assert not images.fit_missing(Selection(["cifar10"], ["gedi"], [400], 1, small=True), parts, QUIET)
    assert parts.state_of(ASKED) == "begun: 1 of 3 iterations"
    fit_run(ASKED, replace(parts, deadline=float("inf")))
    once, twice = place.stored(ASKED), parts.stored(ASKED)
    assert twice.weights_path.read_bytes() == once.weights_path.read_bytes()
    assert twice.rows() == once.rows()
    assert not list(parts.unfinished.iterdir())


def test_another_plan_is_told_setting_by_setting(place):
    assert place.state_of(ASKED) == "stored"
    assert place.state_of(replace(ASKED, epochs=2)) == (
        "stored with another plan: optimiser.epochs was 1, is 2; optimiser.iterations was 3, is 6"
    )
    assert place.state_of(replace(ASKED, seed=401)) == "missing"


def test_first_losses_are_compared_and_kept(place):
    assert images.check_stored(Selection(["cifar10"], ["gedi"], [400], 1, small=True), place, QUIET)
    stored = place.stored(ASKED)
    kept = json.loads((stored.path / "losses.json").read_text())
    assert kept["iterations"] == 3
    assert kept["largest_differences"] == {"generative": 0.0, "invariance": 0.0, "prior": 0.0}
    assert set(kept["of_others"].values()) == {0.0}
    rows = stored.rows()
    rows[1]["prior"] += 0.01
    stored.metrics_path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert not images.check_stored(Selection(["cifar10"], ["gedi"], [400], 1, small=True), place, QUIET)


def test_differences_of_losses_are_relative_above_one():
    before = {1: {"iteration": 1, "a": 100.0, "b": 0.5}, 2: {"iteration": 2, "a": 10.0, "b": 0.5}}
    now = {1: {"iteration": 1, "a": 101.0, "b": 0.5}, 2: {"iteration": 2, "a": 10.0, "b": 0.6}}
    assert loss_differences(before, now) == pytest.approx({"a": 0.01, "b": 0.1})
    assert loss_differences(before, {1: now[1]})["a"] == float("inf")


@pytest.mark.parametrize("method", ["gedi", "barlow-twins"])
def test_figures_are_measured_from_the_weights(place, method):
    asked = replace(ASKED, method=method)
    opened = image_measures.open_run(asked, place)
    test = sources.load("cifar10", split="test")
    clusters = opened.fitted.labels(test.x)
    made = image_measures.measure(opened, "clusters", place)
    assert made["figures"]["nmi"] == pytest.approx(normalized_mutual_info_score(test.y, clusters), abs=1e-5)
    assert made["figures"]["nmi"] == pytest.approx(place.stored(asked).outcome["figures"]["nmi"], abs=0.05)
    assert place.stored(asked).measured("clusters") == made
    weights = opened.fitted.network.state_dict()
    stored = place.stored(asked)
    with torch.no_grad():
        for tensor in opened.fitted.network.parameters():
            tensor.zero_()
    again = stored.open(torch.device("cpu"), opened.train.x).network.state_dict()
    assert any(tensor.abs().max() > 0 for tensor in again.values()) and weights.keys() == again.keys()


def test_chains_of_no_steps_are_where_chains_begin(place):
    opened = image_measures.open_run(ASKED, place)
    fitted, sampler = opened.fitted, opened.sampler
    begun = sampler.initialisation(fitted.reference, fitted.box)(5, torch.Generator().manual_seed(0))
    expected = begun.numpy() * 127.5 + 127.5
    assert image_measures.chains(fitted, sampler, 5, 0, seed=0) == pytest.approx(expected, abs=1e-4)
    moved = image_measures.chains(fitted, sampler, 5, 2, seed=0)
    assert 0.1 < np.abs(moved - expected).mean() < 50


def test_everything_is_measured_once_and_written_into_tables(place, monkeypatch):
    monkeypatch.setattr(image_measures, "_LOOKED_AT", 30)
    (place.runs.parent / "baselines").mkdir()
    for name, figures in BASELINES.items():
        content = json.dumps({"commit": "def5678", "figures": figures})
        (place.runs.parent / "baselines" / f"cifar10-{name}.json").write_text(content)
    for write in (images.reproduce, images.reproduce_ood, images.reproduce_probe):
        assert write(Selection(), place, QUIET).exists()
    stored = place.stored(ASKED)
    found = {what: stored.measured(what) for what in image_measures.MEASUREMENTS}
    assert all(found.values())
    assert sum(found["samples"]["shares_of_samples"]) == pytest.approx(1, abs=1e-3)
    # chains of three steps are still about where they began
    assert found["samples"]["figures"]["fid"] == pytest.approx(
        found["samples"]["figures"]["fid_of_starts"], rel=0.5
    )
    others = {name.partition(",")[0] for name in found["ood"]["figures"]}
    assert others == {"cifar100", "noise", "texture", "constant", "interpolated"}
    assert found["ood"]["figures"]["cifar100, log_density"] == pytest.approx(0.5, abs=0.15)
    markdown = {name: (place.runs.parent / f"{name}.md").read_text() for name in ("images", "ood", "probe")}
    nmi = found["clusters"]["figures"]["nmi"]
    assert f"| cifar10 | GEDI | 400 | 1 (200) | 0.44 ± 0.01 | {nmi:.3f} |" in markdown["images"]
    assert "| cifar10 | Barlow Twins | 400 | 382 ± 22 |" in markdown["images"]
    assert "| GEDI | gradient, paper | 0.57 | 0.61 |" in markdown["ood"]
    assert (
        "| cifar10 | 128 principal components of pixels | – | – | – | 0.250 | 0.300 | 0.400 |" in markdown["probe"]
    )
    assert "| cifar10 | k-means on pixels (PCA) | – | – | – | 0.080 | – | 0.210 | 0.040 |" in markdown["images"]
    assert "| Gaussian of pixels | log p(x) | – | 0.61 |" in markdown["ood"]
    assert "abc1234" in markdown["images"]
    assert (place.runs.parent / "samples-cifar10.png").exists()
    assert "| svhn | SwAV | – | – (20) | 0.21 ± 0.01 | – |" in markdown["images"]
    assert "| SwAV | gradient, paper | 0.62 | 0.51 |" in markdown["ood"]
    assert "| SwAV | log p(x) | – | – | – | – | – | – | – | not fitted |" in markdown["ood"]
    before = (stored.path / "ood.json").stat().st_mtime_ns
    images.reproduce_ood(Selection(), place, QUIET)
    assert (stored.path / "ood.json").stat().st_mtime_ns == before


def test_what_is_missing_stands_above_the_table_with_the_command_that_makes_it(place):
    image_measures.measure(image_measures.open_run(ASKED, place), "clusters", place)
    page = images.reproduce(Selection(), place, QUIET, measured=False).with_suffix(".md")
    (row,) = (line for line in page.read_text().splitlines() if line.startswith("| cifar10 | JEM 400, 401;"))
    _, unfitted, unmeasured, unsampled, command = row.strip("| ").split(" | ")
    assert unfitted.startswith("JEM 400, 401; Barlow Twins 401, 402; SwAV 400, 401, 402;")
    assert (unmeasured, unsampled) == ("Barlow Twins 400", "Barlow Twins 400; GEDI 400")
    assert command == "`gedikit reproduce images --data cifar10`"
    assert "<code>gedikit reproduce images --data cifar10</code>" in page.with_suffix(".html").read_text()
    assert "| cifar10 | Barlow Twins | (400) | 1 (200) | 0.17 ± 0.04 | – |" in page.read_text()
    probes = images.reproduce_probe(Selection(), place, QUIET, measured=False).with_suffix(".md").read_text()
    assert "`gedikit reproduce images --data cifar10`; `gedikit reproduce probe --data cifar10`" in probes


def test_a_fit_that_diverges_is_a_row_with_its_iteration(place, monkeypatch):
    asked = replace(ASKED, method="gedi-as-printed", small=False)

    def runs_away(plan, x, *, callbacks, **_):  # noqa: ARG001
        callbacks[0].run.append(callbacks[0].run.metrics_path, json.dumps({"iteration": 17, "prior": 2.0}))
        raise DivergenceError("losses are not finite")

    monkeypatch.setattr(image_runs, "fit", runs_away)
    assert fit_run(asked, place) == place.state_of(asked) == "diverged at iteration 17"
    assert not place.stored(asked).weights_path.exists()
    page = images.reproduce(Selection(), place, QUIET, measured=False)
    assert "| cifar10 | GEDI as printed | 400 | 1 (200) | 0.44 ± 0.01 | – |" in page.with_suffix(".md").read_text()
    assert "1 of 1 (iteration 17)" in page.with_suffix(".md").read_text()


def test_a_run_of_another_plan_does_not_count(place):
    path = place.stored(ASKED).plan_path
    tree = json.loads(path.read_text())
    tree["config"]["optimiser"]["learning_rate"] *= 2
    path.write_text(json.dumps(tree))
    text = images.reproduce(Selection(), place, QUIET, measured=False).with_suffix(".md").read_text()
    assert "| cifar10 | Barlow Twins | (400) |" in text and "| cifar10 | GEDI | – |" in text
    (row,) = (line for line in text.splitlines() if line.startswith("| cifar10-gedi-400 |"))
    assert row.split(" | ")[5] == "another"


def test_the_gaussian_of_pixels_is_one():
    x = np.random.default_rng(0).integers(0, 256, (500, 6)).astype(np.uint8)
    data = sources.Dataset("some", x)
    pixels = Pixels(data, data)
    z = x / 127.5 - 1
    covariance = np.cov(z.T, bias=True) + 1e-3 * np.eye(6)
    expected = multivariate_normal(z.mean(0), covariance).logpdf(z)
    found = pixels.log_density(x)
    assert found - found.mean() == pytest.approx(expected - expected.mean(), abs=1e-6)


def test_verdicts_weigh_differences_by_the_spread():
    assert image_tables.verdict([0.70, 0.72], [0.60, 0.62]) == "the first is better"
    assert image_tables.verdict([0.70, 0.60], [0.66, 0.62]) == "equal within the spread"
    assert (
        image_tables.verdict([100.0], [80.0], smaller=True)
        == "the second is better (one seed: its spread is unknown)"
    )
    assert image_tables.verdict([], [1.0]) == "not measured"


def test_every_table_of_the_paper_has_a_figure_for_every_method():
    for table in (IMAGE_NMI, IMAGE_FID, IMAGE_PROBE, IMAGE_OOD):
        assert {len(row) for row in table.values()} == {len(COMPARISON)}
    assert len(IMAGE_OOD) == 6
    assert IMAGE_FID["cifar10"][COMPARISON.index("swav")] == "410 ± 31"
    assert IMAGE_OOD["svhn", "cifar10"][COMPARISON.index("jem")] == "0.73"


def test_a_pretrained_model_is_opened_by_name(place, monkeypatch):
    images.write_pretrained(Selection(), place, QUIET)
    folder = place.runs.parent / "weights"
    monkeypatch.setenv("GEDIKIT_WEIGHTS", str(folder))
    model = gedikit.load_pretrained("cifar10", "cpu")
    test = sources.load("cifar10", split="test")
    opened = image_measures.open_run(ASKED, place)
    assert (model.predict(test.x) == opened.fitted.labels(test.x)).all()
    assert model.score_samples(test.x) == pytest.approx(opened.fitted.log_density(test.x), rel=1e-4, abs=1e-4)
    assert model.sample(3)[0].shape == (3, 3072)
    with pytest.raises(UsageError, match=r"model 'svhn': .* has cifar10\..*--pretrained.*GEDIKIT_WEIGHTS"):
        gedikit.load_pretrained("svhn")
    monkeypatch.setenv("GEDIKIT_WEIGHTS", str(folder / "none"))
    with pytest.raises(UsageError, match=r"there are no weights in .*none\..*of the repository"):
        gedikit.load_pretrained("cifar10")
