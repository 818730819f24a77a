"""Names that can be exchanged for each other, from the names that every symbol may get."""

from collections.abc import Hashable, Mapping, Sequence

Group = tuple[Hashable, ...]


def interchangeable(symbols: Sequence[Hashable], names: Mapping[Hashable, Sequence[Hashable]]) -> list[Group]:
    """The largest sets of symbols any two of which may each get the name of the other.

    Where a rule is all that is known, namings can be undone and followed by each other, so that no two groups
    overlap. Examples can leave namings of which that is not true: 0 may be taken for 1, but not 1 for 0.

    >>> interchangeable("abc", {"a": "ab", "b": "abc", "c": "bc"})
    [('a', 'b'), ('b', 'c')]
    """
    neighbours = {s: {t for t in symbols if t != s and t in names[s] and s in names[t]} for s in symbols}
    found: list[set[Hashable]] = []

    def extend(group: set[Hashable], candidates: set[Hashable], seen: set[Hashable]) -> None:
        """Maximal cliques, as Bron and Kerbosch find them."""
        if not candidates and not seen:
            found.append(group)
            return
        pivot = max(candidates | seen, key=lambda s: len(neighbours[s] & candidates))
        for s in [s for s in symbols if s in candidates - neighbours[pivot]]:
            extend(group | {s}, candidates & neighbours[s], seen & neighbours[s])
            candidates, seen = candidates - {s}, seen | {s}

    extend(set(), {s for s in symbols if neighbours[s]}, set())
    place = {s: i for i, s in enumerate(symbols)}
    groups = [tuple(sorted(group, key=place.__getitem__)) for group in found if len(group) > 1]
    return sorted(groups, key=lambda group: [place[s] for s in group])
