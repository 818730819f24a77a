"""Fits by several processes of which one is killed, hangs, fails, or was started wrongly; each a real process."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch.distributed as dist
from test_faults import LENGTH, PICTURES, STOP, Whole, asked, asked_of_shards

from drawn_pictures import drawn
from forked import Done, failed, gedikit, start
from gedikit.data.index import Index
from gedikit.data.shards import list_shards
from gedikit.data.stored import read_shards
from gedikit.data.toy import moons
from gedikit.runs import Run
from gedikit.storage import read_tensors
from gedikit.training.fit import fingerprint
from shard_cases import tar_of, write_shards

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")
Ranks = list[Done]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "x.npy"
    np.save(path, moons(100, 0)[0])
    gedikit("--version")
    return path


class Group:
    """Processes as torchrun would start them, without it: it takes half a minute to end one that is stopped."""

    def __init__(self, folder: Path):
        self.folder, self.processes = folder, []

    def begin(self, *commands: tuple[object, ...], **env: dict[int, str]) -> list[BaseProcess]:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        where = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": str(len(commands))}
        self.processes = []
        for rank, words in enumerate(commands):
            output = self.folder / f"output-{rank}"
            output.mkdir(exist_ok=True)
            own = {name: by_rank[rank] for name, by_rank in env.items() if rank in by_rank}
            self.processes.append(start(words, output, env={**where, "RANK": str(rank), **own}))
        return self.processes

    def run(self, *commands: tuple[object, ...], **env: dict[int, str]) -> Ranks:
        self.begin(*commands, **env)
        return self.done()

    def done(self) -> Ranks:
        for process in self.processes:
            process.join(60)
        said = [(self.folder / f"output-{i}" / "stderr").read_text() for i in range(len(self.processes))]
        return [Done(p.exitcode, "", text) for p, text in zip(self.processes, said, strict=True)]


@pytest.fixture
def group(tmp_path) -> Iterator[Group]:
    made = Group(tmp_path)
    yield made
    for process in made.processes:
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)


def torchrun(*words: object, restarts: int = 0, **env: str) -> Done:
    launch = ["--standalone", "--nproc-per-node", "2", "--max-restarts", str(restarts), "-m", "gedikit"]
    command = [sys.executable, "-m", "torch.distributed.run", *launch, *map(str, words)]
    around = {**os.environ, "OMP_NUM_THREADS": "1", **env}
    done = subprocess.run(command, env=around, capture_output=True, text=True)
    return Done(done.returncode, done.stdout, done.stderr)


def silent(ranks: Ranks) -> None:
    """All but the first have nothing to say."""
    assert [done.stderr for done in ranks[1:]] == [""] * (len(ranks) - 1)


def test_a_killed_process_is_started_again(data, tmp_path, promise):
    """One of two processes killed: torchrun starts both again, the run equals the undisturbed one bit for bit"""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    done = torchrun(*asked(data, whole))
    assert done.returncode == 0, done.stderr
    with promise.trial():
        done = torchrun(*asked(data, cut), restarts=1, FAULT=f"kill:{STOP}")
        assert done.returncode == 0, done.stderr
        assert f"resuming at iteration 40 of {LENGTH}" in done.stderr
        Whole(data, whole, 0.0).equals(cut)


def test_a_process_that_hangs_is_named(data, group, tmp_path, promise):
    """A process that hangs: after a time the others name it and end"""
    words = asked(data, tmp_path / "run", execution__timeout=3)
    with promise.trial():
        _, second = group.begin(words, words, STOP={1: str(STOP)})
        while psutil.Process(second.pid).status() != psutil.STATUS_STOPPED:
            assert second.is_alive()
            time.sleep(0.01)
        group.processes[0].join(60)
        assert second.is_alive()
        os.kill(second.pid, signal.SIGKILL)
        first, _ = group.done()
        failed(first, 1, f"process 1 (pid {second.pid} on ", "is missing (no answer for 3 s: it hangs)")


def test_a_process_that_fails_is_named(data, group, tmp_path):
    words = asked(data, tmp_path / "run")
    first, second = group.run(words, words, FAULT={1: f"error:{STOP}"})
    failed(first, 1, "process 1 (pid ", "failed: a bug of one process (ZeroDivisionError)")
    assert second.returncode == 1


def test_checkpoints_are_for_any_number_of_processes(data, group, tmp_path, promise):
    """Resumed on more or fewer processes: the log says so, and the run goes on as it would have"""
    alone = tmp_path / "alone"
    assert gedikit(*asked(data, alone)).returncode == 0
    expected = {row["iteration"]: row for row in measured(alone)}
    for before, after in ((1, 2), (2, 1)):
        out = tmp_path / f"{before}-{after}"
        with promise.trial():
            words = asked(data, out)
            fault = dict.fromkeys(range(before), f"error:{STOP}")
            for done in (
                group.run(*[words] * before, FAULT=fault)
                if before > 1
                else [gedikit(*words, env={"FAULT": fault[0]})]
            ):
                assert done.returncode == 1
            _, meta = read_tensors(sorted((out / "checkpoints").glob("*"))[-1], "checkpoint")
            assert (meta["iteration"], meta.get("processes", 1)) == (40, before)
            again = ("fit", "--resume", "--out", out)
            ranks = group.run(*[again] * after) if after > 1 else [gedikit(*again)]
            assert [done.returncode for done in ranks] == [0] * after, ranks[0].stderr
            silent(ranks)
            said = f"iteration 40: resumed on {after} process{'es' * (after > 1)}, was {before}"
            assert said in (out / "log.txt").read_text() and said in ranks[0].stderr
            rows = {row["iteration"]: row for row in measured(out)}
            assert rows.keys() == expected.keys()
            assert rows[50] == pytest.approx(expected[50], rel=1e-3, abs=1e-5)


def measured(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_signal_to_one_process_stops_all_after_a_checkpoint(data, group, tmp_path):
    out = tmp_path / "run"
    words = asked(data, out, length=100_000)
    _, second = group.begin(words, words)
    while not list((out / "checkpoints").glob("step-*")):
        assert second.is_alive()
        time.sleep(0.01)
    os.kill(second.pid, signal.SIGTERM)
    first, other = group.done()
    assert (first.returncode, other.returncode) == (130, 130), first.stderr
    at = int(re.search(r"stopped at iteration (\d+) of 100000; continue with", first.stderr)[1])
    assert (out / "checkpoints" / f"step-{at:09d}.safetensors").exists()
    silent([first, other])


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_process_that_cannot_see_the_data_is_named(data, group, tmp_path, culprit):
    own = [asked(data.with_name("nothing.npy") if rank == culprit else data, tmp_path / "run") for rank in (0, 1)]
    ranks = group.run(*own)
    failed(ranks[0], 2, "nothing.npy", *(["process 1 (pid "] if culprit else []))
    assert ranks[1].returncode == 2
    silent(ranks)
    assert not (tmp_path / "run").exists()


def test_other_data_on_one_process_is_refused(data, group, tmp_path):
    other = tmp_path / "other.npy"
    np.save(other, moons(100, 1)[0])
    ranks = group.run(asked(data, tmp_path / "run"), asked(other, tmp_path / "run"))
    failed(ranks[0], 2, "process 1 (pid ", "has data of 100 rows × 2 columns with digest", "process 0 has 100 rows")
    silent(ranks)


def test_other_versions_are_refused(data, group, tmp_path):
    words = asked(data, tmp_path / "run")
    ranks = group.run(words, words, FAULT={1: "version:9.9"})
    failed(ranks[0], 2, "process 1 (pid ", "has gedikit 9.9 and process 0 has", "all processes need the same")
    assert ranks[1].returncode == 2
    silent(ranks)


def test_rows_that_cannot_be_divided_are_refused(data, group, tmp_path):
    ranks = group.run(*[asked(data, tmp_path / "run")] * 3)
    failed(ranks[0], 2, "optimiser.batch_size=32 cannot be divided among 3 processes: take 30 or 33")
    assert [done.returncode for done in ranks] == [2, 2, 2]
    silent(ranks)


def test_the_directory_of_a_run_is_that_of_the_first_process(data, group, tmp_path):
    """What the first process alone finds wrong ends all of them."""
    words = asked(data, tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text("")
    ranks = group.run(words, words)
    failed(ranks[0], 2, "already holds a run")
    assert ranks[1].returncode == 2
    silent(ranks)


@pytest.fixture
def shards(tmp_path) -> Path:
    shown, kinds = drawn(PICTURES)
    coloured = np.stack([shown[-1], 255 - shown[-1], shown[-1]], -1)
    write_shards(tmp_path / "shards", [*shown[:-1], coloured], 5, kinds)
    return tmp_path / "shards"


def test_each_process_reads_a_share_of_the_shards(shards, group, tmp_path):
    """Once: index and pixels are those of one process, and who goes on finds the index in the run directory."""
    words = asked_of_shards(shards, tmp_path / "run", length=9, memory=1)
    read = {rank: str(tmp_path / f"read-{rank}") for rank in (0, 1)}
    ranks = group.run(words, words, READ=read, FAULT={1: "error:8"})
    failed(ranks[0], 1, "a bug of one process")
    names = sorted(path.name for path in shards.iterdir())
    assert [Path(read[rank]).read_text().split() for rank in read] == [names[:3], names[3:]]
    arrays, meta = Index.load(tmp_path / "run" / "index.safetensors").parts()
    index, rows = read_shards(list_shards(str(shards)), 16, memory=10**6)
    expected, said = index.parts()
    assert meta == said and isinstance(rows, np.ndarray)
    assert Run(tmp_path / "run").config().fingerprint == fingerprint(rows)
    assert all(np.array_equal(arrays[name], expected[name]) for name in expected)
    again = ("fit", "--resume", "--out", tmp_path / "run")
    ranks = group.run(again, again, READ=read)
    assert [done.returncode for done in ranks] == [0, 0], ranks[0].stderr
    assert [len(Path(read[rank]).read_text().split()) for rank in read] == [3, 3]


def test_shards_that_only_some_processes_see_are_refused(shards, group, tmp_path):
    other = tmp_path / "other"
    write_shards(other, list(drawn((8, 7, 5))[0]), 5)
    ranks = group.run(*[asked_of_shards(path, tmp_path / "run") for path in (shards, other)])
    failed(ranks[0], 2, "process 1 (pid ", "there are 4 shards here and 6 on process 0")
    (shards / "s-004.tar").write_bytes(tar_of([("1.png", b"no picture")]))
    ranks = group.run(*[asked_of_shards(shards, tmp_path / "run")] * 2)
    failed(ranks[0], 1, "process 1 (pid ", "s-004.tar/1.png: not a picture", "--bad-shards skip")
    silent(ranks)
    assert not (tmp_path / "run").exists()
