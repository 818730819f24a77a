"""Which value each row shows, from clusters without names and a rule that the examples satisfy.

A clustering that is pure often has more clusters than there are values: a digit is written in several ways. No
exchange of names helps there, but the rule says more than which naming is allowed. An example is one of the tuples
that the constraint allows, and a value shows one cluster or another with probabilities that all variables share.
Expectation maximisation finds these probabilities. It ends in one of many local optima, so it starts from many
places at once; most of them are hopeless after a few steps and are given up.

What an example shows under such probabilities is computed in `likelihoods`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from gedikit.errors import UsageError
from gedikit.symbolic.constraint import Constraint
from gedikit.symbolic.examples import NOTHING, Placed
from gedikit.symbolic.likelihoods import ByTuples, Model, Seen, Shows, Sizes

SCREENING, FINISHING = 25, 55  # steps of all starts, and of the best after these
FINALISTS = 200
# circuits are slower: after a glance at part of the examples most starts are given up, and few see the end
GLANCE, LAST_FINALISTS = 10, 20
PART, PART_ROWS = 100, 800  # examples and their rows, of which the fewer are enough for a glance
FEWEST, ROWS_A_PROBABILITY = 4, 2  # examples; more where that leaves fewer rows for each p(cluster | value)
AS_LIKELY = 0.5  # nats


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
    seen = Seen(constraint, (0,) * len(constraint.variables), clusters.long(), torch.full_like(clusters, NOTHING))
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
) -> tuple[list["Seen"], list[Int64[Tensor, "_ _"]], Int64[Tensor, " n"]]:
    """Examples with the clusters of their images, the rows that these are, and the kind of every row."""
    device = clusters.device
    kind_of_row = torch.full_like(clusters, NOTHING)
    position = {kind.name: i for i, kind in enumerate(placed[0].symbols.kinds)}
    seen: list[Seen] = []
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
                    Seen(
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
class _Found:
    """The best start of a model, after all its steps."""

    model: "Model"
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


def _no_labels(sizes: Sizes, device: torch.device) -> list[Float[Tensor, "_ _"]]:
    return [torch.zeros(size, device=device) for size in sizes]


def _named(
    seen: Sequence[Seen],
    sizes: Sizes,
    labelled: list[Float[Tensor, "_ _"]],
    starts: int,
    seed: int,
    smoothing: float,
) -> _Found:
    """Expectation maximisation from many starts; `labelled` counts rows whose symbols are known, by cluster."""
    device = seen[0].clusters.device
    generator = torch.Generator().manual_seed(seed)
    model = Model(seen, sizes, labelled)
    shows = []
    for size, known in zip(sizes, labelled, strict=True):
        random = torch.rand(starts, *size, generator=generator).square() + 0.05
        shows.append(_normalised(random.to(device) + known))
    if all(isinstance(part.rule, ByTuples) for part in model.parts) and seen[0].plain:
        rounds = [(starts, model, SCREENING), (FINALISTS, model, FINISHING)]
    else:
        part = Model(_part(seen, sum(d * k for d, k in sizes), generator), sizes, labelled)
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


def _part(seen: Sequence[Seen], n_unknown: int, generator: torch.Generator) -> list[Seen]:
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


def _best(shows: Shows, model: Model, n: int) -> Shows:
    if n >= len(shows[0]):
        return shows
    kept = _log_likelihoods(shows, model).topk(n).indices
    return _each(shows, lambda of_kind: of_kind[kept])


def _blocks(shows: Shows, size: int) -> list[Shows]:
    """So many starts at a time that memory stays bounded."""
    return [list(block) for block in zip(*(of_kind.split(size) for of_kind in shows), strict=True)]


def _climbed(shows: Shows, model: Model, smoothing: float, steps: int) -> Shows:
    """After `steps` of expectation maximisation."""
    blocks = []
    for start in _blocks(shows, model.starts_at_once):
        block = start
        for _ in range(steps):
            expected = model.expected_rows(_each(block, torch.log))
            block = _each(expected, lambda rows: _normalised(rows + smoothing / rows.shape[-1]))
        blocks.append(block)
    return [torch.cat(of_kind) for of_kind in zip(*blocks, strict=True)]


def _log_likelihoods(shows: Shows, model: Model) -> Float[Tensor, " s"]:
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
