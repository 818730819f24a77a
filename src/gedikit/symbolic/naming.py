"""Which value each row shows, from clusters without names and a rule that the examples satisfy.

A clustering that is pure often has more clusters than there are values: a digit is written in several ways. No
exchange of names helps there, but the rule says more than which naming is allowed. An example is one of the tuples
that the constraint allows, and a value shows one cluster or another with probabilities that all variables share.
Expectation maximisation finds these probabilities. It ends in one of many local optima, so it starts from many
places at once; most of them are hopeless after a few steps and are given up.

What an example shows under such probabilities is a sum over the allowed tuples; values that are known leave few.
Where there are too many, it is the derivative of the constraint's log-probability, which a circuit has without
going through them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, log, prod
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import one_hot

from gedikit.errors import UsageError
from gedikit.symbolic.constraint import Constraint
from gedikit.symbolic.examples import NOTHING, Placed, of_observed, stated
from gedikit.symbolic.expectations import observed
from gedikit.symbolic.situations import allowed

SCREENING, FINISHING = 25, 55  # steps of all starts, and of the best after these
FINALISTS = 200
# circuits are slower: after a glance at part of the examples most starts are given up, and few see the end
GLANCE, LAST_FINALISTS = 10, 20
PART, PART_ROWS = 100, 800  # examples and their rows, of which the fewer are enough for a glance
FEWEST, ROWS_A_PROBABILITY = 4, 2  # examples; more where that leaves fewer rows for each p(cluster | value)
MAX_LISTED = 1000  # allowed tuples; with more of them a circuit is faster
MAX_SITUATIONS = 400  # different known values, each with tuples of its own
# numbers computed at once, a product of an example and an allowed tuple each, or a circuit's
WORK, GPU_WORK = 2_000_000, 64_000_000
AS_LIKELY = 0.5  # nats

Shows = list[Float[Tensor, "_ _ _"]]
"""p(cluster | value) of every start, for each kind of symbols: rows over clusters add up to 1."""

Answer = tuple[Float[Tensor, "_ _"], list[Float[Tensor, "_ _ _ _"]]]
"""log p(pattern), and for each kind of symbols p(value | pattern) of its variables."""


@dataclass(frozen=True)
class Naming:
    """What the rows of the examples show, as log-probabilities given the rule and all clusters of the example.

    `shows` has p(cluster | value), values in the order of the constraint's. `runner_up` is the log-likelihood that
    the second best start led to. Where it equals `log_likelihood`, both most often ended in the same place; where
    it is far below, the best place was found once, and more starts may find a better one. −inf for a single start.
    """

    log_posterior: Float[Tensor, "n v d"]
    shows: Float[Tensor, "d k"]
    log_likelihood: float
    runner_up: float


@torch.no_grad()
def name_clusters(
    constraint: Constraint,
    clusters: Int[Tensor, "n v"] | Int[np.ndarray, "n v"],
    n_clusters: int,
    *,
    starts: int = 2000,
    seed: int = 0,
    smoothing: float = 0.1,
) -> Naming:
    """Find which value each row shows, given the cluster of every row: a line an example, a column a variable.

    A tuple of values is as probable as the constraint's weights, or facts and evidence, say; all alike without any.
    `smoothing` is the number of rows that every value is taken to have had before, spread evenly over all clusters:
    it keeps what was not seen from being impossible.

    >>> addition = Constraint(lambda a, b, c: a + b == c, domains=(10, 10, 10))
    >>> digits = torch.tensor([(a, b, a + b) for a in range(10) for b in range(10 - a)])
    >>> scrambled = torch.tensor([7, 2, 9, 0, 4, 1, 8, 5, 3, 6])  # the cluster that digit d went to
    >>> found = name_clusters(addition, scrambled[digits], 10, starts=400)
    >>> torch.equal(found.log_posterior.argmax(-1), digits)
    True
    """
    clusters = torch.as_tensor(clusters)
    _refuse_what_does_not_fit(constraint, clusters, n_clusters)
    _check(starts, smoothing)
    seen = _Seen(constraint, (0,) * len(constraint.variables), clusters.long(), torch.full_like(clusters, NOTHING))
    sizes = [(constraint.variables[0].size, n_clusters)]
    found = _named([seen], sizes, _no_labels(sizes, clusters.device), starts, seed, smoothing)
    return Naming(
        log_posterior=found.log_posteriors[0][0],
        shows=found.shows[0],
        log_likelihood=found.log_likelihood,
        runner_up=found.runner_up,
    )


@dataclass(frozen=True)
class RowNaming:
    """What rows show: in how many examples each symbol, by expectation given clusters and rules.

    `shows` has p(cluster | value) for each kind of symbols; `runner_up` as in `Naming`.
    """

    expected: Float[Tensor, "u c"]
    shows: list[Float[Tensor, "_ _"]]
    log_likelihood: float
    runner_up: float

    @property
    def p(self) -> Float[Tensor, "u c"]:
        """p(symbol) of every row; zeros of a row in no example."""
        return self.expected / self.expected.sum(-1, keepdim=True).clamp_min(1e-30)


@torch.no_grad()
def name_rows(
    placed: Sequence[Placed],
    clusters: Int64[Tensor, " n"],
    *,
    labels: Int64[Tensor, " n"] | None = None,
    like: Float[Tensor, "n c"] | None = None,
    starts: int = 2000,
    seed: int = 0,
    smoothing: float = 0.1,
) -> RowNaming:
    """Find which symbol each row shows from examples of any rules, given clusters of rows, numbered by kind.

    A value shows the clusters of its own kind. `clusters` is −1 for rows that have none: examples that name them
    are left out. `labels` are symbols that are known of rows, −1 of others; `like` is what rows are taken for
    already: of names that are as likely, those are found that agree with it best. Known values, gaps, examples in
    which a rule does not hold, doubts and weights count as `Examples` says.

    >>> from gedikit.symbolic import Constraint, Examples, Symbols
    >>> a, b = torch.arange(10).repeat_interleave(10), torch.arange(10).repeat(10)
    >>> rule = Constraint(lambda a, b, s: a + b == s, domains=(10, 10, 19))
    >>> given = Examples(rule, {"a": torch.arange(100), "b": torch.arange(100, 200), "s": a + b})
    >>> scrambled = torch.tensor([7, 2, 9, 0, 4, 1, 8, 5, 3, 6])
    >>> found = name_rows([given.of(Symbols.of({"digit": 10}))], scrambled[torch.cat([a, b])], starts=100)
    >>> torch.equal(found.p.argmax(-1), torch.cat([a, b]))
    True
    """
    _check(starts, smoothing)
    seen, rows, kind_of_row = _seen(placed, clusters)
    symbols, device = placed[0].symbols, clusters.device
    sizes = []
    for i, kind in enumerate(symbols.kinds):
        own_clusters = clusters[kind_of_row == i]
        sizes.append((kind.size, int(own_clusters.max()) + 1 if len(own_clusters) else 1))
    counts = _no_labels(sizes, device)
    if labels is not None:
        for i, kind in enumerate(symbols.kinds):
            inside = (kind_of_row == i) & (labels >= kind.first) & (labels < kind.first + kind.size)
            each = torch.ones(int(inside.sum()), device=device)
            counts[i].index_put_((labels[inside] - kind.first, clusters[inside]), each, accumulate=True)
    found = _named(seen, sizes, counts, starts, seed, smoothing)

    def expected(of: _Found) -> Float[Tensor, "n c"]:
        total = torch.zeros(len(clusters), symbols.n_clusters, device=device)
        for one, at, log_posteriors in zip(seen, rows, of.log_posteriors, strict=True):
            for i, kind in enumerate(symbols.kinds):
                shown = one.of_kind(i)
                if shown:
                    of_kind = log_posteriors[i].exp().flatten(0, 1)
                    total[:, kind.clusters].index_add_(0, at[:, shown].flatten(), of_kind)
        return total

    rows_show = expected(found)
    if like is not None:
        orders = [_alike(like[:, kind.clusters], rows_show[:, kind.clusters]) for kind in symbols.kinds]
        renamed = found.renamed(orders)
        if renamed is not found and renamed.log_likelihood >= found.log_likelihood - AS_LIKELY:
            found, rows_show = renamed, expected(renamed)
    return RowNaming(rows_show, found.shows, found.log_likelihood, found.runner_up)


def _alike(like: Float[Tensor, "n d"], found: Float[Tensor, "n d"]) -> Int64[Tensor, " d"]:
    """Which of the values found each value is most like, one to one; values that are like none stay."""
    both = (like.mT @ found).double().cpu().numpy()
    order = linear_sum_assignment(both + 1e-9 * np.eye(len(both)), maximize=True)[1]
    return torch.from_numpy(order).to(like.device)


def _seen(
    placed: Sequence[Placed], clusters: Int64[Tensor, " n"]
) -> tuple[list["_Seen"], list[Int64[Tensor, "_ _"]], Int64[Tensor, " n"]]:
    """Examples with the clusters of their images, the rows that these are, and the kind of every row."""
    device = clusters.device
    kind_of_row = torch.full_like(clusters, NOTHING)
    position = {kind.name: i for i, kind in enumerate(placed[0].symbols.kinds)}
    seen: list[_Seen] = []
    rows: list[Int64[Tensor, "_ _"]] = []
    for p in placed:
        for group in p.groups:
            weights = p.examples.weights[group.numbers]
            own = tuple(None if kind is None else position[kind.name] for kind in group.kinds)
            is_image = group.rows != NOTHING
            everywhere = torch.from_numpy(group.rows).to(device)
            has_clusters = ((everywhere == NOTHING) | (clusters[everywhere] != NOTHING)).all(1).cpu().numpy()
            for mask in np.unique(is_image, axis=0):
                which = np.flatnonzero((is_image == mask).all(1) & (weights > 0) & has_clusters)
                if not len(which):
                    continue
                at = everywhere[torch.from_numpy(which).to(device)]
                kinds = tuple(kind if shown else None for kind, shown in zip(own, mask, strict=True))
                for j, kind in enumerate(kinds):
                    if kind is not None:
                        kind_of_row[at[:, j]] = kind
                rows.append(at)
                seen.append(
                    _Seen(
                        group.constraint,
                        kinds,
                        torch.where(at == NOTHING, NOTHING, clusters[at]),
                        torch.from_numpy(group.known[which]).to(device),
                        torch.from_numpy(weights[which]).to(device),
                        torch.from_numpy(p.examples.holds[group.numbers[which]]).to(device),
                        torch.from_numpy(p.examples.probability[group.numbers[which]]).to(device),
                    )
                )
    if not seen:
        raise UsageError("no example has clusters for all its rows: there is nothing to name them by")
    return seen, rows, kind_of_row


@dataclass(frozen=True)
class _Seen:
    """Examples of a constraint with the clusters of their images; the same variables are images in all of them."""

    constraint: Constraint
    kinds: tuple[int | None, ...]  # of every variable; None: no image
    clusters: Int64[Tensor, "n v"]
    known: Int[Tensor, "n v"]
    weights: Float[Tensor, " n"] | None = None
    holds: Bool[Tensor, " n"] | None = None
    probability: Float[Tensor, " n"] | None = None

    def of_kind(self, kind: int) -> list[int]:
        """Variables that show symbols of a kind."""
        return [j for j, own in enumerate(self.kinds) if own == kind]

    @property
    def images(self) -> list[int]:
        return [j for j, kind in enumerate(self.kinds) if kind is not None]

    @property
    def plain(self) -> bool:
        return None not in self.kinds and self.certain

    @property
    def certain(self) -> bool:
        """Whether the constraint holds in all examples, without doubt."""
        if self.holds is None or self.probability is None:
            return True
        return bool(self.holds.all() and (self.probability == 1).all())

    def some(self, which: Int64[Tensor, " m"]) -> "_Seen":
        def of(values: Tensor | None) -> Tensor | None:
            return None if values is None else values[which]

        return replace(
            self,
            clusters=self.clusters[which],
            known=self.known[which],
            weights=of(self.weights),
            holds=of(self.holds),
            probability=of(self.probability),
        )


@dataclass(frozen=True)
class _Found:
    """The best start of a model, after all its steps."""

    model: "_Model"
    shows: list[Float[Tensor, "_ _"]]
    log_likelihood: float
    runner_up: float

    @cached_property
    def log_posteriors(self) -> list[list[Float[Tensor, "_ _ _"]]]:
        """Of the images of every example, by `seen` and kind."""
        answers = self.model.evaluate([of_kind[None].double().log() for of_kind in self.shows])
        return [self.model.of_examples(i, answers) for i in range(self.model.n_seen)]

    def renamed(self, orders: Sequence[Int64[Tensor, " _"]]) -> "_Found":
        """With value order[i] of every kind as value i."""
        if all(torch.equal(order, torch.arange(len(order), device=order.device)) for order in orders):
            return self
        shows = [of_kind[order] for of_kind, order in zip(self.shows, orders, strict=True)]
        log_likelihood = float(_log_likelihoods([of_kind[None] for of_kind in shows], self.model))
        return replace(self, shows=shows, log_likelihood=log_likelihood)


Sizes = Sequence[tuple[int, int]]  # of every kind, its values and clusters


def _no_labels(sizes: Sizes, device: torch.device) -> list[Float[Tensor, "_ _"]]:
    return [torch.zeros(size, device=device) for size in sizes]


def _named(
    seen: Sequence[_Seen],
    sizes: Sizes,
    labelled: list[Float[Tensor, "_ _"]],
    starts: int,
    seed: int,
    smoothing: float,
) -> _Found:
    """Expectation maximisation from many starts; `labelled` counts rows whose symbols are known, by cluster."""
    device = seen[0].clusters.device
    generator = torch.Generator().manual_seed(seed)
    model = _Model(seen, sizes, labelled)
    shows = []
    for size, known in zip(sizes, labelled, strict=True):
        random = torch.rand(starts, *size, generator=generator).square() + 0.05
        shows.append(_normalised(random.to(device) + known))
    if all(isinstance(part.rule, _ByTuples) for part in model.parts) and seen[0].plain:
        rounds = [(starts, model, SCREENING), (FINALISTS, model, FINISHING)]
    else:
        part = _Model(_part(seen, sum(d * k for d, k in sizes), generator), sizes, labelled)
        later = SCREENING - GLANCE
        rounds = [(starts, part, GLANCE), (FINALISTS, part, later), (LAST_FINALISTS, model, FINISHING)]
    for kept, examples, steps in rounds:
        shows = _climbed(_best(shows, examples, kept), examples, smoothing, steps)
    best, order = _log_likelihoods(shows, model).sort(descending=True)
    return _Found(
        model=model,
        shows=[of_kind[order[0]] for of_kind in shows],
        log_likelihood=float(best[0]),
        runner_up=float(best[1]) if len(best) > 1 else float("-inf"),
    )


class _Rule(Protocol):
    """What a constraint says about patterns, given p(cluster | value)."""

    @property
    def numbers(self) -> int:
        """How many are held at once for every start and pattern."""

    def __call__(self, log_shows: Shows, patterns: _Seen) -> Answer: ...


class _ByTuples:
    """Sums over the allowed tuples, one by one."""

    def __init__(
        self,
        tuples: Int64[Tensor, "t v"],
        log_weights: Float[Tensor, " t"],
        kinds: Sequence[int],
        sizes: Sizes,
        device: torch.device,
    ):
        """`tuples` are values of the variables that are images, of these `kinds`."""
        self.tuples: Int64[Tensor, "v t"] = tuples.T.contiguous().to(device)
        self.log_prior = torch.log_softmax(log_weights, 0)[:, None].to(device)
        self.kinds, self.n_kinds = list(kinds), len(sizes)
        self.has_value: list[Float[Tensor, "v*d t"]] = [
            one_hot(self.tuples[self._of_kind(i)], n_values).mT.flatten(0, 1).float()
            if i in self.kinds
            else torch.empty(0, len(tuples), device=device)
            for i, (n_values, _) in enumerate(sizes)
        ]
        self.numbers = len(tuples)

    def _of_kind(self, kind: int) -> list[int]:
        return [j for j, own in enumerate(self.kinds) if own == kind]

    def __call__(self, log_shows: Shows, patterns: _Seen) -> Answer:
        """Products are relative to the largest of their pattern, so that none of many small factors is lost.

        Sums over the tuples that have a value are a matrix product: a scattered sum has no fixed order on a GPU.
        """
        products = self.log_prior.to(log_shows[0])
        shown = patterns.clusters[:, patterns.images]
        for kind, values, clusters in zip(self.kinds, self.tuples, shown.T, strict=True):
            products = log_shows[kind].index_select(2, clusters).index_select(1, values).add_(products)
        largest = products.amax(1, keepdim=True)
        share = products.sub_(largest).exp_()
        total: Tensor | None = None
        by_kind = []
        for kind, has_value in enumerate(self.has_value):
            by_value = (has_value.to(share) @ share).unflatten(1, (len(self._of_kind(kind)) or 1, -1))
            if total is None and kind in self.kinds:
                total = by_value[:, :1].sum(2, keepdim=True)
            by_kind.append(by_value)
        assert total is not None
        return (total[:, 0].log() + largest).squeeze(1), [by_value.div_(total) for by_value in by_kind]


class _ByCircuit:
    """The constraint's log-probability, given p(value | cluster) of every row, and its derivatives.

    p(value | cluster) is p(cluster | value) over its sum, and the sums come back at the end: what goes through the
    circuit is near 1 and loses few digits. Derivatives with respect to log p(value) are p(value | rule).
    """

    def __init__(self, constraint: Constraint, device: torch.device):
        self.body, self.sizes = constraint.body, [v.size for v in constraint.variables]
        every = torch.zeros(sum(self.sizes), 1, dtype=torch.float64, device=device)
        self.log_weight = self.body.log_joint(every)  # of all allowed tuples together
        self.numbers = sum(self.sizes) + self.body.size

    def __call__(self, log_shows: Shows, patterns: _Seen) -> Answer:
        n_starts, n_patterns = len(log_shows[0]), len(patterns.clusters)
        with torch.inference_mode(False), torch.enable_grad():
            scale = [of_kind.logsumexp(1) for of_kind in log_shows]
            by_value = [
                (of_kind - whole[:, None]).transpose(0, 1).contiguous()
                for of_kind, whole in zip(log_shows, scale, strict=True)
            ]
            columns = []
            for kind, clusters, known, size in zip(
                patterns.kinds, patterns.clusters.T, patterns.known.T, self.sizes, strict=True
            ):
                if kind is not None:
                    columns.append(by_value[kind].index_select(2, clusters))
                else:
                    certain = stated(known, size, log_shows[0].dtype).mT[:, None]
                    columns.append(certain.expand(size, n_starts, n_patterns))
            inputs = torch.cat(columns).flatten(1).requires_grad_()
            log_joint = self.body.log_joint(inputs)
            (gradient,) = torch.autograd.grad(log_joint.sum(), inputs)
        log_joint = log_joint.detach()
        if not patterns.certain:
            assert patterns.holds is not None and patterns.probability is not None
            holds, q = patterns.holds.repeat(n_starts), patterns.probability.to(log_joint).repeat(n_starts)
            gradient = observed(log_joint, gradient, inputs.detach().exp(), holds, q)
            log_joint = of_observed(log_joint, holds, q)
        log_p = (log_joint - self.log_weight.to(log_joint)).reshape(n_starts, n_patterns)
        parts = gradient.split(self.sizes)
        by_kind = []
        for kind, whole in enumerate(scale):
            shown = patterns.of_kind(kind)
            if not shown:
                by_kind.append(log_p.new_empty(n_starts, 0, 0, n_patterns))
                continue
            log_p = log_p + whole[:, patterns.clusters[:, shown]].sum(-1)
            of_kind = torch.cat([parts[j] for j in shown]).reshape(len(shown), -1, n_starts, n_patterns)
            by_kind.append(of_kind.permute(2, 0, 1, 3))
        return log_p, by_kind


def _rules(seen: _Seen, sizes: Sizes) -> list[tuple[_Rule, Int64[Tensor, " _"]]]:
    """A rule, and which examples it is for: by tuples where these are few, for every situation of known values.

    The sum of the tuples' weights is their number, unless some are less than 1.
    """
    constraint, device = seen.constraint, seen.clusters.device
    every = torch.arange(len(seen.clusters), device=device)
    by_circuit = _ByCircuit(constraint, device)
    if not seen.certain:
        return [(by_circuit, every)]
    if seen.plain:
        if not constraint.few_tuples or by_circuit.log_weight > log(MAX_LISTED + 0.5):
            return [(by_circuit, every)]
        tuples, log_weights = allowed(constraint, seen.images, {}, joint=True)
        if len(tuples) > MAX_LISTED:
            return [(by_circuit, every)]
        return [(_ByTuples(tuples, log_weights, _shown(seen), sizes, device), every)]
    situations, which = seen.known.unique(dim=0, return_inverse=True)
    n_tuples = prod(constraint.variables[j].size for j in seen.images)
    if len(situations) > MAX_SITUATIONS or n_tuples > WORK / len(situations):
        return [(by_circuit, every)]
    rules: list[tuple[_Rule, Int64[Tensor, " _"]]] = []
    listed = 0
    for i, situation in enumerate(situations.tolist()):
        known = {j: at for j, at in enumerate(situation) if at != NOTHING}
        tuples, log_weights = allowed(constraint, seen.images, known, joint=True)
        mine = every[which == i]
        listed += len(tuples) * len(mine)
        rules.append((_ByTuples(tuples, log_weights, _shown(seen), sizes, device), mine))
    return rules if listed <= MAX_LISTED * len(every) else [(by_circuit, every)]


def _shown(seen: _Seen) -> list[int]:
    return [kind for kind in seen.kinds if kind is not None]


class _Part:
    """A rule and the patterns seen, each once, with its number."""

    def __init__(self, rule: _Rule, seen: _Seen, sizes: Sizes):
        self.rule = rule
        each = [seen.clusters, *([] if None not in seen.kinds else [seen.known])]
        if not seen.certain:
            assert seen.holds is not None and seen.probability is not None
            thousandths = (seen.probability * 1e6).round()
            each += [seen.holds[:, None], thousandths[:, None]]
        together = torch.cat([values.long() for values in each], 1)
        _, self.pattern_of_example, counts = together.unique(dim=0, return_inverse=True, return_counts=True)
        first = torch.zeros(len(counts), dtype=torch.int64, device=together.device)
        first[self.pattern_of_example.flip(0)] = torch.arange(len(together), device=together.device).flip(0)
        self.patterns = seen.some(first)
        self.counts = counts.double()
        if seen.weights is not None:
            self.counts = torch.zeros_like(self.counts).index_add_(
                0, self.pattern_of_example, seen.weights.double()
            )
        self.rows_in_cluster: list[Float[Tensor, "_ _ _"]] = []
        for i, (_, n_clusters) in enumerate(sizes):
            shown = self.patterns.clusters[:, seen.of_kind(i)].T
            rows = one_hot(shown, n_clusters) if len(shown) else shown.new_zeros(0, len(counts), n_clusters)
            self.rows_in_cluster.append((rows * self.counts[:, None]).float())

    @property
    def numbers(self) -> int:
        return self.rule.numbers * len(self.counts)

    def evaluate(self, log_shows: Shows) -> Answer:
        """What the rule says about every pattern, so many of them at a time that memory stays bounded."""
        size = max(1, _work(log_shows[0].device) // (self.rule.numbers * len(log_shows[0])))
        blocks = torch.arange(len(self.counts), device=log_shows[0].device).split(size)
        if len(blocks) == 1:
            return self.rule(log_shows, self.patterns)
        answers = [self.rule(log_shows, self.patterns.some(block)) for block in blocks]
        log_p, by_kind = zip(*answers, strict=True)
        return torch.cat(log_p, 1), [torch.cat(of_kind, 3) for of_kind in zip(*by_kind, strict=True)]


class _Model:
    """All rules with the patterns seen, and rows whose symbols are known."""

    def __init__(self, seen: Sequence[_Seen], sizes: Sizes, labelled: list[Float[Tensor, "_ _"]]):
        self.labelled, self.any_labelled = labelled, any(bool(known.any()) for known in labelled)
        self.parts: list[_Part] = []
        self.n_seen = len(seen)
        self.origin: list[tuple[int, Int64[Tensor, " _"]]] = []  # of every part: which of `seen`, which examples
        for i, one in enumerate(seen):
            for rule, which in _rules(one, sizes):
                self.parts.append(_Part(rule, one.some(which), sizes))
                self.origin.append((i, which))
        work = _work(seen[0].clusters.device)
        self.starts_at_once = max(1, work // sum(part.numbers for part in self.parts))

    def evaluate(self, log_shows: Shows) -> list[Answer]:
        return [part.evaluate(log_shows) for part in self.parts]

    def expected_rows(self, log_shows: Shows) -> Shows:
        """How many rows are expected to have each value and cluster, for each kind of symbols."""
        total: list[Tensor | None] = [None for _ in log_shows]
        for part in self.parts:
            _, posteriors = part.evaluate(log_shows)
            for i, (posterior, rows) in enumerate(zip(posteriors, part.rows_in_cluster, strict=True)):
                if len(rows):
                    found, so_far = (posterior @ rows.to(posterior)).sum(1), total[i]
                    total[i] = found if so_far is None else so_far + found
        expected = [torch.zeros_like(s) if t is None else t for s, t in zip(log_shows, total, strict=True)]
        return (
            [e + known for e, known in zip(expected, self.labelled, strict=True)] if self.any_labelled else expected
        )

    def log_likelihood(self, log_shows: Shows) -> Float[Tensor, " s"]:
        total: Tensor = self.parts[0].evaluate(log_shows)[0] @ self.parts[0].counts
        for part in self.parts[1:]:
            total = total + part.evaluate(log_shows)[0] @ part.counts
        if self.any_labelled:
            for of_kind, known in zip(log_shows, self.labelled, strict=True):
                total = total + (of_kind * known).sum((1, 2))
        return total

    def of_examples(self, number: int, answers: Sequence[Answer]) -> list[Float[Tensor, "_ _ _"]]:
        """log p(value) of the images of every example of one of `seen`, by kind of symbols, of the first start."""
        mine = [j for j, (i, _) in enumerate(self.origin) if i == number]
        order = torch.cat([self.origin[j][1] for j in mine]).argsort()
        found = []
        for kind in range(len(self.labelled)):
            parts = [answers[j][1][kind][0].permute(2, 0, 1)[self.parts[j].pattern_of_example] for j in mine]
            found.append(torch.cat(parts)[order].log().float())
        return found


def _work(device: torch.device) -> int:
    return GPU_WORK if device.type == "cuda" else WORK


def _part(seen: Sequence[_Seen], n_unknown: int, generator: torch.Generator) -> list[_Seen]:
    """Examples drawn at random, enough to tell good starts from bad ones."""
    rows = sum(len(one.clusters) * len(one.images) for one in seen)
    total = sum(len(one.clusters) for one in seen)
    enough = max(FEWEST, min(PART, PART_ROWS * total // rows))
    size = max(enough, -(-ROWS_A_PROBABILITY * n_unknown * total // rows))
    drawn = []
    for one in seen:
        n = len(one.clusters)
        share = size if len(seen) == 1 else max(1, -(-size * n // total))
        drawn.append(one.some(torch.randperm(n, generator=generator)[:share].to(one.clusters.device)))
    return drawn


def _each(shows: Shows, function: Callable[[Tensor], Tensor]) -> Shows:
    return [function(of_kind) for of_kind in shows]


def _best(shows: Shows, model: _Model, n: int) -> Shows:
    if n >= len(shows[0]):
        return shows
    kept = _log_likelihoods(shows, model).topk(n).indices
    return _each(shows, lambda of_kind: of_kind[kept])


def _blocks(shows: Shows, size: int) -> list[Shows]:
    """So many starts at a time that memory stays bounded."""
    return [list(block) for block in zip(*(of_kind.split(size) for of_kind in shows), strict=True)]


def _climbed(shows: Shows, model: _Model, smoothing: float, steps: int) -> Shows:
    """After `steps` of expectation maximisation."""
    blocks = []
    for start in _blocks(shows, model.starts_at_once):
        block = start
        for _ in range(steps):
            expected = model.expected_rows(_each(block, torch.log))
            block = _each(expected, lambda rows: _normalised(rows + smoothing / rows.shape[-1]))
        blocks.append(block)
    return [torch.cat(of_kind) for of_kind in zip(*blocks, strict=True)]


def _log_likelihoods(shows: Shows, model: _Model) -> Float[Tensor, " s"]:
    """In double precision: sums over all examples differ little between good starts."""
    blocks = _blocks(shows, model.starts_at_once)
    return torch.cat(
        [model.log_likelihood(_each(block, lambda of_kind: of_kind.double().log())) for block in blocks]
    )


def _normalised(shows: Float[Tensor, "*s d k"]) -> Float[Tensor, "*s d k"]:
    return shows / shows.sum(-1, keepdim=True)


def _check(starts: int, smoothing: float) -> None:
    if starts < 1 or not 0 < smoothing < inf:
        raise UsageError(
            f"starts must be at least 1 and smoothing positive and finite, not {starts} and {smoothing}"
        )


def _refuse_what_does_not_fit(constraint: Constraint, clusters: Tensor, n_clusters: int) -> None:
    variables = constraint.variables
    if not constraint.one_domain:
        raise UsageError(
            "name_clusters needs variables with the same values and the same network: all show the same clusters"
        )
    if clusters.ndim != 2 or clusters.shape[1] != len(variables) or not len(clusters):
        raise UsageError(
            f"clusters has shape {tuple(clusters.shape)}: give a line for every example and a cluster for each of"
            f" {len(variables)} variables"
        )
    if clusters.is_floating_point() or clusters.is_complex() or clusters.dtype == torch.bool:
        raise UsageError(
            f"clusters has numbers of type {clusters.dtype}: give the position of a cluster for each row"
        )
    lowest, highest = int(clusters.min()), int(clusters.max())
    if lowest < 0 or highest >= n_clusters:
        raise UsageError(
            f"clusters has {lowest if lowest < 0 else highest}, which is none of {n_clusters} clusters:"
            " number them 0, 1, …"
        )
