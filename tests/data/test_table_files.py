"""Files of tables: read whole or in blocks, as they look or as a model knows them."""

import importlib.util
import sys

import numpy as np
import pandas as pd
import pytest

from gedikit.data import files, sources
from gedikit.data.files import file_blocks, read_file
from gedikit.errors import DataError, GediWarning, UsageError
from gedikit.tables import ColumnOptions

RNG = np.random.default_rng(0)
N = 40
NUMBERS = pd.DataFrame({"a": RNG.normal(size=N), "b": RNG.integers(0, 9, N), "label": RNG.integers(0, 3, N)})
MIXED = pd.DataFrame(
    {
        "code": [f"{i:03d}" for i in range(N)],
        "price": np.where(np.arange(N) % 4 == 0, np.nan, RNG.normal(100, 9, N).round(2)),
        "kind": RNG.choice(["01", "02", "x"], N),
        "bought": pd.date_range("2024-01-01", periods=N).strftime("%d.%m.%Y"),
        "class": RNG.integers(0, 2, N),
    }
)
WRITERS = {
    "t.csv": lambda frame, path: frame.to_csv(path, index=False),
    "t.tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    "german.csv": lambda frame, path: frame.to_csv(path, index=False, sep=";", decimal=",", encoding="cp1252"),
    "T.PARQUET": lambda frame, path: frame.to_parquet(path),
}
if importlib.util.find_spec("openpyxl"):
    WRITERS["t.xlsx"] = lambda frame, path: frame.to_excel(path, index=False)


@pytest.mark.parametrize("name", WRITERS)
def test_numbers_are_read_as_they_are(tmp_path, name):
    WRITERS[name](NUMBERS, tmp_path / name)
    table = read_file(tmp_path / name)
    assert table.x.dtype == np.float64
    written = NUMBERS if name != "t.xlsx" else NUMBERS.map(lambda v: float(f"{v:.16g}"))  # digits that Excel keeps
    assert np.array_equal(table.x, written[["a", "b"]].to_numpy())
    assert np.array_equal(table.y, NUMBERS["label"])
    assert (table.columns, table.label_column) == (("a", "b"), "label")
    again = read_file(tmp_path / name, ("b", "a"))
    assert np.array_equal(again.x, written[["b", "a"]].to_numpy()), "the order of the model"


def test_whole_numbers_stay_whole(tmp_path):
    NUMBERS[["b", "label"]].to_csv(tmp_path / "t.csv", index=False)
    assert read_file(tmp_path / "t.csv").x.dtype == np.int64


@pytest.mark.parametrize("name", WRITERS)
def test_all_kinds_of_columns_are_read_whole_and_in_blocks(tmp_path, name, monkeypatch):
    monkeypatch.setattr(files, "_BLOCK", 7)
    path = tmp_path / name
    WRITERS[name](MIXED, path)
    table = read_file(path)
    encoding = table.encoding
    assert {column.name: column.kind for column in encoding.columns} == {
        "code": "id",
        "price": "number",
        "kind": "category",
        "bought": "date",
        "class": "label",
    }
    pd.testing.assert_frame_equal(
        encoding.decode(table.x), MIXED[["price", "kind", "bought"]], check_dtype=False, rtol=1e-12
    )
    blocks = list(file_blocks(path, encoding=encoding))
    assert [len(block.x) for block in blocks] == [7, 7, 7, 7, 7, 5]
    assert np.array_equal(np.concatenate([block.x for block in blocks]), table.x)
    assert pd.concat([block.ids for block in blocks])["code"].tolist() == MIXED["code"].tolist()
    assert np.array_equal(np.concatenate([block.y for block in blocks]), MIXED["class"])


def test_a_block_without_text_in_a_text_column_has_the_same_categories(tmp_path, monkeypatch):
    """01 alone would be read as the number 1."""
    monkeypatch.setattr(files, "_BLOCK", 10)
    table = MIXED.assign(kind=["01", "02"] * 15 + ["x"] * 10)
    table.to_csv(tmp_path / "t.csv", index=False)
    whole = read_file(tmp_path / "t.csv")
    assert whole.encoding.columns[2].categories == ("01", "02", "x")
    blocks = list(file_blocks(tmp_path / "t.csv", encoding=whole.encoding))
    assert np.array_equal(np.concatenate([block.x for block in blocks]), whole.x)


def test_rows_of_later_blocks_are_named_by_their_number(tmp_path, monkeypatch):
    NUMBERS.to_csv(tmp_path / "good.csv", index=False)
    bad = NUMBERS.astype({"b": object})
    bad.loc[33, "b"] = "many"
    bad.to_csv(tmp_path / "bad.csv", index=False)
    encoding = read_file(tmp_path / "good.csv").encoding
    monkeypatch.setattr(files, "_BLOCK", 10)
    for known in ({"encoding": encoding}, {"columns": ("a", "b")}, {}):
        blocks = file_blocks(tmp_path / "bad.csv", **known)
        assert [len(next(blocks).x) for _ in range(3)] == [10, 10, 10]
        with pytest.raises(DataError, match=r"bad.csv: column 'b' holds numbers except for 1 value in row 33"):
            next(blocks)


def test_users_say_what_columns_are(tmp_path):
    path = tmp_path / "t.csv"
    MIXED.to_csv(path, index=False)
    asked = ColumnOptions(drop=("bought",), label="", types={"class": "category"})
    assert read_file(path, options=asked).columns == (
        ("price", "price is missing", "kind=01", "kind=02", "kind=x", "class=0", "class=1")
    )
    with pytest.raises(UsageError, match=r"t.csv has no column 'colour'; it has code, price, kind"):
        read_file(path, options=ColumnOptions(ids=("colour",)))
    np.save(tmp_path / "t.npy", NUMBERS.to_numpy())
    with pytest.raises(UsageError, match="array without named columns"):
        read_file(tmp_path / "t.npy", options=asked)


def test_an_exported_index_is_passed_through(tmp_path):
    NUMBERS.to_csv(tmp_path / "t.csv")
    table = read_file(tmp_path / "t.csv")
    assert table.columns == ("a", "b")
    assert table.ids.iloc[:, 0].tolist() == list(range(N))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2,3\n4,5,6\n", "more values than its first line has names"),
        ("a,b\n", "a header but no rows"),
        ("1.0,2.0\n2.0,3.0\n", "holds numbers, not names"),
        (",a,b\n0.5,1,2\n1,2,3\n2,1,2\n", "no name and looks like an index"),
        (
            "Dear all,\nI write to you\nbecause of the table\n",
            "no column to learn from|names|all rows are the same",
        ),
        ("<html><body>no such page</body></html>", "not a table"),
        ("a,b\n1,inf\n2,3\n", "'b' has 1 infinite value in row 0"),
    ],
)
def test_files_that_are_no_tables(tmp_path, text, words):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError, match=words) as error:
        read_file(tmp_path / "t.csv")
    assert str(tmp_path / "t.csv") in str(error.value)


def test_excel_without_its_reader(tmp_path, monkeypatch):
    (tmp_path / "t.xlsx").write_bytes(b"x")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"reading .xlsx needs openpyxl: pip install 'gedikit\[excel\]'"):
        read_file(tmp_path / "t.xlsx")


def test_excel_in_blocks(tmp_path, monkeypatch):
    pytest.importorskip("openpyxl")
    MIXED.to_excel(tmp_path / "t.xlsx", index=False)
    monkeypatch.setattr(files, "_BLOCK", 15)
    table = read_file(tmp_path / "t.xlsx")
    blocks = [block.x for block in file_blocks(tmp_path / "t.xlsx", encoding=table.encoding)]
    assert [len(x) for x in blocks] == [15, 15, 10]
    assert np.array_equal(np.concatenate(blocks), table.x)


def test_sources_hand_on_what_the_rows_stand_for(tmp_path):
    path = tmp_path / "t.csv"
    MIXED.to_csv(path, index=False)
    dataset = sources.load(str(path), options=ColumnOptions(drop=("bought",)))
    assert dataset.columns == dataset.encoding.features
    assert dataset.ids["code"].tolist() == MIXED["code"].tolist()
    MIXED.assign(kind="y").to_csv(path, index=False)
    with pytest.warns(GediWarning, match="'kind' is 'y'"):
        (block,) = sources.blocks(str(path), encoding=dataset.encoding)
    assert block.x.shape == dataset.x.shape
    assert block.ids.equals(dataset.ids)
