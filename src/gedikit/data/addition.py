"""Examples of the addition task: images of digits of which the last ones show the sum of the first, or whose sum is
known."""

from dataclasses import dataclass

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
    return rows_that_show(np.column_stack([drawn, drawn.sum(1)]), labels, rng)


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
    return rows_that_show(np.column_stack(columns), labels, rng)


@dataclass(frozen=True)
class GivenSums:
    """Images of the digits of two numbers, and the digits of their sum, which are known; the last of each first."""

    rows: Int64[np.ndarray, "n _"]  # of the digits of a, then of b
    sums: Int64[np.ndarray, "n _"]  # a digit more than a and b have


def given_sums(labels: NDArray[np.integer], n: int, seed: int, digits: int) -> GivenSums:
    """n sums of two numbers of so many digits, made of images in random order, none of which is used twice."""
    needed = 2 * digits * n
    if needed > len(labels):
        raise DataError(f"{n} sums of {digits} digits need {needed} images, and there are {len(labels)}")
    rng = np.random.default_rng([seed, n, digits])
    rows = rng.permutation(len(labels))[:needed].reshape(n, 2 * digits)
    return GivenSums(rows, digits_of_sum(*np.split(labels[rows], 2, axis=1)))


def redrawn_sums(labels: NDArray[np.integer], n: int, seed: int, digits: int) -> GivenSums:
    """n sums whose images are drawn anew for each, so that an image may be in many sums but once in each."""
    if 2 * digits > len(labels):
        raise DataError(f"a sum of {digits} digits needs {2 * digits} images, and there are {len(labels)}")
    rng = np.random.default_rng([seed, n, digits, 1])
    rows = np.stack([rng.choice(len(labels), 2 * digits, replace=False, shuffle=True) for _ in range(n)])
    return GivenSums(rows, digits_of_sum(*np.split(labels[rows], 2, axis=1)))


def digits_of_sum(a: NDArray[np.integer], b: NDArray[np.integer]) -> Int64[np.ndarray, "n _"]:
    """The digits of a + b, one more than a and b have, from theirs; the last of each first.

    >>> digits_of_sum(np.array([[7, 4]]), np.array([[5, 9]]))  # 47 + 95
    array([[2, 4, 1]])
    """
    n, length = a.shape
    total = np.zeros((n, length + 1), dtype=np.int64)
    total[:, :length] = a + b
    for place in range(length):
        total[:, place + 1] += total[:, place] // 10
        total[:, place] %= 10
    return total


def rows_that_show(
    digits: Int64[np.ndarray, "n v"], labels: NDArray[np.integer], rng: np.random.Generator, *, again: bool = False
) -> Int64[np.ndarray, "n v"]:
    """An image of each digit, drawn at random, none twice unless `again`."""
    rows = np.empty(digits.shape, dtype=np.int64)
    for digit in range(10):
        places = digits == digit
        images = np.flatnonzero(labels == digit)
        needed = places.sum()
        if again and len(images):
            rows[places] = rng.choice(images, needed)
            continue
        if needed > len(images):
            raise DataError(
                f"{len(digits)} examples need {needed} images of the digit {digit}, and there are {len(images)}"
            )
        rows[places] = rng.permutation(images)[:needed]
    return rows
