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
from math import inf, isnan, log
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int64

from gedikit.errors import DataError, UsageError
from gedikit.symbolic.constraint import Constraint
from gedikit.symbolic.maps import (
    KNOWN,
    MAPPED,
    Count,
    Exhausted,
    MapSearch,
    Patterns,
    Symmetries,
    smallest_hitting_set,
)
from gedikit.symbolic.table import Table
from gedikit.symbolic.variables import Variable

MAX_STEPS = 4000  # of narrowing, for each of the questions that are asked
MAX_LISTED = 20_000  # tuples that may be shown; beyond that some are drawn
DRAWN = 2000
TRIED = 200  # other namings and examples that are looked at for examples to add
_TOLD = 12  # symbols in a sentence

Symbols = Mapping[str, Sequence[Hashable]]
"""Of every kind its symbols."""

Column = Sequence[Any]
"""A value a row; None or NaN where it is not known."""


@dataclass(frozen=True)
class Shown:
    """What may be shown for one constraint.

    `columns` has for every variable the symbols that rows of examples show, or the values known of them; where a
    column or an entry is missing, any symbols that satisfy the constraint may be shown. `known` names the variables
    whose value comes with the example and is not mapped. `holds` is False for examples that violate the constraint.
    """

    constraint: Constraint
    columns: Mapping[str, Column] | None = None
    known: Collection[str] = ()
    holds: Sequence[bool] | None = None


@dataclass(frozen=True)
class Shortcuts:
    """How many maps and namings satisfy rules, which names stay open, and what would settle them.

    `names` has for every kind and symbol the names that one-to-one namings may give it, itself first; `maps_to` the
    same for all maps. `labels` are the fewest symbols, by kind, of which one labelled row each leaves one naming,
    `labels_for_maps` those that leave one map. `examples` are the fewest tuples found that leave one naming when
    added to the examples; empty where there is none to add. `sampled`: the rule allows so many tuples that some
    were drawn, so that numbers are upper bounds.
    """

    symbols: Symbols
    maps: Count
    namings: Count
    names: Mapping[str, Mapping[Hashable, tuple[Hashable, ...]]]
    maps_to: Mapping[str, Mapping[Hashable, tuple[Hashable, ...]]]
    labels: tuple[tuple[str, Hashable], ...]
    labels_for_maps: tuple[tuple[str, Hashable], ...]
    examples: tuple[dict[str, Hashable], ...] = ()
    sampled: bool = False
    never_shown: Mapping[str, tuple[Hashable, ...]] | None = None

    @property
    def settled(self) -> bool:
        """Whether every symbol has one name only, as long as each has a cluster of its own."""
        return self.namings.at_most == 1

    @property
    def groups(self) -> dict[str, list[tuple[Hashable, ...]]]:
        """Symbols whose names can be exchanged without the rule noticing, by kind; those decided are in none."""
        return {kind: _groups(self.symbols[kind], self.names[kind]) for kind in self.symbols}

    @property
    def groups_of_maps(self) -> dict[str, list[tuple[Hashable, ...]]]:
        """The same where several symbols may share a name."""
        return {kind: _groups(self.symbols[kind], self.maps_to[kind]) for kind in self.symbols}

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
        if self.settled:
            lines.append("every symbol has one name, if each has a cluster of its own")
        elif self.labels:
            lines.append(f"labels that would settle it: one row each of {self._labels(self.labels)}")
        if self.examples:
            told = "; ".join(", ".join(f"{k} = {v}" for k, v in e.items()) for e in self.examples)
            lines.append(f"or examples that would: {told}")
        if self.labels_for_maps and self.labels_for_maps != self.labels:
            lines.append(
                "labels that would also exclude maps which give two symbols one name: one row each of "
                + self._labels(self.labels_for_maps)
            )
        return "\n".join(lines)

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
    labels = {one: asked.labels(one, fixed, possible[one], max_steps) for one in (False, True)}
    return Shortcuts(
        asked.symbols,
        found[False],
        found[True],
        asked.by_kind(possible[True]),
        asked.by_kind(possible[False]),
        labels[True],
        labels[False],
        asked.examples_to_add(fixed, max_steps) if found[True].at_most > 1 else (),
        asked.sampled,
        asked.never_shown(),
    )


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
        for point in open_points:
            if point in fixed:
                continue
            domains = possible.copy()
            for p in fixed:
                domains[p] = np.arange(domains.shape[1]) == search.place[p]
            domains[point, search.place[point]] = False
            found = search.first_map(domains)
            if found is not None:
                return found
        return None

    def examples_to_add(self, fixed: Mapping[int, int], max_steps: int) -> tuple[dict[str, Hashable], ...]:
        """The fewest tuples found under which only the identity is left; none where all that may be is shown."""
        if all(s.columns is None for s in self.shown):
            return ()
        search = self.search(True, max_steps)
        others = [m for m in search.some_maps(TRIED) if (m != search.place).any()]
        others = [m for m in others if all(m[p] == v for p, v in fixed.items())]
        candidates: list[tuple[dict[str, Hashable], frozenset[int]]] = []
        for s, patterns in zip(self.shown, self.patterns, strict=True):
            rows, drawn = _allowed(s.constraint, None)
            if s.columns is None or drawn:
                continue
            more = rows[np.linspace(0, len(rows) - 1, min(len(rows), TRIED)).astype(np.int64)]
            tuples = self._as_patterns(s, more, np.ones(len(more), dtype=bool))
            violated = [self._violations(tuples, m, search) for m in others]
            for i, row in enumerate(more):
                killed = frozenset(j for j, v in enumerate(violated) if v[i])
                if killed and not (patterns.entry == tuples.entry[i]).all(1).any():
                    named = zip(s.constraint.variables, row.tolist(), strict=True)
                    candidates.append(({v.name: v.values[p] for v, p in named}, killed))
        left, chosen = set(range(len(others))), []
        while left and candidates:
            best = max(candidates, key=lambda c: len(c[1] & left))
            if not best[1] & left:
                return ()
            chosen.append(best[0])
            left -= best[1]
        return tuple(chosen)

    @staticmethod
    def _violations(patterns: Patterns, one: Int64[np.ndarray, " p"], search: MapSearch) -> Bool[np.ndarray, " n"]:
        domains = np.arange(search.all.shape[1])[None, :] == one[:, None]
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
                    raise UsageError(
                        f"an example that violates {s.constraint.name} has entries that are not known: give all "
                        "its symbols, or leave it out"
                    )
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


def _groups(
    symbols: Sequence[Hashable], names: Mapping[Hashable, tuple[Hashable, ...]]
) -> list[tuple[Hashable, ...]]:
    """Symbols that are tied by possible names, directly or through others; those with one name are in none."""
    group = {s: {s} for s in symbols}
    for symbol, possible in names.items():
        for name in possible:
            joined = group[symbol] | group[name]
            for s in joined:
                group[s] = joined
    distinct = {id(g): g for g in group.values()}.values()
    return [tuple(s for s in symbols if s in g) for g in distinct if len(g) > 1]


def _listed(symbols: Sequence[Hashable]) -> str:
    text = ", ".join(str(s) for s in symbols[:_TOLD])
    return text if len(symbols) <= _TOLD else f"{text} and {len(symbols) - _TOLD} more"
