"""Tables of any columns through the commands."""

import json
import os
import shutil
import signal
import time
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forked import failed, gedikit, start
from gedikit import GEDI
from gedikit.runs import RunConfig

N = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Two kinds of customers as people keep them: ids, semicolons, decimal commas, dates, gaps."""
    root = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    kind = np.arange(N) % 2
    frame = pd.DataFrame(
        {
            "customer": [f"C{i:04d}" for i in rng.permutation(N)],
            "age": np.array([30, 60])[kind] + rng.integers(-5, 6, N),
            "income": (np.array([20e3, 60e3])[kind] * rng.uniform(0.9, 1.1, N)).round(2),
            "region": np.array(["north", "south"])[kind],
            "joined": [f"{d:02d}.0{m}.2024" for d, m in zip(rng.integers(1, 29, N), 2 + 6 * kind, strict=True)],
            "country": "CH",
            "kind": np.array(["student", "pensioner"])[kind],
        }
    )
    frame.loc[3:9, "income"] = np.nan
    frame.to_csv(root / "customers.csv", index=False, sep=";", decimal=",")
    done = gedikit("fit", root / "customers.csv", *ASKED, "--iters", 120, "--out", root / "run")
    assert done.returncode == 0, done.stderr
    (root / "said").write_text(done.stderr)
    return root


ASKED = ("--clusters", 2, "--label", "kind")


def read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, sep=";", decimal=",")


def test_what_columns_are_is_said_and_kept(folder):
    said = (folder / "said").read_text()
    assert "1 id: customer; 2 numbers: age, income; 1 category: region; 1 date: joined; 1 constant: country" in said
    assert "customer: text that hardly repeats; passed through and not trained on" in said
    assert "'kind' is kept for evaluation and not trained on" in said
    config = tomllib.loads((folder / "run" / "config.toml").read_text())
    assert [column["kind"] for column in config["table"]["columns"]] == [
        "id",
        "number",
        "number",
        "category",
        "date",
        "constant",
        "label",
    ]
    assert config["decisions"][0]["what"] == "columns"
    encoding = RunConfig.from_toml(folder / "run" / "config.toml").encoding
    model = GEDI.load(folder / "run" / "model.safetensors")
    assert model.encoding_ == encoding
    assert model.feature_names_in_.tolist() == list(read(folder / "customers.csv").columns)


def test_predictions_carry_the_ids(folder):
    table = read(folder / "customers.csv")
    labels = pd.read_csv(folder / "run" / "labels.csv")
    assert list(labels.columns) == ["row", "customer", "cluster", "confidence", "log_density", "outlier_score"]
    assert labels["customer"].tolist() == table["customer"].tolist()
    shuffled = table.sample(frac=1, random_state=0)[table.columns[::-1]].drop(columns=["kind", "country"])
    shuffled.to_csv(folder / "shuffled.csv", index=False)
    done = gedikit("predict", folder / "run", folder / "shuffled.csv", "-o", folder / "out.csv")
    assert done.returncode == 0, done.stderr
    both = pd.read_csv(folder / "out.csv").merge(labels, on="customer")
    assert (both["cluster_x"] == both["cluster_y"]).all()
    np.testing.assert_allclose(both["log_density_x"], both["log_density_y"], rtol=1e-4)


def test_what_the_training_did_not_see_is_told(folder):
    table = read(folder / "customers.csv")
    table.assign(region="west", shoe=43).to_csv(folder / "west.csv", index=False)
    done = gedikit("predict", folder / "run", folder / "west.csv", "-o", folder / "west.out")
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("gedikit: warning: ")]
    assert len(told) == 2
    assert "which are ignored: shoe" in told[0]
    assert "'region' is 'west'" in told[1]
    assert len(pd.read_csv(folder / "west.out")) == N
    table.drop(columns=["age", "income"]).to_csv(folder / "less.csv", index=False)
    done = gedikit("predict", folder / "run", folder / "less.csv", "-o", folder / "less.out")
    failed(done, 1, "less.csv lacks the columns age, income")
    table.assign(age="old").to_csv(folder / "old.csv", index=False)
    failed(gedikit("predict", folder / "run", folder / "old.csv", "-o", folder / "o"), 1, "column 'age'", "'old'")


def test_samples_have_the_columns_and_types_of_the_input(folder):
    done = gedikit("sample", folder / "run", "-n", 60, "-o", folder / "new.csv")
    assert done.returncode == 0, done.stderr
    new = pd.read_csv(folder / "new.csv")
    assert list(new.columns) == ["age", "income", "region", "joined", "country", "cluster"]
    assert new["age"].dtype.kind == "i"
    assert set(new["region"]) == {"north", "south"}
    assert new["joined"].str.fullmatch(r"\d\d\.\d\d\.20\d\d").all()
    assert (new["country"] == "CH").all()
    assert (new.groupby("region")["age"].median().round(-1) == [30, 60]).all()


def test_evaluation_uses_the_labels_and_claims_no_likelihood(folder):
    figures = json.loads(gedikit("evaluate", folder / "run", folder / "customers.csv").stdout)
    assert figures["ari"]["value"] > 0.95
    assert "mean_log_density" in figures and "log_likelihood" not in figures
    assert gedikit("report", folder / "run").returncode == 0
    assert gedikit("diagnose", folder / "run").returncode == 0


def test_a_plan_shows_columns_as_they_were_asked_for(folder):
    options = (
        "--drop",
        "country,joined",
        "--id",
        "age",
        "--types",
        "income=category",
        "--columns",
        "region,income",
    )
    done = gedikit("plan", folder / "customers.csv", *ASKED, *options, "--json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    first = made["decisions"][0]
    assert first["what"] == "columns"
    assert first["choice"] == (
        "3 dropped: customer, joined, country; 1 id: age; 2 categories: income, region; 1 label: kind"
    )
    assert made["config"]["data"]["codes"] == list(range(made["data"]["n_features"]))


def test_a_table_is_resumed_as_it_was_encoded(folder, tmp_path):
    settings = ("--iters", 400, "--set", "execution.checkpoint_every=50")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    done = gedikit("fit", folder / "customers.csv", *ASKED, *settings, "--out", whole)
    assert done.returncode == 0, done.stderr
    process = start(("fit", folder / "customers.csv", *ASKED, *settings, "--out", killed), tmp_path)
    while not list((killed / "checkpoints").glob("step-*")):
        assert process.is_alive(), (tmp_path / "stderr").read_text()
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    done = gedikit("fit", "--resume", "--out", killed)
    assert done.returncode == 0, done.stderr
    assert "resuming at iteration" in done.stderr
    assert (killed / "labels.csv").read_text() == (whole / "labels.csv").read_text()


def unfinished(run: Path, copy: Path) -> Path:
    """A run as an interruption leaves it."""
    shutil.copytree(run, copy)
    (copy / "model.safetensors").unlink()
    return copy


def test_labels_and_ids_that_changed_since_are_told_by_resuming(folder, tmp_path):
    table = read(folder / "customers.csv")
    same = gedikit("fit", "--resume", "--out", unfinished(folder / "run", tmp_path / "same"))
    assert same.returncode == 0, same.stderr
    assert "have changed" not in same.stderr
    table.loc[7, "kind"], table.loc[8, "customer"] = "student?", "C9999"
    table.to_csv(tmp_path / "new.csv", index=False, sep=";", decimal=",")
    done = gedikit("fit", tmp_path / "new.csv", "--resume", "--out", unfinished(folder / "run", tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert f"labels and ids in {tmp_path / 'new.csv'} have changed since the run began" in done.stderr
    assert pd.read_csv(tmp_path / "run" / "labels.csv")["customer"][8] == "C9999"


def test_labels_that_are_learned_from_may_not_change_by_resuming(folder, tmp_path):
    table = read(folder / "customers.csv")
    table.loc[6:, "kind"] = None
    table.to_csv(tmp_path / "few.csv", index=False, sep=";", decimal=",")
    out = tmp_path / "run"
    done = gedikit("fit", tmp_path / "few.csv", "--clusters", 2, "--known", "kind", "--iters", 40, "--out", out)
    assert done.returncode == 0, done.stderr
    table.loc[100, "kind"] = "student"
    table.to_csv(tmp_path / "few.csv", index=False, sep=";", decimal=",")
    resumed = gedikit("fit", "--resume", "--out", unfinished(out, tmp_path / "cut"))
    failed(resumed, 2, "learns from labels", "are not the same as when it began")


def test_an_array_with_gaps_is_fitted_and_predicted(tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 3)) + 6 * (np.arange(60) % 2)[:, None]
    x[::9, 1] = np.nan
    np.save(tmp_path / "x.npy", x)
    done = gedikit("fit", tmp_path / "x.npy", "--clusters", 2, "--iters", 60, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "x1: gaps are filled with the median" in done.stderr
    assert gedikit("predict", tmp_path / "run", tmp_path / "x.npy", "-o", tmp_path / "out.csv").returncode == 0
    labels = pd.read_csv(tmp_path / "run" / "labels.csv")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "out.csv"), labels)
    assert labels["cluster"].nunique() == 2


def test_ten_rows_are_enough(folder, tmp_path):
    read(folder / "customers.csv").head(10).to_csv(tmp_path / "few.csv", index=False)
    done = gedikit("fit", tmp_path / "few.csv", "--iters", 20, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert len(pd.read_csv(tmp_path / "run" / "labels.csv")) == 10
