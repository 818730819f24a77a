"""Visual Sudoku: complete boards of images. The rule says which digits differ, and none of their names."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import confusion_matrix

from gedikit.data.sudoku import SIDES, all_boards, board_examples, units
from gedikit.errors import UsageError
from gedikit.estimator import GEDI
from gedikit.paper.reproduce.running import Request
from gedikit.paper.reproduce.tasks import Classify, Page, Pictures, Problem, Selection, reproduce
from gedikit.symbolic import Constraint, Examples

_BOARDS = {4: 1000, 9: 500}  # by their side, where there are images enough
_TEST_BOARDS = 1000
_LABELLED = 5  # rows of each digit that has to be named
_TEST_SEED = 1_000_000
_BATCH = 400  # images

PAGE = Page(
    "sudoku",
    "Visual Sudoku",
    "Complete valid boards, each image used once, no cell labelled. A board is right if all its cells are, up to "
    "one renaming for the whole model, found on the training images. Named: with labels of 5 images for each digit "
    "but one, because the rule cannot tell any two apart. Tests are 1000 boards of test images, which may occur in "
    "several.",
    {"boards": "boards right up to a renaming", "named": "boards right by name", "cells": "cells right up to it"},
)


@dataclass(frozen=True)
class SudokuTask:
    """Boards of one side; `named`: with labels that settle which digit is which."""

    side: int
    named: bool = False

    @property
    def title(self) -> str:
        return f"{self.side} × {self.side}" + (", named" if self.named else "")

    @property
    def published(self) -> str:
        return "–"

    def batch_size(self, pictures: Pictures) -> int:  # noqa: ARG002
        together = self.side**2 if self.side == min(SIDES) else self.side
        return _BATCH // together * together

    def problem(self, pictures: Pictures, seed: int) -> Problem:
        enough = int(np.bincount(pictures.y, minlength=10)[1 : self.side + 1].min()) // self.side
        train = board_examples(pictures.y, self.side, min(_BOARDS[self.side], enough), seed)
        test = board_examples(pictures.test_y, self.side, _TEST_BOARDS, seed + _TEST_SEED, again=True)
        x, truth = pictures.x[train.ravel()], pictures.y[train.ravel()] - 1
        shown = pictures.test_y[test] - 1

        def measure(classify: Classify, model: GEDI | None) -> dict[str, float]:  # noqa: ARG001
            counts = confusion_matrix(truth, classify(x, "digit"), labels=range(self.side))
            true, cluster = linear_sum_assignment(-counts)
            name = np.empty(self.side, dtype=np.int64)
            name[cluster] = true
            read = classify(pictures.test_x[test.ravel()], "digit").reshape(test.shape)
            right = name[read] == shown
            return {
                "boards": float(right.all(1).mean()),
                "named": float((read == shown).all(1).mean()),
                "cells": float(right.mean()),
            }

        rows = np.arange(train.size).reshape(train.shape)
        digits = tuple(range(1, self.side + 1))
        labels = _some_labels(truth, self.side - 1) if self.named else None
        return Problem(x, {"digit": digits}, board_rules(self.side, rows), measure, labels)


def _some_labels(truth: NDArray[np.int64], n_named: int) -> NDArray[np.int64]:
    """A few rows of each of the first digits; the last one is what is left."""
    labels = np.full(len(truth), -1)
    for digit in range(n_named):
        rows = np.flatnonzero(truth == digit)[:_LABELLED]
        labels[rows] = digit
    return labels


@lru_cache
def valid_board() -> Constraint:
    """The 288 boards of side 4."""
    side = min(SIDES)
    boards = all_boards(side)
    names = [f"c{i}" for i in range(side * side)]
    return Constraint.from_table(boards, [range(1, side + 1)] * side**2, names=names)


@lru_cache
def all_different(n: int) -> Constraint:
    """n values in n places, each once: a chain that remembers which were there."""

    def other(used: frozenset[int], x: int) -> frozenset[int] | None:
        return None if x in used else used | {x}

    return Constraint.from_chain(other, [(range(1, n + 1),)] * n, frozenset())


def board_rules(side: int, rows: NDArray[np.int64]) -> list[Examples]:
    """Whole boards where all can be listed, else every row, column and block of each."""
    if side == min(SIDES):
        return [Examples(valid_board(), rows)]
    return [
        Examples(all_different(side), rows[:, of_kind].reshape(-1, side)) for of_kind in np.split(units(side), 3)
    ]


def tasks(sides: Sequence[int]) -> list[SudokuTask]:
    for side in sides:
        if side not in SIDES:
            raise UsageError(f"boards have side {' or '.join(map(str, SIDES))}, not {side}")
    return [SudokuTask(side, named) for side in sorted(set(sides or SIDES[:1])) for named in (False, True)]


def reproduce_sudoku(sides: Sequence[int], *, selection: Selection, request: Request, console: Console) -> Path:
    return reproduce(PAGE, tasks(sides), selection, request, console)
