"""Handwritten formulas whose results are given: digits and operators from what they come to (Li et al., 2020)."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from gedikit.data.formulas import (
    DIGITS,
    MOST_DIGITS,
    OPERATORS,
    Formulas,
    State,
    drawn_operators,
    first_state,
    formulas,
    next_state,
    result,
)
from gedikit.estimator import GEDI
from gedikit.paper.reproduce.running import Request
from gedikit.paper.reproduce.tasks import (
    MNIST,
    MNIST_SMALL,
    Classify,
    Page,
    Pictures,
    Problem,
    Selection,
    reproduce,
)
from gedikit.symbolic import Constraint, Examples, Known, Rows

_TRAIN, _TEST = 10_000, 1000  # formulas; fewer to train on where there are not images enough
_TEST_SEED = 1_000_000  # added to that of the training examples
_SYMBOLS = {"digit": DIGITS, "operator": OPERATORS}
_BATCH = 400  # images
_LONGEST = {MNIST: MOST_DIGITS, MNIST_SMALL: MOST_DIGITS, "digits": 3, "tiny": 2}  # in digits

PAGE = Page(
    "formulas",
    "Handwritten formulas: symbols from results",
    "Formulas of digits and operators between them, as many of each length; what each "
    "comes to is known, as an exact fraction, and nothing else. Digits are images of 1 to 9, each used once; "
    "operators are drawn. A test formula is right if what the network reads comes to the same; those are 1000, of "
    "test images that may occur in several.",
    {"results": "results right", "symbols": "symbols right"},
)


@dataclass(frozen=True)
class Rule:
    """Formulas of one length: the constraint, and the places of results among its known values."""

    constraint: Constraint
    place: Mapping[Fraction, int]
    base: int


@lru_cache
def rule(n_digits: int) -> Rule:
    """A chain of digits and operators whose state is what was read so far.

    A formula may come to thousands of values. Its result is given as two numbers, `high` and `low`, which together
    are its place among all of them: so the chain reads few values at a time.
    """
    states = {first_state(digit) for digit in DIGITS}
    for _ in range(n_digits - 1):
        states = {next_state(state, o, d) for state in states for o in OPERATORS for d in DIGITS}
    place = {value: i for i, value in enumerate(sorted({_value(state) for state in states}))}
    base = ceil(sqrt(len(place)))

    def first(start: int, digit: int) -> State:  # noqa: ARG001
        return first_state(digit)

    def reached(state: State) -> int:
        return place[_value(state)]

    def only(start: int, digit: int) -> int:  # noqa: ARG001
        return reached(first_state(digit))

    def last(state: State, operator: str, digit: int) -> int:
        return reached(next_state(state, operator, digit))

    def is_high(at: int, high: int) -> int | None:
        return at % base if at // base == high else None

    def is_low(rest: int, low: int) -> int | None:
        return 0 if rest == low else None

    read = [only] if n_digits == 1 else [first, *[next_state] * (n_digits - 2), last]
    domains = [(DIGITS,), *[(OPERATORS, DIGITS)] * (n_digits - 1), (base,), (base,)]
    names = [("d0",), *((f"o{i}", f"d{i}") for i in range(1, n_digits)), ("high",), ("low",)]
    return Rule(Constraint.from_chain([*read, is_high, is_low], domains, 0, names=names), place, base)


def _value(state: State) -> Fraction:
    return sum(state, Fraction(0))


@dataclass(frozen=True)
class FormulasTask:
    """Formulas of up to so many digits."""

    most_digits: int = MOST_DIGITS

    @property
    def title(self) -> str:
        return f"up to length {2 * self.most_digits - 1}"

    @property
    def published(self) -> str:
        return "0.98" if self.most_digits == MOST_DIGITS else "–"

    def batch_size(self, pictures: Pictures) -> int:  # noqa: ARG002
        return _BATCH

    def problem(self, pictures: Pictures, seed: int) -> Problem:
        there = np.bincount(pictures.y, minlength=10)[list(DIGITS)].min() * len(DIGITS)
        enough = int(0.8 * there / np.mean(range(1, MOST_DIGITS + 1)))  # drawn: some are more often than expected
        train = formulas(pictures.y, min(_TRAIN, enough), seed)[: self.most_digits]
        test = formulas(pictures.test_y, _TEST, seed + _TEST_SEED, again=True)[: self.most_digits]
        digits, operators = _pictures_of(train, pictures, pictures.x, seed)
        test_digits, test_operators = _pictures_of(test, pictures, pictures.test_x, seed + _TEST_SEED)

        def measure(classify: Classify, model: GEDI | None) -> dict[str, float]:  # noqa: ARG001
            read, signs = classify(test_digits, "digit"), classify(test_operators, "operator")
            right, at_digit, at_sign, correct = 0, 0, 0, 0
            for part in test:
                n, length = part.digits.shape
                shown = np.array(DIGITS)[read[at_digit : at_digit + n * length].reshape(n, length)]
                between = signs[at_sign : at_sign + n * (length - 1)].reshape(n, length - 1)
                at_digit, at_sign = at_digit + n * length, at_sign + n * (length - 1)
                found = [result(d, o) for d, o in zip(shown.tolist(), between.tolist(), strict=True)]
                right += sum(a == b for a, b in zip(found, part.results, strict=True))
                correct += int((shown == pictures.test_y[part.digits]).sum() + (between == part.operators).sum())
            n_tests = sum(len(part.results) for part in test)
            return {"results": right / n_tests, "symbols": correct / (len(read) + len(signs))}

        return Problem(np.concatenate([digits, operators]), _SYMBOLS, _examples(train, len(digits)), measure)


def _pictures_of(
    parts: list[Formulas], pictures: Pictures, images: NDArray[Any], seed: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Of all digits and of all operators, formula after formula."""
    digits = images[np.concatenate([part.digits.ravel() for part in parts])]
    drawn = drawn_operators(np.concatenate([part.operators.ravel() for part in parts]), pictures.side, seed)
    scaled = drawn if pictures.white == 255 else drawn * (pictures.white / 255)
    return digits, scaled.astype(digits.dtype)


def _examples(parts: list[Formulas], n_digits: int) -> list[Examples]:
    """Rows are those of `_pictures_of`: all digits, then all operators."""
    made, at_digit, at_sign = [], 0, n_digits
    for part in parts:
        n, length = part.digits.shape
        digits = np.arange(at_digit, at_digit + n * length).reshape(n, length)
        signs = np.arange(at_sign, at_sign + n * (length - 1)).reshape(n, length - 1)
        at_digit, at_sign = at_digit + digits.size, at_sign + signs.size
        of_length = rule(length)
        place = np.array([of_length.place[value] for value in part.results])
        columns: dict[str, Rows | Known] = {f"d{i}": Rows(column) for i, column in enumerate(digits.T)}
        columns |= {f"o{i + 1}": Rows(column) for i, column in enumerate(signs.T)}
        columns |= {"high": Known(place // of_length.base), "low": Known(place % of_length.base)}
        made.append(Examples(of_length.constraint, columns))
    return made


def reproduce_formulas(*, selection: Selection, request: Request, console: Console) -> Path:
    """Shorter formulas for a CPU: naming clusters by those of length 7 takes it many minutes."""
    return reproduce(PAGE, [FormulasTask(_LONGEST[selection.size])], selection, request, console)
