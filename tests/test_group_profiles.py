"""Profiles of groups: what they say, and what sets a group apart, against brute force and hand-made tables."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gedikit.groups import GroupProfiles, Rivals
from gedikit.groups.cells import column_values, number, numbered_columns, percent
from gedikit.groups.contrasts import strongest
from gedikit.groups.profiles import EMPTY, NOTHING, ONLY
from gedikit.starts import Starts
from gedikit.tables import TableEncoding


def profiles_of(frame, groups):
    encoding = TableEncoding.infer(frame)
    groups = np.asarray(groups)
    return GroupProfiles.of(encoding.encode(frame), groups, int(groups.max()) + 1, encoding)


@pytest.fixture(scope="module")
def people():
    """200 of one kind, 100 of another; what they differ in is known to the digit."""
    n, m = 200, 100
    r = np.random.default_rng(0)
    groups = np.repeat([0, 1], [n, m])
    frame = pd.DataFrame(
        {
            "income": np.concatenate([np.linspace(30_000, 38_000, n), np.linspace(77_000, 85_000, m)]).round(2),
            "noise": r.normal(size=n + m),
            "region": ["north"] * 150 + ["south"] * 50 + ["north"] * 10 + ["south"] * 90,
            "member": [True] * 20 + [False] * 180 + [True] * 80 + [False] * 20,
            "since": pd.date_range("2020-01-01", periods=n).append(pd.date_range("2023-01-01", periods=m)),
        }
    )
    frame["visits"] = r.normal(5, 1, n + m)
    frame.loc[frame.index[n : n + 60], "visits"] = np.nan
    return frame, groups


def effect_by_brute_force(own, others):
    """The largest difference of shares over all intervals of values."""
    values = np.unique(np.concatenate([own, others]))
    share = [
        np.mean((own >= low) & (own <= high)) - np.mean((others >= low) & (others <= high))
        for i, low in enumerate(values)
        for high in values[i:]
    ]
    return np.abs(share).max()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 9), st.floats(-2, 2))
def test_the_effect_is_the_largest_difference_of_shares_over_all_ranges(seed, grid, shift):
    r = np.random.default_rng(seed)
    groups = np.repeat([0, 1], [60, 30])
    x = np.where(groups == 1, r.normal(shift, 0.3, 90), r.normal(0, 1, 90)) * grid
    x = np.round(x)[:, None]
    (found,) = GroupProfiles.of(x, groups, 2, numbered_columns(1)).contrasts[1][:1] or (None,)
    expected = effect_by_brute_force(x[groups == 1, 0], x[groups == 0, 0])
    noise = 2.4 / np.sqrt(30 * 60 / 90)
    assert (found is None) == (expected < noise)
    if found is not None:
        assert found.effect == pytest.approx(expected)


def test_units_and_outliers_do_not_change_the_effect(people):
    frame, groups = people
    x = frame[["income"]].to_numpy()
    effect = GroupProfiles.of(x, groups, 2, numbered_columns(1)).contrasts[1][0].effect
    bent = np.exp(x / 1e4)
    bent[-1] = 1e12
    assert GroupProfiles.of(bent, groups, 2, numbered_columns(1)).contrasts[1][0].effect == effect == 1


def test_what_sets_groups_apart_is_said_in_words(people):
    told = profiles_of(*people)
    since, income, member, region, visits = told.apart(1)
    assert income == "income higher (median 80,960; elsewhere 33,980)"
    assert since == "since later (median 2023-02-19; elsewhere 2020-04-09)"
    assert member == "member more often true (80%; elsewhere 10%)"
    assert region == "region more often south (90%; elsewhere 25%)"
    assert visits == "visits more often missing (60%; elsewhere 0%)"
    assert told.apart(0)[:2] == [
        "since earlier (median 2020-04-09; elsewhere 2023-02-19)",
        "income lower (median 33,980; elsewhere 80,960)",
    ]
    assert [c.effect for c in told.contrasts[1]] == pytest.approx([1, 1, 0.7, 0.65, 0.6])


def test_columns_that_part_groups_entirely_are_ranked_by_distance():
    r = np.random.default_rng(0)
    groups = np.repeat([0, 1], 100)
    x = r.uniform(0, 1, (200, 2)) + np.outer(groups, [3, 40])
    assert [c.column for c in GroupProfiles.of(x, groups, 2, numbered_columns(2)).contrasts[0]] == ["x1", "x0"]


def test_a_group_between_others_is_told_by_its_range():
    x = np.concatenate([np.arange(0, 100), np.arange(200, 300), np.arange(120, 180)]).astype(float)
    groups = np.repeat([0, 0, 1], [100, 100, 60])
    told = GroupProfiles.of(x[:, None], groups, 2, numbered_columns(1))
    assert told.apart(1) == ["x0 mostly between 120 and 179 (100%; elsewhere 0%)"]
    assert told.apart(0) == ["x0 seldom between 120 and 179 (0%; elsewhere 100%)"]
    assert told.contrasts[1][0].effect == 1


def test_equal_medians_are_not_called_different():
    groups = np.repeat([0, 1], 200)
    x = np.concatenate([np.zeros(200), np.repeat([0.0, 7.0], [120, 80])])
    told = GroupProfiles.of(x[:, None], groups, 2, numbered_columns(1))
    assert told.apart(1) == ["x0 more often above 0 (40%; elsewhere 0%)"]
    assert told.apart(0) == ["x0 more often up to 0 (100%; elsewhere 60%)"]


def test_random_groups_are_not_set_apart():
    r = np.random.default_rng(1)
    for size in (12, 300):
        x, groups = r.normal(size=(600, 40)), (np.arange(600) >= 600 - size).astype(np.int64)
        told = GroupProfiles.of(x, groups, 2, numbered_columns(40))
        assert told.contrasts == ((), ())
        assert told.frame()["cluster", "apart"].tolist() == [NOTHING, NOTHING]


def test_the_frame_has_what_pandas_finds(people):
    frame, groups = people
    told = profiles_of(frame, groups).frame()
    by_group = frame.groupby(groups)
    assert told["cluster", "rows"].tolist() == [200, 100]
    np.testing.assert_allclose(told["cluster", "share"], [2 / 3, 1 / 3])
    for name, level in (("25%", 0.25), ("median", 0.5), ("75%", 0.75)):
        np.testing.assert_allclose(told["income", name], by_group["income"].quantile(level, interpolation="lower"))
    assert told["since", "earliest"].tolist() == by_group["since"].min().tolist()
    assert told["since", "latest"].tolist() == by_group["since"].max().tolist()
    np.testing.assert_allclose(told["member", "true"], [0.1, 0.8])
    np.testing.assert_allclose(told["region", "south"], [0.25, 0.9])
    np.testing.assert_allclose(told["visits", "missing"], [0, 0.6])
    known = frame["visits"][200:].dropna()
    assert told.loc[1, ("visits", "median")] == pytest.approx(np.quantile(known, 0.5, method="inverted_cdf"))


def test_rare_and_missing_categories_have_shares_of_their_own():
    common = [f"c{i}" for i in range(18) for _ in range(20)]
    rare = [f"r{i}" for i in range(10) for _ in range(2)]
    frame = pd.DataFrame({"kind": [*common, *rare, *[None] * 20, *["missing"] * 40], "x": np.arange(440.0)})
    groups = np.zeros(440, dtype=np.int64)
    told = profiles_of(frame, groups).frame()["kind"].iloc[0]
    assert told.sum() == pytest.approx(1)
    assert told["missing"] == pytest.approx(40 / 440), "a category may be called missing"
    assert told["missing_"] == told["other"] == pytest.approx(20 / 440)


def test_profiles_survive_json(people):
    told = profiles_of(*people)
    again = GroupProfiles.from_tree(json.loads(json.dumps(told.tree(), allow_nan=False)))
    pd.testing.assert_frame_equal(again.frame(), told.frame())
    assert again.contrasts == told.contrasts and again.apart(1) == told.apart(1)


def test_a_group_without_rows_has_no_values():
    x = np.arange(20.0)[:, None]
    told = GroupProfiles.of(x, np.repeat([0, 2], 10), 3, numbered_columns(1))
    again = GroupProfiles.from_tree(json.loads(json.dumps(told.tree(), allow_nan=False))).frame()
    assert again["cluster", "rows"].tolist() == [10, 0, 10]
    assert again.loc[1, ("cluster", "apart")] == EMPTY
    alone = GroupProfiles.of(x, np.zeros(20, dtype=np.int64), 1, numbered_columns(1))
    assert alone.apart(0) == [] and alone.frame().loc[0, ("cluster", "apart")] == ONLY
    assert again["x0", "median"].isna().tolist() == [False, True, False]


def test_the_most_telling_of_many_columns_are_kept():
    r = np.random.default_rng(0)
    x, groups = r.normal(size=(200, 250)), np.repeat([0, 1], 100)
    x[:100, 240:] += 5
    told = GroupProfiles.of(x, groups, 2, numbered_columns(250))
    names = [profile.column.name for profile in told.columns]
    assert told.n_columns == 250 and len(names) == 200
    assert set(names) >= {f"x{i}" for i in range(240, 250)} and names == sorted(names, key=lambda s: int(s[1:]))


def test_images_have_sizes_only():
    told = GroupProfiles.of(np.zeros((5, 100)), np.array([0, 0, 1, 1, 1]), 2, None)
    assert list(told.frame().columns) == [("cluster", "rows"), ("cluster", "share")]


def test_a_column_has_one_contrast_a_group(people):
    frame, groups = people
    encoding = TableEncoding.infer(frame)
    for values in column_values(encoding, encoding.encode(frame)):
        assert len(strongest(values, groups, 2)) == 2


@pytest.mark.parametrize(
    ("value", "text"),
    [(81234.5, "81,234"), (2024.0, "2024"), (9999.9, "10,000"), (-12345.0, "-12,345"), (0.012347, "0.01235")],
)
def test_numbers_as_people_write_them(value, text):
    assert number(value) == text


def test_shares_are_not_rounded_to_none_or_all():
    assert [percent(s) for s in (0, 0.001, 0.62, 0.999, 1)] == ["0%", "<1%", "62%", ">99%", "100%"]


def test_rivals_tell_the_evidence_and_survive_json():
    r = np.random.default_rng(0)
    centres = np.array([[0, 0], [8, 0], [0, 8]])
    x = np.concatenate([c + r.normal(size=(80, 2)) for c in centres])
    start = Starts(x, 0).find(None, "auto")
    some = np.array([3, 100, 200])
    rivals = Rivals.of(start, some)
    again = Rivals.from_tree(json.loads(json.dumps(rivals.tree())))
    assert again == rivals and json.loads(json.dumps(rivals.tree())) == rivals.tree()
    assert rivals.number.chosen == 3 and rivals.n_candidates == len(start.choice.candidates)
    assert all(rivals.number.curve[k] >= rivals.number.threshold for k in (2, 3))
    assert rivals.number.curve[4] < rivals.number.threshold
    second = Starts(x, 0).find(2, "auto").choice.runner_up
    told = Rivals.of(Starts(x, 0).find(2, "auto"), some).second
    assert (told is None) == (second is None)
    if told is not None:
        assert np.sum(told.table) == len(x)
        assert list(told.some_labels) == second.labels[some].tolist()
