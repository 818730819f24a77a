"""A run directory of 0.1 (commit 30b9df3) in this version, and what that version said about it.

    gedikit fit moons --iters 30 --seed 3 --prior 0.4,0.6 --device cpu --out run --set sampler=mala \
      --set hidden=12,12 --set features=8 --set frequencies=8 --set negatives=40 --set buffer=200 \
      --set batch_size=100 --set learning_rate=0.02 --set warmup=3 --set average=0.8
    python -c "import numpy, gedikit.data.toy as toy; numpy.save('new.npy', toy.moons(60, 7)[0])"
    gedikit predict run new.npy -o run_expected/labels.csv
    gedikit sample run -n 20 -o run_expected/samples.csv
    gedikit diagnose run --json > run_expected/diagnosis.json
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forked import failed, gedikit
from gedikit.data.toy import moons
from gedikit.runs import Run

FILES = Path(__file__).parents[1] / "data_files" / "v01"
EXPECTED = FILES / "run_expected"


@pytest.fixture
def run(tmp_path) -> Path:
    return Path(shutil.copytree(FILES / "run", tmp_path / "run"))


def test_its_settings_are_a_plan(run):
    config = Run(run).config()
    assert (config.source, config.data_seed, config.execution.device) == ("moons", 3, "cpu")
    made = config.plan
    assert (made.method, made.n_clusters, made.seed) == ("gedi", 2, 3)
    assert made.prior == pytest.approx((0.4, 0.6))
    assert made.terms == ("generative", "invariance", "prior")
    c = made.config
    assert (c.sampler.name, c.sampler.samples, c.sampler.chains) == ("mala", 40, 200)
    assert (c.encoder.name, c.encoder.hidden, c.encoder.features, c.encoder.frequencies) == (
        *("fourier-mlp", (12, 12)),
        *(8, 8),
    )
    assert (c.optimiser.iterations, c.optimiser.batch_size, c.optimiser.learning_rate) == (30, 100, 0.02)
    assert (c.optimiser.warmup, c.optimiser.average) == (3, 0.8)
    assert (c.objectives["invariance"].weight, c.objectives["prior"].weight) == (10, 30)


def test_its_predictions_are_those_of_then(run, tmp_path):
    np.save(tmp_path / "new.npy", moons(60, 7)[0])
    done = gedikit("predict", run, tmp_path / "new.npy", "-o", tmp_path / "labels.csv")
    assert done.returncode == 0, done.stderr
    found, wanted = pd.read_csv(tmp_path / "labels.csv"), pd.read_csv(EXPECTED / "labels.csv")
    assert found["cluster"].nunique() == 2
    assert found["cluster"].tolist() == wanted["cluster"].tolist()
    pd.testing.assert_frame_equal(found, wanted, rtol=1e-4, atol=1e-5)


def test_its_samples_are_those_of_then(run, tmp_path):
    done = gedikit("sample", run, "-n", 20, "-o", tmp_path / "samples.csv")
    assert done.returncode == 0, done.stderr
    found, wanted = pd.read_csv(tmp_path / "samples.csv"), pd.read_csv(EXPECTED / "samples.csv")
    assert list(found.columns) == list(wanted.columns) and len(found) == 20
    # the chains accept and reject: where a machine computes otherwise, one of them may go another way
    near = np.isclose(found, wanted, rtol=1e-3, atol=1e-3).all(1)
    assert near.mean() >= 0.9


def test_its_diagnosis_is_that_of_then(run):
    found = json.loads(gedikit("diagnose", run, "--json").stdout)
    wanted = json.loads((EXPECTED / "diagnosis.json").read_text())
    assert found["verdict"] == wanted["verdict"] == "healthy"
    wanted["numbers"]["agreement_nearby"] = wanted["numbers"].pop("agreement_of_views")  # what it is called now
    assert found["numbers"] == pytest.approx(wanted["numbers"], rel=1e-4, abs=1e-6)


def test_it_is_evaluated_and_has_a_report(run):
    done = gedikit("evaluate", run, "moons")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["nmi"]["value"] == 1 and figures["nmi"]["protocol"]["n"] == 1000
    done = gedikit("report", run)
    assert (done.returncode, done.stdout.strip()) == (0, str(run / "report.html")), done.stderr
    page = (run / "report.html").read_text()
    assert "Invariance loss" in page and "<span>sampler.name</span> mala" in page


def test_a_finished_run_is_completed(run):
    done = gedikit("fit", "--resume", "--out", run)
    assert done.returncode == 0, done.stderr
    assert "already trained" in done.stderr
    assert len(pd.read_csv(run / "labels.csv")) == 1000


def test_an_unfinished_run_is_refused(run, tmp_path):
    (run / "model.safetensors").unlink()
    before = sorted(path.name for path in run.iterdir())
    failed(gedikit("fit", "--resume", "--out", run), 2, "begun by gedikit 0.1", "finish it with that version")
    failed(gedikit("predict", run, "moons", "-o", tmp_path / "x.csv"), 1, "begun by gedikit 0.1")
    assert sorted(path.name for path in run.iterdir()) == before
