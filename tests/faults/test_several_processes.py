"""Fits by several processes of which one is killed, hangs, fails, or was started wrongly; each a real process."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch.distributed as dist
from test_faults import LENGTH, PICTURES, STOP, Whole, asked, asked_of_shards

from drawn_pictures import drawn
from forked import Done, failed, gedikit, silent
from gedikit.data.index import Index
from gedikit.data.shards import list_shards
from gedikit.data.stored import read_shards
from gedikit.data.toy import moons
from gedikit.processes.meeting import _agreed
from gedikit.runs import Run
from gedikit.storage import read_tensors
from gedikit.training.fit import fingerprint
from shard_cases import tar_of, write_shards

if dist.is_available():
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")
OF_THREE = {"optimiser__batch_size": 30, "sampler__samples": 30}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "x.npy"
    np.save(path, moons(100, 0)[0])
    gedikit("--version")
    return path


def torchrun(*words: object, restarts: int = 0, **env: str) -> Done:
    launch = ["--standalone", "--nproc-per-node", "2", "--max-restarts", str(restarts), "-m", "gedikit"]
    command = [sys.executable, "-m", "torch.distributed.run", *launch, *map(str, words)]
    around = {**os.environ, "OMP_NUM_THREADS": "1", **env}
    done = subprocess.run(command, env=around, capture_output=True, text=True)
    return Done(done.returncode, done.stdout, done.stderr)


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


def test_what_an_earlier_attempt_has_left_is_not_met():
    """Three processes that agree twice in one store, where one of the first attempt was killed before it could."""
    store, agreed = dist.HashStore(), []
    store.set("gedikit/here/2", "killed")
    with ThreadPoolExecutor(3) as pool:
        for _ in range(2):
            early = [pool.submit(_agreed, store, rank, 3, rank) for rank in (0, 1)]
            while store.get("gedikit/all").split()[2] != store.get("gedikit/here/2"):
                time.sleep(0.01)
            assert not any(one.done() for one in early)
            agreed.append([one.result() for one in [*early, pool.submit(_agreed, store, 2, 3, 5)]])
    (first, second) = [{name for name, _ in said} for said in agreed]
    assert (len(first), len(second), len(first | second)) == (1, 1, 2)
    assert [failures for said in agreed for _, failures in said] == [[0, 1, 5]] * 6


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


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_process_that_fails_is_named(data, group, tmp_path, culprit):
    """The first one says so, once."""
    words = asked(data, tmp_path / "run", **OF_THREE)
    ranks = group.run(words, words, words, FAULT={culprit: f"error:{STOP}"})
    assert [done.returncode for done in ranks] == [1] * 3
    assert "a bug of one process (ZeroDivisionError" in ranks[0].stderr.splitlines()[-1]
    assert ("process 1 (pid " in ranks[0].stderr) == (culprit == 1)
    assert ranks[0].stderr.count("gedikit: ") == 1
    silent(ranks)


def test_where_the_first_process_is_killed_the_next_one_speaks(data, group, tmp_path):
    words = asked(data, tmp_path / "run", **OF_THREE)
    first, *_ = group.begin(words, words, words, STOP={0: str(STOP)})
    while psutil.Process(first.pid).status() != psutil.STATUS_STOPPED:
        assert first.is_alive()
        time.sleep(0.01)
    os.kill(first.pid, signal.SIGKILL)
    _, second, third = group.done()
    failed(second, 1, "process 0 (pid ")
    assert third.returncode == 1
    assert "gedikit: " not in third.stderr  # torch may say that the store is gone, which the first process had


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
    _, second = group.begin(words, words, TORCHELASTIC_RESTART_COUNT={1: "1"})  # a torchrun that failed alone
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
def test_a_process_that_cannot_see_the_data_is_named(data, group, tmp_path, folders, culprit):
    shutil.copy(data, folders[1 - culprit] / "rows.npy")
    words = asked(Path("rows.npy"), tmp_path / "run")
    notes = {rank: str(tmp_path / f"{rank}.json") for rank in (0, 1)}
    ranks = group.run(words, words, cwd=folders, TORCHELASTIC_ERROR_FILE=notes)
    failed(ranks[0], 2, "there is no file rows.npy", *(["process 1 (pid "] if culprit else []))
    assert ranks[1].returncode == 2
    silent(ranks)
    assert not (tmp_path / "run").exists()
    for rank, path in notes.items():  # torchrun on each machine repeats it
        summary = str(ChildFailedError("", {rank: ProcessFailure(rank, 1, 2, path)}))
        assert re.search(r"traceback : (error: )?(process 1.*: )?there is no file rows.npy", summary)


def test_who_is_told_to_end_after_a_failure_of_another_is_no_failure(data, group, tmp_path):
    words = asked(data.with_name("nothing.npy"), tmp_path / "run")
    first, second = group.begin(words, words, GROUP_RANK=dict.fromkeys((0, 1), "0"))
    first.join(60)
    os.kill(second.pid, signal.SIGTERM)  # as torchrun does
    assert [done.returncode for done in group.done()] == [2, 0]


def test_other_data_on_one_process_is_refused(group, tmp_path, folders):
    for rank, folder in folders.items():
        np.save(folder / "rows.npy", moons(100, rank)[0])
    words = asked(Path("rows.npy"), tmp_path / "run")
    ranks = group.run(words, words, cwd=folders)
    has = "data of 100 rows × 2 columns with digest"
    failed(ranks[0], 2, "process 1 (pid ", f"has {has}", f"process 0 has {has}", "all processes need the same")
    silent(ranks)


OTHERWISE = {
    "--seed": (("--seed", 1), "--seed 1", "no --seed"),
    "--resume": (("--resume",), "--resume", "no --resume"),
    "--set": (("--set", "optimiser.momentum=2"), "--set optimiser.momentum=2", "no --set optimiser.momentum"),
    "data": ((), "DATA other.npy", "DATA {data}"),
    "command": ((), "the command predict", "the command fit"),
}


@pytest.mark.parametrize("what", OTHERWISE)
def test_processes_that_are_asked_for_something_else_are_named(data, group, tmp_path, promise, what):
    """Processes started with different options: the first names which one and both values, nothing is read"""
    words = asked(data, tmp_path / "run")
    more, theirs, needed = OTHERWISE[what]
    other = {"data": ("fit", "other.npy", *words[2:]), "command": ("predict", "run", data, "-o", "x.csv")}
    with promise.trial():
        ranks = group.run(words, other.get(what, (*words, *more)))
        failed(ranks[0], 2, "process 1 (pid ", f") has {theirs} and process 0 has {needed.format(data=data)}: all")
        assert ranks[1].returncode == 2
        silent(ranks)
        assert not (tmp_path / "run").exists()


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


def test_a_command_for_one_process_is_refused_once(data, group):
    ranks = group.run(*[("evaluate", "run", data)] * 2)
    failed(ranks[0], 2, "gedikit evaluate runs on one process, and 2 were started: start it without torchrun")
    assert ranks[1].returncode == 2
    silent(ranks)


@pytest.mark.parametrize("who", [(0, 1), (1,)])
def test_ctrl_c_before_the_training_is_said_once(data, group, tmp_path, who):
    """To all, as a terminal sends it, or to one."""
    words = asked(data, tmp_path / "run")
    waiting = {rank: tmp_path / f"waiting-{rank}" for rank in who}
    group.begin(words, words, FAULT={rank: f"wait:{path}" for rank, path in waiting.items()})
    for rank in who:
        while not waiting[rank].exists():
            assert group.processes[rank].is_alive()
            time.sleep(0.01)
    for rank in who:
        os.kill(group.processes[rank].pid, signal.SIGINT)
    ranks = group.done()
    assert [done.returncode for done in ranks] == [130, 130]
    assert ranks[0].stderr.count("gedikit: ") == ranks[0].stderr.count("interrupted\n") == 1
    silent(ranks)
    assert not (tmp_path / "run").exists()


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


def test_shards_that_only_some_processes_see_are_refused(shards, group, tmp_path, folders):
    shutil.copytree(shards, folders[0] / "shards")
    write_shards(folders[1] / "shards", list(drawn((8, 7, 5))[0]), 5)
    ranks = group.run(*[asked_of_shards(Path("shards"), tmp_path / "run")] * 2, cwd=folders)
    failed(ranks[0], 2, "process 1 (pid ", "there are 4 shards here and 6 on process 0")
    (shards / "s-004.tar").write_bytes(tar_of([("1.png", b"no picture")]))
    ranks = group.run(*[asked_of_shards(shards, tmp_path / "run")] * 2)
    failed(ranks[0], 1, "process 1 (pid ", "s-004.tar/1.png: not a picture", "--bad-shards skip")
    silent(ranks)
    assert not (tmp_path / "run").exists()
