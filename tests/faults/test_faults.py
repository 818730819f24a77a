"""Runs that are killed, starved, stopped or damaged, each a process of its own.

`make faults` tries them more often: GEDIKIT_KILLS and GEDIKIT_ITERATIONS say how often and how long.
"""

import itertools
import json
import math
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from drawn_pictures import drawn
from forked import Done, failed, gedikit, start
from gedikit.data.toy import moons
from gedikit.storage import read_tensors
from promises import ITERATIONS, KILLS
from shard_cases import write_shards

PLUGIN = Path(__file__).with_name("injected.py")
LENGTH, CHECKPOINTS, STOP = 120, 20, 45  # two checkpoints are there where a process stops itself
SMALL = {
    "optimiser.batch_size": 32,
    "sampler.name": "mala",
    "sampler.samples": 32,
    "sampler.chains": 64,
    "sampler.steps": 1,
    "execution.device": "cpu",
    "execution.log_every": 10,
    "execution.checkpoint_every": CHECKPOINTS,
}


def asked(data: Path, out: Path, length: int = LENGTH, **changes: object) -> tuple[object, ...]:
    """A short fit of few rows."""
    settings = SMALL | {name.replace("__", "."): value for name, value in changes.items()}
    words = itertools.chain.from_iterable(("--set", f"{name}={value}") for name, value in settings.items())
    return ("fit", data, "--clusters", 2, "--iters", length, "--import", PLUGIN, "--out", out, *words)


def resumed(out: Path, **env: str) -> Done:
    return gedikit("fit", "--resume", "--out", out, env=env)


@dataclass(frozen=True)
class Whole:
    """A run that nothing happened to, and how long it took."""

    data: Path
    run: Path
    seconds: float

    def equals(self, other: Path) -> None:
        """Bit for bit the same model and measurements, the same labels, and no other files."""
        expected, found = (read_tensors(run / "model.safetensors", "model")[0] for run in (self.run, other))
        assert expected.keys() == found.keys()
        for name, tensor in expected.items():
            assert torch.equal(tensor, found[name]), name
        for name in ("metrics.jsonl", "labels.csv"):
            assert (self.run / name).read_bytes() == (other / name).read_bytes(), name
        assert {p.name for p in other.iterdir()} == {p.name for p in self.run.iterdir()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Whole:
    folder = tmp_path_factory.mktemp("whole")
    np.save(folder / "x.npy", moons(100, 0)[0])
    gedikit("--version")  # what all processes start from imports everything first
    began = time.monotonic()
    done = gedikit(*asked(folder / "x.npy", folder / "run"))
    assert done.returncode == 0, done.stderr
    return Whole(folder / "x.npy", folder / "run", time.monotonic() - began)


@dataclass(frozen=True)
class Running:
    """A fit on its way."""

    process: BaseProcess
    out: Path
    output: Path

    def until_it_stops(self) -> "Running":
        """Wait for a process that stops itself."""
        while psutil.Process(self.process.pid).status() != psutil.STATUS_STOPPED:
            assert self.process.is_alive(), self.said()
            time.sleep(0.01)
        return self

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def killed(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.join()

    def said(self) -> str:
        return (self.output / "stderr").read_text(encoding="utf-8")

    def done(self) -> Done:
        self.process.join()
        return Done(self.process.exitcode, "", self.said())


Begin = Callable[..., Running]


@pytest.fixture
def begin(whole, tmp_path) -> Iterator[Begin]:
    begun = []

    def one(out: Path = tmp_path / "run", arguments: tuple[object, ...] = (), **env: str) -> Running:
        output = tmp_path / f"output-{len(begun)}"
        output.mkdir()
        begun.append(Running(start(arguments or asked(whole.data, out), output, env=env), out, output))
        return begun[-1]

    yield one
    for running in begun:
        if running.process.is_alive():
            running.killed()


def test_a_run_killed_at_random_moments(whole, begin, promise, tmp_path):
    """SIGKILL at random moments: resumed, the run equals the uninterrupted one bit for bit, nothing is left over"""
    moments, stages = random.Random(0), []
    for run in itertools.count():
        out = tmp_path / f"run-{run}"
        with promise.trial() as trial:
            trial.times = 0
            while len(stages) < KILLS and trial.times < 4:
                again = ("fit", "--resume", "--out", out) if (out / "config.toml").exists() else ()
                running = begin(out, again)
                running.process.join(moments.uniform(0, whole.seconds))
                if not running.process.is_alive():
                    break
                running.killed()
                trial.times += 1
                stages.append(_stage(out))
            done = resumed(out) if (out / "config.toml").exists() else gedikit(*asked(whole.data, out))
            assert done.returncode == 0, done.stderr
            whole.equals(out)
        if len(stages) >= KILLS:
            break
    counted = ", ".join(f"{stages.count(stage)} {stage}" for stage in sorted({*stages}))
    promise.figure = f"in {run + 1} runs: {counted}"


PICTURES, BATCHES = (12, 10, 8), 3  # of an epoch: most checkpoints are within one


@pytest.fixture(scope="module")
def whole_of_shards(tmp_path_factory) -> Whole:
    """A run whose pictures stay in their shards."""
    folder = tmp_path_factory.mktemp("of-shards")
    write_shards(folder / "shards", list(drawn(PICTURES)[0]), 8)
    done = gedikit(*asked_of_shards(folder / "shards", folder / "run"), env={"ROWS": str(folder / "rows")})
    assert done.returncode == 0, done.stderr
    assert "stay in the shards" in done.stderr
    return Whole(folder / "shards", folder / "run", 0.0)


def asked_of_shards(data: Path, out: Path, length: int = 48, memory: int = 0) -> tuple[object, ...]:
    changes = {
        "optimiser.batch_size": sum(PICTURES) // BATCHES,
        "encoder.width": 4,
        "sampler.samples": 8,
        "sampler.chains": 20,
    }
    changes |= {"sampler.name": "sgld", "execution.log_every": 5, "execution.checkpoint_every": 7}
    return (*asked(data, out, length, **changes), "--memory", memory, "--image-size", 16)


def test_a_run_of_shards_killed_in_an_epoch(whole_of_shards, begin, promise, tmp_path):
    """SIGKILL within an epoch of shards: resumed, equals the uninterrupted run; each row is read once an epoch"""
    moments, kills, within = random.Random(1), 0, 0
    for run in itertools.count():
        out, rows = tmp_path / f"run-{run}", [tmp_path / f"rows-{run}-{process}" for process in range(5)]
        with promise.trial() as trial:
            trial.times = 0
            while kills < KILLS and trial.times < 4:
                again = ("fit", "--resume", "--out", out) if (out / "config.toml").exists() else ()
                own = rows[trial.times]
                running = begin(out, again or asked_of_shards(whole_of_shards.data, out), ROWS=str(own))
                _until_trained(running, own, moments.randint(1, 24))
                time.sleep(moments.uniform(0, 0.05))
                if not running.process.is_alive():
                    break
                running.killed()
                trial.times, kills = trial.times + 1, kills + 1
                within += (max(_read(own)) + 1) % BATCHES > 0
            done = resumed(out, ROWS=str(rows[-1]))
            assert done.returncode == 0, done.stderr
            whole_of_shards.equals(out)
            _each_row_once_an_epoch([_read(path) for path in rows], whole_of_shards.run.with_name("rows"))
        if kills >= KILLS:
            break
    promise.figure = f"in {run + 1} runs; {within} within an epoch"


def _until_trained(running: Running, rows: Path, iterations: int) -> None:
    while running.process.is_alive() and len(_read(rows)) < iterations:
        time.sleep(0.002)


def _read(rows: Path) -> dict[int, list[int]]:
    """The rows of each iteration of a process."""
    return dict(map(json.loads, rows.read_text().splitlines())) if rows.exists() else {}


def _each_row_once_an_epoch(processes: list[dict[int, list[int]]], uninterrupted: Path) -> None:
    seen: dict[int, list[int]] = {}
    for read in processes:
        assert all(seen.get(iteration, rows) == rows for iteration, rows in read.items()), "read again, the same"
        seen |= read
    assert seen == _read(uninterrupted)
    for first in range(0, len(seen), BATCHES):
        epoch = itertools.chain.from_iterable(seen[first + batch] for batch in range(BATCHES))
        assert sorted(epoch) == list(range(sum(PICTURES)))


def _stage(run: Path) -> str:
    if (run / "report.html").exists():
        return "at the end"
    if (run / "model.safetensors").exists():
        return "while writing results"
    return "in training" if (run / "metrics.jsonl").exists() else "before training"


def test_stopped_and_continued(whole, begin, promise, tmp_path):
    """SIGSTOP and SIGCONT: equals the uninterrupted run; meanwhile no second process gets into its directory"""
    running = begin(STOP=str(STOP)).until_it_stops()
    with promise.trial():
        who = f"is in use by process {running.process.pid} on "
        failed(resumed(running.out), 2, str(running.out), who)
        failed(gedikit(*asked(whole.data, running.out)), 2, who)
        running.signal(signal.SIGCONT)
        assert running.done().returncode == 0
        whole.equals(tmp_path / "run")


def test_a_jumping_clock(whole, begin, promise):
    """Clocks that jump by two days, and checkpoints dated anyhow: equals the uninterrupted run"""
    running = begin(FAULT="clock", STOP=str(STOP)).until_it_stops()
    running.killed()
    with promise.trial():
        older, newest = sorted((running.out / "checkpoints").glob("step-*"))[-2:]
        os.utime(newest, (0, 0))
        os.utime(older, (4e9, 4e9))
        done = resumed(running.out, FAULT="clock")
        assert done.returncode == 0, done.stderr
        assert f"resuming at iteration {int(newest.stem[5:])} of" in done.stderr
        whole.equals(running.out)


def test_damaged_checkpoints(whole, begin, promise, tmp_path):
    """A checkpoint truncated or with one flipped bit: found by its digest, said, the one before is used"""
    running = begin(STOP=str(STOP)).until_it_stops()
    running.killed()
    draws = random.Random(0)
    for i in range(max(1, KILLS // 2)):
        out = tmp_path / f"damaged-{i}"
        shutil.copytree(running.out, out)
        older, newest = sorted((out / "checkpoints").glob("step-*"))[-2:]
        _damage(newest, draws, truncated=i % 4 == 3)
        with promise.trial():
            done = resumed(out)
            assert done.returncode == 0, done.stderr
            assert f"{newest.name} is damaged" in done.stderr
            assert f"resuming at iteration {int(older.stem[5:])} of" in done.stderr
            whole.equals(out)
    for path in (running.out / "checkpoints").glob("step-*"):
        _damage(path, draws, truncated=False)
    with promise.trial():
        failed(resumed(running.out), 1, "no checkpoint", str(running.out), "to train it from the start")


def _damage(path: Path, draws: random.Random, *, truncated: bool) -> None:
    content = bytearray(path.read_bytes())
    place = draws.randrange(len(content))
    content[place] ^= 1 << draws.randrange(8)
    path.write_bytes(content[:place] if truncated else content)


def _mount(*words: object) -> None:
    if subprocess.run(["mount", *map(str, words)], capture_output=True).returncode != 0:
        pytest.skip("mounting is not allowed here")


def test_a_full_disk(whole, begin, promise, tmp_path):
    """Disk full: one sentence, checkpoints stay whole; with room again, resumed, equals the uninterrupted run"""
    disk = tmp_path / "disk"
    disk.mkdir()
    _mount("-t", "tmpfs", "-o", "size=16m", "tmpfs", disk)
    try:
        running = begin(disk / "run", STOP=str(STOP)).until_it_stops()
        with promise.trial():
            size = next((disk / "run" / "checkpoints").glob("step-*")).stat().st_size
            _mount("-o", f"remount,size={int(2.6 * size) + 40_000}", "tmpfs", disk)  # two checkpoints, not three
            running.signal(signal.SIGCONT)
            failed(running.done(), 1, "the disk is full", "what was there before is untouched")
            kept = sorted((disk / "run" / "checkpoints").iterdir())
            assert [int(path.stem[5:]) for path in kept] == [20, 40], "nothing half-written"
            for path in kept:
                read_tensors(path, "checkpoint")
            _mount("-o", "remount,size=16m", "tmpfs", disk)
            done = resumed(disk / "run")
            assert done.returncode == 0, done.stderr
            whole.equals(disk / "run")
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_files_that_may_not_grow(whole, begin, promise):
    """A limit on the size of files: one sentence; without the limit, resumed, equals the uninterrupted run"""
    with promise.trial():
        running = begin(FAULT="file-size:20000")
        failed(running.done(), 1, "could not write", "checkpoints")
        done = resumed(running.out)
        assert done.returncode == 0, done.stderr
        whole.equals(running.out)


def test_a_directory_that_becomes_read_only(whole, begin, promise):
    """A directory that becomes read-only: one sentence; writable again, resumed, equals the uninterrupted run"""
    running = begin(STOP=str(STOP)).until_it_stops()
    is_root = os.geteuid() == 0  # whom permissions do not stop
    try:
        if is_root:
            _mount("--bind", running.out, running.out)
            _mount("-o", "remount,bind,ro", running.out)
        else:
            for folder in (running.out, running.out / "checkpoints"):
                folder.chmod(0o555)
        with promise.trial():
            running.signal(signal.SIGCONT)
            failed(running.done(), 1, "could not write", str(running.out))
            failed(resumed(running.out), 1, "could not write", str(running.out))
    finally:
        if is_root:
            subprocess.run(["umount", "-l", str(running.out)], capture_output=True)
        else:
            for folder in (running.out, running.out / "checkpoints"):
                folder.chmod(0o755)
    with promise.trial():
        done = resumed(running.out)
        assert done.returncode == 0, done.stderr
        whole.equals(running.out)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_directory_removed_underneath(begin, promise, replaced):
    """The output directory removed, or replaced by another: one sentence, nothing is written in its place"""
    running = begin(STOP=str(STOP)).until_it_stops()
    shutil.rmtree(running.out)
    if replaced:
        running.out.mkdir()
    with promise.trial():
        running.signal(signal.SIGCONT)
        failed(running.done(), 1, f"{running.out} was removed or replaced")
        assert (list(running.out.iterdir()) == []) if replaced else not running.out.exists()


def test_a_nan_or_a_rate_that_breaks_training(whole, promise, tmp_path):
    """NaN in a batch, a poisoned buffer, learning rate x 1000: rolled back and finished, or stopped; never a NaN"""
    ends = []
    for i, (fault, rate) in enumerate([("batch:33", 1e-3), ("buffer:33", 1e-3), ("", 1.0)]):
        out = tmp_path / f"run-{i}"
        with promise.trial():
            done = gedikit(*asked(whole.data, out, optimiser__learning_rate=rate), env={"FAULT": fault})
            for line in (out / "metrics.jsonl").read_text().splitlines():
                assert all(math.isfinite(value) for value in json.loads(line).values()), line
            assert "Traceback" not in done.stderr
            if fault:
                assert done.returncode == 0, done.stderr
                log = (out / "log.txt").read_text()
                assert log.startswith("iteration 40: ") and "went back to iteration 20" in log, log
            if done.returncode == 0:
                tensors = read_tensors(out / "model.safetensors", "model")[0]
                assert all(t.isfinite().all() for t in tensors.values() if t.is_floating_point())
                ends.append("finished")
            else:
                assert "gedikit: diverged: training diverged at iteration" in done.stderr
                assert not (out / "model.safetensors").exists()
                ends.append("stopped")
    promise.figure = ", ".join(ends)


def test_a_nan_that_comes_back(whole, promise, tmp_path):
    """NaN in every batch from some iteration on: stopped with the verdict, no model is written"""
    with promise.trial():
        out = tmp_path / "run"
        done = gedikit(*asked(whole.data, out), env={"FAULT": "every-batch:50"})
        assert done.returncode == 1
        last = done.stderr.splitlines()[-1]
        assert last.startswith("gedikit: diverged: training diverged at iteration 60: "), last
        assert "is nan" in last and "4 returns to an earlier state" in last
        assert not (out / "model.safetensors").exists()


@dataclass(frozen=True)
class Growth:
    """Of a measure of memory, an iteration, with its standard error."""

    size: float
    error: float

    @classmethod
    def of(cls, at: np.ndarray, sizes: np.ndarray) -> "Growth":
        """By least squares; memory grows in steps, so errors are those of Newey and West (1987) with ten lags."""
        at = at - at.mean()
        size = (at @ sizes) / (at @ at)
        u = at * (sizes - sizes.mean() - size * at)
        spread = u @ u + 2 * sum((1 - lag / 11) * (u[lag:] @ u[:-lag]) for lag in range(1, 11))
        return cls(size, math.sqrt(max(spread, 0.0)) / (at @ at))

    def __str__(self) -> str:
        return f"{self.size:+.3g} ± {self.error:.2g}"


def growths(file: Path) -> tuple[Growth, Growth, Growth]:
    """Of the resident bytes, of those that C code has asked for, and of Python's blocks, after the first fifth."""
    rows = np.loadtxt(file)
    rows = rows[len(rows) // 5 :]
    resident, allocated, blocks = (Growth.of(rows[:, 0], rows[:, i]) for i in (1, 2, 3))
    return resident, allocated, blocks


def watched(data: Path, folder: Path, length: int, **env: str) -> tuple[Growth, Growth, Growth]:
    """Fit and look at the memory of the process a hundred times."""
    folder.mkdir()
    file = folder / "memory.txt"
    sound = {"density__l2": 0.1, "optimiser__learning_rate": 1e-4}  # one transition an iteration is few for more
    arguments = asked(data, folder / "run", length, execution__checkpoint_every=length // 10, **sound)
    done = gedikit(*arguments, env={"FAULT": f"memory:{length // 100}", "MEMORY": str(file), **env})
    assert done.returncode == 0, done.stderr
    return growths(file)


def test_memory_of_a_long_run(whole, promise, tmp_path):
    """Memory of a long run grows by less than 2 MiB over all its iterations, after the first fifth of them"""
    with promise.trial():
        resident, allocated, blocks = watched(whole.data, tmp_path / "sound", ITERATIONS)
        promise.figure = (
            f"{resident} bytes resident, {allocated} allocated and {blocks} blocks of Python's an iteration over "
            f"{ITERATIONS:,} iterations"
        )
        assert resident.size * ITERATIONS < 2**21, promise.figure
        assert allocated.size * ITERATIONS < 2**21, promise.figure


def test_memory_that_leaks(whole, tmp_path):
    """What the promise about memory is worth: a leak of 16 KiB an iteration is measured as such."""
    resident, allocated, blocks = watched(whole.data, tmp_path / "leaking", 300, LEAK="1")
    assert resident.size > 0.8 * 2**14  # whole pages, and what the C library keeps for later
    assert 0.98 * 2**14 < allocated.size < 1.1 * 2**14
    assert blocks.size > 1
