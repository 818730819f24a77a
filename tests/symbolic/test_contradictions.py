"""The smallest set of examples that contradict each other, against brute force."""

from itertools import combinations, product

import numpy as np

from gedikit.symbolic import Constraint, Examples, Known, Rows
from gedikit.symbolic.contradictions import contradiction

SUM = Constraint(lambda a, b, s: a + b == s, domains=(4, 4, 7))


def of(rows, sums, **more):
    rows = np.array(rows)
    return Examples(SUM, {"a": Rows(rows[:, 0]), "b": Rows(rows[:, 1]), "s": Known(sums)}, **more).alone


def satisfiable(rows, sums, some):
    images = sorted({i for r in some for i in rows[r]})
    for values in product(range(4), repeat=len(images)):
        value = dict(zip(images, values, strict=True))
        if all(value[rows[r][0]] + value[rows[r][1]] == sums[r] for r in some):
            return True
    return False


def test_equals_brute_force():
    rng = np.random.default_rng(0)
    found_some = 0
    for _ in range(15):
        rows = [tuple(rng.choice(5, 2, replace=False).tolist()) for _ in range(4)]
        sums = rng.integers(1, 6, 4).tolist()
        found = contradiction([of(rows, sums)])
        bad = [c for n in range(1, 5) for c in combinations(range(4), n) if not satisfiable(rows, sums, c)]
        assert (found is None) == (not bad)
        if found is not None:
            items = tuple(row for _, row in found.items)
            assert items in bad and not any(set(b) < set(items) for b in bad)
            assert len(items) == min(map(len, bad)) or len(items) > 2
            found_some += 1
    assert 3 < found_some < 15


def test_the_sentence_names_them():
    found = contradiction([of([(0, 1), (2, 3), (1, 0)], [5, 2, 6])])
    assert found.items == ((0, 0), (0, 2))
    assert "row 0 of the predicate <lambda>(a, b, s) (a is image 0, b is image 1, s = 5)" in str(found)
    assert "row 2" in str(found) and "row 1 of" not in str(found)


def test_several_constraints_and_examples_that_are_violated():
    less = Constraint(lambda a, b: a < b, domains=(4, 4))
    order = Examples(less, {"a": Rows([0]), "b": Rows([1])}).alone
    other = Examples(less, {"a": Rows([1]), "b": Rows([0])}).alone
    assert contradiction([order, other]).items == ((0, 0), (1, 0))
    violated = Examples(less, {"a": Rows([0]), "b": Rows([1])}, holds=[False]).alone
    assert contradiction([order, violated]) is not None
    doubtful = Examples(less, {"a": Rows([1]), "b": Rows([0])}, probability=0.9).alone
    assert contradiction([order, doubtful]) is None
    three = contradiction([Examples(less, {"a": Rows([0, 1, 2]), "b": Rows([1, 2, 0])}).alone])
    assert len(three.items) == 3
