"""Examples that contradict each other: no symbols of their images satisfy all of them.

Examples are tied by the images they share, so only those in one connected part can contradict each other. Within a
part the images are searched for symbols, as `maps` searches symbols for names; a part without any is made smaller
as long as what is left is still contradictory.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np
from jaxtyping import Int64
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from gedikit.symbolic.constraint import Constraint
from gedikit.symbolic.examples import NOTHING, Examples, Placed
from gedikit.symbolic.maps import GAP, KNOWN, MAPPED, Exhausted, MapSearch, Patterns, irreducible
from gedikit.symbolic.symbols import Kind, Symbols
from gedikit.symbolic.wording import Numbered, Wording, told

MAX_STEPS = 400  # of narrowing, for every set of examples that is looked at
MAX_SETS = 400  # that are tried from the smallest on, before a large one is made smaller
MAX_PARTS, MAX_PART = 300, 400  # parts of several examples, and examples in one, that are looked at

Item = tuple[int, int]
"""Which of the constraints, and which of its examples."""


@dataclass(frozen=True)
class Contradiction:
    """Examples that no symbols satisfy together; without any one of them the others can be satisfied."""

    placed: Sequence[Placed]
    items: tuple[Item, ...]

    def __str__(self) -> str:
        return self.said(Numbered(self.placed))

    def said(self, words: Wording) -> str:
        """A sentence that names them."""
        said = "; ".join(f"{words.example(w, r)} ({told(self.placed[w], w, r, words)})" for w, r in self.items)
        alone = "this example holds" if len(self.items) == 1 else "these examples hold together"
        return f"whatever the images show, it cannot be that {alone}: {said}"


def contradiction(placed: Sequence[Placed], *, max_steps: int = MAX_STEPS) -> Contradiction | None:
    """A smallest set of examples that contradict each other, as far as one is found; None if none seems to be.

    Sets are tried from the smallest on; after 400 of them, one is named of which no example could be left out.
    """
    for part in _parts(placed):
        if _possible(placed, part, max_steps):
            continue
        sets = (list(some) for size in range(1, len(part)) for some in combinations(part, size))
        smallest = next((s for s in islice(sets, MAX_SETS) if not _possible(placed, s, max_steps)), None)
        found = smallest or irreducible(part, lambda some: not _possible(placed, some, max_steps))
        return Contradiction(placed, tuple(found))
    return None


def contradictory_rules(constraints: Sequence[Constraint]) -> tuple[int, ...]:
    """A smallest set of constraints that no values satisfy together; empty where there seems to be none.

    Variables are the same where name and values are.
    """
    number: dict[tuple[str, tuple[Hashable, ...]], int] = {}
    placed = []
    for c in constraints:
        rows = np.array([[number.setdefault((v.name, v.values), len(number)) for v in c.variables]])
        one_each = tuple(Kind(v.name, v.values) for v in c.variables)
        nothing = np.full(rows.shape, NOTHING)
        placed.append(Placed(Examples(c, rows), Symbols(one_each), one_each, rows, nothing))
    found = contradiction(placed) if placed else None
    return () if found is None else tuple(which for which, _ in found.items)


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
