"""Fits to examples with known values, symbols of several kinds, negative examples, doubts and labels."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits

from gedikit import GEDI
from gedikit.config import Execution
from gedikit.errors import DataError, GediWarning, UsageError
from gedikit.planning import Asked, plan
from gedikit.profile import DataProfile
from gedikit.symbolic import Constraint, Examples, Known, Rows, Symbols
from gedikit.training.fit import prepare
from gedikit.training.rules import Rules

SMALL = {
    "optimiser.batch_size": 60,
    "encoder.hidden": (32, 32),
    "encoder.features": 16,
    "sampler.samples": 100,
    "sampler.bank": 2000,
}
ALONE = {name: value for name, value in SMALL.items() if not name.startswith("sampler")}
SUM = Constraint(lambda a, b, s: a + b == s, domains=(3, 3, 5))
OPERATORS = ("+", "max")
CALCULATION = Constraint(
    lambda a, op, b, r: (a + b if op == "+" else max(a, b)) == r, domains=(range(1, 4), OPERATORS, range(1, 4), 7)
)


def clouds(n: int, n_symbols: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Clouds on a circle, one a symbol, in an order that says nothing about their names."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % n_symbols
    place = rng.permutation(n_symbols)[labels] * 2 * np.pi / n_symbols
    return 4 * np.stack([np.cos(place), np.sin(place)], 1) + rng.normal(scale=0.3, size=(n, 2)), labels


def pairs(labels: np.ndarray, n: int, seed: int) -> dict[str, np.ndarray]:
    a, b = np.random.default_rng(seed).integers(0, len(labels), (2, n))
    return {"a": a, "b": b, "s": labels[a] + labels[b]}


@pytest.mark.parametrize("as_table", [False, True])
def test_symbols_are_learned_from_known_sums(as_table):
    x, labels = clouds(300, 3, 0)
    examples = pairs(labels, 150, 0)
    examples["b"][:5] = examples["a"][:5]  # a row twice
    examples["s"][:5] = 2 * labels[examples["a"][:5]]
    model = GEDI(3, method="gedi-symbols", max_iter=120, random_state=0, config=SMALL)
    model.fit_examples(x, SUM, pd.DataFrame(examples) if as_table else examples)
    assert np.mean(model.predict(x) == labels) > 0.98
    assert model.history_[-1]["constraint"] < 0.1


def calculations(labels: np.ndarray, n: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    digits, operators = np.flatnonzero(labels < 3), np.flatnonzero(labels >= 3)
    a, b, op = rng.choice(digits, n), rng.choice(digits, n), rng.choice(operators, n)
    x, y = labels[a] + 1, labels[b] + 1
    return {"a": a, "op": op, "b": b, "r": np.where(labels[op] == 3, x + y, np.maximum(x, y))}


def test_symbols_of_two_kinds_are_learned_from_results(tmp_path):
    x, labels = clouds(300, 5, 1)
    symbols = {"digit": (1, 2, 3), "operator": OPERATORS}
    model = GEDI(symbols=symbols, method="gedi-symbols", max_iter=150, random_state=0, config=SMALL)
    model.fit_examples(x, CALCULATION, calculations(labels, 150, 0))
    assert model.plan_.n_clusters == 5
    np.testing.assert_allclose(
        np.sum(model.plan_.prior[:3]), 2 / 3, atol=0.01
    )  # of images, two in three are digits
    assert np.mean(model.predict(x) == labels) > 0.97  # of no known kind: all symbols
    assert model.values_.tolist() == [1, 2, 3, *OPERATORS]
    as_digits = model.predict_proba(x, kinds="digit")
    assert not as_digits[:, 3:].any()
    np.testing.assert_allclose(as_digits.sum(1), 1)
    kinds = np.where(labels < 3, "digit", "operator")
    assert np.mean(model.predict(x, kinds=kinds) == labels) > 0.98
    model.save(tmp_path / "model.safetensors")
    again = GEDI.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(x, kinds=kinds), model.predict(x, kinds=kinds))
    with pytest.raises(UsageError, match="no kind of symbols 'letter'; the model has digit, operator"):
        again.predict(x, kinds="letter")


def test_two_rules_negative_examples_and_doubts_count_together():
    """Which is 0 and which is 1 is said by pairs that do not satisfy a < b, wrong in every tenth case."""
    x, labels = clouds(300, 3, 2)
    rng = np.random.default_rng(0)
    order = Constraint(lambda a, b: a < b, domains=(3, 3))
    i, j = rng.integers(0, 300, (2, 300))
    holds = labels[i] < labels[j]
    holds = np.where(rng.random(300) < 0.1, ~holds, holds)
    same = Constraint(lambda a, b: a == b, domains=(3, 3))
    k = rng.integers(0, 100, 50) * 3
    alike = Examples(same, {"a": k, "b": (k + 3) % 300}, weights=np.full(50, 0.5))
    rules = [Examples(order, {"a": i, "b": j}, holds=holds, probability=0.9), alike]
    model = GEDI(3, method="gedi-symbols", max_iter=150, random_state=0, config=SMALL).fit_examples(x, rules)
    assert np.mean(model.predict(x) == labels) > 0.97


def test_a_few_labels_settle_what_a_rule_leaves_open():
    x, labels = clouds(300, 3, 3)
    differ = Constraint(lambda a, b, c: len({a, b, c}) == 3, domains=(3, 3, 3))
    rows = np.arange(300).reshape(100, 3)
    known = np.full(300, -1)
    known[:2] = labels[:2]
    model = GEDI(3, method="gedi-symbols", max_iter=150, random_state=0, config=SMALL)
    model.fit_examples(x, differ, rows, partial_labels=known)
    assert np.mean(model.predict(x) == labels) > 0.98


def test_shares_of_symbols_follow_from_known_sums():
    rng = np.random.default_rng(0)
    labels = rng.choice(3, 2000, p=[0.6, 0.3, 0.1])
    rules = Rules.of(SUM, pairs(labels, 1000, 1), n_clusters=3)
    np.testing.assert_allclose(rules.prior(), [0.6, 0.3, 0.1], atol=0.05)


def test_killed_and_resumed_equals_uninterrupted():
    """Pseudo-labels, bundles and names are made again, and are the same."""
    x, labels = clouds(120, 3, 0)
    config = {**SMALL, "optimiser.iterations": 20}

    def ready():
        rules = Rules.of(SUM, pairs(labels, 60, 0), n_clusters=3)
        made = plan(DataProfile.of(x), Asked(3, "gedi-symbols", config=config, examples=rules.profile()))
        return prepare(made, x, execution=Execution(device="cpu"), rules=rules)

    first = ready()
    whole = first.new_state()
    for i in range(20):
        if i == 11:
            kept = {name: tensor.clone() for name, tensor in whole.tensors().items()}, dict(whole.meta())
        first.step(whole)
    second = ready()
    resumed = second.new_state()
    resumed.restore(*kept)
    for _ in range(11, 20):
        second.step(resumed)
    assert torch.equal(resumed.weights, whole.weights)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"s": [0, 9]}, DataError, "row 1 of examples has 9 for s, whose values are 0, 1, 2, 3, 4"),
        ({"a": [0, 60]}, DataError, "row 1 of examples names row 60 for a: X has rows from 0 to 59"),
        ({"a": [None, None], "b": [None, 1]}, DataError, "row 0 of examples has no image"),
        ({"b": [0]}, UsageError, "different lengths: a has 2 rows and b 1"),
        ({"t": [0, 1]}, UsageError, "a column 't', which is none of the variables a, b, s"),
    ],
)
def test_bad_examples_are_sentences(given, error, words):
    x, _ = clouds(60, 3, 0)
    examples = {"a": [0, 1], "b": [1, 2], "s": [0, 1], **given}
    with pytest.raises(error, match=words):
        GEDI(3, method="nesy", max_iter=1, config=ALONE).fit_examples(x, SUM, examples)


def test_known_values_that_break_a_rule_are_a_sentence():
    x, _ = clouds(60, 3, 0)
    three = Constraint(lambda a, b, s, t: a + b == s and s == t, domains=(3, 3, 5, 5))
    columns = {"a": [0, 1], "b": [1, 2], "s": [1, 3], "t": [1, 2]}
    with pytest.raises(DataError, match=r"row 1 of examples contradicts .* with .*s = 3, t = 2 it cannot hold"):
        GEDI(3, method="nesy", max_iter=1, config=ALONE).fit_examples(x, three, columns)


def test_examples_that_contradict_each_other_are_named():
    x, _ = clouds(60, 3, 0)
    columns = {"a": [0, 5, 3], "b": [1, 6, 1], "s": [4, 2, 0]}
    with pytest.raises(DataError, match=r"cannot be that these examples hold together: row 0 .*; row 2 "):
        GEDI(3, method="nesy", max_iter=1, config=ALONE).fit_examples(x, SUM, columns)


def test_a_symbol_that_no_example_can_show_is_a_warning():
    x, labels = clouds(60, 3, 0)
    low = {"a": np.flatnonzero(labels == 0)[:9], "b": np.flatnonzero(labels == 1)[:9], "s": np.ones(9, dtype=int)}
    with pytest.warns(GediWarning, match="no example can show symbol 2:"):
        GEDI(3, method="nesy", max_iter=1, config=ALONE).fit_examples(x, SUM, low)


def test_kinds_that_do_not_fit_are_sentences():
    x, labels = clouds(60, 5, 0)
    model = GEDI(symbols={"digit": (1, 2, 3), "operator": OPERATORS, "letter": "abc"}, method="nesy", max_iter=1)
    examples = calculations(labels, 20, 0)
    with pytest.raises(UsageError, match="no example shows a symbol of the kind letter"):
        model.fit_examples(x, CALCULATION, examples)
    model = GEDI(symbols={"digit": (1, 2, 3), "operator": OPERATORS}, method="nesy", max_iter=1)
    twice = {**examples, "op": np.r_[examples["a"][:1], examples["op"][1:]]}
    with pytest.raises(DataError, match=rf"name row {examples['a'][0]} as op, which is of the kind operator"):
        model.fit_examples(x, CALCULATION, twice)
    with pytest.raises(UsageError, match="symbols has 5 values in all and the model 4 clusters"):
        GEDI(4, symbols=model.symbols, method="nesy").fit_examples(x, CALCULATION, examples)
    with pytest.raises(UsageError, match="learned from examples of rules: call fit_examples"):
        model.fit(x)


def test_wrappers_say_what_a_column_is():
    """c is a digit as the images are, and known: a + b = c."""
    labels = clouds(90, 3, 0)[1]
    rule = Constraint(lambda a, b, c: a + b == c, domains=(3, 3, 3))
    a, b = np.random.default_rng(0).integers(0, 90, (2, 200))
    kept = labels[a] + labels[b] < 3
    columns = {"a": Rows(a[kept]), "b": Rows(b[kept]), "c": Known((labels[a] + labels[b])[kept])}
    rules = Rules.of(rule, columns)
    assert rules.symbols == Symbols.over([("symbol", (0, 1, 2))]) and rules.bundles.rows.shape[1] == 2
    assert rules.placed[0].known[:, 2].tolist() == (labels[a] + labels[b])[kept].tolist()


def test_digits_are_learned_from_sums_of_two():
    """scikit-learn's digits, 300 pairs with their sums; digits of no pair are read right in 19 of 20 cases."""
    data = load_digits()
    x, y = data.data.astype(np.float32), data.target
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:600], order[600:]
    a, b = train.reshape(2, 300)
    rule = Constraint(lambda a, b, s: a + b == s, domains=(10, 10, 19))
    model = GEDI(10, method="gedi-symbols", max_iter=150, random_state=0, config={"encoder.hidden": (64, 64)})
    model.fit_examples(x, rule, {"a": a, "b": b, "s": y[a] + y[b]})
    assert np.mean(model.predict(x[test]) == y[test]) > 0.95
