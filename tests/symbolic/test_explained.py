"""Examples explained, against going through all values of images and gaps."""

from itertools import product

import numpy as np
import pytest
import torch

from gedikit.symbolic import Constraint, Examples, Known, Rows, Symbols
from gedikit.symbolic import explained as module
from gedikit.symbolic.explained import explained, log_possible

ORDER = Constraint(lambda a, b, s: a < b and a + b != s, domains=(4, 4, 5))


def drawn(seed, holds=True, q=1.0):
    """Examples with gaps and repeated images, and the log-posteriors of five images over four symbols."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 5, (12, 2))
    rows[rng.random(rows.shape) < 0.3] = -1
    rows[(rows < 0).all(1), 0] = 0
    known = np.where(rng.random(12) < 0.5, rng.integers(0, 5, 12), -1)
    columns = {"a": Rows(rows[:, 0]), "b": Rows(rows[:, 1]), "s": Known(known)}
    examples = Examples(ORDER, columns, holds=[holds] * 12, probability=q)
    log_p = torch.log_softmax(2 * torch.from_numpy(rng.normal(size=(5, 4))), -1)
    return examples.of(Symbols.of({"digit": 4})), rows, known, log_p


def by_all_values(rows, known, p, holds, q):
    """P that some values of the gaps agree with what is said of one example, and the values with their weights."""
    images = sorted({r for r in rows if r >= 0})
    total, worlds = 0.0, {}
    for shown in product(range(4), repeat=len(images)):
        weight = np.prod([p[i, v] for i, v in zip(images, shown, strict=True)])
        value = dict(zip(images, shown, strict=True))
        options = [[value[r]] if r >= 0 else range(4) for r in rows] + [[known] if known >= 0 else range(5)]
        ways = list(product(*options))
        agree = [(w[0] < w[1] and w[0] + w[1] != w[2]) == holds for w in ways]
        total += weight * (q * any(agree) + (1 - q) * (not all(agree)))
        for w, good in zip(ways, agree, strict=True):
            worlds[w] = weight * (q if good else 1 - q)
    return total, worlds


@pytest.mark.parametrize(("holds", "q"), [(True, 1.0), (False, 1.0), (True, 0.9), (False, 0.8)])
def test_equals_going_through_all_values(holds, q):
    placed, rows, known, log_p = drawn(3, holds, q)
    found = log_possible(placed, log_p)
    for i in range(len(placed)):
        p, worlds = by_all_values(rows[i].tolist(), int(known[i]), log_p.exp().numpy(), holds, q)
        assert found[i] == (
            pytest.approx(np.log(p), abs=1e-6) if p > 1e-6 else pytest.approx(-np.inf) or found[i] < -13
        )
        if p <= 1e-6:
            continue
        told = explained(placed, i, log_p, 3)
        assert told.log_probability == pytest.approx(found[i])
        best = sorted(worlds.values(), reverse=True)[:3]
        share = [weight / sum(worlds.values()) for weight in best]
        assert [w.probability for w in told.worlds] == pytest.approx([s for s in share if s > 0], abs=1e-6)
        for w in told.worlds:
            weight = worlds[w.values["a"], w.values["b"], w.values["s"]]
            assert weight / sum(worlds.values()) == pytest.approx(w.probability, abs=1e-6)


@pytest.mark.parametrize("listed", [True, False])
def test_a_gap_is_never_held_against_an_example(listed, monkeypatch):
    """The same images with fewer values known are at least as probable; surely so where one value is possible."""
    step = Constraint.from_chain(
        lambda c, a, b, s: c if a + b == s else None, [(4, 4, 7)], start=0, names=[("a", "b", "s")]
    )
    if not listed:
        monkeypatch.setattr(module, "MAX_TUPLES", 0)
    columns = {"a": Rows([0, 0, 0]), "b": Rows([1, 1, -1]), "s": Known([5, None, 5])}
    placed = Examples(step, columns).of(Symbols.of({"digit": 4}))
    log_p = torch.tensor([[0.01, 0.01, 0.08, 0.9], [0.01, 0.09, 0.8, 0.1]]).double().log()
    told, no_sum, no_b = log_possible(placed, log_p)
    assert told == pytest.approx(np.log(0.9 * 0.8 + 0.08 * 0.1))
    assert no_sum == pytest.approx(0, abs=1e-6) and no_b == pytest.approx(np.log(0.98), abs=1e-6)
    assert no_b > told


def test_a_missing_value_leaves_a_surely_violated_example_possible():
    """Of a < b with b unknown, no value of a is sure: something else may be less."""
    from gedikit.symbolic.contradictions import contradiction
    from gedikit.symbolic.names import names_of

    less = Constraint(lambda a, b: a < b, domains=(3, 3))
    given = Examples(less, {"a": Rows([0, 0]), "b": Rows([-1, 1])}, holds=[False, True])
    placed = given.alone
    assert contradiction([placed]) is None
    assert names_of([placed], np.array([0, 2])).violated == 0
