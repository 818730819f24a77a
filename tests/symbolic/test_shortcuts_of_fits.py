"""Probabilities of names: from clusters whose naming is known, and after a fit."""

import json

import numpy as np
import pytest

from gedikit import GEDI
from gedikit.symbolic import Constraint, Examples, Known, Names, Rows, names_of
from gedikit.symbolic.neighbours import by_neighbours
from gedikit.views.neighbours import nearest_in_space

SUM = Constraint(lambda a, b, s: a + b == s, domains=(10, 10, 19))
EVEN_ODD = [(0, 6), (2, 8), (4, 6), (4, 8), (1, 5), (3, 7), (1, 9), (3, 9)]


def named(constraint, shown, known, clusters=None, wrong=0.0, labelled=(), seed=0):
    """Names from examples that show `shown`, in the clusters that `clusters` says, some rows in a wrong one."""
    rng = np.random.default_rng(seed)
    columns, labels = {}, []
    for i, v in enumerate(constraint.variables):
        values = [t[i] for t in shown]
        if v.name in known:
            columns[v.name] = Known(values)
        else:
            columns[v.name] = Rows(len(labels) + np.arange(len(shown)))
            labels += values if clusters is None else [clusters[value] for value in values]
    labels = np.array(labels)
    off = rng.random(len(labels)) < wrong
    labels[off] = rng.integers(constraint.variables[0].size, size=off.sum())
    return names_of([Examples(constraint, columns).alone], labels, labelled)


def sums(pairs):
    return [(a, b, a + b) for a, b in pairs]


@pytest.mark.parametrize("wrong", [0.0, 0.05])
def test_names_of_even_odd_are_shared_by_their_two_namings(wrong):
    rng = np.random.default_rng(1)
    shown = sums([EVEN_ODD[i] for i in rng.integers(8, size=150)])
    found = named(SUM, shown, ["s"], wrong=wrong)
    assert [round(name.probability, 2) for name in found.names] == [0.5] * 10
    assert found.groups == [("symbol", (d, d + 5)) for d in range(5)]
    assert (found.violated > 0) == (wrong > 0)
    assert len(found.open_by_rule) == 10
    assert found.left_open()[0] == "names that the rules and examples cannot tell apart: 0, 5"
    settled = named(SUM, shown, ["s"], wrong=wrong, labelled=[0])
    assert not settled.undecided and not settled.left_open()


def test_names_of_sums_are_sure_and_few_examples_are_not():
    rng = np.random.default_rng(2)
    pairs = [tuple(pair) for pair in rng.integers(10, size=(120, 2)).tolist()]
    assert not named(SUM, sums(pairs), ["s"], wrong=0.05).undecided
    few = named(SUM, sums([(1, 2), (2, 2)]), ["s"])
    # 2 + 2 says what 2 is, and 1 + 2 then what 1 is; the other eight names are open
    assert [name.value for name in few.names if name.decided] == [1, 2]
    assert few.names[0].probability == pytest.approx(1 / 8, abs=0.03)
    assert set(few.names[0].others) == {3, 4, 5, 6, 7, 8, 9}


def test_two_symbols_in_one_cluster_are_noticed():
    """rsbench's Half: 2 and 4 in the cluster of 3, and 3 in that of 2, satisfy all equations."""
    half = Constraint(lambda a, b, s: a + b == s, domains=(5, 5, 9))
    shown = sums([(0, 0), (0, 1), (2, 3), (2, 4)] * 30)
    assert not named(half, shown, ["s"]).undecided
    merged = named(half, shown, ["s"], clusters=[0, 1, 3, 2, 3])
    assert merged.violated == 0
    assert [name.value for name in merged.undecided] == [2, 3, 4]
    assert merged.open_by_fit == merged.undecided and merged.groups == []  # clusters of their own would settle them
    assert merged.left_open() == [
        "names that the rules and examples settle, but that this fit is not sure of: "
        "2 (or 0, 1, 3, 4), 3 (or 0, 1, 2, 4), 4 (or 0, 1, 2, 3)"
    ]


def test_clusters_that_have_nothing_to_do_with_the_rule_have_no_names():
    shown = sums(np.random.default_rng(3).integers(10, size=(200, 2)).tolist())
    found = named(SUM, shown, ["s"], wrong=1.0)
    assert len(found.undecided) == 10 and max(name.probability for name in found.names) < 0.3
    assert len(found.open_by_fit) == 10


def test_examples_that_a_fit_has_learned_by_heart_are_no_evidence():
    """Rows of examples were given clusters with which these hold. All other rows of 0 are in cluster 1."""
    rng = np.random.default_rng(4)
    y = np.repeat(np.arange(4), 50)
    x = 5.0 * y[:, None] + rng.normal(size=(200, 1))
    a, b = rng.permutation(200)[:60].reshape(2, 30)
    rule = Constraint(lambda a, b, s: a + b == s, domains=(4, 4, 7))
    placed = Examples(rule, {"a": Rows(a), "b": Rows(b), "s": Known(y[a] + y[b])}).alone
    labels = np.array([1, 0, 2, 3])[y]
    for i, j in zip(a, b, strict=True):
        ways = [(v, y[i] + y[j] - v) for v in range(4) if 0 <= y[i] + y[j] - v < 4]
        labels[[i, j]] = ways[rng.integers(len(ways))]
    taught = names_of([placed], labels)
    assert taught.violated == 0 and not taught.undecided  # the four names are sure, and two of them wrong
    untaught = by_neighbours([placed], labels, lambda rows, k: nearest_in_space(x[rows], k))
    assert (untaught[np.r_[a, b]] == np.array([1, 0, 2, 3])[y[np.r_[a, b]]]).mean() > 0.9
    found = names_of([placed], labels, untaught=untaught)
    assert [name.probability < 0.05 for name in found.names] == [True, True, False, False]
    assert found.violated == 0 and found.open_by_fit == found.undecided  # the sums would tell


def test_rows_of_one_example_do_not_vouch_for_each_other():
    same = Constraint(lambda a, b: a == b, domains=(2, 2))
    placed = Examples(same, {"a": Rows([0, 2]), "b": Rows([1, 3])}).alone
    near = lambda rows, k: nearest_in_space(np.array([0.0, 0.1, 0.5, 0.6, 0.9])[rows, None], k)  # noqa: E731
    assert by_neighbours([placed], np.array([0, 0, 1, 1, 1]), near)[:4].tolist() == [1, 1, 0, 0]
    long = Constraint.from_chain(lambda odd, x: odd != x, [2] * 20, start=False, accept=[True])
    assert by_neighbours([Examples(long, np.arange(20)[None]).alone], np.zeros(20, int), near) is None


def test_names_are_kept_as_json():
    found = named(SUM, sums(EVEN_ODD), ["s"])
    assert Names.from_tree(json.loads(json.dumps(found.tree()))) == found
    before = {**found.tree(), "names": [{k: v for k, v in n.items() if k != "tied"} for n in found.tree()["names"]]}
    assert Names.from_tree(before).groups == found.groups  # of a version that did not say why


def test_a_fit_leaves_open_what_the_rule_leaves_open(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=90)
    x = np.array([[0, 0], [4, 0], [0, 4]])[labels] + 0.2 * rng.normal(size=(90, 2))
    rows = [np.flatnonzero(labels == s) for s in range(3)]
    pairs = [(rng.choice(rows[a]), rng.choice(rows[b])) for a, b in rng.permuted([[0, 1, 2]] * 40, axis=1)[:, :2]]
    different = Constraint(lambda a, b: a != b, domains=(("x", "y", "z"),) * 2)
    model = GEDI(3, method="gedi-symbols", max_iter=40, random_state=0).fit_examples(x, different, np.array(pairs))
    assert model.values_.tolist() == [None] * 3
    assert [name.probability for name in model.names_.names] == pytest.approx([1 / 3] * 3, abs=0.01)
    verdict = model.diagnose()
    assert verdict.verdict == "undecided names" and "x, y, z" in verdict.explanation
    model.save(tmp_path / "model.safetensors")
    again = GEDI.load(tmp_path / "model.safetensors")
    assert again.names_ == model.names_
    model.report(tmp_path / "report.html")
    assert "cannot tell apart" in (tmp_path / "report.html").read_text()
    order = Constraint(lambda a, b: "xyz".index(a) < "xyz".index(b), domains=(("x", "y", "z"),) * 2)
    ordered = np.array([(a, b) if labels[a] < labels[b] else (b, a) for a, b in pairs])
    told = GEDI(3, method="gedi-symbols", max_iter=40, random_state=0).fit_examples(x, order, ordered)
    assert told.values_.tolist() == ["x", "y", "z"]
    assert np.mean(told.values_[told.predict(x)] == np.array(["x", "y", "z"])[labels]) > 0.98
