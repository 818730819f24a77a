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
from gedikit.paper.reproduce.running import Done, Plan, run_all
from gedikit.paper.reproduce.sums import Sums
from gedikit.training import Observer

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
    assert set(ADDITION) == {(kind.in_paper, n) for kind in KINDS.values() for n in SIZES}


def test_epochs_and_batches_are_those_of_the_paper():
    for n, epochs in SIZES.items():
        settings = AdditionFit("printed", n, 0, on_gpu=True).settings
        assert (settings.epochs, settings.batch_size) == (epochs, 60)
        assert (settings.uniformity, settings.constraint) == (400, 25)
    assert AdditionFit("both", 100, 0, on_gpu=False, iterations=7).settings.iterations == 7


def test_keys_name_all_that_a_result_depends_on():
    fit = AdditionFit("both", 100, 0, on_gpu=False)
    changes = ({"seed": 1}, {"n": 1000}, {"kind": "nesy"}, {"on_gpu": True}, {"iterations": 5})
    assert len({fit.key, *(replace(fit, **change).key for change in changes)}) == 6


def test_sizes_that_the_paper_does_not_have_are_refused(tmp_path):
    with pytest.raises(UsageError, match="100, 1000, 10000"):
        addition.reproduce(Plan(tmp_path, device="cpu"), Console(quiet=True), [100, 50], Sums())


def test_a_run_that_diverged_is_counted(tmp_path):
    plan = Plan(tmp_path, seeds=2, first_seed=0, device="cpu")
    job = AdditionFit("both", 100, 0, on_gpu=False)
    results = [replace(EMPTY, accuracy=0.5, nmi=0.4), replace(EMPTY, seed=1, failure="x", failed_at=3)]
    table = addition.sections([Done(job, results, 1.0)], [100], ["both"], Sums(), plan)[0].table
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


@pytest.mark.slow
@pytest.mark.usefixtures("small_digits_as_mnist")
def test_all_columns_from_start_to_page(tmp_path):
    plan = Plan(tmp_path / "out", seeds=1, first_seed=0, iterations=5, device="cpu", workers=1)
    page = addition.reproduce(plan, Console(quiet=True), [100], Sums())
    text = (page.parent / "addition.md").read_text()
    assert text.count("| 100 |") == 3
    for name in ("inv_nesy", "confusion", "explained"):
        assert (page.parent / f"{name}.png").stat().st_size > 5000
    jobs = [AdditionFit("both", 100, 0, on_gpu=False, iterations=5)]
    (again,) = run_all(jobs, plan, Console(quiet=True))
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
    (result,) = AdditionFit("both", 100, 0, on_gpu=False, iterations=3, sums=Sums(2)).run("cpu", Observer())
    assert result.failure is None and sum(map(sum, result.confusion)) == 1797
    for example in result.explained:
        assert len(example.pixels) == 7
        a, b, c = map(int, re.findall(r"\d+", example.truth))
        assert a + b == c
        for world in example.worlds:
            a, b, c = map(int, re.findall(r"\d+", world)[:3])
            assert a + b == c
