"""The smallest set of examples that contradict each other, against brute force."""

from itertools import combinations, product

import numpy as np

from gedikit.symbolic import Constraint, Examples, Known, Rows
from gedikit.symbolic.contradictions import contradiction, contradictory_rules

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
            assert len(items) == min(map(len, bad))
            found_some += 1
    assert 3 < found_some < 15


def test_the_sentence_names_them():
    found = contradiction([of([(0, 1), (2, 3), (1, 0)], [5, 2, 6])])
    assert found.items == ((0, 0), (0, 2))
    assert str(found).endswith(
        "these examples hold together: row 0 of examples (a is row 0, b is row 1, s = 5); row 2 of examples (a is"
        " row 1, b is row 0, s = 6)"
    )


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


def test_contradictory_rules_are_a_smallest_set_of_them():
    """Against all tuples of values; known values are shared by name, like images."""
    rng = np.random.default_rng(5)
    every, sizes = list(product(range(3), repeat=3)), []
    for _ in range(25):
        allowed = [[t for t in every if rng.random() < 0.25] or every[:1] for _ in range(4)]
        names = [rng.permutation(["a", "b", "s"]).tolist() for _ in allowed]
        rules = [Constraint.from_table(a, (3, 3, 3), names=n) for a, n in zip(allowed, names, strict=True)]
        worlds = [{tuple(t[n.index(v)] for v in "abs") for t in a} for a, n in zip(allowed, names, strict=True)]
        sets = [c for n in range(1, 5) for c in combinations(range(4), n)]
        bad = [c for c in sets if not set.intersection(*(worlds[i] for i in c))]
        found = contradictory_rules(rules)
        assert (found in bad and len(found) == min(map(len, bad))) if bad else found == ()
        sizes.append(len(found))
    assert {2, 3} <= set(sizes) and 0 in sizes
