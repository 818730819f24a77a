"""What clusters stand for, and how sure that is, from the clusters of the rows in examples.

A model that satisfies its rules may do so under other names too. Every one-to-one naming of the clusters is a
hypothesis: under the right one an example satisfies its rule unless a row is in a wrong cluster, which happens as
often as examples violate the rule under the names as they are; under any naming the tuples of either side are
equally probable. The probability of a name is that of all namings that give it. Namings that satisfy all examples
share it equally, so that a name which a rule cannot tell is as probable as its rivals are few.

A cluster with far fewer rows than the rule lets expect says that some symbol has no cluster of its own: it is in
that of another one. Then a cluster may show several symbols, and names hold only if every way to spread all symbols
over the clusters keeps them.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from math import exp, inf, lgamma, log
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64

from gedikit.symbolic.examples import NOTHING, Placed
from gedikit.symbolic.interchangeable import interchangeable
from gedikit.symbolic.maps import GAP, KNOWN, MAPPED, Exhausted, MapSearch, Patterns
from gedikit.symbolic.table import Table

SURE = 0.95  # probability from which on a name counts as decided
MAX_STEPS, COUNTED = 600, 5  # of narrowing for every question, and so many times as many where namings are counted
MAX_RIVALS = 200
MAX_NUMBERS = 100_000_000  # products of circuits in one pass over all examples and rivals
MAX_EXAMPLES = 2000
HALF = 0.5  # chosen on 60 fits of digits
CHANCE = 0.1  # of the examples that hold, as many as may do so by wrong clusters
UNRELATED = 0.1  # prior probability that clusters have nothing to do with the symbols
RARE, EXPECTED = (
    0.2,
    5.0,
)  # of the rows that a rule lets expect: a cluster with fewer is not in use, if these are some
MAX_TUPLES = 5000  # of a rule, to spread symbols over clusters

Naming = Int64[np.ndarray, " p"]
"""Of every cluster the position, within its kind, of the value that it stands for."""


@dataclass(frozen=True)
class Name:
    """What a cluster stands for: `value`, with a probability; `others` are values it could stand for as well.

    `tied` are those of them under which the examples hold as well as under the names that clusters have: the rules
    leave such a name open, and a fit cannot decide it. None in models of earlier versions, which did not tell.
    """

    kind: str
    cluster: int
    value: Any
    probability: float
    others: tuple[Any, ...] = ()
    tied: tuple[Any, ...] | None = ()

    @property
    def decided(self) -> bool:
        return self.probability >= SURE

    @property
    def open_by_rule(self) -> bool:
        return not self.decided and (self.tied is None or bool(self.tied))

    def __str__(self) -> str:
        rest = self.tied if self.open_by_rule and self.tied else self.others
        return str(self.value) if self.decided else f"{self.value} (or {', '.join(map(str, rest)) or 'any other'})"


@dataclass(frozen=True)
class Names:
    """The names of all clusters, and how many of the examples that were looked at violate their rule under them."""

    names: tuple[Name, ...]
    n_examples: int
    violated: int

    @property
    def undecided(self) -> tuple[Name, ...]:
        return tuple(name for name in self.names if not name.decided)

    @property
    def open_by_rule(self) -> tuple[Name, ...]:
        """Undecided names for which the examples would hold as well under another."""
        return tuple(name for name in self.names if name.open_by_rule)

    @property
    def open_by_fit(self) -> tuple[Name, ...]:
        """Undecided names that the rules would settle, but not as the clusters are."""
        return tuple(name for name in self.undecided if not name.open_by_rule)

    @property
    def groups(self) -> list[tuple[str, tuple[Any, ...]]]:
        """The largest sets of values any two of which the rules cannot tell apart, with their kind."""
        found = []
        for kind in dict.fromkeys(name.kind for name in self.names):
            of_kind = [name for name in self.names if name.kind == kind]
            alike = {
                name.value: (name.others if name.tied is None else name.tied) if name.open_by_rule else ()
                for name in of_kind
            }
            found += [(kind, group) for group in interchangeable(list(alike), alike)]
        return found

    def left_open(self) -> list[str]:
        """What is not decided and why, in sentences; none where all names are."""
        several = len({name.kind for name in self.names}) > 1
        groups = self.groups
        lines = [
            f"names{f' of {kind}' if several else ''} that the rules and examples cannot tell apart: "
            + ", ".join(map(str, group))
            for kind, group in groups
        ]
        told = {(kind, value) for kind, group in groups for value in group}
        rest = [name for name in self.open_by_rule if (name.kind, name.value) not in told]
        for names, why in (
            (rest, "names that the rules and examples leave open"),
            (self.open_by_fit, "names that the rules and examples settle, but that this fit is not sure of"),
        ):
            if names:
                lines.append(f"{why}: " + ", ".join(f"{f'{n.kind} ' if several else ''}{n}" for n in names))
        return lines

    def __str__(self) -> str:
        lines = [f"{self.violated} of {self.n_examples} examples violate their rule under these names"]
        several = len({name.kind for name in self.names}) > 1
        for name in self.names:
            of = f"{name.kind} " if several else ""
            why = "the rules leave it open" if name.open_by_rule else "the fit is not sure"
            rest = "" if name.decided else f"; {why}; or {', '.join(map(str, name.others)) or 'any other'}"
            lines.append(f"cluster {name.cluster}: {of}{name.value} ({name.probability:.3f}{rest})")
        return "\n".join(lines)

    def tree(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @classmethod
    def from_tree(cls, tree: dict[str, Any]) -> Self:
        names = tuple(_of_tree(name) for name in tree["names"])
        return cls(names, tree["n_examples"], tree["violated"])


def _of_tree(tree: dict[str, Any]) -> Name:
    tied = tree.get("tied")
    return Name(**(tree | {"others": tuple(tree["others"]), "tied": None if tied is None else tuple(tied)}))


def names_of(
    placed: Sequence[Placed],
    labels: Int64[np.ndarray, " n"],
    labelled: Collection[int] = (),
    *,
    untaught: Int64[np.ndarray, " n"] | None = None,
    max_steps: int = MAX_STEPS,
) -> Names:
    """The names of clusters, from the cluster of every row; `labelled` clusters are named by labelled rows.

    `untaught` are clusters of rows as they would be if rows had not been made to agree with examples: they are
    the evidence then, and count half, because they are not quite independent of the examples either.
    """
    symbols = placed[0].symbols
    sizes = [kind.size for kind in symbols.kinds]
    seen = [_Seen.of(p, labels if untaught is None else untaught) for p in placed]
    task = _Task(sizes, seen, labelled, max_steps, 1.0 if untaught is None else HALF)
    probability, possible, tied = task.probabilities()
    _without_clusters(placed, seen, labelled, probability, possible)
    plain = symbols.plain_values()
    names = []
    for kind in symbols.kinds:
        for i in range(kind.size):
            cluster = kind.first + i
            p = float(probability[cluster])
            others, alike = (
                tuple(
                    plain[kind.first + j]
                    for j in np.flatnonzero(which[cluster, : kind.size])
                    if j != i and p < SURE
                )
                for which in (possible | tied, tied)
            )
            names.append(Name(kind.name, cluster, plain[cluster], p, others, alike))
    shown = seen if untaught is None else [_Seen.of(p, labels) for p in placed]
    violated = sum(s.counts[~s.satisfied(task.place, task.width)].sum() for s in shown)
    return Names(tuple(names), int(sum(s.counts.sum() for s in seen)), int(violated))


@dataclass(frozen=True)
class _Seen:
    """Distinct tuples of clusters in the examples of one constraint, with their numbers.

    `by_chance` is the share of tuples of values that satisfy the constraint, and `expected` has how many rows would
    show each symbol if all tuples that satisfy it were equally probable.
    """

    patterns: Patterns
    counts: Int64[np.ndarray, " n"]
    by_chance: float
    expected: Float[np.ndarray, " p"]

    @classmethod
    def of(cls, placed: Placed, labels: Int64[np.ndarray, " n"]) -> Self:
        role = np.full(placed.rows.shape, GAP)
        entry = np.zeros(placed.rows.shape, dtype=np.int64)
        for i, kind in enumerate(placed.kinds):
            rows, known = placed.rows[:, i], placed.known[:, i]
            if kind is not None:
                cluster = labels[rows]
                shown = (rows != NOTHING) & (cluster >= kind.first) & (cluster < kind.first + kind.size)
                role[shown, i], entry[shown, i] = MAPPED, cluster[shown]
            told = known != NOTHING
            role[told, i], entry[told, i] = KNOWN, known[told]
        holds = placed.examples.holds
        size = max(50, min(MAX_EXAMPLES, MAX_NUMBERS // (placed.constraint.body.size * MAX_RIVALS)))
        some = np.arange(len(role))
        if len(some) > size:
            some = np.sort(np.random.default_rng(0).choice(some, size, replace=False))
        whole = np.concatenate([role[some], entry[some], holds[some].reshape(-1, 1)], axis=1)
        distinct, counts = np.unique(whole, axis=0, return_counts=True)
        v = placed.rows.shape[1]
        patterns = Patterns(
            placed.constraint, distinct[:, :v], distinct[:, v : 2 * v], distinct[:, -1].astype(bool)
        )
        return cls(patterns, counts, *_before_clusters(patterns, counts, placed))

    def satisfied(self, naming: Naming, width: int) -> Bool[np.ndarray, " n"]:
        """Which patterns are as they should be under a naming."""
        domains = np.arange(width)[None, :] == naming[:, None]
        return _as_they_should(self.patterns, domains)


def _as_they_should(patterns: Patterns, domains: Bool[np.ndarray, "p c"]) -> Bool[np.ndarray, " n"]:
    columns = patterns.columns(np.arange(len(patterns)), domains)
    body = patterns.constraint.body
    with torch.no_grad():
        holds = (body.log_joint(columns) > -inf).numpy()
        if not patterns.holds.all():
            certain = (body.log_probability(columns) >= patterns.log_gaps(np.arange(len(patterns))) - 1e-9).numpy()
            holds = np.where(patterns.holds, holds, ~certain)
    found: Bool[np.ndarray, " n"] = holds
    return found


def _before_clusters(
    patterns: Patterns, counts: Int64[np.ndarray, " n"], placed: Placed
) -> tuple[float, Float[np.ndarray, " p"]]:
    """How often equally probable symbols satisfy what is known of examples, and how often they then show each."""
    variables = patterns.constraint.variables
    sizes = [v.size for v in variables]
    every = np.ones((placed.symbols.n_clusters, max(sizes)), dtype=bool)
    columns = patterns.columns(np.arange(len(patterns)), every)
    normalised = torch.cat([torch.log_softmax(block, 0) for block in columns.split(sizes)])
    with torch.inference_mode(False), torch.enable_grad():
        inputs = normalised.clone().requires_grad_()
        log_p = patterns.constraint.body.log_probability(inputs)
        (marginals,) = torch.autograd.grad(log_p.sum(), inputs)
    p = np.where(patterns.holds, log_p.detach().exp().numpy(), 1 - log_p.detach().exp().numpy())
    expected = np.zeros(placed.symbols.n_clusters)
    for i, (kind, block) in enumerate(zip(placed.kinds, marginals.split(sizes), strict=True)):
        if kind is not None:
            shown = (patterns.role[:, i] == MAPPED) & patterns.holds
            expected[kind.clusters] += block.numpy()[:, shown] @ counts[shown]
    return float(np.clip(np.average(p, weights=counts), 1e-6, 1 - 1e-6)), expected


class _Task:
    """Namings and their weights."""

    def __init__(
        self, sizes: Sequence[int], seen: Sequence[_Seen], labelled: Collection[int], max_steps: int, counts: float
    ):
        self.sizes, self.seen, self.labelled, self.max_steps = sizes, seen, labelled, max_steps
        self.counts = counts  # how much an example does
        self.width = max(sizes)
        self.place = np.concatenate([np.arange(n) for n in sizes])
        self.kind_of = np.repeat(np.arange(len(sizes)), sizes)
        self.as_named = [s.satisfied(self.place, self.width) for s in seen]
        bad = [s.counts[~ok].sum() for s, ok in zip(seen, self.as_named, strict=True)]
        self.violated = int(sum(bad))
        # how often a rule is violated by a wrong cluster; no more often than by clusters drawn at random
        self.wrong = [
            min((b + 0.5) / (s.counts.sum() + 1), 1 - s.by_chance) for s, b in zip(seen, bad, strict=True)
        ]

    def probabilities(self) -> tuple[Float[np.ndarray, " p"], Bool[np.ndarray, "p c"], Bool[np.ndarray, "p c"]]:
        """Of every cluster the probability of its name, names not excluded, and names that are as good."""
        rivals = self._rivals()
        if rivals is None:
            keeps, possible, number = self._by_counting()
            tied = possible
            evidence = self._gain(self.place) + log(number)
        else:
            gains = np.array([self._gain(r) for r in rivals])
            weights = np.exp(gains - gains.max())
            evidence = float(gains.max()) + log(weights.sum())
            weights /= weights.sum()
            keeps = (weights[:, None] * (rivals == self.place)).sum(0)
            possible = self._names_in(rivals[weights > 0.01 * weights.max()])
            held = sum(s.counts.sum() for s in self.seen) - self.violated
            spared = min(self.violated, CHANCE * held)
            tied = self._names_in([rival for rival in rivals if self._lost(rival) <= spared])
        related = self._related(evidence)
        equal = 1 / np.array(self.sizes)[self.kind_of]
        probability = related * keeps + (1 - related) * equal
        probability[list(self.labelled)] = 1.0
        return probability, possible, tied

    def _names_in(self, namings: Iterable[Naming]) -> Bool[np.ndarray, "p c"]:
        found = np.zeros((len(self.place), self.width), dtype=bool)
        for naming in namings:
            found[np.arange(len(naming)), naming] = True
        return found

    def _lost(self, naming: Naming) -> int:
        """How many examples that hold under the names that clusters have are violated by another naming."""
        return int(
            sum(
                s.counts[ok & ~s.satisfied(naming, self.width)].sum()
                for s, ok in zip(self.seen, self.as_named, strict=True)
            )
        )

    def _gain(self, naming: Naming) -> float:
        """log-probability of the clusters in examples under a naming, relative to clusters drawn at random."""
        gain = 0.0
        for s, wrong in zip(self.seen, self.wrong, strict=True):
            good = int(s.counts[s.satisfied(naming, self.width)].sum())
            bad = int(s.counts.sum()) - good
            gain += good * log((1 - wrong) / s.by_chance) + bad * log(wrong / (1 - s.by_chance))
        return self.counts * gain

    def _related(self, evidence: float) -> float:
        """The probability that clusters have to do with symbols; all namings are equally probable beforehand."""
        namings = sum(lgamma(size + 1) for size in self.sizes)
        odds = evidence - namings + log((1 - UNRELATED) / UNRELATED)
        return 1 / (1 + exp(-min(max(odds, -50.0), 50.0)))

    def _search(self, patterns: Sequence[Patterns]) -> MapSearch:
        return MapSearch(self.sizes, patterns, one_to_one=True, max_steps=self.max_steps)

    def _rivals(self) -> Int64[np.ndarray, "r p"] | None:
        """The names as they are, all namings under which what is seen often holds, and exchanges of two names."""
        search = self._search([self._core(i) for i in range(len(self.seen))])
        found = search.some_maps(MAX_RIVALS)
        if len(found) >= MAX_RIVALS or search.steps_left <= 0:
            return None
        found.append(self.place)
        for a in range(len(self.place)):
            for b in range(a):
                if self.kind_of[a] == self.kind_of[b]:
                    other = self.place.copy()
                    other[[a, b]] = other[[b, a]]
                    found.append(other)
        rivals = np.unique(np.stack(found), axis=0)
        fixed = list(self.labelled)
        kept: Int64[np.ndarray, "r p"] = rivals[(rivals[:, fixed] == self.place[fixed]).all(1)]
        return kept

    def _core(self, i: int) -> Patterns:
        """Patterns that are satisfied as clusters are named, without those so rare that they may be errors."""
        s, ok = self.seen[i], np.flatnonzero(self.as_named[i])
        order = ok[np.argsort(-s.counts[ok], kind="stable")]
        enough = np.cumsum(s.counts[order]) <= (1 - 2 * self.wrong[i]) * s.counts.sum()
        return s.patterns.some(order[enough | (np.arange(len(order)) == 0)])

    def _by_counting(self) -> tuple[Float[np.ndarray, " p"], Bool[np.ndarray, "p c"], int]:
        """Where too many namings satisfy all examples: the share of them that keep a name, and their number."""
        patterns = [s.patterns.some(np.flatnonzero(ok)) for s, ok in zip(self.seen, self.as_named, strict=True)]
        fixed = {int(p): int(self.place[p]) for p in self.labelled}
        possible = np.arange(self.width)[None, :] < np.array(self.sizes)[self.kind_of][:, None]
        found: Bool[np.ndarray, "p c"] = possible.copy()
        search = self._search(patterns)
        try:
            for p in range(len(found)):
                for place in np.flatnonzero(found[p]).tolist():
                    domains = possible.copy()
                    domains[p] = np.arange(self.width) == place
                    found[p, place] = search.first_map(domains) is not None
        except Exhausted:
            pass
        search = MapSearch(self.sizes, patterns, one_to_one=True, max_steps=COUNTED * self.max_steps)
        try:
            total, kept = search.kept_names(fixed)
        except Exhausted:
            return 1 / found.sum(1), found, 1
        return kept / total, found, total


def _without_clusters(
    placed: Sequence[Placed],
    seen: Sequence[_Seen],
    labelled: Collection[int],
    probability: Float[np.ndarray, " p"],
    possible: Bool[np.ndarray, "p c"],
) -> None:
    """Take back names that are not sure once a symbol has no cluster of its own."""
    symbols = placed[0].symbols
    used, expected = np.zeros(symbols.n_clusters), np.sum([s.expected for s in seen], axis=0)
    for s in seen:
        for points in s.patterns.points.T:
            shown = points >= 0
            np.add.at(used, points[shown], s.counts[shown])
    for kind in symbols.kinds:
        hoped = expected[kind.clusters]
        missing = (hoped >= EXPECTED) & (used[kind.clusters] < RARE * hoped)
        if not missing.any():
            continue
        for i in range(kind.size):
            cluster = kind.first + i
            if cluster in labelled:
                continue
            sure = not missing[i] and all(
                _always_in(kind.first, kind.size, i, missing, p, s) for p, s in zip(placed, seen, strict=True)
            )
            if not sure:
                probability[cluster] = min(probability[cluster], 1 / kind.size)
                possible[cluster, : kind.size] = True


def _always_in(
    first: int, size: int, symbol: int, missing: Bool[np.ndarray, " c"], placed: Placed, seen: _Seen
) -> bool:
    """Whether a cluster shows its symbol however all symbols of its kind are spread over the clusters in use.

    False where that is not proven.
    """
    body = seen.patterns.constraint.body
    if not isinstance(body, Table) or len(body.rows) > MAX_TUPLES or not seen.patterns.holds.all():
        return False
    ok = _as_they_should(
        seen.patterns, np.arange(size)[None, :] == (np.arange(first + size) - first).clip(0)[:, None]
    )
    often = np.flatnonzero(ok & (seen.counts >= np.median(seen.counts[ok]) / 4)) if ok.any() else np.array([], int)
    role, entry = seen.patterns.role[often], seen.patterns.entry[often]
    of_kind = [kind is not None and kind.first == first for kind in placed.kinds]
    steps = MAX_STEPS
    clusters = np.flatnonzero(~missing)

    def possible(home: Int64[np.ndarray, " c"]) -> bool:
        """Whether every pattern has values that satisfy the rule and may be in its clusters."""
        fits = np.ones((len(role), len(body.rows)), dtype=bool)
        for i, own in enumerate(of_kind):
            value = body.rows[:, i][None, :]
            if own:
                at = home[value]
                same = (at == (entry[:, i] - first)[:, None]) | (at < 0)
                fits &= np.where((role[:, i] == MAPPED)[:, None], same, True)
            else:
                place = entry[:, i] - (placed.kinds[i].first if placed.kinds[i] is not None else 0)  # type: ignore[union-attr]
                fits &= np.where((role[:, i] != GAP)[:, None], value == place[:, None], True)
        return bool(fits.any(1).all())

    def elsewhere(home: Int64[np.ndarray, " c"]) -> bool:
        """Whether symbols without a home can be placed such that the symbol in question is in another cluster."""
        nonlocal steps
        steps -= 1
        if steps < 0:
            return True
        if not possible(home):
            return False
        homeless = np.flatnonzero(home < 0)
        if not len(homeless):
            return bool(np.isin(clusters, home).all())
        s = symbol if home[symbol] < 0 else int(homeless[0])
        for cluster in clusters:
            if s == symbol and cluster == symbol:
                continue
            placed_at = home.copy()
            placed_at[s] = cluster
            if elsewhere(placed_at):
                return True
        return False

    return not elsewhere(np.full(size, -1))
