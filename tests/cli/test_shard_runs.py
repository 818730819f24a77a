"""Fits of pictures that stay in shards: the same models as from a folder, killed and resumed, and predictions."""

import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from drawn_pictures import drawn
from forked import failed, gedikit
from gedikit import rows
from gedikit.cli.loading import rows_of
from gedikit.cli.main import run as command_line
from gedikit.data import indexing
from gedikit.data.index import Index
from gedikit.data.shards import Shard
from gedikit.data.sources import ShardReading, load
from gedikit.data.stored import StoredPictures, read_shards
from gedikit.estimator import plan_rows
from gedikit.planning import Asked
from gedikit.runs import Run
from gedikit.storage import read_tensors
from gedikit.training import fit
from gedikit.training.fit import prepare
from shard_cases import png, tar_of, write_shards

SIZE = ["--image-size", "16", "--device", "cpu"]
QUICK = [*SIZE, "--clusters", "3", "--iters", "24", "--set", "optimiser.batch_size=16", "--set", "encoder.width=8",
         "--set", "sampler.steps=2", "--set", "sampler.samples=8", "--set", "sampler.chains=40",
         "--set", "execution.checkpoint_every=4", "--set", "execution.log_every=2"]  # fmt: skip
ENV = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """The same pictures in a folder and in shards."""
    root = tmp_path_factory.mktemp("data")
    shown, kinds = drawn((24, 16, 10))
    (root / "folder").mkdir()
    for number, picture in enumerate(shown):
        Image.fromarray(picture).save(root / "folder" / f"{number:04}.png")
    write_shards(root / "shards", list(shown), 12, kinds)
    return root


@pytest.fixture(scope="module")
def whole(data) -> Path:
    """A run on shards whose pictures are read when they are needed."""
    done = gedikit("fit", data / "shards", *QUICK, "--memory", "0", "--out", data / "whole")
    assert done.returncode == 0, done.stderr
    assert "stay in the shards" in done.stderr
    return data / "whole"


def model(run: Path) -> dict[str, torch.Tensor]:
    return read_tensors(run / "model.safetensors", "model")[0]


def same(a: Path, b: Path) -> None:
    one, other = model(a), model(b)
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name
    assert (a / "metrics.jsonl").read_text() == (b / "metrics.jsonl").read_text()


def test_the_model_is_that_of_the_same_pictures_in_a_folder(data, whole):
    done = gedikit("fit", data / "folder", *QUICK, "--out", data / "of-folder")
    assert done.returncode == 0, done.stderr
    same(whole, data / "of-folder")
    columns = ["cluster", "confidence", "log_density", "outlier_score"]
    by_shard, by_file = (pd.read_csv(run / "labels.csv") for run in (whole, data / "of-folder"))
    assert by_shard[columns].equals(by_file[columns])
    assert by_shard["file"].str.rsplit("/", n=1).str[-1].tolist() == by_file["file"].tolist()
    assert "NMI" in (whole / "report.html").read_text(), "labels beside pictures are compared with"


def test_shards_that_have_changed_are_other_data(data, tmp_path):
    run = tmp_path / "run"
    done = gedikit("fit", data / "shards" / "s-{000..001}.tar", *QUICK, "--out", run)
    assert done.returncode == 0, done.stderr
    (run / "model.safetensors").unlink()
    failed(
        gedikit("fit", data / "shards" / "s-{000..002}.tar", "--resume", "--out", run), 2, "trained on other data"
    )


def test_an_epoch_has_each_row_once(data):
    dataset = load(str(data / "shards"), image_size=16, shards=ShardReading(memory=0))
    config = {"optimiser.batch_size": 10, "optimiser.iterations": 10, "encoder.width": 8}
    made, starts = plan_rows(dataset.rows, dataset.image_shape, Asked(3, config=config))
    views = prepare(made, dataset.rows, starts=starts).views
    epochs = [
        [views.batch(10, iteration, 0, torch.Generator())[0] for iteration in range(first, first + 5)]
        for first in (0, 5)
    ]
    for batches in epochs:
        assert sorted(torch.cat(batches).tolist()) == list(range(50))
    assert not torch.equal(epochs[0][0], epochs[1][0])
    rows_, _, raw, _ = views.batch(10, 7, 0, torch.Generator())
    assert np.array_equal(raw.numpy()[:10], dataset.rows[rows_.numpy()])


def test_predictions_are_written_whole_or_not_at_all(data, whole, tmp_path):
    out = tmp_path / "found.csv"
    done = gedikit("predict", whole, data / "shards", "-o", out)
    assert done.returncode == 0, done.stderr
    assert out.read_text() == (whole / "labels.csv").read_text()
    shown = list(drawn((3, 2, 1), seed=1)[0])
    write_shards(tmp_path / "new", shown, 3)
    (tmp_path / "new" / "t.tar").write_bytes(tar_of([("1.png", png(shown[0])[:50]), ("2.png", png(shown[1]))]))
    kept = out.read_text()
    failed(gedikit("predict", whole, tmp_path / "new", "-o", out), 1, "t.tar/1.png", "--bad-shards skip")
    assert out.read_text() == kept
    done = gedikit("predict", whole, tmp_path / "new", "--bad-shards", "skip", "-o", out)
    assert done.returncode == 0 and "1 file is left out" in done.stderr and "t.tar/1.png" in done.stderr
    found = pd.read_csv(out)
    assert found["file"].tolist()[-1] == "t.tar/2.png" and len(found) == 7
    assert found["cluster"].tolist()[-1] == found["cluster"].tolist()[1], "the same picture"


def test_what_was_left_out_is_in_the_plan_and_the_log(data, tmp_path):
    for path in (data / "shards").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "t.tar").write_bytes(tar_of([("1.png", b"no picture")]))
    failed(gedikit("fit", tmp_path, *QUICK, "--out", tmp_path / "run"), 1, "t.tar/1.png", "--bad-shards skip")
    assert not (tmp_path / "run").exists()
    shards = tmp_path / "*.tar"
    done = gedikit(
        "fit", shards, *QUICK, "--bad-shards", "skip", "--index", tmp_path / "i", "--out", tmp_path / "run"
    )
    assert done.returncode == 0, done.stderr
    assert "left out: t.tar/1.png (not a picture" in (tmp_path / "run" / "log.txt").read_text()
    made = Run(tmp_path / "run").config()
    assert next(d for d in made.plan.decisions if d.what == "files").choice == "50 pictures, 1 left out"
    assert made.shards.bad == "skip" and (tmp_path / "i").exists()
    assert len(rows_of(Run(tmp_path / "run"), made, made.source).rows) == 50


def test_a_plan_looks_at_some_of_very_many(data, monkeypatch):
    monkeypatch.setattr(rows, "_LOOKED_AT", 40)
    monkeypatch.setattr(rows, "_FEWEST", 2)
    dataset = load(str(data / "shards"), image_size=16, shards=ShardReading(memory=0))
    assert len(dataset.x) == 40 and len(dataset.rows) == 50
    taken = []
    take = StoredPictures.take
    monkeypatch.setattr(StoredPictures, "take", lambda self, numbers: taken.append(numbers) or take(self, numbers))
    config = {"optimiser.iterations": 6, "optimiser.batch_size": 10, "encoder.width": 8, "sampler.steps": 2}
    config |= {"sampler.samples": 8, "sampler.chains": 20, "objectives.pseudo-labels.share": 0.5}
    config |= {"objectives.pseudo-labels.started": True}
    made, starts = plan_rows(dataset.rows, dataset.image_shape, Asked(3, config=config))
    said = next(decision for decision in made.decisions if decision.what == "looked at for groups")
    assert said.choice == "40 images" and "from 50" in said.reason
    ready = prepare(made, dataset.rows, starts=starts)
    targets = ready.step.objectives["pseudo-labels"].targets
    assert targets[dataset.numbers].sum(1).tolist() == [1.0] * 40
    others = np.setdiff1d(np.arange(50), dataset.numbers)
    assert targets[others].abs().sum() == 0, "rows that were not looked at start in no group"
    assert len(ready.new_state().weights) and max(map(len, taken)) <= 50
    fitted = fit(made, dataset.rows, starts=starts).fitted
    assert fitted.training_labels.shape == (50,)
    assert np.array_equal(fitted.training_labels, fitted.labels(dataset.rows[:]))


def test_tables_larger_than_memory(tmp_path):
    pytest.importorskip("pyarrow")
    x = np.concatenate([np.random.default_rng(k).normal(8 * k, 1, (2000, 2)) for k in range(2)])
    frame = pd.DataFrame(x, columns=["a", "b"]).sample(frac=1, random_state=0).reset_index(drop=True)
    for number in range(2):
        frame[number * 2000 : (number + 1) * 2000].to_parquet(tmp_path / f"t{number}.parquet", index=False)
    ask = ["--clusters", "2", "--iters", "60", "--device", "cpu", "--memory", "0.00004", "--out", tmp_path / "run"]
    shards = str(tmp_path / "t*.parquet")
    done = gedikit("fit", shards, *ask)
    assert done.returncode == 0, done.stderr
    assert "1,250 of 4,000 rows are learned from" in done.stderr
    learned = pd.read_csv(tmp_path / "run" / "labels.csv")
    assert len(learned) == 1250 and learned["row_in_data"].is_monotonic_increasing
    assert gedikit("predict", tmp_path / "run", shards, "-o", tmp_path / "all.csv").returncode == 0
    found = pd.read_csv(tmp_path / "all.csv")
    assert len(found) == 4000
    again = found["cluster"][learned["row_in_data"]].to_numpy()
    assert np.array_equal(again, learned["cluster"].to_numpy()), "the same rows"
    assert len(set(zip(found["cluster"], frame["a"] > 4, strict=True))) == 2, "each side is a cluster"


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        ("fit moons --memory 1", ["--memory is about shards", "moons"]),
        ("fit SHARDS --bad-shards never", ["skip or stop", "never"]),
        ("fit SHARDS --memory -1", ["--memory must not be negative"]),
        ("fit SHARDS --features efficientnet-lite0", ["shards"]),
        ("fit SHARDS --columns a", ["about columns of a table"]),
        ("fit SHARDS --image-size 12 --memory 0", ["as vectors"]),
        ("fit SHARDS.tar.gz", ["compressed archive"]),
    ],
)
def test_what_cannot_be_done_with_shards_is_one_sentence(data, tmp_path, ask, words):
    arguments = [word.replace("SHARDS", str(data / "shards")) for word in ask.split()]
    failed(gedikit(*arguments, "--out", tmp_path / "run"), 2, *words)
    assert not (tmp_path / "run").exists()


def test_stored_rows_are_indexed_once(data, whole, monkeypatch):
    monkeypatch.setattr(indexing, "_Indexing", None)
    read = []
    load_index = Index.load
    monkeypatch.setattr(Index, "load", lambda path: read.append(path) or load_index(path))
    run = Run(whole)
    (data / "link").symlink_to(data / "shards")
    for place in (None, str(data / "shards"), str(data / "link")):
        assert len(rows_of(run, run.config(), place).rows) == 50
    assert read == [run.index_path] * 3


def test_pictures_are_sorted_out_of_their_shards(data, whole, tmp_path, capsys):
    assert command_line(["sort", str(whole), str(tmp_path / "sorted")]) == 0
    assert "50 pictures copied into 3 folders" in capsys.readouterr().err
    for name, cluster in pd.read_csv(whole / "labels.csv")[["file", "cluster"]].itertuples(index=False):
        own = tmp_path / "sorted" / f"group-{cluster}" / name
        assert own.read_bytes() == (data / "folder" / own.name).read_bytes()
    assert len([path for path in (tmp_path / "sorted").rglob("*") if path.is_file()]) == 50
    assert command_line(["sort", str(whole), str(tmp_path / "linked"), "--link"]) == 2
    assert "leave out --link" in capsys.readouterr().err


def test_names_in_shards_lead_nowhere(whole, tmp_path, capsys):
    run = Run(Path(shutil.copytree(whole, tmp_path / "run")))
    shown = list(drawn((2, 1, 1))[0])
    members = ["../../../out.png", "/out.png", "a/../b.png", "c/d.png"]
    (tmp_path / "s.tar").write_bytes(
        tar_of([(name, png(picture)) for name, picture in zip(members, shown, strict=True)])
    )
    index, _ = read_shards([Shard.at(str(tmp_path / "s.tar"))], 16, 1, memory=0)
    index.save(run.index_path)
    pd.DataFrame({"file": list(index.names), "cluster": 0}).to_csv(run.labels_path, index=False)
    says_its_rows_are_at(run.path, str(tmp_path / "s.tar"))
    before = {*tmp_path.rglob("*")}
    assert command_line(["sort", str(run.path), str(tmp_path / "sorted")]) == 0
    said = capsys.readouterr().err
    assert "2 pictures copied" in said and "2 files are left out" in said and said.count("leads out of the") == 2
    made = [path.relative_to(tmp_path / "sorted") for path in {*tmp_path.rglob("*")} - before if path.is_file()]
    assert sorted(map(str, made)) == ["group-0/s.tar/c/d.png", "group-0/s.tar/out.png"]


@pytest.fixture
def foreign(data, whole, tmp_path) -> Path:
    """A run whose directory says that its rows are at an address."""
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for path in (data / "shards").iterdir():
        memory.pipe(f"/foreign/{path.name}", path.read_bytes())
    run = Path(shutil.copytree(whole, tmp_path / "foreign"))
    says_its_rows_are_at(run, ADDRESS)
    return run


ADDRESS = "memory://foreign/s-{000..004}.tar"


def says_its_rows_are_at(run: Path, place: str) -> None:
    text = (run / "config.toml").read_text(encoding="utf-8")
    source = next(line for line in text.splitlines() if line.startswith("source = "))
    (run / "config.toml").write_text(text.replace(source, f'source = "{place}"'), encoding="utf-8")


@pytest.mark.parametrize("command", ["report", "diagnose"])
def test_no_address_is_opened_because_a_run_says_so(foreign, monkeypatch, capsys, command):
    assert command_line([command, str(foreign), *(["--data"] if command == "report" else []), ADDRESS]) == 0
    monkeypatch.setattr(Shard, "_remote", property(lambda shard: pytest.fail(f"{shard.place} was opened")))
    assert command_line([command, str(foreign)]) == 2
    said = capsys.readouterr().err
    assert f"its rows are at {ADDRESS}" in said and "as DATA or --data" in said
    assert command_line(["fit", "--resume", "--out", str(foreign)]) == 2
    assert f"its rows are at {ADDRESS}" in capsys.readouterr().err
    listed = foreign / "all.txt"
    listed.write_text(f"{foreign}/own.tar\nmemory://foreign/s-000.tar\n")
    says_its_rows_are_at(foreign, str(listed))
    assert command_line([command, str(foreign)]) == 2
    assert "its rows are at memory://foreign/s-000.tar" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["fit", "plan", "predict", "diagnose", "evaluate", "report"])
def test_a_shard_that_is_missing_from_a_range_is_named(data, whole, tmp_path, capsys, command):
    place = str(data / "shards" / "s-{000..005}.tar")
    asked = {
        "fit": ["fit", place, *QUICK, "--out", str(tmp_path / "run")],
        "plan": ["plan", place],
        "predict": ["predict", str(whole), place, "-o", str(tmp_path / "found.csv")],
        "diagnose": ["diagnose", str(whole), place],
        "evaluate": ["evaluate", str(whole), place],
        "report": ["report", str(whole), "--data", place],
    }[command]
    assert command_line(asked) == 1
    assert "s-005.tar: No such file or directory; --bad-shards skip" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_report_is_of_the_rows_of_the_run(data, whole, capsys):
    assert command_line(["report", str(whole), "--data", str(data / "shards" / "s-000.tar")]) == 2
    assert "was trained on other data" in capsys.readouterr().err
