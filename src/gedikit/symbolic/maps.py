"""Maps from the symbols that are shown to the symbols they are named as, under which patterns satisfy a constraint.

A pattern is a tuple of shown symbols, with values in between that are known and not mapped, and gaps. A map is
tried out by letting the constraint's circuit tell, for each pattern and position, which values are left: a value
whose probability given the constraint is zero is none. What remains is searched depth first. Values between which
a symmetry of the constraint leads, one that leaves all values used so far alone, have equally many maps behind
them: one of them is looked at and counted for all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial, inf, prod
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from gedikit.symbolic.constraint import Constraint
from gedikit.symbolic.table import Table

PATTERNS_AT_ONCE = 64  # those that narrow the search at a step; all are looked at before a map counts
NUMBERS_AT_ONCE = 4_000_000
LOOKED_UP = 200_000  # entries of a table and patterns; beyond that its circuit is faster
MAPPED, KNOWN, GAP = 0, 1, 2
T = TypeVar("T")

Domains = Bool[np.ndarray, "p c"]
"""Of every point (a symbol of a kind) the values it may still be mapped to, of the same kind."""

Unseen = list[Int64[np.ndarray, " _"]]
"""Of the patterns of every constraint the numbers of those that are not decided yet."""


@dataclass(frozen=True)
class Count:
    """A number that is known exactly, or within bounds."""

    at_least: int
    at_most: int

    @property
    def exact(self) -> bool:
        return self.at_least == self.at_most

    def __str__(self) -> str:
        if self.exact:
            return f"{self.at_least:,}"
        upper = f"{self.at_most:,}" if self.at_most < 10**9 else f"{self.at_most:.1e}"
        return f"between {self.at_least:,} and {upper}"


@dataclass(frozen=True)
class Patterns:
    """Distinct tuples of a constraint's variables; what an entry is, is said by `role`.

    `entry` has the point (MAPPED) or the position of the value (KNOWN). `holds` says whether the constraint is
    satisfied, or known to be violated.
    """

    constraint: Constraint
    role: Int64[np.ndarray, "n v"]
    entry: Int64[np.ndarray, "n v"]
    holds: Bool[np.ndarray, " n"]

    def __len__(self) -> int:
        return len(self.entry)

    def some(self, which: Int64[np.ndarray, " k"]) -> "Patterns":
        return Patterns(self.constraint, self.role[which], self.entry[which], self.holds[which])

    @property
    def points(self) -> Int64[np.ndarray, "n v"]:
        """The points that are mapped, −1 elsewhere."""
        return np.where(self.role == MAPPED, self.entry, -1)

    def left(self, which: Int64[np.ndarray, " m"], domains: Domains) -> list[Bool[np.ndarray, "m _"]]:
        """The values that are left to every position of some patterns, a block for each variable."""
        blocks = []
        for i, variable in enumerate(self.constraint.variables):
            c = variable.size
            choices = np.zeros((c + 1 + len(domains), c), dtype=bool)
            choices[:c][np.arange(c), np.arange(c)] = True
            choices[c] = True
            choices[c + 1 :, : domains.shape[1]] = domains[:, :c]
            role, entry = self.role[which, i], self.entry[which, i]
            at = np.where(role == MAPPED, c + 1 + entry, np.where(role == KNOWN, entry, c))
            blocks.append(choices[at])
        return blocks

    def log_gaps(self, which: Int64[np.ndarray, " m"]) -> Float[Tensor, " m"]:
        """The logarithm of the number of ways to fill the gaps of some patterns."""
        sizes = np.log([v.size for v in self.constraint.variables])
        return torch.from_numpy(np.where(self.role[which] == GAP, sizes, 0.0).sum(1))

    def columns(self, which: Int64[np.ndarray, " m"], domains: Domains) -> Float[Tensor, "i m"]:
        """The same as a circuit takes it: log 1 of the values that are left, log 0 of all others."""
        left = np.concatenate(self.left(which, domains), axis=1)
        return torch.from_numpy(np.where(left, 0.0, -inf).T.copy())


class Exhausted(Exception):
    """More steps would be needed than are allowed."""


class MapSearch:
    """All maps under which patterns of some constraints hold; `kinds` has the number of symbols of every kind.

    `one_to_one` maps no two symbols of a kind to the same one. `symmetries` finds the permutations of values that
    leave every constraint as it is. `domains` has other points than the symbols themselves, such as images, and the
    values that each may be mapped to.
    """

    def __init__(
        self,
        kinds: Sequence[int],
        patterns: Sequence[Patterns],
        *,
        one_to_one: bool,
        max_steps: int,
        symmetries: "Symmetries | None" = None,
        domains: Domains | None = None,
    ):
        self.kind_of = np.repeat(np.arange(len(kinds)), kinds)
        self.place = np.concatenate([np.arange(k) for k in kinds])
        self.first = np.concatenate([[0], np.cumsum(kinds)])[:-1]
        self.all: Domains = np.arange(max(kinds))[None, :] < np.array(kinds)[self.kind_of][:, None]
        if domains is not None:
            self.all, self.place = domains, domains.argmax(1)
        self.patterns, self.one_to_one, self.symmetries = list(patterns), one_to_one, symmetries
        self.steps_left = max_steps
        self._of_point = [p.points for p in self.patterns]
        self._least = 0

    def count(self, fixed: Mapping[int, int] | None = None) -> Count:
        """How many maps there are, or bounds where the steps do not suffice; a map in `fixed` is taken as given."""
        domains = self._start(fixed or {})
        low, high = self._count(domains, self._everything())
        return Count(max(low, self._least), max(high, self._least))

    def kept_names(self, fixed: Mapping[int, int]) -> tuple[int, Float[np.ndarray, " p"]]:
        """How many one-to-one maps there are, and how many of them leave each symbol what it is.

        Raises Exhausted where the steps do not suffice.
        """
        return self._kept_names(self._start(fixed), self._everything())

    def first_map(self, domains: Domains) -> Int64[np.ndarray, " p"] | None:
        """Some map within `domains`, one that leaves symbols what they are as far as it is found first."""
        return next(self._maps(domains, self._everything()), None)

    def some_maps(self, limit: int) -> list[Int64[np.ndarray, " p"]]:
        """Up to `limit` maps, fewer where steps run out."""
        found: list[Int64[np.ndarray, " p"]] = []
        try:
            for one in self._maps(self.all, self._everything()):
                found.append(one)
                if len(found) >= limit:
                    break
        except Exhausted:
            pass
        return found

    def known_possible(self) -> None:
        """Symbols that are what they are satisfy all patterns: there is one map at least."""
        self._least = 1

    def _start(self, fixed: Mapping[int, int]) -> Domains:
        domains = self.all.copy()
        for point, value in fixed.items():
            domains[point] = np.arange(domains.shape[1]) == value
        return domains

    def _everything(self) -> Unseen:
        return [np.arange(len(p)) for p in self.patterns]

    def _count(self, domains: Domains, unseen: Unseen) -> tuple[int, int]:
        loose = prod(int(n) for n in domains.sum(1))
        try:
            settled = self._narrowed(domains, unseen)
        except Exhausted:
            return 0, loose
        if settled is None:
            return 0, 0
        domains, unseen = settled
        open_points = np.flatnonzero(domains.sum(1) > 1)
        bound = self._bound_points(unseen, domains)
        free = [int(p) for p in open_points if p not in bound]
        if self.one_to_one:
            branching = bound or self._narrow_points(domains)
            if branching:
                return self._branched(domains, unseen, branching)
            ways = prod(factorial(int(n)) for n in np.bincount(self.kind_of[open_points], minlength=1))
            return ways, ways
        low = high = prod(int(domains[p].sum()) for p in free)
        for part in self._parts(bound, unseen):
            inside = [
                which[np.isin(points[which], list(part)).any(1)]
                for which, points in zip(unseen, self._of_point, strict=True)
            ]
            alone = domains.copy()
            for p in open_points:
                if p not in part:  # counted elsewhere
                    alone[p] = np.arange(domains.shape[1]) == domains[p].argmax()
            a, b = self._branched(alone, inside, part)
            low, high = low * a, high * b
            if high == 0:
                return 0, 0
        return low, high

    def _branched(self, domains: Domains, unseen: Unseen, open_points: set[int]) -> tuple[int, int]:
        point = min(open_points, key=lambda p: (domains[p].sum(), p))
        low = high = 0
        for value, times in self._representatives(domains, point):
            chosen = domains.copy()
            chosen[point] = np.arange(domains.shape[1]) == value
            a, b = self._count(chosen, unseen)
            low, high = low + times * a, high + times * b
        return low, high

    def _kept_names(self, domains: Domains, unseen: Unseen) -> tuple[int, Float[np.ndarray, " p"]]:
        total, kept = 0, np.zeros(len(domains))
        settled = self._narrowed(domains, unseen)
        if settled is None:
            return total, kept
        domains, unseen = settled
        sizes = domains.sum(1)
        branching = self._bound_points(unseen, domains) or self._narrow_points(domains)
        if not branching:
            total = prod(factorial(int(n)) for n in np.bincount(self.kind_of[sizes > 1], minlength=1))
            same = domains[np.arange(len(domains)), self.place]
            return total, np.where(same, total / sizes, 0.0)
        point = min(branching, key=lambda p: (sizes[p], p))
        for value in np.flatnonzero(domains[point]):
            chosen = domains.copy()
            chosen[point] = np.arange(domains.shape[1]) == value
            more, of_these = self._kept_names(chosen, unseen)
            total, kept = total + more, kept + of_these
        return total, kept

    def _narrow_points(self, domains: Domains) -> set[int]:
        """Open points from which values were taken that others of their kind still have."""
        sizes = domains.sum(1)
        n_open = np.bincount(self.kind_of[sizes > 1], minlength=1)
        return {p for p in np.flatnonzero(sizes > 1).tolist() if sizes[p] < n_open[self.kind_of[p]]}

    def _representatives(self, domains: Domains, point: int) -> list[tuple[int, int]]:
        """Values to try for a point, each with the number of those that are as good."""
        values = np.flatnonzero(domains[point])
        if self.symmetries is None:
            return [(int(v), 1) for v in values]
        first = int(self.first[self.kind_of[point]])
        decided = np.flatnonzero(domains.sum(1) == 1).tolist()
        used = frozenset(int(self.first[self.kind_of[p]] + domains[p].argmax()) for p in decided)
        try:
            orbit = self.symmetries.orbits(used)
        except Exhausted:
            return [(int(v), 1) for v in values]
        classes: dict[int, list[int]] = {}
        for v in values:
            classes.setdefault(orbit[first + v], []).append(int(v))
        return [(same[0], len(same)) for same in classes.values()]

    def _parts(self, open_points: set[int], unseen: Unseen) -> list[set[int]]:
        """Points that patterns tie together, directly or through others."""
        parts = {p: {p} for p in open_points}
        for which, points in zip(unseen, self._of_point, strict=True):
            for row in np.unique(np.sort(points[which], 1), axis=0) if len(which) else []:
                tied = [p for p in set(row.tolist()) if p in open_points]
                for a, b in combinations(tied, 2):
                    if parts[a] is not parts[b]:
                        joined = parts[a] | parts[b]
                        for p in joined:
                            parts[p] = joined
        return list({id(part): part for part in parts.values()}.values())

    def _bound_points(self, unseen: Unseen, domains: Domains) -> set[int]:
        """Points that are open and that patterns have a say in."""
        found: set[int] = set()
        for which, points in zip(unseen, self._of_point, strict=True):
            found.update(np.unique(points[which]).tolist())
        return {p for p in found if p >= 0 and domains[p].sum() > 1}

    def _maps(self, domains: Domains, unseen: Unseen) -> Iterator[Int64[np.ndarray, " p"]]:
        settled = self._narrowed(domains, unseen)
        if settled is None:
            return
        domains, unseen = settled
        sizes = domains.sum(1)
        bound = self._bound_points(unseen, domains)
        open_points = [p for p in np.flatnonzero(sizes > 1).tolist() if p in bound or not bound]
        if not open_points:
            yield domains.argmax(1)
            return
        point = min(open_points, key=lambda p: (sizes[p], p))
        values = np.flatnonzero(domains[point])
        for value in sorted(values.tolist(), key=lambda v: v != self.place[point]):
            chosen = domains.copy()
            chosen[point] = np.arange(domains.shape[1]) == value
            yield from self._maps(chosen, unseen)

    def _narrowed(self, domains: Domains, unseen: Unseen) -> tuple[Domains, Unseen] | None:
        """Domains without values that some pattern excludes, and the patterns that are not decided yet."""
        domains = domains.copy()
        while True:
            before = domains.copy()
            if self.one_to_one and not self._each_once(domains):
                return None
            if not domains.any(1).all():
                return None
            left = []
            for patterns, points, which in zip(self.patterns, self._of_point, unseen, strict=True):
                if self.steps_left <= 0:
                    raise Exhausted
                self.steps_left -= 1
                single = domains.sum(1) == 1
                decided = (single[points[which]] | (points[which] < 0)).all(1)
                if not _hold(patterns, which[decided], domains):
                    return None
                rest = which[~decided]
                telling = np.argsort((~single[points[rest]] & (points[rest] >= 0)).sum(1), kind="stable")
                positive = rest[telling][patterns.holds[rest[telling]]]
                always = _narrow(patterns, positive[:PATTERNS_AT_ONCE], points, domains)
                if always is None:
                    return None
                left.append(rest[~np.isin(rest, always)] if len(always) else rest)
            unseen = left
            if np.array_equal(before, domains):
                return domains, unseen

    def _each_once(self, domains: Domains) -> bool:
        """Take values of decided symbols from all others of their kind; False where none is left."""
        for kind in range(len(self.first)):
            of_kind = np.flatnonzero(self.kind_of == kind)
            seen: set[int] = set()
            while True:
                fresh = [p for p in of_kind.tolist() if p not in seen and domains[p].sum() == 1]
                if not fresh:
                    break
                for p in fresh:
                    value = int(domains[p].argmax())
                    others = of_kind[of_kind != p]
                    domains[others, value] = False
                    seen.add(p)
                if not domains[of_kind].any(1).all():
                    return False
        return True


class Symmetries:
    """Permutations of the values of every kind that leave constraints as they are.

    `patterns` are all tuples that the constraints allow, with known values where values are not mapped.
    """

    def __init__(self, kinds: Sequence[int], patterns: Sequence[Patterns], max_steps: int):
        self.search = MapSearch(kinds, patterns, one_to_one=True, max_steps=max_steps)
        self.n_points = sum(kinds)
        self._profile = [self._occurrences(patterns, p) for p in range(self.n_points)]
        self._found: list[Int64[np.ndarray, " p"]] = []
        self._cache: dict[frozenset[int], list[int]] = {}
        self._only_identity: list[frozenset[int]] = []

    def orbits(self, fixed: frozenset[int]) -> list[int]:
        """Of every value one that symmetries which leave `fixed` alone take it to, the same for all of an orbit."""
        if any(less <= fixed for less in self._only_identity):
            return list(range(self.n_points))
        if fixed not in self._cache:
            self._cache[fixed] = self._orbits(fixed)
            if self._cache[fixed] == list(range(self.n_points)):
                self._only_identity.append(fixed)
        return self._cache[fixed]

    def _orbits(self, fixed: frozenset[int]) -> list[int]:
        orbit = list(range(self.n_points))

        def join(g: Int64[np.ndarray, " p"]) -> None:
            for a, b in enumerate(g.tolist()):
                one, other = orbit[a], orbit[b]
                if one != other:
                    orbit[:] = [min(one, other) if o in (one, other) else o for o in orbit]

        for g in self._found:
            if all(g[p] == p for p in fixed):
                join(g)
        kind_of, place = self.search.kind_of, self.search.place
        for a, b in combinations([p for p in range(self.n_points) if p not in fixed], 2):
            alike = kind_of[a] == kind_of[b] and self._profile[a] == self._profile[b]
            if not alike or orbit[a] == orbit[b]:
                continue
            domains = self.search.all.copy()
            for point, value in [*((p, int(place[p])) for p in fixed), (a, int(place[b]))]:
                domains[point] = np.arange(domains.shape[1]) == value
            found = self.search.first_map(domains)
            if found is not None:
                g = self.search.first[kind_of] + found
                self._found.append(g)
                join(g)
        return orbit

    @staticmethod
    def _occurrences(patterns: Sequence[Patterns], point: int) -> tuple[int, ...]:
        """How often a point is at each position: points that differ in it are not interchangeable."""
        return tuple(n for p in patterns for n in (p.points == point).sum(0).tolist())


def _hold(patterns: Patterns, which: Int64[np.ndarray, " m"], domains: Domains) -> bool:
    """Whether patterns of which nothing is open are as they should be."""
    if not len(which):
        return True
    body = patterns.constraint.body
    if isinstance(body, Table) and patterns.holds[which].all():
        places = np.where(patterns.role == MAPPED, domains.argmax(1)[patterns.points], patterns.entry)[which]
        if (patterns.role[which] != GAP).all():
            return bool(np.isin(_keys(body, places), _keys(body, body.rows), assume_unique=False).all())
    rows = max(1, NUMBERS_AT_ONCE // max(1, body.size))
    for start in range(0, len(which), rows):
        some = which[start : start + rows]
        with torch.no_grad():
            columns = patterns.columns(some, domains)
            positive = patterns.holds[some]
            if (body.log_joint(columns).numpy()[positive] == -inf).any():
                return False
            certain = body.log_probability(columns) >= patterns.log_gaps(some) - 1e-9
            if certain.numpy()[~positive].any():
                return False
    return True


def _keys(table: Table, rows: Int64[np.ndarray, "n v"]) -> Int64[np.ndarray, " n"]:
    """A number for every tuple of values."""
    keys: Int64[np.ndarray, " n"] = np.ravel_multi_index(tuple(rows.T), tuple(v.size for v in table.variables))
    return keys


def _narrow(
    patterns: Patterns, which: Int64[np.ndarray, " m"], points: Int64[np.ndarray, "n v"], domains: Domains
) -> Int64[np.ndarray, " a"] | None:
    """Take from `domains` what no values of a pattern satisfy the constraint with.

    The patterns that all values left satisfy; None where no values satisfy one.
    """
    if not len(which):
        return which
    body = patterns.constraint.body
    if isinstance(body, Table) and len(body.rows) * len(which) <= LOOKED_UP:
        told = _told_by_table(body, patterns.left(which, domains))
    else:
        told = _told_by_circuit(patterns, which, domains)
    if told is None:
        return None
    possible, always = told
    for i, (variable, block) in enumerate(zip(patterns.constraint.variables, possible, strict=True)):
        at = points[which, i]
        mapped = at >= 0
        if mapped.any():
            excluded = np.zeros((len(domains), variable.size), dtype=bool)
            np.logical_or.at(excluded, at[mapped], ~block[mapped])
            domains[:, : variable.size] &= ~excluded
    return which[always] if domains.any(1).all() else None


Told = tuple[list[Bool[np.ndarray, "_ _"]], Bool[np.ndarray, " _"]]
"""Of every variable and pattern the values that satisfy the constraint with others, and whether all do."""


def _told_by_table(table: Table, left: Sequence[Bool[np.ndarray, "m _"]]) -> Told | None:
    fits = np.ones((len(left[0]), len(table.rows)), dtype=bool)
    for i, block in enumerate(left):
        fits &= block[:, table.rows[:, i]]
    if not fits.any(1).all():
        return None
    numbers = fits.astype(np.float32)
    possible = [numbers @ np.eye(b.shape[1], dtype=np.float32)[table.rows[:, i]] > 0 for i, b in enumerate(left)]
    certain = bool((table.log_weights == 0).all())
    every = np.prod([block.sum(1) for block in left], axis=0)
    return possible, (fits.sum(1) == every) & certain


def _told_by_circuit(patterns: Patterns, which: Int64[np.ndarray, " m"], domains: Domains) -> Told | None:
    columns = patterns.columns(which, domains)
    with torch.inference_mode(False), torch.enable_grad():
        columns = columns.clone().requires_grad_()
        joint = patterns.constraint.body.log_joint(columns)
        if (joint == -inf).any():
            return None
        (gradient,) = torch.autograd.grad(joint.sum(), columns)
    sizes = [v.size for v in patterns.constraint.variables]
    possible = [(block > 0).numpy().T for block in gradient.split(sizes)]
    left = [(block > -inf).sum(0).double().log() for block in columns.detach().split(sizes)]
    return possible, (joint.detach() > sum(left) - 1e-9).numpy()


def irreducible(items: Sequence[T], suffice: Callable[[list[T]], bool]) -> list[T]:
    """Items of which none can be left out: at first half of them is tried at a time, at last each."""
    left, size = list(items), max(1, len(items) // 2)
    while True:
        at = 0
        while at < len(left):
            fewer = left[:at] + left[at + size :]
            if fewer and suffice(fewer):
                left = fewer
            else:
                at += size
        if size == 1:
            return left
        size = max(1, size // 2)


def smallest_hitting_set(sets: Sequence[frozenset[int]], max_steps: int = 1000) -> tuple[int, ...]:
    """A smallest set with an element of each, by branching on the elements of one that is not hit.

    After `max_steps` a small one, that need not be the smallest.
    """
    best: list[tuple[int, ...]] = [tuple(sorted({min(s) for s in sets}))]
    steps_left = max_steps

    def extend(chosen: tuple[int, ...]) -> None:
        nonlocal steps_left
        steps_left -= 1
        if steps_left < 0:
            return
        missed = [s for s in sets if not s.intersection(chosen)]
        if not missed:
            if len(chosen) < len(best[0]):
                best[0] = chosen
            return
        apart: list[frozenset[int]] = []
        for s in sorted(missed, key=len):
            if all(not s & other for other in apart):
                apart.append(s)
        if len(chosen) + len(apart) >= len(best[0]):
            return
        smallest = min(missed, key=len)
        by_use: Callable[[int], tuple[int, int]] = lambda e: (-sum(e in s for s in missed), e)  # noqa: E731
        for element in sorted(smallest, key=by_use):
            extend((*chosen, element))

    extend(())
    return tuple(sorted(best[0]))
