"""Examples that contradict each other: no symbols of their images satisfy all of them.

Examples are tied by the images they share, so only those in one connected part can contradict each other. Within a
part the images are searched for symbols, as `maps` searches symbols for names; a part without any is made smaller
as long as what is left is still contradictory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Int64
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from gedikit.symbolic.examples import NOTHING, Placed
from gedikit.symbolic.maps import GAP, KNOWN, MAPPED, Exhausted, MapSearch, Patterns

MAX_STEPS = 400  # of narrowing, for every set of examples that is looked at
MAX_PAIRS = 400  # that are tried before larger sets are made smaller
MAX_PARTS, MAX_PART = 300, 400  # parts of several examples, and examples in one, that are looked at

Item = tuple[int, int]
"""Which of the constraints, and which of its examples."""


@dataclass(frozen=True)
class Contradiction:
    """Examples that no symbols satisfy together; without any one of them the others can be satisfied."""

    placed: Sequence[Placed]
    items: tuple[Item, ...]

    def __str__(self) -> str:
        said = "; ".join(self._example(which, row) for which, row in self.items)
        alone = "this example holds" if len(self.items) == 1 else "these examples hold together"
        return f"whatever the images show, it cannot be that {alone}: {said}"

    def _example(self, which: int, row: int) -> str:
        placed = self.placed[which]
        entries = []
        for v, image, known in zip(placed.constraint.variables, placed.rows[row], placed.known[row], strict=True):
            if image != NOTHING:
                entries.append(f"{v.name} is image {image}")
            elif known != NOTHING:
                entries.append(f"{v.name} = {v.values[known]}")
        wrong = "" if placed.examples.holds[row] else ", violated"
        return f"row {row} of {placed.constraint.name} ({', '.join(entries)}{wrong})"


def contradiction(placed: Sequence[Placed], *, max_steps: int = MAX_STEPS) -> Contradiction | None:
    """A smallest set of examples that contradict each other, as far as one is found; None if none seems to be.

    A pair is found where there is one, among the first 400; larger sets have no example that could be left out.
    """
    for part in _parts(placed):
        if _possible(placed, part, max_steps):
            continue
        pairs = [list(pair) for pair in combinations(part, 2)][:MAX_PAIRS]
        single = next(([item] for item in part if not _possible(placed, [item], max_steps)), None)
        pair = single or next((pair for pair in pairs if not _possible(placed, pair, max_steps)), None)
        return Contradiction(placed, tuple(pair or _irreducible(placed, part, max_steps)))
    return None


def _irreducible(placed: Sequence[Placed], part: list[Item], max_steps: int) -> list[Item]:
    """Leave out what can be left out, half of it at a time at first."""
    left, size = list(part), max(1, len(part) // 2)
    while True:
        at = 0
        while at < len(left):
            fewer = left[:at] + left[at + size :]
            if fewer and not _possible(placed, fewer, max_steps):
                left = fewer
            else:
                at += size
        if size == 1:
            return left
        size = max(1, size // 2)


def _parts(placed: Sequence[Placed]) -> list[list[Item]]:
    """Examples that are tied by images, several each, the smallest first."""
    items = [(which, row) for which, p in enumerate(placed) for row in range(len(p))]
    images = max(int(p.rows.max()) for p in placed) + 1
    width = max(p.rows.shape[1] for p in placed)
    shown = np.full((len(items), width), NOTHING)
    at = 0
    for p in placed:
        shown[at : at + len(p), : p.rows.shape[1]] = p.rows
        at += len(p)
    example, column = np.nonzero(shown != NOTHING)
    edges = sparse.coo_matrix(
        (np.ones(len(example)), (example, len(items) + shown[example, column])),
        shape=(len(items) + images, len(items) + images),
    )
    part = connected_components(edges, directed=False)[1][: len(items)]
    order = np.argsort(part, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(part[order])) + 1)
    tied = sorted((g for g in groups if 1 < len(g) <= MAX_PART), key=len)
    return [[items[i] for i in group] for group in tied[:MAX_PARTS]]


def _possible(placed: Sequence[Placed], items: Sequence[Item], max_steps: int) -> bool:
    """Whether some symbols of the images satisfy all of these examples; True where the steps do not tell."""
    shown = np.unique(np.concatenate([placed[w].rows[r] for w, r in items]))
    images = shown[shown != NOTHING]
    widest = max(v.size for p in placed for v in p.constraint.variables)
    domains = np.zeros((max(1, len(images)), widest), dtype=bool)
    patterns = []
    for which in sorted({w for w, _ in items}):
        p, rows = placed[which], np.array([r for w, r in items if w == which])
        role = np.full((len(rows), p.rows.shape[1]), GAP)
        entry = np.zeros(role.shape, dtype=np.int64)
        for i, v in enumerate(p.constraint.variables):
            image, known = p.rows[rows, i], p.known[rows, i]
            is_image, is_known = image != NOTHING, known != NOTHING
            places = _positions(images, image[is_image])
            role[is_image, i], entry[is_image, i] = MAPPED, places
            role[is_known, i], entry[is_known, i] = KNOWN, known[is_known]
            domains[places, : v.size] = True
        holds = p.examples.holds[rows]
        certain = p.examples.probability[rows] == 1
        patterns.append(Patterns(p.constraint, role[certain], entry[certain], holds[certain]))
    search = MapSearch([widest], patterns, one_to_one=False, max_steps=max_steps, domains=domains)
    try:
        return search.first_map(domains) is not None
    except Exhausted:
        return True


def _positions(images: Int64[np.ndarray, " u"], some: Int64[np.ndarray, " k"]) -> Int64[np.ndarray, " k"]:
    return np.searchsorted(images, some)
