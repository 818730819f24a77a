"""Pairs of images whose sum is known, made of few equations: these do not always settle which digit is which.

The equations are those of rsbench (Bortolotti et al., 2024), after Marconato et al. (2023).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from gedikit.data.addition import rows_that_show

EVEN_ODD = ((0, 6), (2, 8), (4, 6), (4, 8), (1, 5), (3, 7), (1, 9), (3, 9))
HALF = ((0, 0), (0, 1), (2, 3), (2, 4))


@dataclass(frozen=True)
class Pairs:
    """Images of two digits, and their sum, which is known."""

    rows: Int64[np.ndarray, "n 2"]
    sums: Int64[np.ndarray, " n"]


def equation_pairs(labels: NDArray[np.integer], equations: tuple[tuple[int, int], ...], n: int, seed: int) -> Pairs:
    """n pairs, each of one of the equations drawn at random; no image is used twice."""
    rng = np.random.default_rng([seed, n, len(equations)])
    shown = np.array(equations)[rng.integers(len(equations), size=n)]
    return Pairs(rows_that_show(shown, labels, rng), shown.sum(1))
