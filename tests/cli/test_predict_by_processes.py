"""`predict` on two processes writes, byte for byte, what it writes on one; each a real process."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch.distributed as dist

from drawn_pictures import drawn
from forked import Done, Group, failed, gedikit, silent
from gedikit.data.toy import moons
from promises import Promise
from shard_cases import write_shards

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")
SHORT = ["--device", "cpu", "--clusters", 2, "--set", "optimiser.batch_size=16"]
PIECE = 65_536  # rows of a table that are read together


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Rows of three pieces as a table in each form, pictures in five shards, and a run on some of each."""
    root = tmp_path_factory.mktemp("data")
    n = 2 * PIECE + 1000
    table = pd.DataFrame(np.resize(moons(500, 0)[0], (n, 2)), columns=["a", "b"])
    table["name"] = [f"row\n{i}" if i % 1000 == 0 else f"row, {i}" for i in range(n)]
    table.to_csv(root / "rows.csv", index=False)
    table.to_parquet(root / "rows.parquet")
    (root / "tables").mkdir()
    for number, first in enumerate(range(0, 700, 100)):
        table.iloc[first : first + 100 + number].to_parquet(root / "tables" / f"{number}.parquet")
    table[:200].to_csv(root / "few.csv", index=False)
    shown, kinds = drawn((24, 16, 10))
    write_shards(root / "shards", list(shown), 12, kinds)
    shutil.copytree(root / "shards", root / "broken")
    broken = root / "broken" / "s-001.tar"
    broken.write_bytes(broken.read_bytes()[:2600])
    (root / "broken" / "s-002.tar").write_bytes(b"")
    fits = {"rows": ["few.csv", "--id", "name"], "pictures": ["shards", "--image-size", 16]}
    settings = {"pictures": {"encoder.width": 8, "sampler.steps": 1, "sampler.samples": 8, "sampler.chains": 16}}
    for run, words in fits.items():
        more = [word for name, value in settings.get(run, {}).items() for word in ("--set", f"{name}={value}")]
        done = gedikit("fit", *words, *SHORT, "--iters", 2, *more, "--out", run, cwd=root)
        assert done.returncode == 0, done.stderr
    return root


def of_one_and_two(data: Path, group: Group, run: str, source: str, *words: str) -> tuple[Done, list[Done]]:
    """What one process says, and what two say that work in another folder."""
    command = ("predict", data / run, data / source, *words, "-o")
    return gedikit(*command, "one.csv", cwd=group.folder), group.run(
        *[(*command, "two.csv")] * 2, cwd=dict.fromkeys((0, 1), group.folder)
    )


def same(group: Group, promise: Promise, data: Path, run: str, source: str, *words: str) -> tuple[Done, Done]:
    with promise.trial():
        alone, ranks = of_one_and_two(data, group, run, source, *words)
        assert [done.returncode for done in (alone, *ranks)] == [0, 0, 0], (alone.stderr, ranks)
        silent(ranks)
        assert (group.folder / "two.csv").read_bytes() == (group.folder / "one.csv").read_bytes()
        assert not list(group.folder.glob(".*"))
    return alone, ranks[0]


@pytest.mark.parametrize("source", ["rows.csv", "rows.parquet", "tables", "shards"])
def test_two_processes_write_what_one_writes(data, group, promise, source):
    """predict on 2 processes writes the bytes of 1: CSV, Parquet, shards, and with broken shards left out"""
    same(group, promise, data, "pictures" if source == "shards" else "rows", source)
    rows = {"rows.csv": 2 * PIECE + 1000, "rows.parquet": 2 * PIECE + 1000, "tables": 721, "shards": 50}
    assert len(pd.read_csv(group.folder / "two.csv")) == rows[source]


def test_broken_shards_are_left_out_as_by_one_process(data, group, promise):
    """predict on 2 processes writes the bytes of 1: CSV, Parquet, shards, and with broken shards left out"""
    alone, first = same(group, promise, data, "pictures", "broken", "--bad-shards", "skip")
    told = [line for line in alone.stderr.splitlines() if not line.endswith("pictures/s)")]
    assert told[0] == "2 files are left out:"
    assert [line for line in first.stderr.splitlines() if not line.endswith("pictures/s)")] == told


def test_a_broken_shard_stops_all(data, group):
    alone, ranks = of_one_and_two(data, group, "pictures", "broken")
    for done, culprit in ((alone, []), (ranks[0], ["process 1 (pid "])):
        failed(done, 1, *culprit, "s-001.tar: cut short at byte", "--bad-shards skip leaves out")
    assert ranks[1].returncode == 1
    silent(ranks)
    assert not [path for path in group.folder.iterdir() if path.is_file()]


def test_a_process_that_sees_other_data_or_another_model_is_named(data, group, folders):
    for rank, folder in folders.items():
        shutil.copytree(data / "rows", folder / "run")
        (folder / "tables").mkdir()
        for number in range(3 - rank):
            shutil.copy(data / "tables" / f"{number}.parquet", folder / "tables")
    words = ("predict", "run", "tables", "-o", group.folder / "out.csv")
    ranks = group.run(words, words, cwd=folders)
    failed(ranks[0], 2, "process 1 (pid ", "has 2 files of", "in tables and process 0 has 3 files of")
    silent(ranks)
    shutil.rmtree(folders[1] / "run")
    ranks = group.run(words, words, cwd=folders)
    failed(ranks[0], 2, "process 1 (pid ", "there is no run directory run")
    silent(ranks)
    assert not (group.folder / "out.csv").exists()


def test_an_output_that_cannot_be_written_ends_all(data, group):
    (group.folder / "out.csv").mkdir()
    words = ("predict", data / "pictures", data / "shards", "-o", group.folder / "out.csv")
    ranks = group.run(words, words)
    failed(ranks[0], 1, "could not write", "out.csv: Is a directory")
    assert ranks[1].returncode == 1
    silent(ranks)
