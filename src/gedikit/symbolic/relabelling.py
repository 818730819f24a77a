"""Which cluster is which symbol: the naming of clusters under which most examples satisfy the constraint.

Clusters have no names. A network that has found them but calls 3 what is 8 sits in a local optimum of the
constraint's probability, and only exchanging names leads out of it. An example that violates the constraint under
part of a naming violates it whatever the rest is, and that bound makes the search exact in most cases.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gedikit.errors import UsageError
from gedikit.symbolic.constraint import Constraint
from gedikit.symbolic.examples import Placed
from gedikit.symbolic.situations import situations_of
from gedikit.symbolic.symbols import ONE_KIND, Kind
from gedikit.symbolic.table import Table
from gedikit.symbolic.variables import Posteriors, checked

MAX_TUPLES = 200_000
MAX_UNDECIDED = 4_000_000  # tuples of values or of none yet, of all situations together
WORK = 2_000_000  # tuples looked up at once
TIE = 1e-5  # of all examples: namings that satisfy as many up to this are equally good
Namings = Int64[Tensor, "p c"]


@dataclass(frozen=True)
class Relabelling:
    """The best namings, best first; position j of a naming is the position of the value that cluster j stands for.

    Of namings that satisfy equally many examples, up to 1e-5 of them, the one that changes fewer names is better.
    `satisfied` is the number of examples that satisfy the constraint (the expected one with soft labels) and
    `as_named` the same under the names as they are.
    `exact`: it is proven that no naming satisfies more examples than the best one.
    """

    namings: Int64[Tensor, "k c"]
    satisfied: Float[Tensor, " k"]
    as_named: float
    exact: bool

    @property
    def margin(self) -> float:
        """By how much the best naming leads the next one found: 0 says that the examples do not tell them apart.

        `exact` is about the best naming alone. There may be a better runner-up, so this is an upper bound.
        """
        return max(0.0, float(self.satisfied[0] - self.satisfied[1])) if len(self.satisfied) > 1 else float("inf")

    def apply(self, log_p: Float[Tensor, "*b c"] | Float[np.ndarray, "*b c"]) -> Float[Tensor, "*b c"]:
        """Posteriors over clusters as posteriors over values, by the best naming."""
        log_p = torch.as_tensor(log_p)
        return log_p[..., self.namings[0].argsort().to(log_p.device)]


@torch.no_grad()
def best_relabelling(
    log_p: Posteriors, constraint: Constraint, *, soft: bool = False, starts: int = 64, k: int = 2, seed: int = 0
) -> Relabelling:
    """Name the clusters of one network, which labels all variables, so that most examples satisfy the constraint.

    `log_p` has (rows, clusters) for every variable. Hill climbing by exchanging two names from `starts` random
    namings, then branch and bound, which proves that nothing better is left unless too many beginnings of a naming
    remain possible at once: then it goes on with the most promising of them.

    >>> addition = Constraint(lambda a, b, c: a + b == c, domains=(10, 10, 10))
    >>> a, b = torch.arange(100) // 10, torch.arange(100) % 10
    >>> a, b = a[a + b < 10], b[a + b < 10]
    >>> scrambled = torch.tensor([7, 2, 9, 0, 4, 1, 8, 5, 3, 6])  # the cluster that digit d went to
    >>> clusters = [torch.eye(10)[scrambled[digit]].log() for digit in (a, b, a + b)]
    >>> found = best_relabelling(clusters, addition)
    >>> found.namings[0][scrambled].tolist(), found.exact
    ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], True)
    """
    posteriors = [p.reshape(-1, p.shape[-1]) for p in checked(constraint.variables, log_p)]
    if not constraint.one_domain:
        raise UsageError(
            "best_relabelling needs variables with the same values and the same network: one labels all of them"
        )
    if not len(posteriors[0]):
        raise UsageError("log_p has no rows: give those of at least one example")
    labels, weights = _soft_tuples(posteriors) if soft else _hard_tuples(posteriors)
    kind = Kind(ONE_KIND, constraint.variables[0].values)
    part = _Part(labels, weights, constraint.satisfaction().to(weights), (kind,) * len(posteriors))
    return _searched(_Score([part], (kind,)), starts, k, seed)


class Namer:
    """Names the clusters of a model by examples of any rules, with known values and symbols of several kinds.

    What the rules allow is worked out once, for every situation: which variables are images, and which values are
    known.
    """

    def __init__(self, placed: Sequence[Placed]):
        """Where the rules allow too many tuples of values to go through, `can` says so."""
        self.symbols = placed[0].symbols
        self.situations = [one for p in placed for group in p.groups for one in situations_of(p, group)]
        self.can = sum(s.n_undecided for s in self.situations) <= MAX_UNDECIDED and all(
            s.constraint.few_tuples or isinstance(s.constraint.body, Table) for s in self.situations
        )

    @cached_property
    def _allowed(self) -> list[Float[Tensor, "..."]]:
        return [situation.satisfaction() for situation in self.situations]

    @torch.no_grad()
    def best(
        self,
        log_p: Float[Tensor, "n c"],
        labels: Int64[Tensor, " n"] | None = None,
        *,
        starts: int = 64,
        k: int = 2,
        seed: int = 0,
    ) -> Relabelling:
        """The names under which most examples are as they are known to be, from log-posteriors of all rows.

        `labels` are symbols that are known of rows, −1 of others: a row with one counts as an example.
        """
        if not self.can:
            raise UsageError("the rules allow too many tuples of values to name clusters by going through them")
        kinds, device = self.symbols.kinds, log_p.device
        shown = {kind.name: kind.first + log_p[:, kind.clusters].argmax(-1) for kind in kinds}
        parts = []
        for situation, allowed in zip(self.situations, self._allowed, strict=True):
            rows = torch.from_numpy(situation.rows).to(device)
            seen = [shown[kind.name][at] for kind, at in zip(situation.kinds, rows.T, strict=True)]
            tuples, which = torch.stack(seen, dim=-1).unique(dim=0, return_inverse=True)
            weights = torch.from_numpy(situation.weights).to(device)
            counts = torch.zeros(len(tuples), dtype=torch.float64, device=device).index_add_(0, which, weights)
            parts.append(_Part(tuples, counts.float(), allowed.float().to(device), situation.kinds))
        if labels is not None:
            parts += _labelled(shown, labels, kinds)
        return _searched(_Score(parts, kinds), starts, k, seed)


def _labelled(shown: Mapping[str, Tensor], labels: Int64[Tensor, " n"], kinds: Sequence[Kind]) -> list["_Part"]:
    """Rows whose symbol is known, as examples of one image."""
    parts = []
    for kind in kinds:
        for label in range(kind.first, kind.first + kind.size):
            clusters, counts = shown[kind.name][labels == label].unique(return_counts=True)
            if len(clusters):
                only = torch.zeros(kind.size, device=labels.device)
                only[label - kind.first] = 1
                parts.append(_Part(clusters[:, None], counts.float(), only, (kind,)))
    return parts


def _searched(score: "_Score", starts: int, k: int, seed: int) -> Relabelling:
    if starts < 1 or k < 1:
        raise UsageError(f"starts and k must be at least 1, not {starts} and {k}")
    generator = torch.Generator().manual_seed(seed)
    starts = min(starts, score.at_once(len(score.pairs[0])))
    random = [kind.first + torch.rand(starts, kind.size, generator=generator).argsort(1) for kind in score.kinds]
    first = torch.cat(random, 1).to(score.device)
    climbed = _best(torch.cat([_climbed(first, score), score.unchanged]), score, k)
    found, left_aside = _not_excluded(score, float(score(climbed)[-1]) if len(climbed) == k else -1.0)
    namings = _best(torch.cat([climbed, found]), score, k)
    satisfied = score.satisfied(namings)
    return Relabelling(
        namings,
        satisfied,
        as_named=float(score.satisfied(score.unchanged)),
        exact=float(satisfied[0]) + score.tie >= left_aside,
    )


class _Part:
    """Tuples of clusters that examples have, how many have each, and which tuples of values they may have."""

    def __init__(
        self,
        labels: Int64[Tensor, "u v"],
        weights: Float[Tensor, " u"],
        allowed: Float[Tensor, "..."],
        kinds: Sequence[Kind],
    ):
        for v in range(len(kinds)):  # what is undecided may still be the best
            allowed = torch.cat([allowed, allowed.amax(v, keepdim=True)], dim=v)
        self.labels, self.weights, self.kinds, self.possible = labels, weights, tuple(kinds), allowed.flatten()
        self.strides = [prod(kind.size + 1 for kind in kinds[v + 1 :]) for v in range(len(kinds))]

    def satisfied(self, values: Mapping[str, Namings]) -> Float[Tensor, " p"]:
        """By the positions of clusters' values in their kind, one larger than the last where undecided."""
        first = values[self.kinds[0].name]
        where = torch.zeros(len(first), len(self.labels), dtype=torch.int64, device=first.device)
        for labels, kind, stride in zip(self.labels.T, self.kinds, self.strides, strict=True):
            where += (values[kind.name] * stride).index_select(1, labels)
        return self.possible[where] @ self.weights


class _Score:
    """How many examples may still be satisfied under namings, entries `c` of which are undecided.

    Names that may still stay as they are count for a little, so that they decide between equally good namings.
    """

    def __init__(self, parts: Sequence[_Part], kinds: Sequence[Kind]):
        self.parts, self.kinds = parts, kinds
        self.c, self.device = sum(kind.size for kind in kinds), parts[0].labels.device
        self.unchanged: Namings = torch.arange(self.c, device=self.device)[None]
        self.kind_of_cluster = torch.tensor([i for i, kind in enumerate(kinds) for _ in kind.values])
        self.n_tuples = sum(len(part.weights) for part in parts)
        self.tie = TIE * sum(float(part.weights.sum()) for part in parts)
        a, b = torch.triu_indices(self.c, self.c, 1)
        alike = self.kind_of_cluster[a] == self.kind_of_cluster[b]
        self.pairs = (
            a[alike].to(self.device),
            b[alike].to(self.device),
        )  # of clusters that may exchange their names

    def at_once(self, neighbours: int) -> int:
        """Of how many namings to look at that many neighbours each in one go."""
        return max(1, WORK // (max(1, neighbours) * self.n_tuples))

    def __call__(self, namings: Namings) -> Float[Tensor, " p"]:
        stay = (namings == self.unchanged) | (namings == self.c)
        return self.satisfied(namings) + self.tie * stay.double().mean(1)

    def satisfied(self, namings: Namings) -> Float[Tensor, " p"]:
        values = {kind.name: namings for kind in self.kinds}
        if len(self.kinds) > 1:
            values = {kind.name: (namings - kind.first).clamp(max=kind.size) for kind in self.kinds}
        total = self.parts[0].satisfied(values)
        for part in self.parts[1:]:
            total = total + part.satisfied(values)
        return total


def _hard_tuples(posteriors: Sequence[Tensor]) -> tuple[Int64[Tensor, "u v"], Float[Tensor, " u"]]:
    labels = torch.stack([p.argmax(-1) for p in posteriors], dim=-1)
    tuples, counts = labels.unique(dim=0, return_counts=True)
    return tuples, counts.float()


def _soft_tuples(posteriors: Sequence[Tensor]) -> tuple[Int64[Tensor, "u v"], Float[Tensor, " u"]]:
    """Every tuple of clusters with the number of examples expected to have it."""
    n, c = posteriors[0].shape
    if prod(p.shape[-1] for p in posteriors) > MAX_TUPLES:
        raise UsageError(
            f"soft labels of {len(posteriors)} variables are more than {MAX_TUPLES} tuples: use soft=False"
        )
    joint = posteriors[0].new_ones(n, 1)
    for p in posteriors[:-1]:
        joint = (joint[:, :, None] * p.exp()[:, None, :]).flatten(1)
    expected = joint.mT @ posteriors[-1].exp()
    tuples = torch.cartesian_prod(*[torch.arange(c, device=joint.device)] * len(posteriors))
    return tuples.reshape(-1, len(posteriors)), expected.flatten()


def _climbed(namings: Namings, score: _Score) -> Namings:
    """Exchange the two names that help most, until no exchange helps."""
    a, b = score.pairs
    best = score(namings)
    while len(a):
        exchanged = namings[:, None].repeat(1, len(a), 1)
        pair = torch.arange(len(a), device=namings.device)
        exchanged[:, pair, a], exchanged[:, pair, b] = namings[:, b], namings[:, a]
        scores = score(exchanged.flatten(0, 1)).unflatten(0, exchanged.shape[:2])
        top, which = scores.max(1)
        better = top > best
        if not better.any():
            break
        chosen = exchanged[torch.arange(len(namings), device=namings.device), which]
        namings, best = torch.where(better[:, None], chosen, namings), torch.maximum(top, best)
    return namings


def _not_excluded(score: _Score, threshold: float) -> tuple[Namings, float]:
    """Namings that score more than `threshold`, and how much those left aside could at most score."""
    c, device = score.c, score.device
    usage = torch.zeros(c, dtype=score.parts[0].weights.dtype, device=device)
    for part in score.parts:
        for column in part.labels.T:
            usage.index_add_(0, column, part.weights)
    alike = (score.kind_of_cluster[:, None] == score.kind_of_cluster).to(device)
    frontier = torch.full((1, c), c, device=device)
    limit, left_aside = score.at_once(c), -1.0
    for cluster in usage.argsort(descending=True):
        taken = torch.zeros(len(frontier), c + 1, dtype=torch.bool, device=device).scatter_(1, frontier, True)
        parent, value = (~taken[:, :c] & alike[cluster]).nonzero(as_tuple=True)
        frontier = frontier[parent]
        frontier[:, cluster] = value
        bounds = score(frontier)
        frontier, bounds = frontier[bounds > threshold], bounds[bounds > threshold]
        if len(frontier) > limit:
            bounds, order = bounds.sort(descending=True)
            left_aside = max(left_aside, float(bounds[limit]))
            frontier = frontier[order[:limit]]
    return frontier, left_aside


def _best(namings: Namings, score: _Score, k: int) -> Int64[Tensor, "k c"]:
    distinct = cast(Tensor, namings.unique(dim=0))
    return distinct[score(distinct).topk(min(k, len(distinct))).indices]
