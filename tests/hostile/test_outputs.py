"""What is written from hostile names and cells: into CSV files, pages, folders and run directories."""

import csv
import io
import os
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from gedikit.cli.main import run
from gedikit.cli.spreadsheets import as_it_was, inert
from gedikit.errors import StorageError
from gedikit.runs import Run

FORMULAS = ("=1+1", "+1+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "\r=1", "'=1+1", "＝1+1")
INERT = ("a", "a=b", "'tis", "", " ", "1-2", "007")
NUMBERS = ("-5", "+5", "-1e9", "+.5", "-inf")
SCRIPT = "<script>alert(1)</script>"


def test_formulas_become_text_and_nothing_else_does():
    assert [inert(text) for text in FORMULAS] == [f"'{text}" for text in FORMULAS]
    unchanged = (*INERT, *NUMBERS, -5, -5.5, None, True)
    assert [inert(value) for value in unchanged] == list(unchanged)
    everything = (*FORMULAS, *INERT, *NUMBERS, "''=1", "''")
    assert [as_it_was(inert(text)) for text in everything] == list(everything)


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    """A table whose names and cells are formulas and HTML."""
    folder = tmp_path_factory.mktemp("table")
    rng = np.random.default_rng(0)
    n = 60
    x = np.r_[rng.normal(-3, 0.3, (n // 2, 2)), rng.normal(3, 0.3, (n // 2, 2))]
    frame = pd.DataFrame(x, columns=["=amount", f"-b{SCRIPT}"])
    frame["@key"] = [f"=ref({i})" if i % 2 else f"-{i}" for i in range(n)]
    frame["kind"] = np.where(np.arange(n) < n // 2, "=HYPERLINK(1)", f"{SCRIPT}")
    frame.to_csv(folder / "rows.csv", index=False)
    code = run(
        [
            *("fit", str(folder / "rows.csv"), "--id", "@key", "--clusters", "2", "--iters", "20", "-q"),
            *("--out", str(folder / "run"), "--spreadsheet-safe"),
        ]
    )
    assert code == 0
    return folder


def rows(path: Path) -> list[list[str]]:
    return list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"))))


def runs_in_a_spreadsheet(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return cell.startswith(("=", "+", "-", "@"))
    return False


def test_tables_for_spreadsheets(table):
    plain, safe, made = table / "plain.csv", table / "safe.csv", table / "made.csv"
    asked = ["predict", str(table / "run"), str(table / "rows.csv"), "-q", "-o"]
    assert run([*asked, str(plain)]) == run([*asked, str(safe), "--spreadsheet-safe"]) == 0
    head, *body = rows(plain)
    assert head[1] == "@key" and body[1][1] == "=ref(1)"  # as they are, unless asked
    for path in (safe, table / "run" / "labels.csv"):
        assert rows(path)[0][1] == "'@key"
        assert [line[1] for line in rows(path)[1:3]] == ["-0", "'=ref(1)"]  # text, but a number
        assert not any(runs_in_a_spreadsheet(cell) for line in rows(path) for cell in line)
        assert [line[2:] for line in rows(path)] == [line[2:] for line in rows(plain)]  # numbers alone
    assert run(["sample", str(table / "run"), "-n", "40", "-q", "-o", str(made), "--spreadsheet-safe"]) == 0
    head, *body = rows(made)
    assert head[0] == "'=amount" and not any(runs_in_a_spreadsheet(cell) for line in [head, *body] for cell in line)
    assert any(float(line[0]) < 0 for line in body)
    assert {line[2] for line in body} <= {"'=HYPERLINK(1)", SCRIPT}


class Tags(HTMLParser):
    """The tags of a page and what they lead to."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]


def test_pages_have_no_script_of_the_data(table):
    text = (table / "run" / "report.html").read_text(encoding="utf-8")
    page = Tags(text)
    assert "script" not in page.tags
    assert "&lt;script&gt;alert(1)" in text  # it is shown
    assert all(link.startswith(("data:", "#")) for link in page.links)  # and nothing is fetched


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """A run on a folder with names that a spreadsheet and a page would run."""
    place = tmp_path_factory.mktemp("place")
    folder = place / "pictures"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in (
        "=a.png",
        "'=a.png",
        "<img onerror=alert(1)>.png",
        "b\x1b[31m.png",
        *(f"{i}.png" for i in range(26)),
    ):
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(folder / name)
    (folder / "bad\x1b[31m.png").write_bytes(b"no picture")
    asked = ["fit", str(folder), "--clusters", "2", "--iters", "2", "--image-size", "8"]
    assert run([*asked, "--out", str(place / "run"), "--spreadsheet-safe"]) == 0
    return place


def test_names_of_pictures(pictures):
    names = [line[1] for line in rows(pictures / "run" / "labels.csv")[1:]]
    assert "'=a.png" in names and "''=a.png" in names
    assert run(["sort", str(pictures / "run"), str(pictures / "sorted"), "-q"]) == 0
    listed = {path.name for path in (pictures / "sorted").rglob("*.png")}
    assert listed == {path.name for path in (pictures / "pictures").glob("*.png")} - {"bad\x1b[31m.png"}
    page = Tags((pictures / "run" / "report.html").read_text(encoding="utf-8"))
    assert all(link.startswith(("data:", "#", "file:///")) for link in page.links)


@pytest.mark.parametrize("cluster", ["../../../out", "x/../../y", "", "-1"])
def test_folders_of_groups_stay_where_they_belong(pictures, capsys, cluster):
    labels = pictures / "run" / "labels.csv"
    whole = labels.read_text()
    labels.write_text(whole.replace(",0,", f",{cluster},").replace(",1,", f",{cluster},"))
    before = sorted(path for path in pictures.rglob("*"))
    assert run(["sort", str(pictures / "run"), str(pictures / "a" / "b"), "-q"]) == 1
    assert "is damaged" in capsys.readouterr().err
    assert sorted(path for path in pictures.rglob("*")) == before
    labels.write_text(whole)


WRITTEN = (
    *("config.toml", "report.html", "labels.csv", "log.txt", "metrics.jsonl", "evaluations.jsonl", "lock"),
    *("model.safetensors", "features.safetensors", "index.safetensors", "rules.toml", "rules.pl", "examples.csv"),
    "known-labels.csv",
)


@pytest.mark.parametrize("name", WRITTEN)
def test_runs_do_not_write_through_links(table, tmp_path, capsys, name):
    """A run directory of somebody else may lead anywhere."""
    there = shutil.copytree(table / "run", tmp_path / "run")
    mine = tmp_path / "mine"
    mine.write_bytes((there / name).read_bytes() if (there / name).exists() else b"mine")
    before = mine.read_bytes()
    (there / name).unlink(missing_ok=True)
    (there / name).symlink_to(mine)
    assert run(["fit", "--resume", "--out", str(there), "-q"]) == 1
    assert f"{name} is a link" in capsys.readouterr().err
    assert mine.read_bytes() == before
    if name in ("log.txt", "metrics.jsonl"):
        with pytest.raises(StorageError, match="is a link"):
            Run(there).append(there / name, "text")
        assert mine.read_bytes() == before
    elif name == "report.html":
        assert run(["report", str(there)]) == 1
        assert mine.read_bytes() == before


def test_checkpoints_of_others_are_left_alone(tmp_path, capsys):
    """Old ones are removed where a run has its own."""
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    theirs.mkdir()
    mine.mkdir()
    for step in range(1, 4):
        (mine / f"step-{step:09d}.safetensors").write_bytes(b"mine")
    (theirs / "checkpoints").symlink_to(mine)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(60, 2)))
    asked = ("fit", str(tmp_path / "x.npy"), "--clusters", "2", "--iters", "6", "-q", "--out", str(theirs))
    assert run([*asked, "--set", "execution.checkpoint_every=2"]) == 1
    assert "checkpoints is a link" in capsys.readouterr().err
    assert [path.read_bytes() for path in sorted(mine.iterdir())] == [b"mine"] * 3


def test_runs_do_not_wait_for_pipes(tmp_path):
    os.mkfifo(tmp_path / "log.txt")
    with pytest.raises(StorageError, match="a pipe"):
        Run(tmp_path).append(tmp_path / "log.txt", "text")


def test_terminals_obey_no_names(capsys):
    assert run(["plan", "no\x1b[31m.csv"]) != 0
    said = capsys.readouterr().err
    assert "no\\x1b[31m.csv" in said and "\x1b" not in said
