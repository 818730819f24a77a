"""Figures of a model of official images while and after it is trained: real processes, files as distributed."""

import json
import os
import signal
import struct
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.metrics import normalized_mutual_info_score, roc_auc_score

from forked import gedikit, start
from gedikit.evaluation import noise_images

SETTINGS = (
    *("encoder.width=8", "sampler.steps=2", "sampler.samples=16", "sampler.chains=100"),
    *("execution.log_every=6", "execution.checkpoint_every=12", "optimiser.batch_size=50"),
    *("optimiser.warmup=5", "optimiser.learning_rate=0.01", "optimiser.average=0.5"),
)
ASK = ("fit", "mnist", "--clusters", 4, "--epochs", 5, "--evaluate-every", 1, *(f"--set={s}" for s in SETTINGS))
SCORES = ("log_density", "confidence", "gradient_norm", "typicality")


def write_idx(path: Path, values: np.ndarray) -> None:
    head = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    path.write_bytes(head + values.astype(np.uint8).tobytes())


@pytest.fixture(scope="module")
def env(tmp_path_factory) -> dict[str, str]:
    """A data folder with 300 training and 120 test images in the files of MNIST, real digits enlarged."""
    root = tmp_path_factory.mktemp("data")
    (root / "mnist").mkdir()
    bunch = load_digits()
    large = [Image.fromarray((image * 15).astype(np.uint8)).resize((28, 28)) for image in bunch.images[:420]]
    images = np.stack([np.asarray(image) for image in large])
    for prefix, rows in (("train", slice(0, 300)), ("t10k", slice(300, 420))):
        write_idx(root / "mnist" / f"{prefix}-images-idx3-ubyte", images[rows])
        write_idx(root / "mnist" / f"{prefix}-labels-idx1-ubyte", bunch.target[rows])
    return {"GEDIKIT_DATA": str(root)}


@pytest.fixture(scope="module")
def run(env, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "mnist"
    done = gedikit(*ASK, "--out", out, env=env)
    assert done.returncode == 0, done.stderr
    assert "iteration 30: NMI " in done.stderr and "(official test split, 120 images)" in done.stderr
    return out


@pytest.fixture(scope="module")
def figures(run, env) -> dict[str, dict]:
    asked = ("--probes", "--ood", "noise", "--ood", "constant", "--ood", "interpolated")
    done = gedikit("evaluate", run, "mnist", *asked, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def evaluations(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]


def test_every_epoch_is_looked_at_on_the_test_set(run):
    rows = evaluations(run)
    assert [row["iteration"] for row in rows] == [6, 12, 18, 24, 30]
    for row in rows:
        assert set(row) == {"iteration", "nmi", "ami", "ari", "acc"}
        assert 0 <= row["nmi"] <= 1 and 0.1 < row["acc"] <= 1
    assert len({row["nmi"] for row in rows}) > 1


def test_the_last_look_agrees_with_the_evaluation_of_the_finished_model(run, figures):
    for name in ("nmi", "ami", "ari", "acc"):
        assert figures[name]["value"] == pytest.approx(evaluations(run)[-1][name], abs=1e-4)


def test_agreement_is_on_the_official_test_split_at_once(run, env, figures, tmp_path):
    assert gedikit("predict", run, "mnist", "-o", tmp_path / "test.csv", env=env).returncode == 0
    clusters = pd.read_csv(tmp_path / "test.csv")["cluster"]
    expected = normalized_mutual_info_score(load_digits().target[300:420], clusters)
    assert figures["nmi"]["value"] == pytest.approx(expected, abs=1e-9)
    assert figures["nmi"]["protocol"]["split"] == "official test split, 120 images"
    assert figures["nmi"]["protocol"]["computed_on"] == "the full split at once"


def test_a_mean_over_batches_is_labelled_as_one(figures):
    protocol = figures["nmi_batch_mean"]["protocol"]
    assert 0 < figures["nmi_batch_mean"]["value"] <= 1
    assert protocol["computed_on"] == "1 batches of 100 rows, shuffled" and protocol["n"] == 100
    assert "only values averaged over batches of this size" in protocol["comparable_with"]


def test_probes_are_trained_on_the_training_split_and_tested_on_the_test_split(figures):
    for name in ("linear_probe", "linear_probe_standardised", "knn_probe"):
        protocol = figures[name]["protocol"]
        assert (protocol["n_train"], protocol["n_test"], protocol["n_classes"]) == (300, 120, 10)
        assert protocol["trained_on"] == "official train split, 300 images"
        assert protocol["split"] == "official test split, 120 images"
        assert 0 <= figures[name]["value"] <= 1
    assert figures["knn_probe"]["value"] > 0.2, "chance is 0.1"


def test_every_kind_of_outlier_is_told_apart_by_every_score(figures):
    for outside in ("noise", "constant", "interpolated"):
        for score in SCORES:
            for measure in ("auroc", "aupr_in", "aupr_out", "fpr95"):
                figure = figures[f"ood_{measure} ({outside}, {score})"]
                protocol = figure["protocol"]
                assert 0 <= figure["value"] <= 1
                assert protocol["orientation"] == "larger is more in-distribution"
                assert protocol["positive"] == ("outside" if measure == "aupr_out" else "inside")
                assert (protocol["inside"], protocol["outside"]) == ("mnist", outside)
                assert protocol["n_inside"] == protocol["n_outside"] == 120


def test_auroc_is_that_of_the_data_against_the_outliers(run, env, figures, tmp_path):
    np.save(tmp_path / "noise.npy", noise_images(120, (28, 28, 1), seed=0))
    densities = []
    for data in ("mnist", tmp_path / "noise.npy"):
        assert gedikit("predict", run, data, "-o", tmp_path / "out.csv", env=env).returncode == 0
        densities.append(pd.read_csv(tmp_path / "out.csv")["log_density"])
    expected = roc_auc_score(np.repeat([1, 0], 120), np.concatenate(densities))
    figure = figures["ood_auroc (noise, log_density)"]
    assert abs(expected - 0.5) > 0.01, "the wrong way round would show"
    assert figure["value"] == pytest.approx(expected, abs=1e-3)
    assert figure["protocol"]["definition"] == "probability that a row inside scores higher than one outside"


def test_nothing_is_printed_without_being_asked_for(run, env):
    plain = json.loads(gedikit("evaluate", run, "mnist", env=env).stdout)
    assert set(plain) == {"nmi", "ami", "ari", "acc", "nmi_batch_mean", "mean_log_density"}


def test_evaluations_after_the_checkpoint_of_a_killed_run_are_not_kept(run, env, tmp_path):
    out = tmp_path / "cut"
    process = start((*ASK, "--out", out), tmp_path, env=env)
    while not (out / "evaluations.jsonl").exists() or len(evaluations(out)) < 3:
        assert process.is_alive()
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    checkpoints = sorted((out / "checkpoints").glob("step-*"))
    for newest in checkpoints[1:]:
        newest.unlink()
    assert [path.name for path in checkpoints[:1]] == ["step-000000012.safetensors"]
    with (out / "evaluations.jsonl").open("a") as file:
        file.write('{"iteration": 24, "nm')  # as far as a killed process came
    done = gedikit("fit", "--resume", "--evaluate-every", 1, "--out", out, env=env)
    assert done.returncode == 0, done.stderr
    assert "resuming at iteration 12 of 30" in done.stderr
    assert (out / "evaluations.jsonl").read_text() == (run / "evaluations.jsonl").read_text()
    assert (out / "labels.csv").read_bytes() == (run / "labels.csv").read_bytes()
