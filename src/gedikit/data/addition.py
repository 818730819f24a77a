"""Examples of the addition task: images of digits of which the last ones show the sum of the first."""

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from gedikit.errors import DataError

SIZES = {100: 500, 1000: 100, 10_000: 25}  # the paper's numbers of examples, and how many epochs of each


def addition_examples(labels: NDArray[np.integer], n: int, seed: int) -> Int64[np.ndarray, "n 3"]:
    """Rows of images for n triples: pairs (a, b) uniform among those with a + b ≤ 9, no image used twice."""
    rng = np.random.default_rng([seed, n])
    pairs = np.array([(a, b) for a in range(10) for b in range(10 - a)])
    drawn = pairs[rng.integers(len(pairs), size=n)]
    return _rows_that_show(np.column_stack([drawn, drawn.sum(1)]), labels, rng)


def long_addition_examples(labels: NDArray[np.integer], n: int, seed: int, digits: int) -> Int64[np.ndarray, "n v"]:
    """Rows of images for n sums of two numbers of so many digits, uniform, no image used twice.

    The digits of a, then of b, then of the sum, which has one more; the last digit of each first.
    """
    rng = np.random.default_rng([seed, n, digits])
    a, b = rng.integers(10**digits, size=(2, n))
    columns = [
        number // 10**place % 10
        for number, count in ((a, digits), (b, digits), (a + b, digits + 1))
        for place in range(count)
    ]
    return _rows_that_show(np.column_stack(columns), labels, rng)


def _rows_that_show(
    digits: Int64[np.ndarray, "n v"], labels: NDArray[np.integer], rng: np.random.Generator
) -> Int64[np.ndarray, "n v"]:
    rows = np.empty(digits.shape, dtype=np.int64)
    for digit in range(10):
        places = digits == digit
        images = np.flatnonzero(labels == digit)
        needed = places.sum()
        if needed > len(images):
            raise DataError(
                f"{len(digits)} examples need {needed} images of the digit {digit}, and there are {len(images)}"
            )
        rows[places] = rng.permutation(images)[:needed]
    return rows
