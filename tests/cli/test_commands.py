"""The commands as a person runs them: real processes, real files."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forked import failed, gedikit, start
from gedikit.data.toy import moons
from gedikit.methods import GRAPHS, methods

SLOW = ("torch", "numpy", "scipy", "sklearn", "pandas", "matplotlib", "safetensors", "PIL")
EXCEL = importlib.util.find_spec("openpyxl") is not None
ENV = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "moons"
    done = gedikit("fit", "moons", "--iters", 400, "--out", out)
    assert done.returncode == 0, done.stderr
    return out


def test_help_needs_nothing_that_is_slow_to_import():
    code = (
        "import sys; from gedikit.cli.main import run; code = run(['--help'])\n"
        f"slow = {set(SLOW)} & set(sys.modules)\n"
        "sys.exit(f'imported {slow}' if slow else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENV)
    assert done.returncode == 0, done.stderr
    for command in (
        "demo",
        "fit",
        "plan",
        "settings",
        "predict",
        "sample",
        "evaluate",
        "diagnose",
        "report",
        "methods",
        "datasets",
        "theory",
        "reproduce",
    ):
        assert f"│ {command} " in done.stdout


def test_fit_fills_the_run_directory(run):
    names = {path.name for path in run.iterdir()}
    assert names == {"config.toml", "metrics.jsonl", "model.safetensors", "labels.csv", "report.html"}
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["iteration"] == 400
    config = tomllib.loads((run / "config.toml").read_text())
    assert (config["format"], config["source"], config["plan"]["method"]) == (2, "moons", "gedi")
    assert config["optimiser"]["learning_rate"] == 0.003
    assert config["sampler"]["name"] == "importance"
    assert (run / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_predict_writes_every_column(run, tmp_path):
    x, y = moons(300, 3)
    far = np.r_[x, [[50.0, 50.0]]]
    pd.DataFrame(far, columns=["a", "b"]).assign(label=np.r_[y, 0]).to_csv(tmp_path / "new.csv", index=False)
    done = gedikit("predict", run, tmp_path / "new.csv", "-o", tmp_path / "out.csv")
    assert done.returncode == 0, done.stderr
    assert "301 rows" in done.stderr
    assert "rows/s" in done.stderr
    table = pd.read_csv(tmp_path / "out.csv")
    assert list(table.columns) == ["row", "cluster", "confidence", "log_density", "outlier_score"]
    assert table["row"].tolist() == list(range(301))
    agreement = (table["cluster"][:300] == y).mean()
    assert max(agreement, 1 - agreement) > 0.98
    assert table["outlier_score"].iloc[-1] == 1.0
    assert table["log_density"].iloc[-1] == table["log_density"].min()


@pytest.mark.parametrize("ending", ["npy", "npz", "parquet"])
def test_predict_reads_every_kind_of_file(run, tmp_path, ending):
    x, y = moons(50, 3)
    path = tmp_path / f"data.{ending}"
    if ending == "npy":
        np.save(path, x)
    elif ending == "npz":
        np.savez(path, x=x, y=y)
    else:
        pd.DataFrame(x, columns=["a", "b"]).to_parquet(path)
    done = gedikit("predict", run, path, "-o", tmp_path / "out.csv")
    assert done.returncode == 0, done.stderr
    assert len(pd.read_csv(tmp_path / "out.csv")) == 50


@pytest.mark.parametrize("ending", ["npz", "csv", "png"])
def test_sample_writes_every_kind_of_file(run, tmp_path, ending):
    path = tmp_path / f"samples.{ending}"
    done = gedikit("sample", run, "-n", 60, "-o", path, "--cluster", 1)
    assert done.returncode == 0, done.stderr
    assert "acceptance" in done.stderr
    assert "temperature 1" in done.stderr
    if ending == "npz":
        archive = np.load(path)
        assert archive["x"].shape == (60, 2)
        assert (archive["y"] == 1).mean() > 0.95
    elif ending == "csv":
        assert list(pd.read_csv(path).columns) == ["x0", "x1", "cluster"]
    else:
        assert path.read_bytes().startswith(b"\x89PNG")


def test_evaluate_prints_figures_with_protocols(run, tmp_path):
    figures = json.loads(gedikit("evaluate", run, "moons").stdout)
    assert figures["nmi"]["value"] > 0.95
    assert "test" in figures["nmi"]["protocol"]["split"]
    assert figures["acc"]["protocol"]["n"] == 1000
    assert -1.2 < figures["log_likelihood"]["value"] < -0.26
    np.save(tmp_path / "x.npy", moons(100, 1)[0])
    done = gedikit("evaluate", run, tmp_path / "x.npy")
    assert set(json.loads(done.stdout)) == {"log_likelihood"}
    assert "no labels" in done.stderr


def test_methods_prints_every_method_with_its_family_model_terms_and_reference():
    text = gedikit("methods").stdout
    named = [method for method in methods.values() if method.recipe is None]
    assert len(named) > 20
    for method in named:
        line = next(line for line in text.splitlines() if line.startswith(method.name + " "))
        assert method.terms[0] in line
        assert method.labels in line
        assert method.reference.split(";")[0] in line
    for family in ("contrastive", "negative-free", "cluster-based"):
        assert f"{family}  graphical model: {GRAPHS[family]}" in text
    assert "gedikit[flow]" in text
    for ending in ("", "-svhn", "-cifar10", "-cifar100", "-mnist"):
        assert re.search(rf"^METHOD-as-printed{ending} +gedi, gedi-no-gen, .*swav", text, re.MULTILINE)


def test_theory_prints_what_it_computed_and_all_of_it_holds():
    done = gedikit("theory")
    assert done.returncode == 0, done.stdout
    for name in ("Lemma 3", "Lemma 6", "Lemma 9", "Proposition 1", "Theorem 1", "Appendix C", "L_PRIOR"):
        assert name in done.stdout


def test_a_pair_of_terms_is_fitted_evaluated_and_sampled(tmp_path):
    out = tmp_path / "run"
    done = gedikit("fit", "moons", "--method", "swav+flow", "--iters", 60, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "Loss of swav" in (out / "report.html").read_text()
    figures = json.loads(gedikit("evaluate", out, "moons").stdout)
    assert figures["nmi"]["protocol"]["clusters_by"] == "argmax of the cluster posterior p(y|x)"
    assert figures["log_likelihood"]["protocol"]["normaliser"] == "the density is normalised by itself"
    assert gedikit("sample", out, "-n", 7, "-o", tmp_path / "new.csv").returncode == 0
    assert len(pd.read_csv(tmp_path / "new.csv")) == 7
    assert gedikit("diagnose", out).returncode == 0


def test_clusters_without_a_head_say_how_they_came_about(tmp_path):
    out = tmp_path / "run"
    assert gedikit("fit", "moons", "--method", "barlow-twins", "--iters", 20, "--out", out).returncode == 0
    figures = json.loads(gedikit("evaluate", out, "moons").stdout)
    by = "k-means on the features of the training rows (standardised)"
    assert figures["acc"]["protocol"]["clusters_by"] == by
    assert by in (out / "report.html").read_text()
    assert "log_likelihood" not in figures
    failed(gedikit("sample", out, "-o", tmp_path / "x.csv"), 2, "learns no density to sample from")
    failed(gedikit("fit", "moons", "--method", "swav+vae"), 2, "'swav+vae'", "no objective or density 'vae'")


def test_diagnose_report_methods_and_datasets(run):
    assert json.loads(gedikit("diagnose", run, "--json").stdout)["verdict"] == "healthy"
    assert gedikit("report", run).stdout.strip() == str(run / "report.html")
    assert "gedi-two-stage" in gedikit("methods").stdout
    assert "digits" in gedikit("datasets").stdout


def test_a_method_without_density_says_so(tmp_path):
    done = gedikit("fit", "moons", "--method", "gedi-no-gen", "--iters", 50, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert pd.read_csv(tmp_path / "run" / "labels.csv")["log_density"].isna().all()
    failed(gedikit("sample", tmp_path / "run", "-o", tmp_path / "s.npz"), 2, "learns no density")


def test_two_stage_trains_the_density_first(tmp_path):
    done = gedikit("fit", "moons", "--method", "gedi-two-stage", "--iters", 100, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(("generative" in r) == (r["iteration"] <= 50) for r in rows)
    assert all(("invariance" in r) == (r["iteration"] > 50) for r in rows)


def _bad_files(folder: Path) -> None:
    x = moons(20, 0)[0]
    np.save(folder / "inf.npy", np.where(np.arange(40).reshape(20, 2) == 7, np.inf, x))
    np.save(folder / "one.npy", x[:1])
    np.save(folder / "few.npy", x[:5])
    np.save(folder / "flat.npy", np.ones((20, 2)))
    np.save(folder / "none.npy", np.empty((0, 2)))
    np.save(folder / "objects.npy", np.array([{}, "a"], dtype=object), allow_pickle=True)
    np.save(folder / "wide.npy", np.ones((4, 3)))
    np.savez(folder / "labels.npz", x=x, y=np.arange(3))
    (folder / "empty.csv").write_text("")
    (folder / "index.csv").write_text(",a,b\n0,1,2\n1,2,3\n")
    (folder / "headless.csv").write_text("1.0,2.0\n2.0,3.0\n")
    (folder / "text.csv").write_text("a,b\n1,7\n2,red\n4,9\n5,8\n")
    (folder / "same.csv").write_text("a,b\n" + 9 * "1,red\n")
    (folder / "inf.csv").write_text("a,b\n1,7\n2,inf\n4,8\n5,-inf\n")
    (folder / "letter.csv").write_text("Dear all,\nno table here, sorry, really\nbye\n")
    (folder / "page.csv").write_text("<!DOCTYPE html><html><body>sign in</body></html>")
    (folder / "broken.npz").write_bytes(b"PK\x03\x04 this is no archive")
    (folder / "data.xlsx").write_text("x")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["fit", "inf.npy"], 1, ["inf.npy", "infinite", "row 3, column 1"]),
        (["fit", "one.npy"], 1, ["n_samples=1"]),
        (["fit", "few.npy", "--clusters", "9"], 1, ["n_samples=5", "n_clusters=9"]),
        (["fit", "flat.npy"], 1, ["all rows are the same"]),
        (["fit", "none.npy"], 1, ["none.npy", "no values"]),
        (["fit", "objects.npy"], 1, ["objects.npy"]),
        (["fit", "empty.csv"], 1, ["empty.csv is empty"]),
        (["fit", "text.csv"], 1, ["column 'b' holds numbers except for 1 value in row 1", "'red'"]),
        (["fit", "same.csv"], 1, ["same.csv", "all rows are the same", "a, b: one value only"]),
        (["fit", "inf.csv"], 1, ["column 'b' has 2 infinite values in rows 1 and 3"]),
        (["fit", "letter.csv"], 1, ["letter.csv"]),
        (["fit", "page.csv"], 1, ["page.csv is not a table of rows and columns"]),
        (["fit", "text.csv", "--drop", "c"], 2, ["text.csv has no column 'c'; it has a, b"]),
        (["fit", "text.csv", "--types", "b=colour"], 2, ["the type of 'b' must be one of", "not 'colour'"]),
        (["fit", "text.csv", "--types", "b"], 2, ["--types takes column=type pairs"]),
        (["fit", "moons", "--id", "a"], 2, ["--id is about columns of a table, which moons is not"]),
        (["fit", "flat.npy", "--drop", "a"], 2, ["flat.npy is an array without named columns"]),
        (["fit", "broken.npz"], 1, ["broken.npz"]),
        (["fit", "data.xlsx"], *((1, ["data.xlsx is damaged"]) if EXCEL else (2, ["gedikit[excel]"]))),
        (["fit", "absent.csv"], 2, ["absent.csv"]),
        (["fit", "moonz"], 2, ["'moonz'", "moons"]),
        (["fit", "moons", "--method", "nesy"], 2, ["'nesy' learns from rules", "fit_examples"]),
        (["fit"], 2, ["DATA"]),
        (["fit", "moons", "--clusters", "0"], 2, ["n_clusters must be at least 1"]),
        (["fit", "moons", "--seed", "-1"], 2, ["--seed"]),
        (["fit", "index.csv"], 1, ["no name", "index"]),
        (["fit", "headless.csv"], 1, ["column names"]),
        (["fit", "labels.npz"], 1, ["20 rows but 3 labels"]),
        (["fit", "moons", "--method", "gdi"], 2, ["'gdi'", "did you mean 'gedi'?"]),
        (["fit", "moons", "--set", "speed=3"], 2, ["'speed'"]),
        (["fit", "moons", "--set", "steps=3"], 2, ["'steps'; did you mean sampler.steps?"]),
        (["fit", "moons", "--set", "sampler.steps"], 2, ["key=value"]),
        (["fit", "moons", "--set", "sampler.steps=3"], 2, ["mala and sgld", "is importance"]),
        (["fit", "moons", "--set", "samplr.steps=3"], 2, ["'samplr'; did you mean 'sampler'?"]),
        (["fit", "moons", "--set", "sampler=mala"], 2, ["sampler is a section", "sampler.name"]),
        (["fit", "moons", "--set", "optimiser.warmup=long"], 2, ["warmup must be a whole number, not 'long'"]),
        (
            ["fit", "moons", "--set", "objectives.swav.weight=3"],
            2,
            ["no objective 'swav'", "it has invariance, prior"],
        ),
        (["fit", "moons", "--set", "execution.log_every=0"], 2, ["log_every must be positive"]),
        (["fit", "moons", "--set", "optimiser.learning_rate=0"], 2, ["learning_rate must be positive"]),
        (["fit", "moons", "--iters", "-3"], 2, ["--iters must be at least 1, not -3"]),
        (["fit", "moons", "--budget", "large"], 2, ["'large'", "quick, default, best"]),
        (["fit", "moons", "--views", "foto"], 2, ["'foto'; did you mean 'photos'?"]),
        (["fit", "moons", "--views", "photos"], 2, ["'photos' is about images"]),
        (["fit", "moons", "--import", "nothere.py"], 2, ["no file nothere.py"]),
        (["plan", "moonz"], 2, ["'moonz'", "moons"]),
        (["settings", "malla"], 2, ["'malla'; did you mean 'mala'?"]),
        (["fit", "moons", "--prior", "a,b"], 2, ["--prior"]),
        (["fit", "moons", "--device", "tpu"], 2, ["'tpu'"]),
        (["fit", "--resume"], 2, ["--out"]),
        (["fit", "--resume", "--out", "absent"], 2, ["no run directory absent"]),
        (["predict", "absent", "moons", "-o", "x.csv"], 2, ["no run directory absent"]),
        (["nonsense"], 2, ["nonsense"]),
        (["predict"], 2, ["argument", "run"]),
        (["fit", "moons", "--iters", "few"], 2, ["--iters"]),
        (["demo", "rabbits"], 2, ["'rabbits'"]),
    ],
)
def test_bad_input_is_one_sentence(arguments, code, words, tmp_path):
    _bad_files(tmp_path)
    failed(gedikit(*arguments, cwd=tmp_path), code, *words)
    assert not (tmp_path / "runs").exists(), "nothing is left in the way of the corrected command"


def test_a_finished_run_is_not_overwritten_and_data_must_fit(run, tmp_path):
    before = (run / "model.safetensors").read_bytes()
    failed(gedikit("fit", "moons", "--iters", 5, "--out", run), 2, "already holds a run")
    assert (run / "model.safetensors").read_bytes() == before
    np.save(tmp_path / "wide.npy", np.ones((4, 3)))
    done = gedikit("predict", run, tmp_path / "wide.npy", "-o", tmp_path / "out.csv")
    failed(done, 1, "wide.npy has 3 features", "trained on 2")
    assert not (tmp_path / "out.csv").exists()
    failed(gedikit("sample", run, "-o", tmp_path / "s.gif"), 2, "'.gif'")
    failed(gedikit("fit", "--resume", "--iters", 9, "--out", run), 2, "--iters")


def test_damaged_newer_and_unfinished_runs_are_named(run, tmp_path):
    def copy(name: str) -> Path:
        return Path(shutil.copytree(run, tmp_path / name))

    cut = copy("cut")
    (cut / "model.safetensors").write_bytes((run / "model.safetensors").read_bytes()[:1000])
    failed(gedikit("evaluate", cut, "moons"), 1, "model.safetensors is damaged")
    newer = copy("newer")
    text = (newer / "config.toml").read_text()
    assert "format = 2\n" in text
    (newer / "config.toml").write_text(text.replace("format = 2", "format = 99"))
    failed(gedikit("evaluate", newer, "moons"), 1, "newer", "upgrade gedikit")
    unfinished = copy("unfinished")
    (unfinished / "model.safetensors").unlink()
    failed(gedikit("evaluate", unfinished, "moons"), 1, "--resume")
    garbled = copy("garbled")
    (garbled / "config.toml").write_text("this is = = no toml")
    failed(gedikit("report", garbled), 1, "config.toml is damaged")


def test_a_full_disk_leaves_the_old_file_whole(run, tmp_path):
    """A real file system of 64 kilobytes; where mounting one is not allowed this cannot be tried."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system is not allowed here")
    try:
        (small / "out.csv").write_text("precious\n")
        np.save(tmp_path / "x.npy", moons(20_000, 0)[0])
        done = gedikit("predict", run, tmp_path / "x.npy", "-o", small / "out.csv")
        failed(done, 1, "out.csv", "disk is full")
        assert (small / "out.csv").read_text() == "precious\n"
        assert [p.name for p in small.iterdir()] == ["out.csv"], "nothing half-written is left"
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_damaged_checkpoint_is_passed_over_with_a_word(tmp_path):
    out = tmp_path / "run"
    settings = ("--set", "execution.checkpoint_every=50", "--set", "sampler.samples=50")
    process = start(("fit", "moons", "--iters", 600, *settings, "--out", out), tmp_path)
    while len(list((out / "checkpoints").glob("step-*"))) < 2:
        assert process.is_alive(), (tmp_path / "stderr").read_text()
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    older, newest = sorted((out / "checkpoints").glob("step-*"))[-2:]
    newest.write_bytes(newest.read_bytes()[:500])
    done = gedikit("fit", "--resume", "--out", out)
    assert done.returncode == 0, done.stderr
    assert f"{newest.name} is damaged" in done.stderr
    assert f"resuming at iteration {int(older.stem.split('-')[1])} of 600" in done.stderr


def test_columns_are_matched_by_name(tmp_path):
    x, y = moons(300, 3)
    pd.DataFrame({"x": x[:, 0], "y": x[:, 1], "label": y}).to_csv(tmp_path / "xy.csv", index=False)
    done = gedikit("fit", tmp_path / "xy.csv", "--clusters", 2, "--iters", 50, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "'label' is kept for evaluation" in done.stderr
    pd.DataFrame({"y": x[:, 1], "more": 1.0, "x": x[:, 0]}).to_csv(tmp_path / "yx.csv", index=False)
    for name in ("xy", "yx"):
        done = gedikit("predict", tmp_path / "run", tmp_path / f"{name}.csv", "-o", tmp_path / f"{name}.out")
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "xy.out").read_text() == (tmp_path / "yx.out").read_text()
    pd.DataFrame({"x": x[:, 0], "z": x[:, 1]}).to_csv(tmp_path / "xz.csv", index=False)
    failed(
        gedikit("predict", tmp_path / "run", tmp_path / "xz.csv", "-o", tmp_path / "o"), 1, "lacks the column 'y'"
    )


def test_a_finished_run_completes_what_is_missing(run, tmp_path):
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    (copy / "report.html").unlink()
    (copy / "labels.csv").unlink()
    done = gedikit("fit", "--resume", "--out", copy)
    assert done.returncode == 0, done.stderr
    assert "already trained" in done.stderr
    assert (copy / "labels.csv").read_text() == (run / "labels.csv").read_text()
    assert (copy / "report.html").exists()


def test_demo_does_not_delete_what_is_not_a_run(tmp_path):
    (tmp_path / "config.toml").write_text("title = 'somebody else'")
    (tmp_path / "precious.txt").write_text("keep me")
    failed(gedikit("demo", "moons", "--out", tmp_path), 1, "config.toml")
    assert (tmp_path / "precious.txt").read_text() == "keep me"


def test_rows_without_a_label_are_trained_on_and_left_out_of_the_figures(tmp_path):
    x, y = moons(200, 3)
    names = np.where(y == 0, "up", "down").astype(object)
    names[:50] = None
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "label": names}).to_csv(tmp_path / "part.csv", index=False)
    done = gedikit("fit", tmp_path / "part.csv", "--clusters", 2, "--iters", 50, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert len(pd.read_csv(tmp_path / "run" / "labels.csv")) == 200
    figures = json.loads(gedikit("evaluate", tmp_path / "run", tmp_path / "part.csv").stdout)
    assert figures["nmi"]["protocol"]["n"] == 150
    assert figures["log_likelihood"]["protocol"]["n"] == 200
