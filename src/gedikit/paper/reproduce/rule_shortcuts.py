"""Rules that leave names open: MNIST-Even-Odd and MNIST-Half of rsbench (Bortolotti et al., 2024)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from rich.console import Console

from gedikit.data.equations import EVEN_ODD, HALF, Pairs, equation_pairs
from gedikit.errors import UsageError
from gedikit.estimator import GEDI
from gedikit.paper.reproduce.running import Request
from gedikit.paper.reproduce.tasks import Classify, Page, Pictures, Problem, Selection, reproduce
from gedikit.symbolic import Constraint, Examples, Known, Rows
from gedikit.symbolic.shortcuts import Shortcuts, Shown, shortcuts

EQUATIONS = {"even-odd": EVEN_ODD, "half": HALF}
_TITLES = {"even-odd": "Even-Odd", "half": "Half"}
_PAIRS = 6000  # to train on, where there are images enough
_LABELLED = 5  # rows of each digit that has to be named
_BATCH = 400

PAGE = Page(
    "shortcuts",
    "Rules that leave names open",
    "Pairs of images with their sums, of the equations of rsbench: a rule that several namings of the digits "
    "satisfy. Concept accuracy counts a test image as right if the digit that is read is the one it shows. A name "
    "is wrong if most images of a digit are given that of another, and open where the model says that it does not "
    "know. A fit with any wrong name counts as 1. With labels: 5 images of each digit that the rule cannot name "
    "(Shortcuts.labels_for_maps). Published: most methods claim wrong names in all fits.",
    {"wrong": "fits with a wrong name", "open": "names left open", "concepts": "concept accuracy"},
)


@dataclass(frozen=True)
class ShortcutsTask:
    """Pairs of one set of equations; `labelled`: with labels of those digits that the rule cannot name."""

    equations: str
    labelled: bool = False

    @property
    def title(self) -> str:
        return _TITLES[self.equations] + (", with labels" if self.labelled else "")

    @property
    def published(self) -> str:
        return "–" if self.labelled else "most: 1"

    @property
    def n_digits(self) -> int:
        return 1 + max(max(pair) for pair in EQUATIONS[self.equations])

    def batch_size(self, pictures: Pictures) -> int:  # noqa: ARG002
        return _BATCH

    def problem(self, pictures: Pictures, seed: int) -> Problem:
        pairs = equation_pairs(pictures.y, EQUATIONS[self.equations], self._most(pictures), seed)
        in_task = pictures.test_y < self.n_digits
        test_x, test_y = pictures.test_x[in_task], pictures.test_y[in_task]
        rows = np.arange(pairs.rows.size).reshape(pairs.rows.shape)
        truth = pictures.y[pairs.rows.ravel()]

        def measure(classify: Classify, model: GEDI | None) -> dict[str, float]:
            read = classify(test_x, "digit")
            names = [*range(self.n_digits)] if model is None else claimed_names(model)
            given = [
                names[np.bincount(read[test_y == d], minlength=self.n_digits).argmax()]
                for d in range(self.n_digits)
            ]
            wrong = [name is not None and name != d for d, name in enumerate(given)]
            return {
                "wrong": float(any(wrong)),
                "open": float(np.mean([name is None for name in given])),
                "concepts": float((read == test_y).mean()),
            }

        labels = None
        if self.labelled:
            asked = [digit for _, digit in known_shortcuts(self.equations).labels_for_maps]
            labels = np.full(len(truth), -1)
            for digit in asked:
                labels[np.flatnonzero(truth == digit)[:_LABELLED]] = digit
        symbols = {"digit": tuple(range(self.n_digits))}
        examples = [_examples(Pairs(rows, pairs.sums), self.n_digits)]
        return Problem(pictures.x[pairs.rows.ravel()], symbols, examples, measure, labels)

    def _most(self, pictures: Pictures) -> int:
        """As many pairs as there are images for, at most those wanted."""
        equations = EQUATIONS[self.equations]
        share = np.bincount(np.ravel(equations), minlength=10) / len(equations)  # of each digit, a pair
        there = np.bincount(pictures.y, minlength=10)
        enough = min(there[d] / share[d] for d in range(10) if share[d])
        return int(min(_PAIRS, 0.85 * enough))  # drawn: some are more often than expected


@lru_cache
def pair_sum(n_digits: int) -> Constraint:
    return Constraint(lambda a, b, s: a + b == s, domains=(n_digits, n_digits, 2 * n_digits - 1))


@lru_cache
def known_shortcuts(equations: str) -> Shortcuts:
    """What the equations leave open, as `gedikit rules check` finds it."""
    pairs = EQUATIONS[equations]
    a, b = zip(*pairs, strict=True)
    columns = {"a": a, "b": b, "s": [x + y for x, y in pairs]}
    n_digits = 1 + max(max(pair) for pair in pairs)
    return shortcuts([Shown(pair_sum(n_digits), columns, known=["s"])])


def claimed_names(model: GEDI) -> list[int | None]:
    """The digit that each cluster is said to stand for; None where that is left open."""
    return [int(name.value) if name.decided else None for name in model.names_.names]


def _examples(pairs: Pairs, n_digits: int) -> Examples:
    a, b = pairs.rows.T
    return Examples(pair_sum(n_digits), {"a": Rows(a), "b": Rows(b), "s": Known(pairs.sums)})


def tasks(equations: Sequence[str]) -> list[ShortcutsTask]:
    for name in equations:
        if name not in EQUATIONS:
            raise UsageError(f"--equations is one of {', '.join(EQUATIONS)}, not {name}")
    chosen = [name for name in EQUATIONS if not equations or name in equations]
    return [ShortcutsTask(name, labelled) for name in chosen for labelled in (False, True)]


def reproduce_shortcuts(
    equations: Sequence[str], *, selection: Selection, request: Request, console: Console
) -> Path:
    return reproduce(PAGE, tasks(equations), selection, request, console)
