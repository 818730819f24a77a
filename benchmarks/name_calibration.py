"""How far the probabilities of names can be trusted: Brier score on generated tasks where the truth is known.

python benchmarks/name_calibration.py --tasks 200 --seed 1000
python benchmarks/name_calibration.py --fits 40 --seed 1000

A task is a random rule (sums with the sum given or shown, exclusive or, order, tables with and without symmetries),
few or many examples, and clusters that are named in one of the ways that satisfy the examples, each equally often,
with some rows in a wrong cluster. A name is right if the cluster shows that symbol.

With --fits, networks are trained on few of scikit-learn's digits, half of the time with noise, by 6 to 250 examples
of a rule. A name is right if most rows of the cluster show that symbol. Each fit has a seed of its own.

Beside the Brier score stands that of always saying how often names are right in all tasks together, and that of
always being sure.
"""

import argparse
import time
from collections.abc import Callable
from itertools import product

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from gedikit import GEDI
from gedikit.symbolic import Constraint, Examples, Known, Rows, names_of
from gedikit.symbolic.maps import KNOWN, MAPPED, MapSearch, Patterns

FEW_AND_MANY = (4, 12, 40, 150, 500)
NOISE = (0.0, 0.02, 0.05, 0.1, 0.2)


def a_rule(rng: np.random.Generator) -> tuple[Constraint, list[str]]:
    """A rule and the variables whose values are known."""
    which, c = int(rng.integers(6)), int(rng.integers(4, 11))
    if which == 0:
        return Constraint(lambda a, b, s: a + b == s, domains=(c, c, 2 * c - 1)), ["s"]
    if which == 1:
        return Constraint(lambda a, b, d: a + b == d, domains=(c, c, c)), []
    if which == 2:
        return Constraint(lambda a, b, d: (a + b) % c == d, domains=(c, c, c)), []
    if which == 3:
        return Constraint(lambda a, b: a < b, domains=(c, c)), []
    if which == 4:
        return Constraint(lambda a, s: a % 3 == s, domains=(c, 3)), ["s"]
    every = list(product(range(c), range(c)))
    allowed = [t for t in every if rng.random() < 0.4] or every[:1]
    return Constraint.from_table(allowed, (c, c)), []


def a_naming(rng: np.random.Generator, size: int, patterns: Patterns) -> NDArray[np.int64] | None:
    """One of all namings that satisfy the patterns, each equally often; None where they are too many to count."""
    fixed: dict[int, int] = {}
    for point in range(size):
        counts = []
        for value in range(size):
            found = MapSearch([size], [patterns], one_to_one=True, max_steps=3000).count(fixed | {point: value})
            if not found.exact:
                return None
            counts.append(found.at_least)
        shares = np.array(counts, dtype=np.float64)
        fixed[point] = int(rng.choice(size, p=shares / shares.sum()))
    return np.array([fixed[p] for p in range(size)])


def a_task(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]] | None:
    """Probabilities of the names of a task, whether each is right, and whether its rule could settle it."""
    constraint, known = a_rule(rng)
    allowed = constraint.body.rows  # type: ignore[union-attr]
    shown = allowed[rng.integers(len(allowed), size=int(rng.choice(FEW_AND_MANY)))]
    size = constraint.variables[0].size
    distinct = np.unique(shown, axis=0)
    role = np.tile([KNOWN if v.name in known else MAPPED for v in constraint.variables], (len(distinct), 1))
    named = a_naming(rng, size, Patterns(constraint, role, distinct, np.ones(len(distinct), dtype=bool)))
    if named is None:
        return None
    columns: dict[str, Rows | Known] = {}
    clusters: list[NDArray[np.int64]] = []
    for v, column in zip(constraint.variables, shown.T, strict=True):
        if v.name in known:
            columns[v.name] = Known([v.values[p] for p in column])
        else:
            columns[v.name] = Rows(len(shown) * len(clusters) + np.arange(len(shown)))
            clusters.append(named[column])
    labels = np.concatenate(clusters)
    wrong = rng.random(len(labels)) < rng.choice(NOISE)
    labels[wrong] = rng.integers(size, size=int(wrong.sum()))
    names = names_of([Examples(constraint, columns).alone], labels).names
    (could_be,) = constraint.shortcuts(known=known).names.values()
    settled = np.array([len(possible) == 1 for possible in could_be.values()])
    return np.array([n.probability for n in names]), named == np.arange(size), settled


EVEN_ODD = [(0, 6), (2, 8), (4, 6), (4, 8), (1, 5), (3, 7), (1, 9), (3, 9)]
RULES = ("sum", "even-odd", "add", "mod", "order", "parity", "product", "sum", "order")


def a_rule_of_digits(which: str, c: int) -> tuple[Constraint, list[str], list[tuple[int, ...]]]:
    """A rule, the variables whose values are known, and the tuples that examples show."""
    stated: dict[str, tuple[Callable[..., bool], tuple[int, ...], list[str]]] = {
        "sum": (lambda a, b, s: a + b == s, (c, c, 2 * c - 1), ["s"]),
        "even-odd": (lambda a, b, s: a + b == s, (c, c, 2 * c - 1), ["s"]),
        "add": (lambda a, b, d: a + b == d, (c, c, c), []),
        "mod": (lambda a, b, d: (a + b) % c == d, (c, c, c), []),
        "order": (lambda a, b: a < b, (c, c), []),
        "parity": (lambda a, b, s: (a + b) % 2 == s, (c, c, 2), ["s"]),
        "product": (lambda a, b, s: a * b == s, (c, c, (c - 1) ** 2 + 1), ["s"]),
    }
    holds, domains, known = stated[which]
    constraint = Constraint(holds, domains)
    if which == "even-odd":
        return constraint, known, [(a, b, a + b) for a, b in EVEN_ODD]
    return constraint, known, [tuple(row) for row in constraint.body.rows.tolist()]  # type: ignore[union-attr]


def a_fit(seed: int) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Probabilities of the names of a fit, whether each is right, and whether its rule could settle it."""
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    which = RULES[int(rng.integers(len(RULES)))]
    c = 10 if which == "even-odd" else int(rng.integers(4, 11))
    n = int(rng.choice([6, 12, 25, 50, 100, 250]))
    constraint, known, tuples = a_rule_of_digits(which, c)
    own = [np.flatnonzero(y == digit) for digit in range(c)]
    kept = np.concatenate([rng.choice(r, int(rng.choice([30, 60, 120])), replace=False) for r in own])
    rng.shuffle(kept)
    x, y = x[kept], y[kept]
    if rng.random() < 0.5:
        x = x + rng.normal(0, rng.choice([2.0, 4.0]), x.shape)
    own = [np.flatnonzero(y == digit) for digit in range(c)]
    shown = [tuples[i] for i in rng.integers(len(tuples), size=n)]
    columns: dict[str, Rows | Known] = {
        v.name: Known([t[j] for t in shown])
        if v.name in known
        else Rows([int(rng.choice(own[t[j]])) for t in shown])
        for j, v in enumerate(constraint.variables)
    }
    model = GEDI(c, method="gedi-symbols", budget="quick", max_iter=150, random_state=seed)
    model.fit_examples(x, [Examples(constraint, columns)])
    right = [
        bool((model.labels_ == k).any()) and int(np.bincount(y[model.labels_ == k], minlength=c).argmax()) == k
        for k in range(c)
    ]
    (could_be,) = constraint.shortcuts(known=known).names.values()
    settled = np.array([len(possible) == 1 for possible in could_be.values()])
    return np.array([name.probability for name in model.names_.names]), np.array(right), settled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--fits", type=int, help="networks to train, instead of generated clusters")
    parser.add_argument("--seed", type=int, default=1000)
    asked = parser.parse_args()
    rng, began = np.random.default_rng(asked.seed), time.process_time()
    if asked.fits:
        done = [a_fit(asked.seed + i) for i in range(asked.fits)]
    else:
        done = [task for task in (a_task(rng) for _ in range(asked.tasks)) if task is not None]
    p, right, settled = (np.concatenate(column) for column in zip(*done, strict=True))
    print(f"{len(done)} tasks, {time.process_time() - began:.0f} CPU seconds")
    for what, some in (("all names", np.full(len(p), True)), ("names that their rule can settle", settled)):
        rate, score = right[some].mean(), ((p - right)[some] ** 2).mean()
        print(
            f"{what}: {some.sum()}, of these right {rate:.3f}; Brier score {score:.4f}, of the base rate "
            f"{rate * (1 - rate):.4f}, of always 1 {1 - rate:.4f}"
        )
    print(f"names called decided: {(p >= 0.95).mean():.3f}, of these wrong {1 - right[p >= 0.95].mean():.4f}")
    for low, high in zip((0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95), (0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 1.01), strict=True):
        some = (p >= low) & (p < high)
        if some.any():
            print(f"  said {p[some].mean():.3f}  right {right[some].mean():.3f}  ({some.sum()} names)")


if __name__ == "__main__":
    main()
