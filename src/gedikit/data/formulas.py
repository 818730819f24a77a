"""Handwritten formulas whose results are known: images of digits, and between them drawn operators.

As in HWF (Li et al., 2020): digits 1 to 9, the operators +, −, × and ÷ with their precedence, results as exact
fractions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from jaxtyping import Float, Int64, UInt8
from numpy.typing import NDArray

from gedikit.data.addition import rows_that_show

OPERATORS = ("+", "−", "×", "÷")
DIGITS = tuple(range(1, 10))
MOST_DIGITS = 4  # of a formula of length 7
# strokes from (x, y) to (x, y) in a square from −1 to 1; a dot is a stroke that ends where it begins
_STROKES = {
    "+": ((-0.6, 0, 0.6, 0), (0, -0.6, 0, 0.6)),
    "−": ((-0.6, 0, 0.6, 0),),
    "×": ((-0.45, -0.45, 0.45, 0.45), (-0.45, 0.45, 0.45, -0.45)),
    "÷": ((-0.6, 0, 0.6, 0), (0, -0.45, 0, -0.45), (0, 0.45, 0, 0.45)),
}
_MOST_STROKES = 3


@dataclass(frozen=True)
class Formulas:
    """Formulas of one length: rows of images of digits, which operators stand between them, and the results."""

    digits: Int64[np.ndarray, "n d"]
    operators: Int64[np.ndarray, "n _"]  # positions in OPERATORS
    results: list[Fraction]


def formulas(labels: NDArray[np.integer], n: int, seed: int, *, again: bool = False) -> list[Formulas]:
    """n formulas of 1 to 4 digits, as many of each length; no image of a digit is used twice unless `again`."""
    rng = np.random.default_rng([seed, n])
    shares = np.bincount(np.arange(n) % MOST_DIGITS, minlength=MOST_DIGITS)
    shown = [rng.integers(1, 10, size=(count, length + 1)) for length, count in enumerate(shares)]
    flat = np.concatenate([s.ravel() for s in shown])[:, None]
    rows = np.split(rows_that_show(flat, labels, rng, again=again)[:, 0], np.cumsum([s.size for s in shown])[:-1])
    made = []
    for digits, of_digits in zip(shown, rows, strict=True):
        operators = rng.integers(len(OPERATORS), size=(len(digits), digits.shape[1] - 1))
        results = [result(d, o) for d, o in zip(digits.tolist(), operators.tolist(), strict=True)]
        made.append(Formulas(of_digits.reshape(digits.shape), operators, results))
    return made


def result(digits: Sequence[int], operators: Sequence[int]) -> Fraction:
    """What a formula of digits and positions of operators comes to.

    >>> result([1, 2, 3, 4], [0, 2, 3])  # 1 + 2 × 3 ÷ 4
    Fraction(5, 2)
    """
    state = first_state(digits[0])
    for operator, digit in zip(operators, digits[1:], strict=True):
        state = next_state(state, OPERATORS[operator], digit)
    return sum(state, Fraction(0))


State = tuple[Fraction, Fraction]
"""What the terms before come to, and the term that × and ÷ still change: the value is their sum."""


def first_state(digit: int) -> State:
    return Fraction(0), Fraction(digit)


def next_state(state: State, operator: str, digit: int) -> State:
    done, term = state
    if operator == "×":
        return done, term * digit
    if operator == "÷":
        return done, term / digit
    return done + term, Fraction(digit if operator == "+" else -digit)


def drawn_operators(which: NDArray[np.integer], side: int, seed: int) -> UInt8[np.ndarray, "n c"]:
    """A picture of each operator, white on black: strokes moved, turned, stretched and bent a little, in pens of
    different width."""
    rng = np.random.default_rng([seed, len(which), side])
    n = len(which)
    strokes = np.full((len(OPERATORS), _MOST_STROKES, 4), np.nan)
    for i, operator in enumerate(OPERATORS):
        strokes[i, : len(_STROKES[operator])] = _STROKES[operator]
    ends = strokes[which].reshape(n, _MOST_STROKES, 2, 2)
    ends = ends + rng.normal(0, 0.05, ends.shape)
    angle = rng.uniform(-0.25, 0.25, n)
    turn = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], -1).reshape(n, 1, 2, 2)
    stretched = turn * rng.uniform(0.75, 1.15, (n, 1, 1, 2))
    ends = ends @ stretched + rng.uniform(-0.15, 0.15, (n, 1, 1, 2))
    grid = (np.arange(side) + 0.5) / side * 2 - 1
    points = np.stack(np.meshgrid(grid, grid), -1).reshape(-1, 2)
    pen = np.maximum(rng.uniform(0.07, 0.14, (n, 1)), 1.5 / side)  # seen in small pictures too
    ink = np.zeros((n, side * side))
    for stroke in range(_MOST_STROKES):
        distance = _distance(points, ends[:, stroke])
        ink = np.fmax(ink, 1 / (1 + np.exp((distance - pen) * (2.5 * side / 2))))
    return (255 * ink).round().astype(np.uint8)


def _distance(points: Float[np.ndarray, "p 2"], ends: Float[np.ndarray, "n 2 2"]) -> Float[np.ndarray, "n p"]:
    """Of every point to every stroke; NaN for a stroke that is not there."""
    begin, along = ends[:, 0], ends[:, 1] - ends[:, 0]
    to_point = points[None] - begin[:, None]
    length = np.maximum((along**2).sum(-1), 1e-12)
    share = np.clip((to_point * along[:, None]).sum(-1) / length[:, None], 0, 1)
    distance: Float[np.ndarray, "n p"] = np.linalg.norm(to_point - share[..., None] * along[:, None], axis=-1)
    return distance
