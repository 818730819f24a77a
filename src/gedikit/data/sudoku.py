"""Complete Sudoku boards of images: each digit once in every row, column and block."""

from functools import lru_cache
from itertools import permutations

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from gedikit.data.addition import rows_that_show
from gedikit.errors import UsageError

SIDES = (4, 9)


def units(side: int) -> Int64[np.ndarray, "u s"]:
    """The cells of every row, column and block, cells numbered line by line."""
    block = _block(side)
    cells = np.arange(side * side).reshape(side, side)
    blocks = cells.reshape(block, block, block, block).transpose(0, 2, 1, 3).reshape(side, side)
    return np.concatenate([cells, cells.T, blocks])


def is_valid(boards: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Whether each of the boards (n, cells) has every one of its digits once in each unit."""
    side = int(boards.shape[1] ** 0.5)
    ordered = np.sort(boards[:, units(side)], axis=-1)
    valid: NDArray[np.bool_] = (ordered == np.unique(boards)[:side]).all((1, 2))
    return valid


@lru_cache
def all_boards(side: int = 4) -> Int64[np.ndarray, "b c"]:
    """Every valid board with the digits 1 to 4: 288 of them."""
    if side != min(SIDES):
        raise UsageError(f"all boards can be listed for side {min(SIDES)}, not {side}")
    lines = np.array(list(permutations(range(1, side + 1))))
    first, second = np.indices((len(lines),) * 2).reshape(2, -1)
    bands = np.concatenate([lines[first], lines[second]], axis=1)
    blocks = bands[:, units(side)[2 * side : 2 * side + 2]]  # of the upper half
    bands = bands[(np.sort(blocks, axis=-1) == lines[0]).all((1, 2))]
    upper, lower = np.indices((len(bands),) * 2).reshape(2, -1)
    boards = np.concatenate([bands[upper], bands[lower]], axis=1)
    return boards[is_valid(boards)]


def random_boards(side: int, n: int, seed: int) -> Int64[np.ndarray, "n c"]:
    """Valid boards of the digits 1 to `side`; uniform for side 4.

    For side 9 a regular board after exchanges that leave it valid: of digits, of lines and columns within their
    band and of whole bands. Not all boards can be reached from one in this way.
    """
    rng = np.random.default_rng([seed, n, side])
    if side == min(SIDES):
        every = all_boards(side)
        return every[rng.integers(len(every), size=n)]
    return np.stack([_shuffled(side, rng).ravel() for _ in range(n)])


def board_examples(
    labels: NDArray[np.integer], side: int, n: int, seed: int, *, again: bool = False
) -> Int64[np.ndarray, "n c"]:
    """Rows of images for n boards, no image used twice unless `again`."""
    rng = np.random.default_rng([seed, n, side, 1])
    return rows_that_show(random_boards(side, n, seed), labels, rng, again=again)


def _shuffled(side: int, rng: np.random.Generator) -> Int64[np.ndarray, "s s"]:
    block = _block(side)
    line, column = np.indices((side, side))
    regular = (line * block + line // block + column) % side
    for axis in (0, 1):
        order = [band * block + inside for band in rng.permutation(block) for inside in rng.permutation(block)]
        regular = regular.take(order, axis=axis)
    if rng.random() < 0.5:
        regular = regular.T
    board: Int64[np.ndarray, "s s"] = rng.permutation(side)[regular] + 1
    return board


def _block(side: int) -> int:
    if side not in SIDES:
        raise UsageError(f"boards have side {' or '.join(map(str, SIDES))}, not {side}")
    return int(side**0.5)
