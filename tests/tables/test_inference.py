"""What kind of data columns hold, what users can say about them, and all that is wrong at once."""

import numpy as np
import pandas as pd
import pytest

from gedikit.errors import DataError, UsageError
from gedikit.tables import ColumnOptions, TableEncoding

N = 60
RNG = np.random.default_rng(0)
NUMBER = RNG.normal(size=N)


def kinds(options: ColumnOptions | None = None, **columns: object) -> dict[str, str]:
    frame = pd.DataFrame({"number": NUMBER, **columns})
    return {column.name: column.kind for column in TableEncoding.infer(frame, options).columns[1:]}


def one(values: object, name: str = "c", options: ColumnOptions | None = None):
    return TableEncoding.infer(pd.DataFrame({"number": NUMBER, name: values}), options).columns[1]


def text(values: list[str]) -> list[str]:
    return [values[i % len(values)] for i in range(N)]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (RNG.normal(size=N), "number"),
        (RNG.integers(0, 2, N), "number"),
        (pd.array(RNG.integers(0, 9, N), dtype="Int64"), "number"),
        (text(["1.5", "2", " 3e2 "]), "number"),
        (text(["1.5", "?", "2", "n/a", "3"]), "number"),
        (pd.to_timedelta(RNG.integers(0, 99, N), unit="h"), "number"),
        (RNG.random(N) < 0.5, "boolean"),
        (np.array(text(["True", "False", "true"]), dtype=object), "boolean"),
        (np.where(RNG.random(N) < 0.2, None, RNG.random(N) < 0.5), "boolean"),
        (text(["red", "blue", "green"]), "category"),
        (text(["yes", "no"]), "category"),
        (text(["1", "2", "x"]), "category"),
        (text(["01", "02", "10"]), "category"),
        (text(["10-19", "20-29", "30-39"]), "category"),
        (pd.Categorical(RNG.integers(0, 3, N)), "category"),
        ([[1], [2]] * (N // 2), "category"),
        (pd.period_range("2020-01", periods=N, freq="M"), "date"),
        ([" "] * N, "constant"),
        (pd.date_range("2024-01-31", periods=N), "date"),
        (pd.date_range("2024-01-31", periods=N).date, "date"),
        (pd.date_range("2024-01-31", periods=N, tz="Europe/Berlin"), "date"),
        (pd.date_range("2024-01-31", periods=N).strftime("%d/%m/%Y"), "date"),
        (pd.date_range("2024-01-31", periods=N, freq="h").strftime("%Y-%m-%dT%H:%M"), "date"),
        ([f"name {i}" for i in range(N)], "id"),
        (np.arange(N), "id"),
        (np.arange(1, N + 1), "id"),
        (np.arange(N)[::-1], "number"),
        (np.full(N, 3), "constant"),
        (np.full(N, np.nan), "constant"),
        (text(["same"]), "constant"),
    ],
)
def test_kinds(values, kind):
    assert one(values).kind == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("customer_id", "id"),
        ("ID", "id"),
        ("userId", "id"),
        ("paid", "number"),
        ("width", "number"),
        ("idle", "number"),
    ],
)
def test_whole_numbers_that_never_repeat_are_ids_if_they_are_called_so(name, kind):
    distinct = RNG.permutation(10**6)[:N]
    assert one(distinct, name).kind == kind
    assert one(np.repeat(distinct[: N // 2], 2), name).kind == "number"


def test_labels_are_found_by_their_names_and_y_beside_x_is_a_coordinate():
    values = RNG.normal(size=N)
    assert kinds(Target=values) == {"Target": "label"}
    assert kinds(y=values) == {"y": "label"}
    assert kinds(x=values, y=values) == {"x": "number", "y": "number"}
    assert kinds(ColumnOptions(label="a"), a=values, label=values) == {"a": "label", "label": "number"}
    assert kinds(ColumnOptions(label=""), label=values) == {"label": "number"}
    assert kinds(ColumnOptions(columns=("number",)), a=values, label=values) == {"a": "dropped", "label": "label"}
    assert kinds(ColumnOptions(types={"a": "label"}), a=values, label=values) == {"a": "label", "label": "number"}
    assert kinds(ColumnOptions(types={"label": "number"}), label=values, target=values)["target"] == "label"


def test_users_have_the_last_word():
    frame = {"a": RNG.integers(0, 3, N), "b": text(["1", "2"]), "c": np.arange(N), "d": NUMBER, "e": NUMBER}
    asked = ColumnOptions.parse("number,a,b,c", "number", "a", None, "b=category, c = number")
    assert kinds(asked, **frame) == {"a": "id", "b": "category", "c": "number", "d": "dropped", "e": "dropped"}
    assert one(text(["yes", "no"]), options=ColumnOptions(types={"c": "boolean"})).kind == "boolean"
    column = one(RNG.integers(20240101, 20240128, N), options=ColumnOptions(types={"c": "date"}))
    assert (column.kind, column.date_format) == ("date", "%Y%m%d")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (lambda: kinds(ColumnOptions(drop=("nothing", "there"))), "no column 'nothing', 'there'; it has number"),
        (lambda: kinds(ColumnOptions(drop=("number",), ids=("number",))), "cannot be dropped and id at once"),
        (lambda: ColumnOptions(types={"a": "integer"}), "must be one of number, boolean, date, category"),
        (lambda: ColumnOptions.parse(None, None, None, None, "category"), "column=type pairs"),
    ],
)
def test_what_cannot_be_asked(asked, words):
    with pytest.raises(UsageError, match=words):
        asked()


def test_everything_that_is_wrong_is_said_at_once():
    weight = np.array([f"{v:.1f}" for v in NUMBER], dtype=object)
    weight[[4, 9, 11, 30]] = "12,5 kg", "heavy", "12,5 kg", "light"
    heights = NUMBER.copy()
    heights[[7, 8]] = np.inf, -np.inf
    days = pd.Series(pd.date_range("2024-01-01", periods=N).strftime("%d.%m.%Y"))
    days[3] = "soon"
    frame = pd.DataFrame({"weight": weight, "fine": NUMBER, "height": heights, "day": days})
    with pytest.raises(DataError) as error:
        TableEncoding.infer(frame, where="people.csv")
    said = str(error.value)
    assert "people.csv has 3 problems" in said
    assert "'weight' holds numbers except for 4 values in rows 4, 9, 11 ..., such as '12,5 kg', 'heavy'" in said
    assert "'height' has 2 infinite values in rows 7 and 8" in said
    assert "'day' holds dates except for 1 value in row 3, such as 'soon'" in said
    assert "fine" not in said


def test_the_day_comes_first_where_the_dates_say_so():
    dates = pd.date_range("2024-01-01", periods=N)
    for written in ("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%Y-%m-%d"):
        assert one(dates.strftime(written)).date_format == written
    assert one(text(["01.02.2024", "03.04.2024"])).date_format == "%d.%m.%Y", "as dates with points are written"


def test_categories_beyond_the_limit_are_merged_and_said():
    names = np.array([f"c{i:02d}" for i in range(40)])
    share = np.r_[np.full(10, 0.08), np.full(30, 0.2 / 30)]
    values = RNG.choice(names, 5000, p=share)
    frame = pd.DataFrame({"number": RNG.normal(size=5000), "c": values})
    column = TableEncoding.infer(frame).columns[1]
    assert len(column.categories) == 19
    assert len(column.rare) == 21
    assert set(names[:10]) < set(column.categories), "the frequent ones are kept"
    counts = pd.Series(values).value_counts()
    assert counts[list(column.rare)].is_monotonic_decreasing
    assert counts[list(column.rare)].max() <= counts[list(column.categories)].min()
    assert column.note == "the 19 most frequent values are told apart, all others count as one"


def test_text_without_frequent_values_is_an_id():
    frame = pd.DataFrame(
        {"number": RNG.normal(size=5000), "street": RNG.choice([f"s{i}" for i in range(400)], 5000)}
    )
    column = TableEncoding.infer(frame).columns[1]
    assert column.kind == "id"
    assert "none of them frequent; passed through" in column.note
    asked = TableEncoding.infer(frame, ColumnOptions(types={"street": "category"})).columns[1]
    assert (asked.kind, len(asked.categories), len(asked.rare)) == ("category", 19, 381)


def test_many_categories_do_not_fill_the_memory():
    many = {
        f"c{i}": RNG.choice(list("abcdefghijklmnop"), N, p=np.r_[0.5, np.full(15, 0.5 / 15)]) for i in range(200)
    }
    frame = pd.DataFrame({"number": NUMBER, **many})
    assert len(TableEncoding.infer(frame, ColumnOptions(types=dict.fromkeys(many, "category"))).features) <= 1001


def test_gaps_have_a_value_of_their_own_where_there_are_enough():
    for n_gaps, marks in ((0, False), (1, False), (60, True)):
        values = RNG.normal(size=1000)
        values[:n_gaps] = np.nan
        column = TableEncoding.infer(pd.DataFrame({"number": RNG.normal(size=1000), "c": values})).columns[1]
        assert (column.gaps, column.marks_gaps) == (n_gaps / 1000, marks)
        assert column.fill == np.sort(values[n_gaps:])[(1000 - n_gaps - 1) // 2]


def test_a_single_value_with_gaps_tells_whether_there_is_one():
    column = one(np.where(np.arange(N) % 3 == 0, np.nan, 5.0))
    assert (column.kind, column.categories, column.marks_gaps) == ("category", ("5",), True)


def test_nothing_to_learn_from():
    with pytest.raises(DataError, match=r"all rows are the same.*a, b: one value only"):
        TableEncoding.infer(pd.DataFrame({"a": [1] * 10, "b": ["x"] * 10, "label": range(10)}))
    with pytest.raises(DataError, match="no column to learn from: a: text that hardly repeats"):
        TableEncoding.infer(pd.DataFrame({"a": [f"line {i}" for i in range(10)]}))
    with pytest.raises(DataError, match="a header but no rows"):
        TableEncoding.infer(pd.DataFrame({"a": []}))


def test_names_of_columns():
    assert TableEncoding.infer(pd.DataFrame({0: NUMBER, 1: NUMBER})).features == ("0", "1"), "frames need no names"
    with pytest.raises(DataError, match="more than one column called 'a'"):
        TableEncoding.infer(pd.DataFrame(np.zeros((3, 3)), columns=["a", "b", "a"]))
    with pytest.raises(DataError, match="no name and looks like an index"):
        kinds(**{"Unnamed: 0": NUMBER})
    assert kinds(**{"Unnamed: 0": np.arange(N)}) == {"Unnamed: 0": "id"}


def test_ten_rows_of_all_kinds():
    frame = pd.DataFrame(
        {
            "a": RNG.normal(size=10),
            "b": list("xyxyxyxyxy"),
            "c": pd.date_range("2024-01-01", periods=10),
            "d": [True, False] * 5,
            "e": [1.0, None] * 5,
        }
    )
    encoding = TableEncoding.infer(frame)
    assert [column.kind for column in encoding.columns] == ["number", "category", "date", "boolean", "category"]
    assert np.isfinite(encoding.encode(frame)).all()
    assert encoding.summary() == "1 number: a; 2 categories: b, e; 1 date: c; 1 boolean: d"


def test_what_was_decided_is_said_once_for_all_columns_it_is_about():
    gaps = {f"g{i}": np.where(np.arange(N) % 4 == 0, np.nan, RNG.normal(size=N)) for i in range(5)}
    frame = pd.DataFrame({"row": np.arange(N), "number": NUMBER, "flat": 3, **gaps})
    assert TableEncoding.infer(frame).notes == (
        "row: counts the rows; passed through and not trained on",
        "flat: one value only; left out",
        "g0, g1, g2 and 2 more: gaps are filled with the median; whether there is a value is learned too",
    )
    described = {column.name: column.described for column in TableEncoding.infer(frame).columns}
    assert described["flat"] == "constant 3"
    assert described["g0"] == "number, 25.0% gaps"
