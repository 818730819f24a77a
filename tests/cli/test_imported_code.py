"""Code that a run names: run again for the user who gave it to --import, and not because a run says so."""

import shutil
from pathlib import Path

import pytest

from forked import Done, failed, gedikit

CODE = "import os, pathlib\npathlib.Path(os.environ['RAN']).touch()\n"
ASKED = ("moons", "--clusters", 2, "--iters", 3, "--set", "sampler.samples=64", "--set", "execution.device=cpu")


class User:
    """Somebody with a home, who runs commands; `ran` tells whether code was run by the last of them."""

    def __init__(self, home: Path):
        home.mkdir(exist_ok=True)
        self.home, self.marker = home, home / "ran"

    @property
    def vouched(self) -> Path:
        return self.home / "gedikit" / "imports.jsonl"

    @property
    def ran(self) -> bool:
        return self.marker.exists()

    def __call__(self, *words: object) -> Done:
        self.marker.unlink(missing_ok=True)
        return gedikit(*words, cwd=self.home, env={"XDG_STATE_HOME": str(self.home), "RAN": str(self.marker)})

    def looks_at(self, run: Path, *more: object) -> Done:
        return self("sample", run, "-n", 3, "-o", self.home / "new.csv", *more)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[User, Path, Path]:
    """Who fitted a run, its code, and the run."""
    folder = tmp_path_factory.mktemp("made")
    author, code, run = User(folder / "author"), folder / "own_code.py", folder / "run"
    code.write_text(CODE)
    done = author("fit", *ASKED, "--import", code, "--out", run)
    assert done.returncode == 0, done.stderr
    assert author.ran
    return author, code, run


def test_ones_own_runs_need_nothing_more(made, tmp_path):
    author, _, run = made
    moved = Path(shutil.copytree(run, tmp_path / "moved"))
    for place in (run, moved):
        done = author.looks_at(place)
        assert done.returncode == 0, done.stderr
        assert author.ran


def test_runs_of_others_run_nothing(made, tmp_path):
    """Whatever the command, and though the file is there and the same as ever."""
    _, code, run = made
    other, theirs = User(tmp_path / "other"), Path(shutil.copytree(run, tmp_path / "run"))
    for words in (
        ("predict", theirs, "moons", "-o", "new.csv"),
        ("sample", theirs, "-o", "new.csv"),
        ("evaluate", theirs, "moons"),
        ("diagnose", theirs),
        ("report", theirs),
        ("sort", theirs, "sorted"),
        ("explain", theirs, "examples.csv"),
        ("fit", "--resume", "--out", theirs),
        ("fit-rules", "--resume", "--out", theirs),
    ):
        failed(other(*words), 2, f"{theirs} needs the components of {code}", f"add --import {code}")
        assert not other.ran
    assert not other.vouched.exists()
    done = other.looks_at(theirs, "--import", code)
    assert done.returncode == 0, done.stderr
    assert other.ran
    assert other.looks_at(theirs).returncode == 0  # from then on
    assert other.ran


def test_a_run_that_goes_on_may_be_told_where_its_code_is(made, tmp_path):
    _, code, run = made
    other, theirs = User(tmp_path / "other"), Path(shutil.copytree(run, tmp_path / "run"))
    here = Path(shutil.copy(code, tmp_path))
    done = other("fit", "--resume", "--out", theirs, "--import", here)
    assert done.returncode == 0, done.stderr
    assert other.ran
    failed(other.looks_at(theirs), 2, str(code))  # the same text, but not the file that was looked at


def test_code_that_has_changed_is_looked_at_again(tmp_path, made):
    user, code = User(tmp_path / "user"), tmp_path / "own_code.py"
    code.write_text(CODE)
    run = _naming(made[2], tmp_path / "run", made[1], code)
    assert user.looks_at(run, "--import", code).returncode == 0
    code.write_text(CODE + "# and more\n")
    failed(user.looks_at(run), 2, "or has changed since")
    assert not user.ran
    assert user.looks_at(run, "--import", code).returncode == 0
    assert user.looks_at(run).returncode == 0 and user.ran


def test_modules_are_no_way_around(tmp_path, made):
    """A module that Python would find where the command is run, and one of its own."""
    user = User(tmp_path / "user")
    (user.home / "innocent.py").write_text(CODE)
    for name in ("innocent", "innocent.inner", "antigravity", "os", "no_such_module", ".", "", "__main__"):
        run = _naming(made[2], tmp_path / f"run-{name}", made[1], name)
        failed(user.looks_at(run), 2, f"needs the components of {name}, ", "--import")
        assert not user.ran
    run = _naming(made[2], tmp_path / "run", made[1], "colorsys")
    failed(user.looks_at(run), 2, "colorsys")
    assert user.looks_at(run, "--import", "colorsys").returncode == 0
    assert user.looks_at(run).returncode == 0


def test_lines_that_others_could_have_written_tell_nothing(made, tmp_path):
    author, _, run = made
    user = User(tmp_path / "user")
    user.vouched.parent.mkdir()
    shutil.copy(author.vouched, user.vouched)
    assert author.vouched.stat().st_mode & 0o777 == 0o600
    user.vouched.chmod(0o622)
    failed(user.looks_at(run), 2, "--import")
    user.vouched.chmod(0o600)
    assert user.looks_at(run).returncode == 0


def test_who_cannot_remember_is_asked_again(made, tmp_path):
    _, code, run = made
    user = User(tmp_path / "user")
    (user.home / "gedikit").write_text("in the way")
    assert user.looks_at(run, "--import", code).returncode == 0
    failed(user.looks_at(run), 2, "--import")


def _naming(run: Path, copy: Path, before: Path, after: object) -> Path:
    shutil.copytree(run, copy)
    config = copy / "config.toml"
    text = config.read_text()
    assert str(before) in text
    config.write_text(text.replace(f'"{before}"', f'"{after}"'))
    return copy
