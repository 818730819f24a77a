"""Maps and namings that satisfy a rule, against brute force over all functions and permutations."""

import doctest
import re
import sys
from itertools import combinations, permutations, product
from pathlib import Path

import numpy as np
import pytest

from gedikit.errors import DataError, UsageError
from gedikit.symbolic import Constraint
from gedikit.symbolic.interchangeable import interchangeable
from gedikit.symbolic.maps import MAPPED, Count, MapSearch, Patterns, Symmetries, smallest_hitting_set
from gedikit.symbolic.shortcuts import Shown, _Asked, shortcuts

EVEN_ODD = [(0, 6), (2, 8), (4, 6), (4, 8), (1, 5), (3, 7), (1, 9), (3, 9)]
HALF = [(0, 0), (0, 1), (2, 3), (2, 4)]


def summed(pairs):
    return {"a": [a for a, _ in pairs], "b": [b for _, b in pairs], "s": [a + b for a, b in pairs]}


def brute_force(allowed, shown, kinds, sizes):
    """Maps and namings by trying all; `kinds` has the kind of every position, None where values are known."""
    allowed = set(allowed)
    every = {k: (list(product(range(n), repeat=n)), list(permutations(range(n)))) for k, n in sizes.items()}
    found = []
    for which in (0, 1):
        maps = [dict(zip(every, chosen, strict=True)) for chosen in product(*(e[which] for e in every.values()))]
        found.append(
            [
                m
                for m in maps
                if all(
                    tuple(x if k is None else m[k][x] for x, k in zip(t, kinds, strict=True)) in allowed
                    for t in shown
                )
            ]
        )
    return found


def random_rule(rng):
    """A rule over a few positions of one or two kinds, some known, with the tuples that are shown."""
    n_kinds = int(rng.integers(1, 3))
    sizes = {k: int(rng.integers(2, 5 if n_kinds == 1 else 4)) for k in range(n_kinds)}
    kinds = [int(rng.integers(n_kinds)) for _ in range(int(rng.integers(1, 4)))]
    kinds = [*range(n_kinds), *kinds][: max(n_kinds, len(kinds))]
    known = rng.random() < 0.4
    domains = [sizes[k] for k in kinds] + ([3] if known else [])
    every = list(product(*map(range, domains)))
    if rng.random() < 0.5:  # with structure, so that symmetries occur
        modulus = int(rng.integers(2, 4))
        allowed = [t for t in every if sum(t) % modulus == 0]
    else:
        allowed = [t for t in every if rng.random() < rng.uniform(0.2, 1)]
    if not allowed:
        allowed = [every[0]]
    shown = allowed
    if rng.random() < 0.5:
        shown = [allowed[i] for i in rng.choice(len(allowed), size=min(len(allowed), 4), replace=False)]
    return domains, [*kinds, *([None] if known else [])], sizes, allowed, shown


def asked(rng):
    """A random rule as it is asked about, and all its maps and namings."""
    domains, kinds, sizes, allowed, shown = random_rule(rng)
    names = [f"x{i}" for i in range(len(domains))]
    columns = {n: [t[i] for t in shown] for i, n in enumerate(names)}
    known = [n for n, k in zip(names, kinds, strict=True) if k is None]
    of_kind = {n: str(k) for n, k in zip(names, kinds, strict=True) if k is not None}
    given = None if len(shown) == len(allowed) else columns
    maps, namings = brute_force(allowed, shown, kinds, sizes)
    return [Shown(Constraint.from_table(allowed, domains), given, known)], of_kind, sizes, maps, namings


def test_numbers_equal_brute_force_on_200_random_rules():
    rng = np.random.default_rng(100)
    several = 0
    for _ in range(200):
        shown, kinds, _, maps, namings = asked(rng)
        for one_to_one, found in ((False, maps), (True, namings)):
            search = _Asked(shown, kinds).search(one_to_one, 4000)
            assert search.count() == Count(len(found), len(found))
        total, kept = _Asked(shown, kinds).search(True, 4000).kept_names({})
        points = _Asked(shown, kinds).points
        assert total == len(namings)
        assert kept.tolist() == pytest.approx([sum(m[int(k)][s] == s for m in namings) for k, s in points])
        several += len(namings) > 1
    assert several > 60  # the rules are not all decided


def test_names_and_labels_equal_brute_force():
    rng = np.random.default_rng(101)
    for _ in range(25):
        shown, kinds, sizes, maps, namings = asked(rng)
        found = shortcuts(shown, kinds=kinds)
        assert (found.maps.at_most, found.namings.at_least) == (len(maps), len(namings))
        for k, size in sizes.items():
            for s in range(size):
                assert set(found.names[str(k)][s]) == {m[k][s] for m in namings}
                assert set(found.maps_to[str(k)][s]) == {m[k][s] for m in maps}
            assert sorted(found.groups[str(k)]) == pairwise_groups(size, [m[k] for m in namings])
        for labels, others in ((found.labels, namings), (found.labels_for_maps, maps)):
            keep = [m for m in others if all(m[int(k)][s] == s for k, s in labels)]
            assert len(keep) == 1
            points = [(k, s) for k, size in sizes.items() for s in range(size)]
            if labels and len(others) <= 30:  # no fewer labels do
                fewer = product(points, repeat=len(labels) - 1)
                assert all(sum(all(m[k][s] == s for k, s in some) for m in others) > 1 for some in fewer)


def pairwise_groups(size, namings):
    """The largest sets of symbols any two of which some naming gives the name of the other, by trying all sets."""
    as_other = {(s, m[s]) for m in namings for s in range(size)}
    sets = [
        group
        for n in range(2, size + 1)
        for group in combinations(range(size), n)
        if all((a, b) in as_other and (b, a) in as_other for a, b in combinations(group, 2))
    ]
    return sorted(g for g in sets if not any(set(g) < set(other) for other in sets))


def test_groups_are_orbits_where_all_is_shown_and_never_chained():
    """Of symmetries of a rule alone, groups are the sets that they take to each other."""
    turned = Constraint(lambda a, b: (a + 2) % 6 == b, domains=(6, 6)).shortcuts()
    assert turned.groups == {"symbol": [tuple(range(6))]}  # though no naming exchanges two names alone
    one = Constraint(lambda a, b: a < b, domains=(3, 3)).shortcuts({"a": [0], "b": [1]})
    assert one.groups == {"symbol": [(1, 2)]} and one.undecided == {"symbol": (0, 1, 2)}
    assert "names it leaves open one way only: 0 as 1; 2 as 0" in str(one)
    assert interchangeable("abcd", {"a": "ab", "b": "abc", "c": "bc", "d": "da"}) == [("a", "b"), ("b", "c")]


def test_examples_to_add_are_the_fewest_that_leave_one_naming():
    """Against all sets of tuples that the rule allows and that are not shown yet."""
    rng, settled, hopeless = np.random.default_rng(102), 0, 0
    for _ in range(150):
        domains, kinds, sizes, allowed, shown = random_rule(rng)
        names = [f"x{i}" for i in range(len(domains))]
        given = {n: [t[i] for t in shown] for i, n in enumerate(names)}
        known = [n for n, k in zip(names, kinds, strict=True) if k is None]
        of_kind = {n: str(k) for n, k in zip(names, kinds, strict=True) if k is not None}
        _, namings = brute_force(allowed, shown, kinds, sizes)
        others = [t for t in allowed if t not in shown]
        symmetric = len(brute_force(allowed, allowed, kinds, sizes)[1]) > 1
        if len(namings) == 1 or len(others) > 12 or (symmetric and hopeless > 8):
            continue
        found = shortcuts([Shown(Constraint.from_table(allowed, domains), given, known)], kinds=of_kind)

        def left(more, shown=shown, allowed=allowed, kinds=kinds, sizes=sizes):
            return len(brute_force(allowed, [*shown, *more], kinds, sizes)[1])

        sizes_that_do = [n for n in range(1, 4) if any(left(more) == 1 for more in combinations(others, n))]
        assert found.symmetric == symmetric
        if symmetric:
            assert found.examples == ()
            hopeless += 1
        else:
            chosen = [tuple(example[n] for n in names) for example in found.examples]
            assert left(chosen) == 1 and set(chosen) <= set(others)
            assert len(chosen) == min(sizes_that_do, default=len(chosen))
            settled += 1
    assert settled > 5 and hopeless > 5


def test_examples_to_add_are_found_where_the_fewest_are_not(monkeypatch):
    order = Constraint(lambda a, b: a < b, domains=(5, 5))
    monkeypatch.setattr(
        sys.modules["gedikit.symbolic.shortcuts"], "TRIED", 1
    )  # the package has a function of this name
    found = order.shortcuts({"a": [0], "b": [1]})
    pairs = [(0, 1), *((e["a"], e["b"]) for e in found.examples)]
    assert order.shortcuts({"a": [a for a, _ in pairs], "b": [b for _, b in pairs]}).settled


def test_even_odd_and_half_of_rsbench():
    """rsbench publishes 49 for Even-Odd: as many as there are maps of the digits to 0 … 10."""
    addition = Constraint(lambda a, b, s: a + b == s, domains=(10, 10, 19))
    found = addition.shortcuts(summed(EVEN_ODD), known=["s"])
    assert (found.maps.at_least, found.maps.at_most) == (36, 36)
    assert (found.namings.at_least, found.namings.at_most) == (2, 2)
    assert found.groups == {"symbol": [(0, 5), (1, 6), (2, 7), (3, 8), (4, 9)]}
    assert len(found.labels) == 1 and len(found.labels_for_maps) == 2
    settled = addition.shortcuts(summed(EVEN_ODD), known=["s"], labelled={"symbol": [s for _, s in found.labels]})
    assert settled.settled and settled.maps.at_most == 6
    added = {name: [*column, found.examples[0][name]] for name, column in summed(EVEN_ODD).items()}
    assert addition.shortcuts(added, known=["s"]).settled
    wider = Constraint(lambda a, b, s: a + b == s, domains=(11, 11, 21))
    assert wider.shortcuts(summed(EVEN_ODD), known=["s"]).maps.at_most == 49 * 11  # 10 is in no equation
    half = Constraint(lambda a, b, s: a + b == s, domains=(5, 5, 9)).shortcuts(summed(HALF), known=["s"])
    assert (half.maps.at_most, half.namings.at_most) == (3, 1)
    assert half.maps_to == {"symbol": {0: (0,), 1: (1,), 2: (2, 3, 4), 3: (3, 1, 2), 4: (4, 2, 3)}}
    assert half.groups == {"symbol": []} and len(half.labels_for_maps) == 1


def test_symmetries_make_large_counts_exact():
    xor = Constraint(lambda a, b, c, d: a ^ b ^ c == d, domains=(4,) * 4).shortcuts()
    assert (xor.maps.at_most, xor.namings.at_most) == (4**3, 4 * 6)  # affine maps, and those that are invertible
    assert xor.maps.exact and xor.namings.exact and xor.undecided == {"symbol": tuple(range(4))}
    assert len(xor.labels) == 3
    different = Constraint(lambda a, b: a != b, domains=(9, 9))
    search = MapSearch([9], [pairs := _patterns(different)], one_to_one=False, max_steps=200)
    assert not search.count().exact
    search = MapSearch([9], [pairs], one_to_one=False, max_steps=200, symmetries=Symmetries([9], [pairs], 4000))
    assert search.count() == Count(362880, 362880)


def _patterns(constraint):
    rows = constraint.body.rows
    return Patterns(constraint, np.full(rows.shape, MAPPED), rows, np.ones(len(rows), dtype=bool))


def test_bounds_where_steps_do_not_suffice():
    rng = np.random.default_rng(0)
    rows = np.unique(rng.integers(0, 6, (12, 3)), axis=0)
    rule = Constraint.from_table([*map(tuple, rows.tolist())], (6, 6, 6))
    exact, rough = (rule.shortcuts({"x0": [int(rows[0, 0])]}, max_steps=n) for n in (4000, 3))
    assert exact.maps.exact and not rough.maps.exact
    assert rough.maps.at_least <= exact.maps.at_least <= rough.maps.at_most
    assert set(exact.names["symbol"][0]) <= set(rough.names["symbol"][0])


def test_known_values_are_not_mapped_and_pictures_may_show_anything():
    parity = Constraint(lambda a, s: a % 2 == s, domains=(4, 2))
    mapped, known = parity.shortcuts(), parity.shortcuts(known=["s"])
    assert (mapped.namings.at_most, known.namings.at_most) == (8, 4)
    assert (mapped.names["a"][0], known.names["symbol"][0]) == ((0, 1, 2, 3), (0, 2))
    even = parity.shortcuts({"s": [0, 0]}, known=["s"])  # any even digit may be shown, odd ones never are
    assert even.namings.at_most == 4 and even.never_shown == {"symbol": (1, 3)}


def test_examples_that_violate_the_rule_count_too():
    order = Constraint(lambda a, b: a < b, domains=(3, 3))
    one = order.shortcuts({"a": [0], "b": [1]})
    both = order.shortcuts({"a": [0, 2], "b": [1, 1]}, holds=[True, False])
    assert one.namings.at_most == 3  # 01, 02, 12 stay in order
    assert both.namings.at_most == 1  # and 2 is not below 1
    gap = order.shortcuts({"a": [0, 2], "b": [1, None]}, holds=[True, False])  # 2 is below none of what is there
    assert gap.namings.at_most == 1


def test_a_program_is_counted_by_its_circuit():
    pytest.importorskip("problog")
    program = """
    nn(digit, [X], Y, [0,1,2,3]) :: digit(X, Y).
    nn(sign, [X], Y, [plus,minus]) :: sign(X, Y).
    result(A, S, B, N) :- digit(A, X), sign(S, plus), digit(B, Y), N is X + Y.
    result(A, S, B, N) :- digit(A, X), sign(S, minus), digit(B, Y), N is X - Y.
    """
    found = Constraint.from_program(program, "result(a, o, b, 0)").shortcuts()
    allowed = [t for t in product(range(4), range(2), range(4)) if (t[0] + t[2], t[0] - t[2])[t[1]] == 0]
    maps, namings = brute_force(allowed, allowed, ["d", "s", "d"], {"d": 4, "s": 2})
    assert (found.maps.at_most, found.namings.at_most) == (len(maps), len(namings))
    assert set(found.symbols) == {"digit", "sign"}


def test_what_does_not_fit_is_refused():
    rule = Constraint(lambda a, b: a < b, domains=(3, 3))
    with pytest.raises(DataError, match=r"row 1 of examples contradicts .*: a = 2, b = 1"):
        rule.shortcuts({"a": [0, 2], "b": [1, 1]})
    with pytest.raises(DataError, match="row 0 of examples has 7 for a"):
        rule.shortcuts({"a": [7], "b": [1]})
    with pytest.raises(UsageError, match="'z', which is no variable"):
        rule.shortcuts(known=["z"])
    with pytest.raises(UsageError, match="no symbols to name"):
        rule.shortcuts(known=["a", "b"])


def test_smallest_hitting_set_is_smallest():
    rng = np.random.default_rng(3)
    for _ in range(30):
        sets = [frozenset(rng.choice(6, size=rng.integers(1, 4), replace=False).tolist()) for _ in range(6)]
        found = smallest_hitting_set(sets)
        assert all(s.intersection(found) for s in sets)
        smaller = product(range(6), repeat=len(found) - 1)
        assert not any(all(s.intersection(some) for s in sets) for some in smaller)


def test_the_example_of_the_page_runs():
    page = Path(__file__).parents[2] / "docs" / "symbolic.md"
    section = page.read_text().partition("## Names\n")[2]
    (block,) = re.findall(r"```py\n(>>>.*?)```", section, re.DOTALL)
    test = doctest.DocTestParser().get_doctest(block, {}, "docs/symbolic.md", str(page), 0)
    failed, tried = doctest.DocTestRunner().run(test)
    assert tried and not failed
