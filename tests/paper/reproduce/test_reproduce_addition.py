import gzip
import re
import struct
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from sklearn.datasets import load_digits

from gedikit.data.addition import SIZES
from gedikit.errors import UsageError
from gedikit.paper.reproduce import addition
from gedikit.paper.reproduce.addition import KINDS, AdditionFit, AdditionResult
from gedikit.paper.reproduce.paper import ADDITION
from gedikit.paper.reproduce.running import Done, Request, run_all
from gedikit.paper.reproduce.sums import Sums
from gedikit.training import Callback

EMPTY = AdditionResult("both", 100, 0, None, None, None, None, [], [], [], [])


@pytest.fixture
def small_digits_as_mnist(tmp_path, monkeypatch):
    """Digits of 8 × 8 pixels, enlarged, where the files of MNIST are looked for."""
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    data = load_digits()
    small = (data.images * 15.9).astype(np.uint8)
    images = np.stack([np.asarray(Image.fromarray(im).resize((28, 28))) for im in small])
    for name in ("train", "t10k"):
        header = struct.pack(">IIII", 2051, len(images), 28, 28)
        (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + images.tobytes(), 1))
        labels = struct.pack(">II", 2049, len(images)) + data.target.astype(np.uint8).tobytes()
        (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    monkeypatch.setenv("GEDIKIT_DATA", str(tmp_path / "data"))
    addition._mnist.cache_clear()
    yield
    addition._mnist.cache_clear()


def test_every_cell_of_the_papers_table_is_there():
    assert set(ADDITION) == {(kind.in_paper, n) for kind in KINDS.values() for n in SIZES if kind.in_paper}


def test_epochs_and_batches_are_those_of_the_paper():
    for n, epochs in SIZES.items():
        plan = AdditionFit("printed", n, 0, small=False).plan()
        optimiser, objectives = plan.config.optimiser, plan.config.objectives
        assert (optimiser.epochs, optimiser.batch_size, optimiser.iterations) == (epochs, 60, epochs * n // 20)
        assert (objectives["uniformity"].weight, objectives["constraint"].weight) == (400, 25)
    assert AdditionFit("both", 100, 0, small=True, iterations=7).plan().config.optimiser.iterations == 7


@pytest.mark.parametrize(
    ("kind", "n", "small", "encoder", "sampler", "similarity"),
    [
        ("both", 100, True, {"width": 32}, {"samples": 32, "steps": 5, "chains": 2000}, {"copies": 64}),
        ("both", 100, False, {"width": 128}, {"samples": 60, "steps": 20, "chains": 10_000}, {"copies": 64}),
        ("both", 10_000, False, {"width": 128}, {"samples": 240, "steps": 20}, {"copies": 64}),
        ("gedi", 100, True, {"width": 32}, {"samples": 32, "steps": 5}, {"copies": 8}),
        ("gedi", 1000, False, {"width": 128}, {"samples": 120, "steps": 20}, {"copies": 32}),
        ("nesy", 100, False, {"width": 128}, {"name": "none"}, {}),
        ("printed", 100, True, {"width": 128}, {"samples": 60, "steps": 20, "chains": 10_000}, {"copies": 0}),
    ],
)
def test_sizes_are_those_of_the_recorded_fits(kind, n, small, encoder, sampler, similarity):
    config = AdditionFit(kind, n, 0, small).plan().config.tree()
    for section, values in (("encoder", encoder), ("sampler", sampler), ("similarity", similarity)):
        assert values.items() <= config[section].items()
    assert config["views"]["walks"] == (kind == "gedi")
    assert config["optimiser"]["warmup"] == (0 if kind == "printed" else 100)


def test_pseudo_labels_are_only_where_a_rule_names_them():
    plans = {kind: AdditionFit(kind, 100, 0, small=True).plan() for kind in KINDS}
    assert [kind for kind, plan in plans.items() if "pseudo-labels" in plan.terms] == ["pseudo", "both"]


def test_keys_name_all_that_a_result_depends_on():
    fit = AdditionFit("both", 100, 0, small=True)
    changes = ({"seed": 1}, {"n": 1000}, {"kind": "nesy"}, {"small": False}, {"iterations": 5})
    assert len({fit.key, *(replace(fit, **change).key for change in changes)}) == 6


def test_sizes_that_the_paper_does_not_have_are_refused(tmp_path):
    with pytest.raises(UsageError, match="100, 1000, 10000"):
        addition.reproduce(Request(tmp_path, device="cpu"), Console(quiet=True), [100, 50], Sums())


def test_a_run_that_diverged_is_counted(tmp_path):
    request = Request(tmp_path, seeds=2, first_seed=0, device="cpu")
    job = AdditionFit("both", 100, 0, small=True)
    results = [replace(EMPTY, accuracy=0.5, nmi=0.4), replace(EMPTY, seed=1, failure="x", failed_at=3)]
    section = addition.sections([Done(job, results, 1.0)], [100], ["both"], Sums(), request, small=True)[0]
    assert section.text.endswith("Fits are small, for a CPU: width 32, 5 SGLD steps an iteration.")
    table = section.table
    row = dict(zip(table.head, table.rows[0], strict=True))
    assert row["diverged"] == "1 of 2"
    assert row["accuracy"] == "0.500 ± 0.000"
    assert row["accuracy, paper"] == "0.42 ± 0.02"


def test_numbers_are_written_as_people_write_them():
    values = dict(zip(["a0", "a1", "b0", "b1", "c0", "c1", "c2"], [7, 4, 5, 9, 2, 4, 1], strict=True))
    assert Sums(2).written(values) == "47 + 95 = 142"
    assert Sums(2).batch_size(100, printed=False) == 56
    assert Sums().batch_size(1000, printed=False) == 2 * Sums().batch_size(1000, printed=True) == 120
    with pytest.raises(UsageError, match="1 to 3 digits"):
        Sums(4)


@pytest.mark.usefixtures("small_digits_as_mnist")
def test_without_a_network_the_nearest_images_name_a_digit():
    test = addition._mnist("test")
    targets = np.eye(10, dtype=np.float32)[np.asarray(test.y)]
    named = AdditionFit("pseudo", 100, 0, small=True)._by_neighbours(test.x, targets)
    assert named.accuracy == pytest.approx(0.99, abs=0.01)  # its own vote and four others
    targets[np.asarray(test.y) == 3] = 0
    without = AdditionFit("pseudo", 100, 0, small=True)._by_neighbours(test.x, targets)
    assert sum(without.confusion[3]) > 100 and sum(row[3] for row in without.confusion) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("small_digits_as_mnist")
def test_all_columns_from_start_to_page(tmp_path):
    request = Request(tmp_path / "out", seeds=1, first_seed=0, iterations=5, device="cpu", workers=1)
    page = addition.reproduce(request, Console(quiet=True), [100], Sums())
    text = (page.parent / "addition.md").read_text()
    assert text.count("| 100 |") == 5
    for name in ("inv_nesy", "confusion", "explained"):
        assert (page.parent / f"{name}.png").stat().st_size > 5000
    jobs = [AdditionFit("both", 100, 0, small=True, iterations=5)]
    (again,) = run_all(jobs, request, Console(quiet=True))
    (result,) = again.results
    assert sum(map(sum, result.confusion)) == 1797
    assert result.accuracy == pytest.approx(np.trace(result.confusion) / 1797)
    assert len(result.explained) == 4
    for example in result.explained:
        a, b, c = map(int, re.findall(r"\d+", example.truth))
        assert a + b == c


@pytest.mark.slow
@pytest.mark.usefixtures("small_digits_as_mnist")
def test_longer_numbers_from_start_to_result():
    pytest.importorskip("problog")
    (result,) = AdditionFit("both", 100, 0, small=True, iterations=1, sums=Sums(2)).run("cpu", Callback())
    assert result.failure is None and sum(map(sum, result.confusion)) == 1797
    for example in result.explained:
        assert len(example.pixels) == 7
        a, b, c = map(int, re.findall(r"\d+", example.truth))
        assert a + b == c
        for world in example.worlds:
            a, b, c = map(int, re.findall(r"\d+", world)[:3])
            assert a + b == c
