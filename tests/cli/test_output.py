"""Where results go, what is said beside them, and how commands end: real processes, pipes and links."""

import io
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest
import typer

from forked import failed, gedikit, start
from gedikit.cli import output
from gedikit.cli.app import app
from gedikit.data.toy import moons
from gedikit.errors import DivergenceError, GediError, Interrupted, Unhealthy, UsageError

entry = import_module("gedikit.cli.main")  # the package has the function under this name
ENV = {**os.environ, "PYTHONUNBUFFERED": "", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
PROGRAM = [sys.executable, "-m", "gedikit"]
COLUMNS = ["row", "cluster", "confidence", "log_density", "outlier_score"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "moons"
    done = gedikit("fit", "moons", "--iters", 100, "--out", out)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("data") / "rows.npy"
    np.save(path, moons(3000, 3)[0])
    return path


@pytest.fixture(scope="module")
def predicted(run, rows, tmp_path_factory) -> str:
    """What predict writes to a file."""
    path = tmp_path_factory.mktemp("predicted") / "out.csv"
    assert gedikit("predict", run, rows, "-o", path).returncode == 0
    return path.read_text()


def through_fifo(*arguments: object, fifo: Path) -> tuple[int, str, str, bytes]:
    """Run a command while something reads a FIFO: its exit code, stdout, stderr, and what was read."""
    os.mkfifo(fifo)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(fifo.read_bytes()), daemon=True)
    reader.start()
    done = gedikit(*arguments)
    reader.join(10)
    assert stat.S_ISFIFO(fifo.lstat().st_mode)
    return done.returncode, done.stdout, done.stderr, b"".join(found)


def shell(line: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which "$@" is the program with its arguments."""
    command = ["bash", "-c", line, "bash", *PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=ENV, timeout=100)


def commands() -> list[list[str]]:
    """All commands there are, by their words."""

    def below(words: list[str], command: object) -> list[list[str]]:
        inner = getattr(command, "commands", {})
        return [words, *(found for name, one in inner.items() for found in below([*words, name], one))]

    return below([], typer.main.get_command(app))


def test_the_package_runs_as_a_module():
    done = shell('"$@"', "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("gedikit ")
    done = shell('"$@"', "fit", "--nonsense")
    assert done.returncode == 2
    assert done.stderr == "gedikit: error: No such option: --nonsense. Try gedikit fit -h\n"


@pytest.mark.parametrize("words", [[], ["reproduce"], ["data"]])
def test_no_command_is_a_wish_for_help(words):
    done = gedikit(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: gedikit" in done.stdout
    assert done.stdout == gedikit(*words, "--help").stdout


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_has_short_help(words, capsys):
    assert entry.run([*words, "-h"]) == 0
    assert " ".join(["Usage: gedikit", *words]) in capsys.readouterr().out


def test_help_needs_no_torch():
    code = (
        "import sys; from gedikit.cli.main import run; run(['fit', '-h']); run(['--cluster']); run(['fti'])\n"
        "import gedikit.cli.output; sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'sklearn')))"
    )
    assert subprocess.run([sys.executable, "-c", code], env=ENV, capture_output=True).returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fit", "--cluster", "3"], "No such option: --cluster; did you mean --clusters? Try gedikit fit -h"),
        (["reproduce", "toy", "--sed", "1"], "--sed; did you mean --seeds? Try gedikit reproduce toy -h"),
        (["report", "--zzzz"], "No such option: --zzzz. Try gedikit report -h"),
        (["--vers"], "No such option: --vers; did you mean --version? Try gedikit -h"),
        (["fti"], "No such command 'fti'; did you mean 'fit'? Try gedikit -h"),
        (["data", "gt"], "No such command 'gt'; did you mean 'get'? Try gedikit data -h"),
        (["zzzz"], "No such command 'zzzz'. Try gedikit -h"),
        (["predict"], "Missing argument 'run'. Try gedikit predict -h"),
        (["fit", "moons", "--set"], "Option '--set' requires an argument. Try gedikit fit -h"),
        (["fit", "moons", "--iters", "few"], ". Try gedikit fit -h"),
    ],
)
def test_what_is_wrongly_asked_names_what_was_meant_and_where_to_read(words, said, capsys):
    assert entry.run(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"gedikit: error: [^\n]*" + re.escape(said) + r"\n", err), err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (Unhealthy("the run has collapsed"), 3, "gedikit: the run has collapsed\n"),
        (Interrupted("stopped at 3"), 130, "gedikit: stopped at 3\n"),
        (KeyboardInterrupt(), 130, "gedikit: interrupted\n"),
        (UsageError("no such thing"), 2, "gedikit: error: no such thing\n"),
        (DivergenceError("ran away"), 1, "gedikit: diverged: ran away\n"),
        (GediError("broke"), 1, "gedikit: error: broke\n"),
        (ZeroDivisionError(), 1, "gedikit: error: ZeroDivisionError (ZeroDivisionError; GEDIKIT_DEBUG=1 shows"),
        (BrokenPipeError(32, "Broken pipe"), 1, ""),
        (typer.Exit(4), 4, ""),
    ],
)
def test_every_end_has_its_code(error, code, said, monkeypatch, capsys):
    monkeypatch.delenv("GEDIKIT_DEBUG", raising=False)
    for stream in ("stdout", "stderr"):  # the parser wraps them where a pipe broke
        monkeypatch.setattr(sys, stream, getattr(sys, stream))
    ending = typer.Typer()

    @ending.command()
    def end() -> None:
        raise error

    monkeypatch.setattr(entry, "app", ending)
    assert entry.run([]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(said) and err.count("\n") == bool(said)


def test_predict_streams_to_standard_output(run, rows, predicted):
    for name in ("-", "/dev/fd/1"):
        done = gedikit("predict", run, rows, "-o", name)
        assert done.returncode == 0, done.stderr
        assert done.stdout == predicted
        assert "3000 rows to " + ("standard output" if name == "-" else name) in done.stderr
    table = pd.read_csv(io.StringIO(predicted))
    assert list(table.columns) == COLUMNS
    assert len(table) == 3000


def test_no_file_of_that_name_is_made(run, rows, tmp_path):
    assert gedikit("predict", run, rows, "-o", "-", cwd=tmp_path).returncode == 0
    assert gedikit("sample", run, "-n", 3, "-o", "-", cwd=tmp_path).returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_predict_writes_through_fifos_devices_and_links(run, rows, predicted, tmp_path):
    code, out, err, found = through_fifo("predict", run, rows, "-o", tmp_path / "fifo", fifo=tmp_path / "fifo")
    assert (code, out) == (0, ""), err
    assert found.decode() == predicted
    for link, target in (("link.csv", "far.csv"), ("null.csv", "/dev/null")):
        (tmp_path / link).symlink_to(target)
        done = gedikit("predict", run, rows, "-o", tmp_path / link)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert (tmp_path / link).is_symlink()
    assert (tmp_path / "far.csv").read_text() == predicted


def test_samples_without_an_ending_are_csv_where_they_are_streamed(run, tmp_path):
    args = ("sample", run, "-n", 20)
    assert gedikit(*args, "-o", tmp_path / "file.csv").returncode == 0
    expected = (tmp_path / "file.csv").read_text()
    assert expected.splitlines()[0] == "x0,x1,cluster"
    done = gedikit(*args, "-o", "-")
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected
    assert "20 samples to standard output" in done.stderr
    code, out, err, found = through_fifo(*args, "-o", tmp_path / "fifo", fifo=tmp_path / "fifo")
    assert (code, out) == (0, ""), err
    assert found.decode() == expected
    failed(gedikit(*args, "-o", tmp_path / "file"), 2, "no ending")
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize("ending", [".npz", ".png"])
def test_samples_with_an_ending_are_that_through_a_fifo_or_a_link(run, ending, tmp_path):
    fifo = tmp_path / f"fifo{ending}"
    code, _, err, found = through_fifo("sample", run, "-n", 20, "-o", fifo, fifo=fifo)
    assert code == 0, err
    link = tmp_path / f"link{ending}"
    link.symlink_to(tmp_path / "target")
    assert gedikit("sample", run, "-n", 20, "-o", link).returncode == 0
    assert link.is_symlink()
    if ending == ".png":
        assert found.startswith(b"\x89PNG")
        assert link.read_bytes() == found
    else:
        assert np.load(io.BytesIO(found))["x"].shape == (20, 2)
        np.testing.assert_array_equal(np.load(link)["x"], np.load(io.BytesIO(found))["x"])


def test_a_reader_that_goes_away_ends_it_quietly(run, rows, predicted):
    done = shell('"$@" | head -n 1; echo "${PIPESTATUS[0]}"', "predict", run, rows, "-o", "-")
    header, code = done.stdout.splitlines()
    assert header == predicted.splitlines()[0]
    assert code == "1"
    assert done.stderr == ""


@pytest.mark.parametrize("rich", ["0", "1"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [[], ["-h"], ["--version"]], ids=" ".join)
def test_help_that_nobody_reads_ends_quietly(words, unbuffered, rich):
    read, write = os.pipe()
    os.close(read)
    env = {**ENV, "PYTHONUNBUFFERED": unbuffered, "TYPER_USE_RICH": rich}
    done = subprocess.run([*PROGRAM, *words], stdout=write, stderr=subprocess.PIPE, env=env, timeout=60)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_full_device_is_one_sentence(run, rows):
    for arguments in (["predict", run, rows, "-o", "-"], ["sample", run, "-n", 3, "-o", "-"]):
        done = shell('"$@" > /dev/full', *arguments)
        assert done.stderr == "gedikit: error: could not write standard output: the disk is full\n"
        assert done.returncode == 1
    done = shell('"$@" > /dev/full', "--version")
    assert done.stderr.startswith("gedikit: error: ") and "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.returncode == 1
    done = shell('"$@" >&-', "predict", run, rows, "-o", "-")
    assert done.stderr.endswith("could not write standard output: it is closed\n")
    assert done.returncode == 1


def test_an_interrupt_does_not_wait_for_an_idle_reader(run, tmp_path):
    np.save(tmp_path / "many.npy", moons(20_000, 3)[0])
    os.mkfifo(tmp_path / "fifo")
    with TemporaryDirectory() as folder:
        process = start(("predict", run, tmp_path / "many.npy", "-o", tmp_path / "fifo"), Path(folder))
        with (tmp_path / "fifo").open("rb", buffering=0) as reader:
            assert reader.read(3) == b"row"
            os.kill(process.pid, signal.SIGINT)
            process.join(20)
            assert process.exitcode == 130
        assert (Path(folder) / "stderr").read_text() == "gedikit: interrupted\n"


def test_quiet_says_nothing_and_verbose_says_more(capsys):
    try:
        heard = {}
        for name, asked in {"usual": {}, "quiet": {"quiet": True}, "verbose": {"verbose": True}}.items():
            output.set_verbosity(**asked)
            output.say("a [line] :smile: " + "x" * 300)
            output.detail("a detail")
            out, heard[name] = capsys.readouterr()
            assert out == ""
    finally:
        output.set_verbosity()
    line = "a [line] :smile: " + "x" * 300 + "\n"
    assert heard == {"usual": line, "quiet": "", "verbose": line + "a detail\n"}
