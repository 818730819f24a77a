"""What rows of examples show by the rows most like them: evidence that a fit has not made itself.

A network that is trained until examples hold makes them hold, under wrong names or with wrong clusters as well.
What it says of rows that look like one of them, but are in no example with it, was not taught for that example.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Int64

from gedikit.symbolic.examples import NOTHING, Placed

VOTES, LOOKED_AT = 3, 12  # neighbours that vote, and those among which they are found
FEW, MOST_ROWS = 300, 3000  # rows that vote beside those of few examples; rows that are compared with each other
MOST_IMAGES = 16  # in an example: of more, some neighbour errs in most examples, and nothing is learned from it

Nearest = Callable[[Int64[np.ndarray, " r"], int], tuple[Float[np.ndarray, "r k"], Int64[np.ndarray, "r k"]]]
"""Distances and places of the k rows nearest to each of some rows, among these."""


def by_neighbours(
    placed: Sequence[Placed], labels: Int64[np.ndarray, " n"], nearest: Nearest
) -> Int64[np.ndarray, " n"] | None:
    """Clusters of rows as most of the three rows of their kind have them that are nearest and in no common example.

    Where there is one kind only, rows in no example vote as well, some of them. None where examples have so many
    images that neighbours cannot tell.
    """
    if max(int((p.rows != NOTHING).sum(1).max()) for p in placed) > MOST_IMAGES:
        return None
    together: dict[int, set[int]] = {}
    for p in placed:
        for images in p.rows.tolist():
            for image in images:
                together.setdefault(image, set()).update(images)
    found = labels.copy()
    for kind in placed[0].symbols.kinds:
        own = [p.rows[:, i] for p in placed for i, of in enumerate(p.kinds) if of == kind]
        rows = np.setdiff1d(np.concatenate(own), [NOTHING]) if own else np.empty(0, dtype=np.int64)
        voting = rows if len(placed[0].symbols.kinds) > 1 else _with_others(rows, len(labels))
        if len(voting) <= VOTES:
            continue
        _, places = nearest(voting, min(LOOKED_AT, len(voting) - 1))
        for row, near in zip(voting.tolist(), voting[places].tolist(), strict=True):
            voters = [other for other in near if other not in together.get(row, ())][:VOTES]
            if voters:
                found[row] = np.bincount(labels[voters]).argmax()
    return found


def _with_others(rows: Int64[np.ndarray, " r"], n: int) -> Int64[np.ndarray, " s"]:
    others = np.setdiff1d(np.arange(n), rows)
    size = min(len(others), max(FEW, len(rows)), max(0, MOST_ROWS - len(rows)))
    return np.union1d(rows, np.random.default_rng(0).choice(others, size, replace=False))
