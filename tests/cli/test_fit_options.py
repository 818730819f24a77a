"""What can be asked of a fit beside its settings: how much it says, when it fails, and components of one's own."""

import json
import re
import shutil
import tomllib
from pathlib import Path

import pandas as pd
import pytest
from typer.main import get_command

from forked import failed, gedikit
from gedikit.cli.app import app
from gedikit.cli.request import FitRequest

QUICK = ("--set=sampler.samples=50", "--set=sampler.bank=500", "--set=optimiser.batch_size=50")
PLUGIN = '''
"""Components that a user wrote."""

from dataclasses import dataclass
from typing import ClassVar

from gedikit.components import setting
from gedikit.objectives.base import Objective, register_objective
from gedikit.views.base import register_views
from gedikit.views.noise import Noise


@register_objective("flat")
@dataclass(frozen=True)
class Flat(Objective):
    """Posteriors that change little."""

    power: float = setting(2.0, "of the difference", above=0)
    cut: float | None = setting(3.0, "the largest difference that counts; none: all count")

    summary: ClassVar[str] = "equal posteriors of both views"

    def __call__(self, out, memory):
        difference = (out.log_p.exp() - out.view_log_p.exp()).abs()
        difference = difference if self.cut is None else difference.clamp(max=self.cut)
        return (difference + 1e-6).pow(self.power).mean((-1, -2)), memory


@register_views("more-noise")
@dataclass(frozen=True)
class MoreNoise(Noise):
    """Noise that is twice as strong."""

    summary: ClassVar[str] = "twice the noise"

    def sigma(self, bandwidth):
        return 2 * super().sigma(bandwidth)
'''


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    """A run, and the command that made it."""
    out = tmp_path_factory.mktemp("runs") / "moons"
    return out, gedikit("fit", "moons", "--iters", 400, "--out", out, "--json", "--strict")


def test_json_is_all_there_is_on_standard_output(healthy):
    out, done = healthy
    summary = json.loads(done.stdout)
    assert set(summary) == {
        *("run", "method", "n_clusters", "seed", "rows", "iterations", "seconds", "diagnosis", "metrics"),
        *("labels", "report", "model"),
    }
    assert (summary["run"], summary["method"], summary["n_clusters"]) == (str(out), "gedi", 2)
    assert (summary["seed"], summary["rows"], summary["iterations"]) == (0, 1000, 400)
    assert summary["seconds"] > 0
    assert summary["metrics"] == json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    assert summary["diagnosis"] == json.loads(gedikit("diagnose", out, "--json").stdout)
    for name in ("labels", "report", "model"):
        assert Path(summary[name]).parent == out and Path(summary[name]).is_file()
    lines = done.stderr.splitlines()
    assert lines[0] == "training gedi: 2 clusters, 400 iterations on the CPU"
    assert lines[-1] == f"report: {out / 'report.html'}"


def test_strict_lets_a_healthy_fit_pass(healthy):
    assert json.loads(healthy[1].stdout)["diagnosis"]["verdict"] == "healthy"
    assert healthy[1].returncode == 0


def test_strict_fails_where_the_verdict_is_not_healthy(tmp_path):
    """Without the prior everything ends up in one cluster."""
    ask = ("fit", "moons", "--method", "gedi-no-prior", "--iters", 30)
    done = gedikit(*ask, "--strict", "--json", "--out", tmp_path / "strict")
    assert done.returncode == 3
    diagnosis = json.loads(done.stdout)["diagnosis"]
    assert diagnosis["verdict"] != "healthy"
    said = f"gedikit: {tmp_path / 'strict'}: {diagnosis['verdict']}: {diagnosis['explanation']}"
    assert done.stderr.splitlines()[-1] == said
    assert diagnosis["advice"] in done.stderr
    names = {path.name for path in (tmp_path / "strict").iterdir()}
    assert {"model.safetensors", "labels.csv", "report.html"} < names, "the run is whole all the same"
    done = gedikit("fit", "--resume", "--strict", "--quiet", "--out", tmp_path / "strict")
    assert (done.returncode, done.stderr) == (3, said + "\n")
    assert gedikit(*ask, "--out", tmp_path / "lenient").returncode == 0


def test_quiet_says_nothing(tmp_path):
    done = gedikit("fit", "moons", "--iters", 3, *QUICK, "-q", "--out", tmp_path / "run")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = gedikit("predict", tmp_path / "run", "moons", "-q", "-o", "-")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1001
    done = gedikit("sample", tmp_path / "run", "-q", "-n", 3, "-o", "-")
    assert (done.returncode, done.stderr) == (0, "")
    failed(gedikit("fit", "moons", "-q", "--out", tmp_path / "run"), 2, "already holds a run")


def test_verbose_tells_the_decisions_of_the_plan(tmp_path):
    ask = ("fit", "moons", "--iters", 3, *QUICK)
    usual = gedikit(*ask, "--out", tmp_path / "usual").stderr
    verbose = gedikit(*ask, "-v", "--out", tmp_path / "verbose").stderr
    decisions = tomllib.loads((tmp_path / "verbose" / "config.toml").read_text())["decisions"]
    assert len(decisions) >= 3
    for decision in decisions:
        line = f"  {decision['what']}: {decision['choice']} ({decision['reason']})"
        assert line in verbose.splitlines() and line not in usual.splitlines()


def test_a_budget_is_kept_in_the_run(tmp_path):
    done = gedikit("fit", "moons", "--budget", "quick", "--iters", 3, *QUICK, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    config = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert config["plan"]["budget"] == "quick" and config["optimiser"]["iterations"] == 3


OPTIONS = {
    "--clusters": 2,
    "--method": "gedi",
    "--seed": 0,
    "--iters": 400,
    "--epochs": 1,
    "--budget": "default",
    "--views": "auto",
    "--set": "sampler.samples=400",
    "--prior": "0.5,0.5",
    "--device": "cpu",
    "--image-size": 16,
}


def test_resuming_refuses_what_would_change_the_run(healthy, tmp_path):
    out = Path(shutil.copytree(healthy[0], tmp_path / "run"))
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    for name, value in OPTIONS.items():
        done = gedikit("fit", "--resume", "--out", out, name, value)
        failed(done, 2, f"leave out {name}")
        assert done.stderr.endswith(f"leave out {name}\n")
    everything = [word for pair in OPTIONS.items() for word in pair]
    failed(gedikit("fit", "--resume", "--out", out, *everything), 2, *OPTIONS)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_what_fails_before_it_begins_leaves_nothing(tmp_path):
    """A plan may hold settings that fit together and not with the rows."""
    (tmp_path / "broken.py").write_text(PLUGIN.replace("2 * super().sigma(bandwidth)", "1 / 0"))
    ask = ("fit", "moons", "--iters", 3, "--import", "broken.py", "--set", "views.name=more-noise")
    done = gedikit(*ask, "--out", "run", cwd=tmp_path)
    assert done.returncode == 1
    assert "division by zero (ZeroDivisionError; GEDIKIT_DEBUG=1" in done.stderr
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("keep me")
    assert gedikit(*ask, "--out", "run", cwd=tmp_path).returncode == 1
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]


@pytest.fixture(scope="module")
def plugin(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("plugins") / "mine.py"
    path.write_text(PLUGIN)
    return path


@pytest.fixture(scope="module")
def own(plugin, tmp_path_factory):
    """A run with components of one's own, imported by a relative path."""
    out = tmp_path_factory.mktemp("runs") / "own"
    settings = ("--set=objectives.flat.power=1.5", "--set=objectives.flat.cut=none", "--set=views.name=more-noise")
    method = ("--method", "bound+flat+cluster-energy", "--iters", 20)
    done = gedikit(
        "fit", "moons", "--import", "mine.py", *method, *settings, *QUICK, "--out", out, cwd=plugin.parent
    )
    assert done.returncode == 0, done.stderr
    return out


def test_a_run_remembers_what_it_imported(own, plugin, tmp_path):
    config = tomllib.loads((own / "config.toml").read_text())
    assert config["imports"] == [str(plugin)]
    assert config["needs"] == {"views": "mine", "objectives.flat": "mine"}
    assert config["objectives"]["flat"] == {"weight": 1.0, "power": 1.5, "cut": "none"}
    assert "flat" in json.loads((own / "metrics.jsonl").read_text().splitlines()[-1])
    done = gedikit("predict", own, "moons", "-o", "out.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(pd.read_csv(tmp_path / "out.csv")) == 1000
    for words in (
        ["sample", own, "-n", 5, "-o", "new.csv"],
        ["diagnose", own],
        ["report", own],
        ["evaluate", own, "moons"],
    ):
        done = gedikit(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    page = (own / "report.html").read_text()
    assert "Loss of flat" in page and "<span>objectives.flat.cut</span> none" in page


def test_a_run_with_components_of_ones_own_goes_on(own, tmp_path):
    out = Path(shutil.copytree(own, tmp_path / "run"))
    (out / "model.safetensors").unlink()
    done = gedikit("fit", "--resume", "--out", out)
    assert done.returncode == 0, done.stderr
    for name in ("labels.csv", "metrics.jsonl", "model.safetensors"):
        assert (out / name).read_bytes() == (own / name).read_bytes(), name


def test_a_file_that_is_gone_is_named(own, plugin, tmp_path):
    out = Path(shutil.copytree(own, tmp_path / "run"))
    text = (out / "config.toml").read_text()
    gone = tmp_path / "gone" / plugin.name
    (out / "config.toml").write_text(text.replace(str(plugin), str(gone)))
    done = gedikit("predict", out, "moons", "-o", tmp_path / "out.csv")
    failed(done, 2, f"needs the components of {gone}", "there is no such file", "--import FILE")
    assert not (tmp_path / "out.csv").exists()
    done = gedikit("predict", out, "moons", "-o", tmp_path / "out.csv", "--import", plugin)
    assert done.returncode == 0, done.stderr
    assert len(pd.read_csv(tmp_path / "out.csv")) == 1000


def test_what_cannot_be_imported_is_one_sentence(plugin, tmp_path):
    (tmp_path / "wrong.py").write_text("import nothing_of_this_name")
    (tmp_path / "text.py").write_text("this is no Python")
    for name, words in (
        ("gone.py", ["no file gone.py"]),
        ("wrong.py", ["wrong.py", "No module named 'nothing_of_this_name'"]),
        ("text.py", ["text.py", "SyntaxError"]),
        ("no_such_module", ["no_such_module could not be imported"]),
    ):
        for command in (["fit", "moons"], ["plan", "moons"], ["settings"], ["methods"]):
            failed(gedikit(*command, "--import", name, cwd=tmp_path), 2, *words)
    assert not (tmp_path / "runs").exists()
    failed(gedikit("fit", "moons", "--method", "flat", cwd=plugin.parent), 2, "no method 'flat'")


def test_components_of_ones_own_are_listed(plugin):
    done = gedikit("settings", "flat", "--import", plugin)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("objectives.flat  equal posteriors of both views\n")
    assert re.search(r"^objectives.flat.power +2 +of the difference", done.stdout, re.MULTILINE)
    names = [method["name"] for method in json.loads(gedikit("methods", "--json", "--import", plugin).stdout)]
    assert "flat" in names
    asked = ("--method", "bound+flat", "--prior", "uniform", "--import", plugin)
    made = json.loads(gedikit("plan", "moons", "--json", *asked).stdout)
    assert made["stages"][0]["terms"] == ["invariance", "prior", "flat"]
    assert made["needs"] == {"objectives.flat": "mine"}


def test_plan_can_be_asked_for_whatever_fit_can():
    commands = get_command(app).commands
    fit, plan = ({name for p in commands[command].params for name in p.opts} for command in ("fit", "plan"))
    about_running = {
        *("--device", "--out", "--resume", "--evaluate-every", "--strict", "--spreadsheet-safe", "--verbose", "-v")
    }
    assert fit - plan == about_running
    assert plan <= fit
    assert len(plan) > 20


def test_options_that_were_given_are_named_as_they_are_typed():
    request = FitRequest(seed=0, assignments=["a=1"], ids="i", image_size=3, labels_from="folders", imports=["x"])
    assert request.given() == ["--seed", "--set", "--image-size", "--id", "--labels-from", "--import"]
