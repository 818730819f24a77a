"""Examples of the addition task: triples of digit images of which the third shows the sum of the first two."""

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
    digits = np.column_stack([drawn, drawn.sum(1)])
    rows = np.empty((n, 3), dtype=np.int64)
    for digit in range(10):
        places = digits == digit
        images = np.flatnonzero(labels == digit)
        if places.sum() > len(images):
            raise DataError(
                f"{n} examples need {places.sum()} images of the digit {digit}, and there are {len(images)}"
            )
        rows[places] = rng.permutation(images)[: places.sum()]
    return rows
