"""Tables of any columns through the estimator."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from gedikit import GEDI
from gedikit.data.toy import moons
from gedikit.errors import DataError, GediWarning, UsageError
from gedikit.tables import ColumnOptions

QUICK = {"max_iter": 60, "random_state": 0}


def customers(n: int = 200, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Two kinds of customers that differ in every column."""
    rng = np.random.default_rng(seed)
    kind = np.arange(n) % 2
    frame = pd.DataFrame(
        {
            "age": rng.normal([30, 60], 3, (n, 2))[np.arange(n), kind].round().astype(int),
            "income": rng.normal([20e3, 60e3], 3e3, (n, 2))[np.arange(n), kind],
            "region": np.array(["north", "south"])[kind],
            "member": kind == 1,
            "joined": pd.Timestamp("2020-01-01") + pd.to_timedelta(900 * kind + rng.integers(0, 90, n), unit="D"),
        }
    )
    frame.loc[rng.choice(n, n // 10, replace=False), "income"] = np.nan
    return frame, kind


@pytest.fixture(scope="module")
def known() -> tuple[pd.DataFrame, np.ndarray]:
    return customers()


@pytest.fixture(scope="module")
def model(known) -> GEDI:
    return GEDI(2, max_iter=150, random_state=0).fit(known[0])


def test_numbers_categories_dates_and_gaps_are_clustered(model, known):
    assert adjusted_rand_score(known[1], model.labels_) > 0.95
    assert model.n_features_in_ == 5
    assert model.feature_names_in_.tolist() == list(known[0].columns)
    first = model.plan_.decisions[0]
    assert (first.what, first.choice) == (
        "columns",
        "2 numbers: age, income; 1 category: region; 1 boolean: member; 1 date: joined",
    )
    assert "income: gaps are filled with the median" in first.reason
    codes = model.plan_.config.data.codes
    assert [model.encoding_.features[i] for i in codes] == [
        "income is missing",
        "region=north",
        "region=south",
        "member",
    ]
    assert (model.fitted_.scaler.scale[list(codes)] == 1).all()


def test_order_does_not_matter_and_what_is_missing_is_named(model, known):
    frame = known[0]
    expected = model.predict_proba(frame)
    np.testing.assert_array_equal(model.predict_proba(frame[frame.columns[::-1]]), expected)
    with pytest.raises(DataError, match="X lacks the column 'age' that the model was trained on"):
        model.predict(frame.drop(columns="age"))
    with pytest.warns(GediWarning, match="not trained on, which are ignored: shoe"):
        np.testing.assert_array_equal(model.predict_proba(frame.assign(shoe=43)), expected)
    with pytest.warns(UserWarning, match="valid feature names"):
        np.testing.assert_array_equal(model.predict_proba(frame.to_numpy()), expected)


def test_new_categories_are_warned_of_and_text_among_numbers_is_refused(model, known):
    new = known[0].head(3).copy()
    new["region"] = ["north", "west", "south"]
    with pytest.warns(GediWarning, match="'region' is 'west'"):
        assert np.isfinite(model.score_samples(new)).all()
    with pytest.raises(DataError, match=r"column 'age' holds numbers except for 1 value in row 1, such as 'old'"):
        model.predict(known[0].head(3).assign(age=[30, "old", 40]))
    with pytest.raises(DataError, match="column 'income' has 1 infinite value in row 2"):
        model.predict(known[0].head(3).assign(income=[1.0, 2.0, np.inf]))


def test_samples_are_a_table_of_the_same_columns_and_types(model, known):
    frame = known[0]
    table, labels = model.sample(200, random_state=0)
    assert list(table.columns) == list(frame.columns)
    assert [str(t) for t in table.dtypes[["age", "income", "member"]]] == ["int64", "float64", "bool"]
    assert table["joined"].dtype.kind == "M"
    assert set(table["region"]) == {"north", "south"}
    assert 0.02 < table["income"].isna().mean() < 0.3
    old = labels == model.predict(frame[known[1] == 1].head(1))[0]
    assert table["age"][old].median() == pytest.approx(60, abs=4)
    assert table["age"][~old].median() == pytest.approx(30, abs=4)
    assert (table["region"][old] == "south").mean() > 0.9


def test_no_log_likelihood_is_claimed_for_categories_and_gaps(model, known):
    with pytest.raises(UsageError, match=r"no log-likelihood in nats \(income, region\)"):
        model.score(known[0])
    assert not model.normalised_
    far = known[0].head(1).assign(age=500)
    assert model.outlier_score(far)[0] > 0.99
    numbers = known[0][["age", "joined"]]
    plain = GEDI(2, **QUICK).fit(numbers)
    assert plain.normalised_
    assert plain.score(numbers) == pytest.approx(plain.score_samples(numbers).mean())


def test_a_table_survives_saving(model, known, tmp_path):
    model.save(tmp_path / "m.safetensors")
    loaded = GEDI.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(known[0]), model.predict_proba(known[0]))
    pd.testing.assert_frame_equal(loaded.sample(5, random_state=1)[0], model.sample(5, random_state=1)[0])
    again = loaded.plan(known[0])
    assert (again.config, again.prior) == (model.plan_.config, model.plan_.prior), "its parameters repeat the fit"


def test_what_was_said_about_columns_survives_saving(known, tmp_path):
    frame = known[0].assign(notes=[f"n{i}" for i in range(200)])
    asked = {"drop": "joined", "ids": ["notes"], "types": {"age": "category"}}
    model = GEDI(2, columns=asked, **{**QUICK, "max_iter": 3}).fit(frame)
    kinds = {column.name: column.kind for column in model.encoding_.columns}
    assert kinds == {
        "age": "category",
        "income": "number",
        "region": "category",
        "member": "boolean",
        "joined": "dropped",
        "notes": "id",
    }
    model.save(tmp_path / "m.safetensors")
    again = clone(GEDI.load(tmp_path / "m.safetensors")).fit(frame)
    assert again.encoding_ == model.encoding_
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))
    same = GEDI(2, columns=ColumnOptions.of(asked), **{**QUICK, "max_iter": 3}).fit(frame)
    np.testing.assert_array_equal(same.predict_proba(frame), model.predict_proba(frame))
    with pytest.raises(UsageError, match="nothing about columns is called 'id'"):
        GEDI(2, columns={"id": "notes"}).fit(frame)
    with pytest.raises(UsageError, match="X has no column 'note'"):
        GEDI(2, columns={"drop": "note"}).fit(frame)


def test_plain_numbers_in_a_frame_are_the_model_of_the_array():
    x = moons(200, 0)[0]
    for values in (x, x.astype(np.float32), np.round(100 * x).astype(int)):
        array = GEDI(2, **QUICK).fit(values)
        frame = GEDI(2, **QUICK).fit(pd.DataFrame(values, columns=["a", "b"]))
        np.testing.assert_array_equal(
            frame.score_samples(pd.DataFrame(values, columns=["a", "b"])), array.score_samples(values)
        )
        assert frame.plan_.config == array.plan_.config
        assert frame.plan_.decisions[1:] == array.plan_.decisions


def test_an_array_with_gaps_is_a_table_without_names():
    x, y = moons(300, 0)
    x[:, 0] += 5 * y
    x[::20, 0] = np.nan
    model = GEDI(2, max_iter=200, random_state=0).fit(x)
    assert model.encoding_.features == ("x0", "x0 is missing", "x1")
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 2
    complete = ~np.isnan(x[:, 0])
    assert adjusted_rand_score(y[complete], model.labels_[complete]) > 0.95
    np.testing.assert_array_equal(model.predict(x), model.labels_)
    new, _ = model.sample(400, random_state=0)
    assert isinstance(new, np.ndarray) and new.shape == (400, 2) and new.dtype == np.float64
    assert 0 < np.isnan(new[:, 0]).mean() < 0.2 and not np.isnan(new[:, 1]).any()


def test_ids_labels_and_constants_are_named_and_not_trained_on(known):
    frame = known[0].assign(customer=[f"C{i}" for i in range(200)], row=range(200), country="CH", label=known[1])
    model = GEDI(2, **QUICK)
    with pytest.warns(GediWarning) as told:
        model.fit(frame)
    text = str(told[0].message)
    for part in ("'customer' (text that hardly repeats)", "'row' (counts the rows)", "'country' (one value only)"):
        assert part in text
    assert "'label' (a label)" in text
    with pytest.warns(GediWarning):
        bare = GEDI(2, **QUICK).fit(known[0].assign(country="CH"))
    np.testing.assert_array_equal(
        model.predict_proba(frame), bare.predict_proba(frame.drop(columns=["row", "label", "customer"]))
    )
    assert (model.sample(3, random_state=0)[0]["country"] == "CH").all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GEDI(2, columns={"drop": ["customer", "row", "country"], "label": "label"}, **QUICK).fit(frame)


def test_too_little_to_learn_from_is_a_sentence(known):
    with pytest.raises(DataError, match=r"X: all rows are the same, .*a, b: one value only"):
        GEDI(2).fit(pd.DataFrame({"a": [1.0] * 5, "b": ["u"] * 5}))
    with pytest.raises(DataError, match="X has a header but no rows"):
        GEDI(2).fit(known[0].head(0))
    with pytest.raises(DataError, match="more than one column called 'a'"):
        GEDI(2).fit(pd.DataFrame(np.eye(3), columns=["a", "a", "b"]))
    with pytest.raises(DataError, match=r"2 problems: .*'a' has 1 infinite value in row 1; .*'b' holds numbers"):
        GEDI(2).fit(pd.DataFrame({"a": [0, np.inf, 1, 2], "b": ["1", "2", "x", "4"]}))


def test_ten_rows_are_enough(known):
    frame = known[0].head(10)
    model = GEDI(**QUICK).fit(frame)
    assert len(model.labels_) == 10
    assert np.isfinite(model.score_samples(frame)).all()
    assert len(model.sample(5, random_state=0)[0]) == 5


def test_features_come_as_a_frame_where_that_is_asked_for(model, known):
    model = clone(model).set_output(transform="pandas")
    features = model.fit(known[0].head(50)).transform(known[0].tail(20))
    assert isinstance(features, pd.DataFrame)
    assert features.index.tolist() == known[0].tail(20).index.tolist()
    assert features.columns.tolist() == model.get_feature_names_out().tolist()
    assert features.columns[0] == "gedi0"
