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
from sklearn.metrics import normalized_mutual_info_score

from forked import gedikit
from gedikit.config import Execution
from gedikit.data.toy import moons
from gedikit.methods import methods
from gedikit.paper.reproduce import toy
from gedikit.paper.reproduce.fits import Group, Member, Result, points
from gedikit.paper.reproduce.paper import ABLATION, COMPARISON, NMI
from gedikit.paper.reproduce.running import Request, curve, run_all, timed
from gedikit.training import fit

PATIENCE = 1800  # seconds: for processes that hang, not for machines that are busy
EMPTY = Result("gedi", "moons", 0, {}, None, None, "", None, None, 0, [], None)


@pytest.mark.parametrize("method", ["gedi", "gedi-no-gen", "gedi-two-stage", "jem", "gedi-as-printed"])
def test_shapes_are_fitted_as_in_the_paper_with_equal_shares_and_from_no_partition(method):
    made = Group(method, ()).plan(Member("circles", 0))
    assert (made.shares, made.prior) == ("uniform", (0.5, 0.5))
    assert "pseudo-labels" not in made.terms
    assert made.stages == methods[method].stages
    if method != "gedi-no-gen":
        assert made.config.density.name == "cluster-energy"
    if "printed" not in method:
        assert (made.config.views.hold, made.config.views.end) == (0.3, 0.8)


def test_a_group_measures_what_single_fits_measure():
    group = Group("gedi", (Member("moons", 1), Member("circles", 2)), iterations=30, pictured=1)
    done = timed(group, "cpu")
    train, test, labels = points("moons", 1)
    fitted = fit(group.plan(group.members[0]), train, execution=Execution(device="cpu")).fitted
    first, second = done.results
    assert first.nmi == pytest.approx(normalized_mutual_info_score(labels, fitted.labels(test)), abs=1e-6)
    assert first.clusters_by == "argmax of the cluster posterior p(y|x)"
    # Γ by importance sampling and Γ by quadrature are two ways to one number
    assert first.log_likelihood == pytest.approx(fitted.log_density(test).mean(), abs=0.05)
    assert len(first.picture.points) == len(first.picture.clusters) == 1000
    assert second.picture is None
    assert not ({tuple(p) for p in train} & {tuple(p) for p in test})


def test_finished_groups_are_read_and_changed_ones_are_not(tmp_path):
    request, console = Request(tmp_path, device="cpu", workers=1), Console(quiet=True)
    group = Group("gedi-no-gen", (Member("moons", 1),), iterations=3)
    first = run_all([group], request, console)
    file = next((tmp_path / "fits").glob("*.json"))
    content = json.loads(file.read_text())
    content["results"][0]["nmi"] = 0.123
    file.write_text(json.dumps(content))
    again = run_all([group], request, console)
    assert again[0].results[0].nmi == 0.123
    file.write_text(json.dumps({**content, "code": "older"}))
    said = Console(file=StringIO(), width=200)
    run_all([group], request, said)
    assert "1 of them were computed by another state of the code" in said.file.getvalue()
    other = run_all([replace(group, iterations=4)], request, console)
    assert other[0].results[0].nmi != 0.123
    assert first[0].results[0].nmi != 0.123


def test_members_have_the_weights_and_seeds_they_ask_for():
    group = Group("gedi", (Member("moons", 1, (("invariance", 20.0), ("prior", 0.0))), Member("circles", 2)))
    first, second = (group.plan(member) for member in group.members)
    assert [first.config.objectives[name].weight for name in ("invariance", "prior")] == [20, 0]
    assert [second.config.objectives[name].weight for name in ("invariance", "prior")] == [10, 30]
    assert (first.seed, second.seed) == (1, 2)
    assert replace(group, iterations=5).plan(group.members[0]).config.optimiser.iterations == 5
    other = replace(group, members=(group.members[1], group.members[0]))
    assert (
        len({group.key, other.key, replace(group, pictured=1).key, replace(group, method="gedi-no-gen").key}) == 4
    )


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
    asked = ("--seeds", 1, "--iters", 8, "--out", tmp_path, "--device", "cpu", "--workers", 1)
    done = gedikit("reproduce", "toy", *asked)
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
    asked = ("--seeds", 1, "--iters", 5, "--device", "cpu", "--workers", 1)
    done = gedikit("reproduce", "sensitivity", *asked, "--method", "gedi-no-gen", "--out", tmp_path)
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
    give_up = time.monotonic() + PATIENCE
    while sum(w.cpu_times().user > 8 for w in workers) < 2:  # both train
        assert process.poll() is None and time.monotonic() < give_up
        time.sleep(0.2)
        workers = [w for w in psutil.Process(process.pid).children() if "spawn_main" in " ".join(w.cmdline())]
    process.send_signal(number)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
    if number == signal.SIGINT:
        assert "the same command goes on with the rest" in errors
        assert "Traceback" not in errors
    _, alive = psutil.wait_procs(workers, timeout=PATIENCE)
    assert not alive


def test_impossible_requests_are_refused():
    done = gedikit("reproduce", "toy", "--seeds", "0")
    assert done.returncode == 2
    assert "--seeds must be at least 1, not 0" in done.stderr


def test_toy_points_are_those_of_the_library():
    assert (points("moons", 3)[0] == moons(2000, 3)[0][:1000]).all()
