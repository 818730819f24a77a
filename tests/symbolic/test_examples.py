"""Examples as they come: images, known values and gaps, of several kinds, that hold or do not."""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from symbolic_cases import ADDITION, draw

from gedikit.errors import DataError, UsageError
from gedikit.symbolic import Constraint, Examples, Known, Namer, Rows, Symbols, name_rows, symbols_of
from gedikit.symbolic.bundles import Bundles
from gedikit.symbolic.expectations import expected_symbols, first_contradiction

DIGITS, OPERATORS = (0, 1, 2, 3), ("+", "-", "min")
SYMBOLS = Symbols.of({"digit": 4, "operator": OPERATORS})


def result(a, op, b):
    return a + b if op == "+" else a - b if op == "-" else min(a, b)


def calculation() -> Constraint:
    """Two digits, an operator and a result that is no symbol: three domains."""
    return Constraint(lambda a, op, b, r: result(a, op, b) == r, domains=(DIGITS, OPERATORS, DIGITS, range(-3, 7)))


def weighted() -> Constraint:
    rows = list(itertools.product(range(4), range(3), range(4), range(10)))[::7]
    shares = [(i % 9 + 1) / 10 for i in range(len(rows))]
    named = [(DIGITS[a], OPERATORS[o], DIGITS[b], r - 3) for a, o, b, r in rows]
    return Constraint.from_table(
        named, (DIGITS, OPERATORS, DIGITS, range(-3, 7)), shares, names=["a", "op", "b", "r"]
    )


# rows 0 to 5 are digits, 6 to 8 operators; a row twice, gaps of images and of known values
COLUMNS = {
    "a": [0, 1, 2, 2, None, 5, 4],
    "op": [6, 7, 8, 6, 7, -1, 8],
    "b": [3, 1, 4, 2, 5, 0, 3],
    "r": [4, 0, np.nan, 2, -1, 3, 1],
}


def by_hand(rule: Constraint, placed, log_p, i: int) -> float:
    """P(rule) of example i by going through all values of all images and gaps."""
    sizes = [v.size for v in rule.variables]
    allowed = rule.satisfaction()
    p = log_p.exp()
    total = 0.0
    for values in itertools.product(*(range(size) for size in sizes)):
        share, seen = float(allowed[values]), {}
        for j, value in enumerate(values):
            row, known = placed.rows[i, j], placed.known[i, j]
            if row >= 0:
                kind = placed.kinds[j]
                if row in seen:
                    share *= seen[row] == value
                    continue
                seen[row] = value
                block = p[row, kind.clusters]
                share *= float(block[value] / block.sum())
            elif known >= 0:
                share *= known == value
            else:
                share /= sizes[j]
        total += share
    return total


@pytest.mark.parametrize("rule", [calculation, weighted])
@pytest.mark.parametrize("q", [1.0, 0.8])
def test_probabilities_are_those_of_going_through_all_values(rule, q):
    holds = [True, False, True, True, True, False, True]
    made = Examples(rule(), COLUMNS, holds=holds, probability=q)
    placed = made.of(SYMBOLS)
    assert placed.kinds[3] is None and placed.known[:, 3].tolist() == [7, 3, -1, 5, 2, 6, 4]
    assert placed.rows[4].tolist() == [-1, 7, 5, -1]
    log_p = draw([7], [9])[0]
    found = placed.log_probability(log_p).exp()
    for i, holding in enumerate(holds):
        p = by_hand(made.constraint, placed, log_p, i)
        p = p if holding else 1 - p
        assert found[i].item() == pytest.approx(q * p + (1 - q) * (1 - p), abs=1e-9), i


def test_gradients_are_those_of_finite_differences():
    made = Examples(weighted(), COLUMNS, holds=[True, False] * 3 + [True], probability=[1.0, 1.0, 0.7] * 2 + [0.9])
    placed = made.of(SYMBOLS)
    logits = draw([7], [9], seed=3)[0].requires_grad_()

    def loss(x):
        return placed.log_probability(torch.log_softmax(x, -1))

    assert torch.autograd.gradcheck(loss, (logits,), eps=1e-6, atol=1e-6)


def test_a_program_takes_known_values_as_inputs():
    rule = Constraint.from_program(ADDITION, "addition(a, b, c)")
    columns = {"digit(a)": Rows([0, 1]), "digit(b)": Rows([1, 0]), "digit(c)": Known([7, 3])}
    made = Examples(rule, columns)
    log_p = draw([10], [2])[0]
    p = log_p.exp()
    found = made.log_probability(log_p).exp()
    for i, (a, b, c) in enumerate([(0, 1, 7), (1, 0, 3)]):
        expected = sum(p[a, d] * p[b, c - d] for d in range(c + 1))
        assert found[i].item() == pytest.approx(float(expected), abs=1e-12)


def test_a_table_of_columns_reads_as_a_mapping_does():
    frame = pd.DataFrame({**COLUMNS, "holds": [True] * 6 + [False], "weight": np.arange(7.0)})
    made = Examples(calculation(), frame)
    same = Examples(calculation(), COLUMNS, holds=[1] * 6 + [0], weights=np.arange(7.0)).of(SYMBOLS)
    placed = made.of(SYMBOLS)
    assert np.array_equal(placed.rows, same.rows) and np.array_equal(placed.known, same.known)
    assert made.holds.tolist() == [True] * 6 + [False] and made.weights.tolist() == list(range(7))


def test_bundles_say_of_every_example_what_it_says_by_itself():
    """Examples of different length, of two constraints, one image twice, weights, in bundles of as many rows."""
    short = Constraint(lambda a, b: a < b, domains=(DIGITS, DIGITS))
    first = Examples(calculation(), COLUMNS, weights=[1, 2, 1, 1, 1, 0, 3], holds=[True] * 5 + [False, True])
    second = Examples(short, [[0, 1], [2, 2 + 1], [4, 5], [5, 0]], probability=0.9)
    placed = [e.of(SYMBOLS) for e in (first, second)]
    bundles = Bundles.of(placed)
    assert bundles.rows.shape[1] == 3 and bundles.rows.min() >= 0
    log_p = torch.log_softmax(draw([7], [9], seed=1)[0], -1)
    drawn = torch.arange(len(bundles.rows))
    found, weights = bundles.on(torch.device("cpu")).log_probability(
        log_p[torch.from_numpy(bundles.rows).flatten()], drawn
    )
    alone = torch.cat([p.log_probability(log_p[p.images]) for p in placed])
    expected = sorted(zip([1, 2, 1, 1, 1, 0, 3, 1, 1, 1, 1], alone.tolist(), strict=True))[1:]
    counted = sorted((w, v) for w, v in zip(weights.tolist(), found.tolist(), strict=True) if w)
    np.testing.assert_allclose(counted, expected, rtol=1e-6)
    kinds = np.array([0] * 6 + [1] * 3)
    assert np.array_equal(bundles.kinds, kinds[bundles.rows])


def test_examples_of_one_length_are_bundles_in_their_order():
    rows = np.arange(30).reshape(10, 3)
    made = Examples(Constraint(lambda a, b, c: a + b == c, (3, 3, 3)), rows)
    assert np.array_equal(Bundles.of([made.alone]).rows, rows)


@pytest.mark.parametrize("holds", [True, False])
def test_expected_symbols_are_shares_of_values_in_all_tuples(holds):
    rule, shares = calculation(), np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.2, 0.3])
    made = Examples(rule, {"a": [0], "op": [1], "b": [2], "r": [2]}, holds=[holds], probability=0.9).of(SYMBOLS)
    allowed = rule.satisfaction().numpy()[:, :, :, 5]
    weight = np.where(holds, 0.9, 0.1) * allowed + np.where(holds, 0.1, 0.9) * (1 - allowed)
    joint = weight * shares[:4, None, None] * shares[None, 4:, None] * shares[None, None, :4]
    joint /= joint.sum()
    expected = np.concatenate([joint.sum((1, 2)) + joint.sum((0, 1)), joint.sum((0, 2))])
    np.testing.assert_allclose(expected_symbols(made, shares), expected, rtol=1e-9)


def clustered(n: int, seed: int) -> tuple[dict[str, list], np.ndarray, np.ndarray]:
    """Calculations with results, what rows show, and clusters of rows: digits in 6, operators in 4, at random."""
    rng = np.random.default_rng(seed)
    a, b, op = rng.integers(0, 4, n), rng.integers(0, 4, n), rng.integers(0, 3, n)
    r = [result(DIGITS[i], OPERATORS[o], DIGITS[j]) for i, o, j in zip(a, op, b, strict=True)]
    columns = {"a": np.arange(n), "op": np.arange(n) + n, "b": np.arange(n) + 2 * n, "r": r}
    truth = np.concatenate([a, op + 4, b])
    of_digit, of_operator = rng.permutation([0, 1, 2, 3, 1, 2]), rng.permutation([0, 1, 2, 2])
    clusters = np.empty(3 * n, dtype=np.int64)
    for i, symbol in enumerate(truth):
        own = of_operator == symbol - 4 if symbol >= 4 else of_digit == symbol
        clusters[i] = rng.choice(np.flatnonzero(own))
    return columns, truth, clusters


@pytest.mark.parametrize("seed", range(3))
def test_clusters_of_two_kinds_get_their_names_from_results(seed):
    columns, truth, clusters = clustered(120, seed)
    placed = Examples(calculation(), columns).of(SYMBOLS)
    found = name_rows([placed], torch.from_numpy(clusters), starts=60, seed=seed)
    assert (found.p.argmax(-1).numpy() == truth).all()
    torch.testing.assert_close(found.p.sum(-1), torch.ones(len(truth)))


def test_names_from_tuples_and_from_circuits_are_the_same(monkeypatch):
    columns, _, clusters = clustered(60, 1)
    placed = Examples(calculation(), columns).of(SYMBOLS)
    found = [name_rows([placed], torch.from_numpy(clusters), starts=30)]
    monkeypatch.setattr("gedikit.symbolic.likelihoods.MAX_SITUATIONS", 0)
    found.append(name_rows([placed], torch.from_numpy(clusters), starts=30))
    torch.testing.assert_close(found[0].p, found[1].p, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(found[0].shows[1], found[1].shows[1], atol=1e-4, rtol=1e-3)


def test_wrong_sums_in_doubt_are_outvoted():
    """Every sixth result is wrong; by rules that hold for certain these would be impossible or mislead."""
    columns, truth, clusters = clustered(240, 4)
    rng = np.random.default_rng(0)
    wrong = rng.random(240) < 1 / 6
    columns["r"] = np.where(wrong, rng.integers(-3, 7, 240), columns["r"])
    placed = Examples(calculation(), columns, probability=0.8).of(SYMBOLS)
    found = name_rows([placed], torch.from_numpy(clusters), starts=60)
    assert (found.p.argmax(-1).numpy() == truth).mean() > 0.9


def test_labels_decide_names_that_a_rule_leaves_open():
    equal = Constraint(lambda a, b: a == b, domains=(3, 3))
    made = Examples(equal, [[i, i + 1] for i in range(0, 30, 2)]).alone
    truth = np.repeat(np.arange(15) % 3, 2)
    labels = np.full(30, -1)
    labels[[0, 2]] = truth[[0, 2]]
    clusters = torch.from_numpy((truth + 1) % 3)
    found = name_rows([made], clusters, labels=torch.from_numpy(labels), starts=30)
    assert (found.p.argmax(-1).numpy() == truth).all()
    log_p = torch.log_softmax(10 * torch.eye(3)[clusters], -1)
    best = Namer([made]).best(log_p, torch.from_numpy(labels))
    assert best.namings[0][clusters].tolist() == truth.tolist() and best.margin == 1  # one label, the other follows


def test_names_of_two_kinds_are_the_best_of_all_exchanges():
    columns, truth, _ = clustered(40, 2)
    rng = np.random.default_rng(0)
    order = np.concatenate([rng.permutation(4), 4 + rng.permutation(3)])  # the cluster that a symbol went to
    shown = order[truth]
    noisy = np.where(
        rng.random(len(shown)) < 0.1, np.where(truth < 4, rng.integers(0, 4, len(truth)), shown), shown
    )
    log_p = torch.log_softmax(8.0 * torch.eye(7)[torch.from_numpy(noisy)], -1)
    placed = Examples(calculation(), columns).of(SYMBOLS)
    found = Namer([placed]).best(log_p)
    allowed = calculation().satisfaction().numpy()
    results = placed.known[:, 3]
    counts = {}
    for digits, operators in itertools.product(itertools.permutations(range(4)), itertools.permutations(range(3))):
        named = np.array([*digits, *operators])
        a, op, b = (named[noisy[column]] for column in placed.rows[:, :3].T)
        counts[*digits, *(4 + o for o in operators)] = allowed[a, op, b, results].sum()
    assert found.satisfied[0].item() == max(counts.values()) and found.exact
    assert counts[tuple(found.namings[0].tolist())] == max(counts.values())


def test_known_values_that_are_impossible_are_found():
    rule = Constraint(lambda a, b, r, s: a + b == r and r == s, domains=(4, 4, 7, 7))
    made = Examples(rule, {"a": [0, 1, 2], "b": [1, 2, 0], "r": [3, 2, None], "s": [3, 4, 1]})
    assert first_contradiction(made.of(Symbols.of({"digit": 4}))) == 1
    always = Constraint(lambda a, r: a >= 0 or r > 5, domains=(4, 7))
    told = Examples(always, {"a": [0, 1], "r": [0, 0]}, holds=[True, False])
    assert first_contradiction(told.of(Symbols.of({"digit": 4}))) == 1
    assert first_contradiction(Examples(rule, COLUMNS_OF_SUMS).of(Symbols.of({"digit": 4}))) is None


COLUMNS_OF_SUMS = {"a": [0], "b": [1], "r": [3], "s": [3]}


def sums(**changes):
    return Examples(
        Constraint(lambda a, b, s: a + b == s, domains=(4, 4, 7)),
        {"a": [0, 1], "b": [1, 2], "s": [3, 4], **changes},
    )


@pytest.mark.parametrize(
    ("made", "error", "words"),
    [
        (
            lambda: sums(s=[3, 9]).of(Symbols.of({"digit": 4})),
            DataError,
            "row 1 of examples has 9 for s, whose values",
        ),
        (lambda: sums(c=[1, 1]), UsageError, "a column 'c', which is none of the variables a, b, s"),
        (lambda: sums(s=[3]), UsageError, "different lengths: a has 2 rows and s 1"),
        (lambda: sums(a=["x", 1]).of(Symbols.of({"digit": 4})), DataError, "row 0 of examples has 'x' for a"),
        (lambda: sums(a=Rows([0.5, 1])), DataError, "row 0 of examples has 0.5 for a: give the number"),
        (lambda: sums().images, UsageError, "which columns of examples are images"),
        (lambda: sums(s=Rows([0, 1])).of(Symbols.of({"digit": 4})), UsageError, "s has 7 values"),
        (lambda: Examples(sums().constraint, {"a": [0], "b": [1]}), UsageError, "no column for s"),
        (lambda: Examples(sums().constraint, [[0, 1, 2]], kinds={"z": "digit"}), UsageError, "kinds has 'z'"),
        (lambda: Examples(sums().constraint, [[0, 1, 2]], probability=0.4), UsageError, "above 0.5 and at most 1"),
        (lambda: Examples(sums().constraint, [[0, 1, 2]], weights=[-1]), UsageError, "weights must be finite"),
        (lambda: Examples(sums().constraint, [[0, 1, 2]], holds=[2]), UsageError, "holds must be True or False"),
        (lambda: Examples(sums().constraint, [[0, 1, 2]], weights=[1, 2]), UsageError, "for each of 1 examples"),
        (lambda: Symbols.of({}), UsageError, "symbols is"),
        (
            lambda: Examples(calculation(), COLUMNS).of(Symbols.of({"digit": 4, "rank": 4, "operator": OPERATORS})),
            UsageError,
            "a could be of the kinds digit and rank",
        ),
    ],
)
def test_what_does_not_fit_is_a_sentence_that_names_row_and_column(made, error, words):
    with pytest.raises(error, match=words):
        made()


def test_symbols_follow_from_what_images_can_show():
    assert symbols_of([sums()], 4).values == [0, 1, 2, 3]
    assert symbols_of([sums(a=Rows([0, 1]))]).n_clusters == 4
    kinds = {"a": "digit", "op": "operator", "b": "digit"}
    assert symbols_of([Examples(calculation(), COLUMNS, kinds=kinds)]).names == ("digit", "operator")


def test_names_that_a_rule_leaves_open_are_those_that_rows_have_already():
    """All values differ: every naming is as good, and one of them agrees with what is there."""
    differ = Constraint(lambda a, b, c: len({a, b, c}) == 3, domains=(3, 3, 3))
    made = Examples(differ, np.arange(60).reshape(20, 3)).alone
    truth = np.random.default_rng(0).permuted(np.tile(np.arange(3), (20, 1)), axis=1).ravel()
    like = torch.eye(3)[torch.from_numpy(truth)]
    for seed in range(3):
        found = name_rows([made], torch.from_numpy(truth), like=like, starts=5, seed=seed)
        assert (found.p.argmax(-1).numpy() == truth).all()


def test_names_that_a_rule_gives_stay_whatever_rows_have():
    columns, truth, clusters = clustered(120, 0)
    placed = Examples(calculation(), columns).of(SYMBOLS)
    wrong = torch.eye(7)[torch.from_numpy(np.where(truth < 4, (truth + 1) % 4, truth))]
    found = name_rows([placed], torch.from_numpy(clusters), like=wrong, starts=60)
    assert (found.p.argmax(-1).numpy() == truth).all()
