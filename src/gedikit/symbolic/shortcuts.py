"""Names that a rule cannot tell: how else the symbols could be called without any example noticing.

A network that calls what it sees by other names than people do, and satisfies the rule all the same, has taken a
*reasoning shortcut* (Marconato et al. 2023; Bortolotti et al. 2024). Two definitions are in use, both are counted:

* a *map* sends every symbol that is shown to a symbol it is named as; two may get one name;
* a *naming* is a map under which no two symbols of a kind get the same name: each keeps a cluster of its own.

Either counts if every tuple of symbols that may be shown still satisfies the rule after the map. Each kind of
symbols has a map of its own. Values that are known with an example, such as the sum of two digits, are not mapped.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf, isnan, log, prod
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch.nn.functional import one_hot

from gedikit.errors import DataError, UsageError
from gedikit.symbolic.constraint import Constraint
from gedikit.symbolic.interchangeable import Group, interchangeable
from gedikit.symbolic.maps import (
    KNOWN,
    MAPPED,
    Count,
    Exhausted,
    MapSearch,
    Patterns,
    Symmetries,
    irreducible,
    smallest_hitting_set,
)
from gedikit.symbolic.table import Table
from gedikit.symbolic.variables import Variable

MAX_STEPS = 4000  # of narrowing, for each of the questions that are asked
MAX_LISTED = 20_000  # tuples that may be shown; beyond that some are drawn
DRAWN = 2000
TRIED = 60  # other namings by which the fewest examples to add are found
_TOLD = 12  # symbols in a sentence

Symbols = Mapping[str, Sequence[Hashable]]
"""Of every kind its symbols."""

Candidate = tuple[int, int]
"""Of which constraint, and which of the tuples that could be shown as well."""

Column = Sequence[Any]
"""A value a row; None or NaN where it is not known."""


@dataclass(frozen=True)
class Shown:
    """What may be shown for one constraint.

    `columns` has for every variable the symbols that rows of examples show, or the values known of them; where a
    column or an entry is missing, any symbols that satisfy the constraint may be shown. `known` names the variables
    whose value comes with the example and is not mapped. `holds` is False for examples that violate the constraint.
    `name` is what sentences call it.
    """

    constraint: Constraint
    columns: Mapping[str, Column] | None = None
    known: Collection[str] = ()
    holds: Sequence[bool] | None = None
    name: str = ""


@dataclass(frozen=True)
class Shortcuts:
    """How many maps and namings satisfy rules, which names stay open, and what would settle them.

    `names` has for every kind and symbol the names that one-to-one namings may give it, itself first; `maps_to` the
    same for all maps. `labels` are the fewest symbols, by kind, of which one labelled row each leaves one naming,
    `labels_for_maps` those that leave one map. `examples` are the fewest tuples that leave one naming when added to
    the examples, and `examples_of` says of which constraint each is; empty where there are none, and `symmetric`
    where that is certain: another naming satisfies all that the rules allow. `sampled`: the rule allows so many
    tuples that some were drawn, so that numbers are upper bounds.
    """

    symbols: Symbols
    maps: Count
    namings: Count
    names: Mapping[str, Mapping[Hashable, tuple[Hashable, ...]]]
    maps_to: Mapping[str, Mapping[Hashable, tuple[Hashable, ...]]]
    labels: tuple[tuple[str, Hashable], ...]
    labels_for_maps: tuple[tuple[str, Hashable], ...]
    examples: tuple[dict[str, Hashable], ...] = ()
    examples_of: tuple[int, ...] = ()
    symmetric: bool = False
    constraints: tuple[str, ...] = ()
    sampled: bool = False
    never_shown: Mapping[str, tuple[Hashable, ...]] | None = None

    @property
    def settled(self) -> bool:
        """Whether every symbol has one name only, as long as each has a cluster of its own."""
        return self.namings.at_most == 1

    @property
    def groups(self) -> dict[str, list[tuple[Hashable, ...]]]:
        """The largest sets of symbols any two of which may each get the name of the other, by kind."""
        return {kind: interchangeable(self.symbols[kind], self.names[kind]) for kind in self.symbols}

    @property
    def groups_of_maps(self) -> dict[str, list[tuple[Hashable, ...]]]:
        """The same where several symbols may share a name."""
        return {kind: interchangeable(self.symbols[kind], self.maps_to[kind]) for kind in self.symbols}

    @property
    def undecided(self) -> dict[str, tuple[Hashable, ...]]:
        """Symbols whose name the rule leaves open, by kind."""
        return {k: tuple(s for s in self.symbols[k] if len(self.names[k][s]) > 1) for k in self.symbols}

    def __str__(self) -> str:
        several = len(self.symbols) > 1
        lines = [
            f"maps from shown to named symbols that satisfy the rule: {self.maps}",
            f"one-to-one namings that satisfy it: {self.namings}",
        ]
        if self.sampled:
            lines.append("(upper bounds: the rule allows too many tuples to look at all of them)")
        for kind, groups in self.groups.items():
            of = f" of {kind}" if several else ""
            lines += [f"names{of} the rule cannot tell apart: {_listed(group)}" for group in groups]
            rest = self._beside(kind, groups)
            if rest:
                said = "; ".join(f"{symbol} as {_listed(names)}" for symbol, names in rest.items())
                lines.append(f"names{of} it leaves open one way only: {said}")
        if self.settled:
            lines.append("every symbol has one name, if each has a cluster of its own")
        elif self.labels:
            lines.append(f"labels that would settle it: one row each of {self._labels(self.labels)}")
        if self.examples:
            lines.append(f"or examples that would: {'; '.join(map(self._example, range(len(self.examples))))}")
        elif self.symmetric:
            lines.append("more examples would not: another naming satisfies all that the rule allows")
        if self.labels_for_maps and self.labels_for_maps != self.labels:
            lines.append(
                "labels that would also exclude maps which give two symbols one name: one row each of "
                + self._labels(self.labels_for_maps)
            )
        return "\n".join(lines)

    def _beside(self, kind: str, groups: Sequence[Group]) -> dict[Hashable, list[Hashable]]:
        """Names that symbols may get besides those of their groups."""
        exchanged = {(s, t) for group in groups for s in group for t in group}
        rest = {
            s: [t for t in self.names[kind][s] if t != s and (s, t) not in exchanged] for s in self.undecided[kind]
        }
        return {symbol: names for symbol, names in rest.items() if names}

    def _example(self, i: int) -> str:
        of = f"{self.constraints[self.examples_of[i]]}: " if len(self.constraints) > 1 else ""
        return of + ", ".join(f"{name} = {value}" for name, value in self.examples[i].items())

    def _labels(self, labels: Sequence[tuple[str, Hashable]]) -> str:
        several = len(self.symbols) > 1
        return _listed([f"{kind} {symbol}" if several else symbol for kind, symbol in labels])


def shortcuts(
    shown: Sequence[Shown],
    *,
    kinds: Mapping[str, str] | None = None,
    labelled: Mapping[str, Collection[Hashable]] | None = None,
    max_steps: int = MAX_STEPS,
) -> Shortcuts:
    """The shortcuts of several constraints at once: maps must satisfy all of them.

    `kinds` says of which kind a variable is; by default variables with the same values are of one kind. `labelled`
    has symbols, by kind, that are known from labelled rows and keep their names.
    """
    asked = _Asked(shown, kinds)
    fixed = asked.fixed(labelled or {})
    found = {}
    for one_to_one in (False, True):
        search = asked.search(one_to_one, max_steps)
        if asked.identity_holds:
            search.known_possible()
        found[one_to_one] = search.count(fixed)
    if asked.sampled:
        found = {k: Count(min(1, n.at_least), n.at_most) for k, n in found.items()}
    possible = {one: asked.possible(one, fixed, max_steps) for one in (False, True)}
    settled = found[True].at_most == 1
    added = _Additions((), (), None) if settled else asked.examples_to_add(fixed, possible[True], max_steps)
    labels = {one: asked.labels(one, fixed, possible[one], max_steps) for one in (False, True)}
    return Shortcuts(
        asked.symbols,
        found[False],
        found[True],
        asked.by_kind(possible[True]),
        asked.by_kind(possible[False]),
        labels[True],
        labels[False],
        added.tuples,
        added.of,
        added.settle is False,
        tuple(s.name or s.constraint.name for s in shown),
        asked.sampled,
        asked.never_shown(),
    )


@dataclass(frozen=True)
class _Additions:
    """Tuples to show as well, and of which constraint each is; `settle` is None where it was not found out."""

    tuples: tuple[dict[str, Hashable], ...]
    of: tuple[int, ...]
    settle: bool | None


def _fewest(violated: Sequence[frozenset[Candidate]]) -> list[Candidate]:
    """A smallest choice of tuples of which every naming violates one; of those violated alike the first."""
    alike: dict[frozenset[int], Candidate] = {}
    for one in sorted(frozenset().union(*violated)):
        alike.setdefault(frozenset(k for k, some in enumerate(violated) if one in some), one)
    best = [by for by in alike if not any(by < other for other in alike)]
    chosen = smallest_hitting_set(
        [frozenset(i for i, by in enumerate(best) if k in by) for k in range(len(violated))]
    )
    return [alike[best[i]] for i in chosen]


class _Asked:
    """Constraints and what may be shown, as points and patterns."""

    def __init__(self, shown: Sequence[Shown], kinds: Mapping[str, str] | None):
        if not shown:
            raise UsageError("shortcuts needs at least one constraint")
        self.shown = shown
        self.kind_of_variable = kinds_of(
            [v for s in shown for v in s.constraint.variables], {n for s in shown for n in s.known}, kinds
        )
        self.symbols: dict[str, tuple[Hashable, ...]] = {}
        for s in shown:
            for v in s.constraint.variables:
                kind = self.kind_of_variable.get(v.name)
                if kind is None:
                    continue
                if self.symbols.setdefault(kind, v.values) != v.values:
                    raise UsageError(
                        f"{v.name} has values {v.values} and others of kind {kind!r} {self.symbols[kind]}: "
                        "variables of one kind have the same values"
                    )
        if not self.symbols:
            raise UsageError("all variables are known: there are no symbols to name")
        self.sizes = [len(values) for values in self.symbols.values()]
        self.first = dict(zip(self.symbols, np.cumsum([0, *self.sizes]).tolist(), strict=False))
        self.points = [(kind, s) for kind, values in self.symbols.items() for s in values]
        made = [self._patterns(s) for s in shown]
        self.patterns, self.sampled = [p for p, _ in made], any(drawn for _, drawn in made)
        self.identity_holds = all(s.holds is None or all(s.holds) for s in shown)
        self._symmetries = self._symmetric(made)

    def search(self, one_to_one: bool, max_steps: int) -> MapSearch:
        symmetries = None if self._symmetries is None else Symmetries(self.sizes, self._symmetries, max_steps)
        return MapSearch(
            self.sizes, self.patterns, one_to_one=one_to_one, max_steps=max_steps, symmetries=symmetries
        )

    def fixed(self, labelled: Mapping[str, Collection[Hashable]]) -> dict[int, int]:
        fixed = {}
        for kind, symbols in labelled.items():
            if kind not in self.symbols:
                raise UsageError(f"labelled names the kind {kind!r}: there are {', '.join(self.symbols)}")
            for symbol in symbols:
                if symbol not in self.symbols[kind]:
                    raise UsageError(f"labelled has {symbol!r}, which is none of {self.symbols[kind]}")
                place = self.symbols[kind].index(symbol)
                fixed[self.first[kind] + place] = place
        return fixed

    def possible(self, one_to_one: bool, fixed: Mapping[int, int], max_steps: int) -> Bool[np.ndarray, "p c"]:
        """Which names each symbol may get; those not excluded within the steps are taken for possible."""
        search = self.search(one_to_one, max_steps)
        domains = search.all.copy()
        for point, place in fixed.items():
            domains[point] = np.arange(domains.shape[1]) == place
        seen = np.zeros_like(domains)
        try:
            for point in range(len(domains)):
                for place in np.flatnonzero(domains[point]).tolist():
                    if seen[point, place]:
                        continue
                    chosen = domains.copy()
                    chosen[point] = np.arange(domains.shape[1]) == place
                    found = search.first_map(chosen)
                    if found is None:
                        domains[point, place] = False
                    else:
                        seen[np.arange(len(found)), found] = True
        except Exhausted:
            return domains
        return seen

    def labels(
        self, one_to_one: bool, fixed: Mapping[int, int], possible: Bool[np.ndarray, "p c"], max_steps: int
    ) -> tuple[tuple[str, Hashable], ...]:
        """The fewest symbols that no other map leaves alone: a smallest hitting set of what other maps move.

        Maps are found one after the other, each one that leaves the symbols chosen so far alone, until there is
        none (implicit hitting sets, Moreno-Centeno and Karp 2013).
        """
        search = self.search(one_to_one, max_steps)
        place = search.place
        open_points = np.flatnonzero(possible.sum(1) > 1).tolist()
        moved: list[frozenset[int]] = []
        chosen: tuple[int, ...] = ()
        try:
            while True:
                other = self._other(search, possible, [*fixed, *chosen], open_points)
                if other is None:
                    break
                moved.append(frozenset(np.flatnonzero(other != place).tolist()))
                chosen = smallest_hitting_set(moved)
        except Exhausted:
            chosen = tuple(open_points)  # sure to suffice, though fewer may
        return tuple(self.points[p] for p in chosen)

    @staticmethod
    def _other(
        search: MapSearch, possible: Bool[np.ndarray, "p c"], fixed: Sequence[int], open_points: Sequence[int]
    ) -> Int64[np.ndarray, " p"] | None:
        """A map other than the identity that leaves some symbols alone."""
        domains = possible.copy()
        for p in fixed:
            domains[p] = np.arange(domains.shape[1]) == search.place[p]
        for point in open_points:
            if point in fixed:
                continue
            moved = domains.copy()
            moved[point, search.place[point]] = False
            found = search.first_map(moved)
            if found is not None:
                return found
            domains[point] = ~moved[point] & domains[point]
        return None

    def examples_to_add(
        self, fixed: Mapping[int, int], possible: Bool[np.ndarray, "p c"], max_steps: int
    ) -> "_Additions":
        """The fewest tuples that leave the identity alone when they are shown as well.

        Namings that violate none of the tuples chosen so far are found one after the other, and each has to violate
        one; where a naming satisfies all that the rules allow, no tuples do. Where the fewest are not found, tuples
        are left out of all there are as long as the rest suffices.
        """
        candidates = [self._unseen(s, patterns) for s, patterns in zip(self.shown, self.patterns, strict=True)]
        open_points = np.flatnonzero(possible.sum(1) > 1).tolist()

        def other(chosen: Sequence[Candidate], max_steps: int = max_steps) -> Int64[np.ndarray, " p"] | None:
            return self._other(self._with(candidates, chosen, max_steps), possible, [*fixed], open_points)

        def suffice(chosen: Sequence[Candidate]) -> bool:
            try:
                return other(chosen, max_steps // 10) is None
            except Exhausted:
                return False

        every = [(which, i) for which, patterns in enumerate(candidates) for i in range(len(patterns))]
        violated: list[frozenset[Candidate]] = []
        try:
            if other(every) is not None:
                return _Additions((), (), settle=False)
            chosen: list[Candidate] = []
            while len(violated) < TRIED and (naming := other(chosen)) is not None:
                broken = [np.flatnonzero(self._violations(patterns, naming)) for patterns in candidates]
                violated.append(frozenset((which, int(i)) for which, some in enumerate(broken) for i in some))
                chosen = _fewest(violated)
            if len(violated) < TRIED:
                return self._additions(candidates, chosen)
        except Exhausted:
            pass
        return (
            self._additions(candidates, irreducible(every, suffice)) if suffice(every) else _Additions((), (), None)
        )

    def _unseen(self, s: Shown, patterns: Patterns) -> Patterns:
        """What a constraint allows and the examples do not show."""
        rows, _ = (
            (np.empty((0, len(s.constraint.variables)), int), False)
            if s.columns is None
            else _allowed(s.constraint, None)
        )
        whole = self._as_patterns(s, rows, np.ones(len(rows), dtype=bool))
        shown = {row.tobytes() for row in patterns.entry[patterns.holds]}
        return whole.some(
            np.array([i for i, row in enumerate(whole.entry) if row.tobytes() not in shown], dtype=np.int64)
        )

    def _with(self, candidates: Sequence[Patterns], chosen: Sequence[Candidate], max_steps: int) -> MapSearch:
        """Namings under which the chosen candidates hold as well."""
        more = [
            patterns.some(np.array([i for w, i in chosen if w == which], dtype=np.int64))
            for which, patterns in enumerate(candidates)
        ]
        patterns = [*self.patterns, *(p for p in more if len(p))]
        return MapSearch(self.sizes, patterns, one_to_one=True, max_steps=max_steps)

    def _additions(self, candidates: Sequence[Patterns], chosen: Sequence[Candidate]) -> "_Additions":
        tuples = []
        for which, i in chosen:
            patterns = candidates[which]
            first = [
                self.first.get(self.kind_of_variable.get(v.name, ""), 0) for v in patterns.constraint.variables
            ]
            places = patterns.entry[i] - np.where(patterns.role[i] == MAPPED, first, 0)
            named = zip(patterns.constraint.variables, places.tolist(), strict=True)
            tuples.append({v.name: v.values[place] for v, place in named})
        return _Additions(tuple(tuples), tuple(which for which, _ in chosen), settle=True)

    @staticmethod
    def _violations(patterns: Patterns, one: Int64[np.ndarray, " p"]) -> Bool[np.ndarray, " n"]:
        domains = np.arange(int(one.max()) + 1)[None, :] == one[:, None]
        with torch.no_grad():
            log_p = patterns.constraint.body.log_joint(patterns.columns(np.arange(len(patterns)), domains))
        violated: Bool[np.ndarray, " n"] = (log_p == -inf).numpy()
        return violated

    def by_kind(self, possible: Bool[np.ndarray, "p c"]) -> dict[str, dict[Hashable, tuple[Hashable, ...]]]:
        found: dict[str, dict[Hashable, tuple[Hashable, ...]]] = {kind: {} for kind in self.symbols}
        for (kind, symbol), row in zip(self.points, possible, strict=True):
            names = [self.symbols[kind][i] for i in np.flatnonzero(row)]
            found[kind][symbol] = tuple(sorted(names, key=lambda name: name != symbol))
        return found

    def never_shown(self) -> dict[str, tuple[Hashable, ...]]:
        shown = {int(p) for patterns in self.patterns for p in np.unique(patterns.points)}
        return {
            kind: tuple(s for i, s in enumerate(values) if self.first[kind] + i not in shown)
            for kind, values in self.symbols.items()
        }

    def _symmetric(self, made: Sequence[tuple[Patterns, bool]]) -> list[Patterns] | None:
        """All that the constraints allow, for every way in which variables are known; None where too much."""
        found = []
        for s, (patterns, _) in zip(self.shown, made, strict=True):
            rows, drawn = _allowed(s.constraint, None)
            if drawn:
                return None
            for known in np.unique(patterns.role == KNOWN, axis=0):
                whole = self._as_patterns(s, rows, np.ones(len(rows), dtype=bool))
                role = np.where(known, KNOWN, whole.role)
                places = np.where(known, rows, whole.entry)
                found.append(Patterns(s.constraint, role, places, whole.holds))
        return found

    def _patterns(self, s: Shown) -> tuple[Patterns, bool]:
        variables = s.constraint.variables
        unknown = set(s.known) - {v.name for v in variables}
        if unknown:
            raise UsageError(f"known names {sorted(unknown)[0]!r}, which is no variable of {s.constraint.name}")
        if s.columns is None:
            rows, drawn = _allowed(s.constraint, None)
            return self._as_patterns(s, rows, np.ones(len(rows), dtype=bool)), drawn
        told, holds = _told(s)
        if not len(told):
            return self._as_patterns(s, told, holds), False
        parts, signs, drawn = [], [], False
        for sign in (True, False):
            for row in np.unique(told[holds == sign], axis=0):
                if (row >= 0).all():
                    parts.append(row[None])
                elif sign:
                    rows, some = _allowed(s.constraint, row)
                    drawn |= some
                    parts.append(rows)
                else:
                    parts.append(_violating(s.constraint, row))
                signs.append(np.full(len(parts[-1]), sign))
        rows, at = np.unique(np.concatenate(parts), axis=0, return_index=True)
        return self._as_patterns(s, rows, np.concatenate(signs)[at]), drawn

    def _as_patterns(self, s: Shown, rows: Int64[np.ndarray, "n v"], holds: Bool[np.ndarray, " n"]) -> Patterns:
        role, entry = np.full(rows.shape, KNOWN), rows.copy()
        for i, v in enumerate(s.constraint.variables):
            kind = self.kind_of_variable.get(v.name)
            if kind is not None and v.name not in s.known:
                role[:, i] = MAPPED
                entry[:, i] += self.first[kind]
        return Patterns(s.constraint, role, entry, holds)


def kinds_of(
    variables: Iterable[Variable], known: Collection[str] = (), kinds: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Of which kind every variable is: as given, by its network, or together with all that have the same values."""
    mapped = list({v.name: v for v in variables if v.name not in known}.values())
    unknown = set(kinds or {}) - {v.name for v in mapped} - set(known)
    if unknown:
        raise UsageError(f"kinds names {sorted(unknown)[0]!r}, which is no variable")
    alike: dict[Any, list[Variable]] = {}
    for v in mapped:
        alike.setdefault((v.network, v.values), []).append(v)
    found = {}
    for (network, _), group in alike.items():
        name = network or ("symbol" if len(alike) == 1 else ", ".join(v.name for v in group))
        found.update({v.name: (kinds or {}).get(v.name, name) for v in group})
    return {name: kind for name, kind in found.items() if kind}


def _told(s: Shown) -> tuple[Int64[np.ndarray, "n v"], Bool[np.ndarray, " n"]]:
    """Examples as positions of values, −1 where nothing is told, and whether each satisfies the constraint."""
    columns = dict(s.columns or {})
    variables = s.constraint.variables
    strange = set(columns) - {v.name for v in variables}
    if strange:
        raise UsageError(
            f"examples have a column {sorted(strange)[0]!r}, which is no variable of {s.constraint.name}"
        )
    lengths = {len(column) for column in columns.values()} | ({len(s.holds)} if s.holds is not None else set())
    if len(lengths) != 1:
        raise UsageError(f"columns of examples have different lengths {sorted(lengths)}: give an entry a row")
    (n,) = lengths
    told = np.full((n, len(variables)), -1)
    for i, v in enumerate(variables):
        places = {value: place for place, value in enumerate(v.values)}
        for row, value in enumerate(columns.get(v.name, ())):
            if value is None or (isinstance(value, float) and isnan(value)):
                continue
            if value not in places:
                raise DataError(f"row {row} of examples has {value!r} for {v.name}, whose values are {v.values}")
            told[row, i] = places[value]
    holds = np.ones(n, dtype=bool) if s.holds is None else np.asarray(s.holds, dtype=bool)
    for row in np.flatnonzero(holds).tolist():
        given = _given(s.constraint, told[row])
        if float(s.constraint.body.log_joint(given)) == -inf:
            values = {v.name: v.values[p] for v, p in zip(variables, told[row], strict=True) if p >= 0}
            raise DataError(
                f"row {row} of examples contradicts {s.constraint.name}: "
                + ", ".join(f"{name} = {value}" for name, value in values.items())
            )
    return told, holds


def _given(constraint: Constraint, told: Int64[np.ndarray, " v"]) -> torch.Tensor:
    """log 1 of all values that are not excluded by what is told."""
    blocks = [
        torch.zeros(v.size, dtype=torch.float64)
        if place < 0
        else torch.where(torch.arange(v.size) == int(place), 0.0, -inf).double()
        for v, place in zip(constraint.variables, told, strict=True)
    ]
    return torch.cat(blocks)[:, None]


def _allowed(constraint: Constraint, told: Int64[np.ndarray, " v"] | None) -> tuple[Int64[np.ndarray, "n v"], bool]:
    """Tuples that the constraint allows and that agree with what is told; some, drawn, where these are too many."""
    told = np.full(len(constraint.variables), -1) if told is None else told
    if isinstance(constraint.body, Table):
        rows = constraint.body.rows
        found: Int64[np.ndarray, "n v"] | None = rows[((told < 0) | (rows == told)).all(1)]
    else:
        found = _enumerated(constraint, told)
    if found is not None and len(found) <= MAX_LISTED:
        return found, False
    return _drawn(constraint, told), True


def _violating(constraint: Constraint, told: Int64[np.ndarray, " v"]) -> Int64[np.ndarray, "n v"]:
    """Tuples that agree with what is told and can violate the constraint."""
    columns = [
        [int(place)] if place >= 0 else range(v.size) for v, place in zip(constraint.variables, told, strict=True)
    ]
    if prod(map(len, columns)) > MAX_LISTED:
        raise UsageError(
            f"an example that violates {constraint.name} leaves more than {MAX_LISTED:,} tuples open: give "
            "more of its symbols, or leave it out"
        )
    rows = np.array(list(product(*columns)))
    given = [
        one_hot(torch.from_numpy(rows[:, i]), v.size).double().log() for i, v in enumerate(constraint.variables)
    ]
    possible: Int64[np.ndarray, "n v"] = rows[(constraint.log_probability(given) < -1e-12).numpy()]
    return possible


def _enumerated(constraint: Constraint, told: Int64[np.ndarray, " v"]) -> Int64[np.ndarray, "n v"] | None:
    """All of them, variable by variable, each continued by what those before it leave; None where too many."""
    start, body = _given(constraint, told), constraint.body
    assert not isinstance(body, Table)
    if not body.has_facts and float(body.log_joint(start)) > log(MAX_LISTED + 0.5):
        return None
    columns, places, first = start, np.zeros((1, 0), dtype=np.int64), 0
    for v in constraint.variables:
        block = slice(first, first + v.size)
        first += v.size
        which, value = (_marginals(constraint, columns)[block] > 0).T.nonzero(as_tuple=True)
        if len(which) > MAX_LISTED:
            return None
        columns = columns[:, which].clone()
        columns[block] = torch.where(torch.arange(v.size)[:, None] == value, columns[block], -inf)
        places = np.concatenate([places[which.numpy()], value.numpy()[:, None]], axis=1)
    return places


def _marginals(constraint: Constraint, columns: torch.Tensor) -> torch.Tensor:
    """p(value | constraint), the derivative of the log-probability."""
    with torch.inference_mode(False), torch.enable_grad():
        inputs = columns.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(constraint.body.log_joint(inputs).sum(), inputs)
    return gradient


def _drawn(constraint: Constraint, told: Int64[np.ndarray, " v"]) -> Int64[np.ndarray, "n v"]:
    """Allowed tuples at random, variable by variable, each from what those before it leave."""
    generator = torch.Generator().manual_seed(0)
    columns = _given(constraint, told).expand(-1, DRAWN).clone()
    start, places = 0, []
    for v in constraint.variables:
        block = slice(start, start + v.size)
        weights = _marginals(constraint, columns)[block].T.clamp(min=0)
        place = torch.multinomial(weights, 1, generator=generator)[:, 0]
        columns[block] = torch.where(torch.arange(v.size)[:, None] == place, columns[block], -inf)
        places.append(place)
        start += v.size
    distinct: Int64[np.ndarray, "n v"] = np.unique(torch.stack(places, 1).numpy(), axis=0)
    return distinct


def _listed(symbols: Sequence[Hashable]) -> str:
    text = ", ".join(str(s) for s in symbols[:_TOLD])
    return text if len(symbols) <= _TOLD else f"{text} and {len(symbols) - _TOLD} more"
