"""Tables as rows of numbers and back, and what a log-likelihood of them means."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from gedikit.errors import DataError, GediWarning, UsageError
from gedikit.tables import Column, ColumnOptions, TableEncoding

N = 200
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, N), unit="D")
    height = RNG.normal(170, 10, N).round(1)
    height[::5] = np.nan
    city = RNG.choice(["Oslo", "Rome", "Bern"], N).astype(object)
    city[::9] = None
    return pd.DataFrame(
        {
            "name": [f"n{i}" for i in range(N)],
            "income": RNG.lognormal(10, 1, N),
            "children": RNG.integers(0, 5, N),
            "height": height,
            "city": city,
            "size": pd.Categorical(RNG.choice(["S", "M"], N)),
            "level": pd.Categorical(RNG.integers(1, 4, N)),
            "member": RNG.random(N) < 0.3,
            "maybe": np.where(RNG.random(N) < 0.2, None, RNG.random(N) < 0.5),
            "since": days,
            "zoned": pd.Series(days).dt.tz_localize("Europe/Rome"),
            "written": pd.Series(days).dt.strftime("%d.%m.%Y"),
            "lasted": pd.to_timedelta(RNG.integers(0, 99, N), unit="h"),
            "always": "yes",
            "label": RNG.integers(0, 3, N),
        }
    )


@pytest.fixture(scope="module")
def encoding(frame) -> TableEncoding:
    return TableEncoding.infer(frame)


def test_the_codes_by_hand():
    table = pd.DataFrame(
        {
            "a": [1.5, np.nan, 3.25, 2.25],
            "b": ["x", "y", None, "y"],
            "c": [True, False, True, True],
            "row": range(4),
        }
    )
    encoding = TableEncoding.infer(table, ColumnOptions(types={"b": "category"}))
    half, root = 0.5, math.sqrt(0.5)
    assert encoding.features == ("a", "a is missing", "b=x", "b=y", "b is missing", "c")
    assert encoding.origins == ("a", "a", "b", "b", "b", "c")
    assert encoding.codes == (1, 2, 3, 4, 5)
    rows = [
        [1.5, 0, root, 0, 0, 1],
        [2.25, half, 0, root, 0, 0],
        [3.25, 0, 0, 0, root, 1],
        [2.25, 0, 0, root, 0, 1],
    ]
    assert np.allclose(encoding.encode(table), rows)
    distance = np.linalg.norm(np.diff(encoding.encode(table)[1:3, 2:5], axis=0))
    assert distance == pytest.approx(1), "different categories are one standard deviation of a number apart"


def test_decoded_tables_have_the_columns_types_and_values_of_the_input(frame, encoding):
    rows = encoding.encode(frame)
    assert rows.shape == (N, len(encoding.features))
    assert np.isfinite(rows).all()
    made = encoding.decode(rows)
    assert list(made.columns) == [name for name in frame.columns if name not in ("name", "label")]
    for name in made.columns:
        pd.testing.assert_series_equal(made[name], frame[name], check_dtype=name != "lasted", check_names=False)


def test_samples_are_rounded_to_what_the_column_can_hold(encoding):
    rows = RNG.normal(size=(50, len(encoding.features))) * 3
    made = encoding.decode(rows)
    assert made["children"].dtype == np.int64
    assert made["member"].dtype == bool
    height = made["height"].dropna()
    assert np.array_equal(height, height.round(1))
    assert (made["since"].dropna().dt.normalize() == made["since"].dropna()).all()
    assert set(made["city"].dropna()) <= {"Oslo", "Rome", "Bern"}
    position = encoding.features.index
    assert np.array_equal(made["height"].isna(), rows[:, position("height is missing")] > 0.25)
    best = rows[:, [position(f"city={city}") for city in ("Bern", "Oslo", "Rome")] + [position("city is missing")]]
    assert np.array_equal(made["city"].isna(), best.argmax(1) == 3)


def test_numbers_alone_are_the_array_they_are():
    table = pd.DataFrame({"a": RNG.normal(size=20), "b": RNG.integers(0, 9, 20), "label": 1})
    encoding = TableEncoding.infer(table)
    assert encoding.is_plain
    assert np.array_equal(encoding.encode(table), table[["a", "b"]].to_numpy())
    assert encoding.encode(table[["b"]].assign(a=1)).dtype == np.int64, "as numpy has it"


def test_a_model_file_can_hold_it(encoding, frame):
    again = TableEncoding.from_tree(json.loads(json.dumps(encoding.tree(), allow_nan=False)))
    assert again == encoding
    assert np.array_equal(again.encode(frame), encoding.encode(frame))


def test_the_order_of_columns_and_of_rows_does_not_matter(frame, encoding):
    shuffled = frame.iloc[::-1, RNG.permutation(frame.shape[1])]
    assert np.array_equal(encoding.encode(shuffled), encoding.encode(frame)[::-1])
    assert np.array_equal(encoding.ids(shuffled)["name"], frame["name"][::-1])
    assert np.array_equal(encoding.labels(shuffled), frame["label"][::-1])


def test_columns_that_are_missing_or_new(frame, encoding):
    with pytest.raises(DataError, match=r"new.csv lacks the column 'city' that the model was trained on"):
        encoding.encode(frame.drop(columns="city"), "new.csv")
    with pytest.raises(DataError, match="more than one column called 'city'"):
        encoding.encode(pd.concat([frame, frame[["city"]]], axis=1))
    with pytest.raises(DataError, match="lacks the columns income, city that"):
        encoding.encode(frame.drop(columns=["city", "income"]))
    with pytest.warns(GediWarning, match="new.csv has columns that the model was not trained on.*: shoes"):
        rows = encoding.encode(frame.assign(shoes=1), "new.csv")
    assert np.array_equal(rows, encoding.encode(frame))
    without = frame.drop(columns=["name", "label", "always"])
    assert np.array_equal(encoding.encode(without), rows), "nothing is said of what is not learned from"
    assert encoding.labels(without) is None
    assert np.array_equal(encoding.labels(without.assign(Target=5)), np.full(N, 5)), "labels by their usual name"


def test_categories_and_gaps_that_were_never_seen(frame, encoding):
    new = frame.copy()
    new.loc[3, "city"] = "Paris"
    new.loc[4, "income"] = np.nan
    new["size"] = "XL"
    with pytest.warns(GediWarning, match="gaps in 'income'; 'city' is 'Paris'; 'size' is 'XL'"):
        rows = encoding.encode(new)
    of = {name: [i for i, origin in enumerate(encoding.origins) if origin == name] for name in encoding.origins}
    assert not rows[3, of["city"]].any(), "unknown: all zeros"
    assert not rows[:, of["size"]].any()
    assert rows[4, of["income"]] == np.sort(frame["income"])[(N - 1) // 2], "the median that occurs"


def test_rare_categories_share_a_value_with_new_ones():
    names = np.array([f"c{i}" for i in range(30)])
    values = np.r_[np.repeat(names[:10], 90), np.repeat(names[10:], 5)]
    encoding = TableEncoding.infer(pd.DataFrame({"c": values, "n": RNG.normal(size=1000)}))
    rare = encoding.columns[0].rare
    assert len(rare) == 11
    some = pd.DataFrame({"c": [rare[0], rare[-1], "c0"], "n": 0.5})
    rows = encoding.encode(some)
    assert encoding.features[19] == "c is rare"
    assert np.flatnonzero(rows[0, :20]).tolist() == np.flatnonzero(rows[1, :20]).tolist() == [19]
    with pytest.warns(GediWarning, match="'c' is 'new'"):
        assert np.array_equal(encoding.encode(some.assign(c="new"))[:, :20], rows[[0, 0, 0], :20])
    assert encoding.decode(rows)["c"].tolist() == [rare[0], rare[0], "c0"], "the most frequent of the rare"


def test_codes_of_categories_are_the_same_whatever_their_type_in_memory():
    asked = ColumnOptions(types={"c": "category"})
    table = pd.DataFrame({"c": [1, 2, 3, 2] * 5, "n": RNG.normal(size=20)})
    encoding = TableEncoding.infer(table, asked)
    rows = encoding.encode(table)
    for other in (np.float64, "Int64", "str", "category"):
        assert np.array_equal(encoding.encode(table.astype({"c": other})), rows), other
    assert encoding.decode(rows)["c"].dtype == np.int64


def test_what_is_wrong_with_new_rows_is_said_at_once(encoding, frame):
    new = frame.astype({"income": object}).copy()
    new.loc[6, "income"] = "much"
    new["children"] = new["children"].astype(float)
    new.loc[2, "children"] = -np.inf
    with pytest.raises(DataError) as error:
        encoding.encode(new, "new.csv", first=1000)
    assert "new.csv has 2 problems" in str(error.value)
    assert "'income' holds numbers except for 1 value in row 1006, such as 'much'" in str(error.value)
    assert "'children' has 1 infinite value in row 1002" in str(error.value)


def test_models_of_arrays_know_no_gaps():
    encoding = TableEncoding.of_numbers(("a", "b"))
    assert np.array_equal(encoding.encode(pd.DataFrame({"b": [1.0], "a": [2.0]})), [[2, 1]])
    with pytest.raises(DataError, match="column 'a' has gaps, the first in row 1"):
        encoding.encode(pd.DataFrame({"a": [1, np.nan], "b": [1.0, 2.0]}))


def test_a_log_likelihood_of_counts_is_a_log_probability():
    """Where a density is flat within cells, its mean log plus log_cell is the mean log-probability of counts."""
    share = np.array([0.5, 0.3, 0.2])
    table = pd.DataFrame({"k": RNG.choice([0.0, 0.25, 0.5], 4000, p=share), "n": RNG.normal(size=4000)})
    encoding = TableEncoding.infer(table)
    assert encoding.steps.tolist() == [0.25, 0]
    assert encoding.log_cell == math.log(0.25)
    rows = encoding.encode(table)
    spread = encoding.dequantise(rows, np.random.default_rng(1))
    assert np.array_equal(spread[:, 1], rows[:, 1])
    cell = np.floor((spread[:, 0] + 0.125) / 0.25).astype(int)
    assert np.array_equal(cell, (rows[:, 0] / 0.25).astype(int)), "within the cell of the value"
    offset = (spread[:, 0] - rows[:, 0]) / 0.25
    assert abs(offset.mean()) < 0.02
    assert offset.var() == pytest.approx(1 / 12, rel=0.05)
    log_density = np.log(share / 0.25)[cell]
    counts = np.bincount((rows[:, 0] / 0.25).astype(int)) / 4000
    assert log_density.mean() + encoding.log_cell == pytest.approx((counts * np.log(share)).sum())


def test_tables_of_whole_numbers_are_spread_and_rounded_back():
    table = pd.DataFrame({"a": RNG.integers(0, 9, 30), "b": 5 * RNG.integers(0, 9, 30)})
    encoding = TableEncoding.infer(table)
    rows = encoding.encode(table)
    assert encoding.log_cell == pytest.approx(math.log(5))
    spread = encoding.dequantise(rows, np.random.default_rng(0))
    assert not np.array_equal(spread, rows)
    pd.testing.assert_frame_equal(encoding.decode(spread), table)


def test_dates_are_measured_by_their_steps(encoding):
    steps = dict(zip(encoding.features, encoding.steps, strict=True))
    assert steps["since"] == steps["written"] == 86400
    assert steps["height"] == pytest.approx(0.1)
    assert (steps["children"], steps["member"], steps["income"], steps["city=Oslo"]) == (1, 1, 0, 0)


def test_categories_and_gaps_have_no_log_likelihood(encoding, frame):
    assert encoding.without_likelihood == ("height", "city", "size", "level", "maybe")
    with pytest.raises(UsageError, match=r"no log-likelihood in nats \(height, city, size and 2 more\)"):
        encoding.check_likelihood()
    TableEncoding.infer(frame, ColumnOptions(drop=encoding.without_likelihood)).check_likelihood()


def test_no_rows_are_no_rows(frame, encoding):
    assert encoding.encode(frame.iloc[:0]).shape == (0, len(encoding.features))
    assert list(encoding.decode(np.empty((0, len(encoding.features)))).columns)[:2] == ["income", "children"]


def test_an_unknown_kind_is_refused():
    with pytest.raises(UsageError, match="no type 'colour'"):
        Column("a", "colour")


def test_amounts_are_sampled_to_the_cent():
    rng = np.random.default_rng(0)
    amounts = (1e4 * rng.random(300)).round(2)
    encoding = TableEncoding.infer(pd.DataFrame({"amount": amounts, "size": rng.random(300)}))
    assert [column.step for column in encoding.columns] == [0, 0], "too many values for a grid"
    new = encoding.decode(np.array([[1234.56789, 0.123456789]]))
    assert new.to_numpy().tolist() == [[1234.57, 0.123456789]]
