import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from io import StringIO

import psutil
import pytest
from rich.console import Console

from gedikit.data.toy import moons
from gedikit.methods import get_method
from gedikit.paper.reproduce import toy
from gedikit.paper.reproduce.fits import Group, Member, Result, points
from gedikit.paper.reproduce.paper import ABLATION, COMPARISON, NMI
from gedikit.paper.reproduce.running import Plan, curve, run_all, timed
from gedikit.training import fit

EMPTY = Result("gedi", "moons", 0, {}, None, None, "", None, None, 0, [], None)


def gedikit(*arguments: str) -> subprocess.CompletedProcess:
    code = "from gedikit.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)


def test_a_group_measures_what_single_fits_measure():
    group = Group("gedi", (Member("moons", 1), Member("circles", 2)), iterations=30, pictured=1)
    done = timed(group, "cpu")
    train, test, labels = points("moons", 1)
    method = get_method("gedi")
    fitted = fit(train, method, method.settings(iterations=30), n_clusters=2, seed=1, device="cpu")[0]
    from sklearn.metrics import normalized_mutual_info_score

    first, second = done.results
    assert first.nmi == pytest.approx(normalized_mutual_info_score(labels, fitted.labels(test)), abs=1e-6)
    assert first.clusters_by == "argmax of the cluster posterior p(y|x)"
    # Γ by importance sampling and Γ by quadrature are two ways to one number
    assert first.log_likelihood == pytest.approx(fitted.log_density(test).mean() - fitted.log_normaliser, abs=0.05)
    assert len(first.picture.points) == len(first.picture.clusters) == 1000
    assert second.picture is None
    assert not ({tuple(p) for p in train} & {tuple(p) for p in test})


def test_finished_groups_are_read_and_changed_ones_are_not(tmp_path):
    plan, console = Plan(tmp_path, device="cpu", workers=1), Console(quiet=True)
    group = Group("gedi-no-gen", (Member("moons", 1),), iterations=3)
    first = run_all([group], plan, console)
    file = next((tmp_path / "fits").glob("*.json"))
    content = json.loads(file.read_text())
    content["results"][0]["nmi"] = 0.123
    file.write_text(json.dumps(content))
    again = run_all([group], plan, console)
    assert again[0].results[0].nmi == 0.123
    file.write_text(json.dumps({**content, "code": "older"}))
    said = Console(file=StringIO(), width=200)
    run_all([group], plan, said)
    assert "1 of them were computed by another state of the code" in said.file.getvalue()
    other = run_all([replace(group, iterations=4)], plan, console)
    assert other[0].results[0].nmi != 0.123
    assert first[0].results[0].nmi != 0.123


@pytest.mark.parametrize("n", [1, 149, 150, 151, 299, 1024])
def test_a_curve_has_at_most_150_points_and_ends_where_the_training_did(n):
    rows = [{"iteration": float(i), "other": 0.0} for i in range(n)]
    found = curve(rows, ("iteration",))
    assert len(found) == min(n, -(-n // -(-n // 150)))
    assert len(found) <= 150
    assert found[-1] == {"iteration": n - 1}


@pytest.mark.parametrize(
    ("results", "text"),
    [
        ([replace(EMPTY, nmi=0.5), replace(EMPTY, nmi=0.7)], "0.60 ± 0.10"),
        (
            [replace(EMPTY, failure="x", failed_at=50), replace(EMPTY, nmi=0.2)],
            "0.20, diverged 1/2 (iteration 50)",
        ),
        ([replace(EMPTY, failure="x", failed_at=n) for n in (75, 25)], "diverged 2/2 (iteration 25 to 75)"),
    ],
)
def test_runs_that_diverged_are_told_beside_the_mean(results, text):
    assert toy.summary(results) == text


def test_every_cell_of_the_papers_tables_is_there():
    assert set(NMI) == {(shape, name) for shape in toy.SHAPES for name in (*ABLATION, *COMPARISON)}


@pytest.mark.slow
def test_toy_from_the_command_line(tmp_path):
    done = gedikit("reproduce", "toy", "--seeds", "1", "--iters", "8", "--out", str(tmp_path), "--device", "cpu")
    assert done.returncode == 0, done.stderr
    markdown = (tmp_path / "toy.md").read_text()
    assert "| moons | GEDI | 0.94 ± 0.07 | " in markdown
    assert markdown.count("| circles | SwAV | 0.00 ± 0.00 | ") == 1
    html = (tmp_path / "toy.html").read_text()
    assert html.count('<img src="data:image/png;base64,') == 3
    assert "http" not in html
    for name in ("labels_toy", "labels_toy_thm", "debug"):
        assert (tmp_path / f"{name}-default.png").read_bytes()[:4] == b"\x89PNG"
    assert len(list((tmp_path / "fits").glob("*.json"))) == 8


@pytest.mark.slow
def test_sensitivity_from_the_command_line(tmp_path):
    arguments = ("reproduce", "sensitivity", "--seeds", "1", "--iters", "5", "--device", "cpu")
    done = gedikit(*arguments, "--method", "gedi-no-gen", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    markdown = (tmp_path / "sensitivity.md").read_text()
    assert markdown.count("\n| 50 |") == 2
    assert "0 of 36 runs diverged" in markdown


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_reproduction_leaves_no_process_behind(tmp_path, number):
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # even in the background
    code = f"{heard}; from gedikit.cli import main; main()"
    asked = ["reproduce", "toy", "--seeds", "1", "--out", str(tmp_path), "--device", "cpu", "--workers", "2"]
    process = subprocess.Popen([sys.executable, "-c", code, *asked], stderr=subprocess.PIPE, text=True)
    workers: list[psutil.Process] = []
    deadline = time.monotonic() + 60
    while sum(w.cpu_times().user > 8 for w in workers) < 2:  # both train
        assert time.monotonic() < deadline
        time.sleep(0.2)
        workers = [w for w in psutil.Process(process.pid).children() if "spawn_main" in " ".join(w.cmdline())]
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
    if number == signal.SIGINT:
        assert "the same command goes on with the rest" in errors
        assert "Traceback" not in errors
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive


def test_impossible_requests_are_refused():
    done = gedikit("reproduce", "toy", "--seeds", "0")
    assert done.returncode == 2
    assert "--seeds must be at least 1, not 0" in done.stderr


def test_toy_points_are_those_of_the_library():
    assert (points("moons", 3)[0] == moons(2000, 3)[0][:1000]).all()
