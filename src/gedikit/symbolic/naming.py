"""Which value each row shows, from clusters without names and a rule that the examples satisfy.

A clustering that is pure often has more clusters than there are values: a digit is written in several ways. No
exchange of names helps there, but the rule says more than which naming is allowed. An example is one of the tuples
that the constraint allows, and a value shows one cluster or another with probabilities that all variables share.
Expectation maximisation finds these probabilities. It ends in one of many local optima, so it starts from many
places at once; most of them are hopeless after a few steps and are given up.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor
from torch.nn.functional import one_hot

from gedikit.errors import UsageError
from gedikit.symbolic.constraint import Constraint

SCREENING, FINISHING = 25, 55  # steps of all starts, and of the best after these
FINALISTS = 200
WORK = 2_000_000  # products of an example and an allowed tuple computed at once

Shows = Float[Tensor, "s d k"]
"""p(cluster | value) of every start: rows over clusters add up to 1."""


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
    clusters: Int[Tensor, "n v"],
    n_clusters: int,
    *,
    starts: int = 2000,
    seed: int = 0,
    smoothing: float = 0.1,
) -> Naming:
    """Find which value each row shows, given the cluster of every row: a line an example, a column a variable.

    A tuple of values is as probable as the constraint's weights say, all alike without weights. `smoothing` is the
    number of rows that every value is taken to have had before, spread evenly over all clusters: it keeps what was
    not seen from being impossible.

    >>> addition = Constraint(lambda a, b, c: a + b == c, domains=(10, 10, 10))
    >>> digits = torch.tensor([(a, b, a + b) for a in range(10) for b in range(10 - a)])
    >>> scrambled = torch.tensor([7, 2, 9, 0, 4, 1, 8, 5, 3, 6])  # the cluster that digit d went to
    >>> found = name_clusters(addition, scrambled[digits], 10, starts=400)
    >>> torch.equal(found.log_posterior.argmax(-1), digits)
    True
    """
    _refuse_what_does_not_fit(constraint, clusters, n_clusters)
    if starts < 1 or smoothing <= 0:
        raise UsageError(f"starts must be at least 1 and smoothing positive, not {starts} and {smoothing}")
    model = _Model(constraint, clusters, n_clusters)
    generator = torch.Generator().manual_seed(seed)
    random = torch.rand(starts, constraint.variables[0].size, n_clusters, generator=generator)
    shows = _normalised(random.square() + 0.05).to(clusters.device)
    shows = _climbed(shows, model, smoothing, SCREENING)
    shows = shows[_log_likelihoods(shows, model).topk(min(FINALISTS, starts)).indices]
    shows = _climbed(shows, model, smoothing, FINISHING)
    best, order = _log_likelihoods(shows, model).sort(descending=True)
    posterior = model.evaluate(shows[order[:1]].double().log())[1][0]
    return Naming(
        log_posterior=posterior.permute(2, 0, 1)[model.pattern_of_example].log().float(),
        shows=shows[order[0]],
        log_likelihood=float(best[0]),
        runner_up=float(best[1]) if len(best) > 1 else float("-inf"),
    )


class _Model:
    """Allowed tuples of values and the tuples of clusters seen: each pattern of clusters once, with its number."""

    def __init__(self, constraint: Constraint, clusters: Int[Tensor, "n v"], n_clusters: int):
        satisfaction = constraint.satisfaction().to(clusters.device)
        allowed = satisfaction.nonzero(as_tuple=True)
        self.tuples: Int64[Tensor, "v t"] = torch.stack(allowed)
        self.log_prior = (satisfaction[allowed] / satisfaction.sum()).log()[:, None]
        has_value = one_hot(self.tuples, constraint.variables[0].size).mT
        self.has_value: Float[Tensor, "v*d t"] = has_value.flatten(0, 1).float()
        self.patterns, self.pattern_of_example, counts = clusters.long().unique(
            dim=0, return_inverse=True, return_counts=True
        )
        self.counts = counts.double()
        rows_in_cluster = one_hot(self.patterns.T, n_clusters) * counts[:, None]
        self.rows_in_cluster: Float[Tensor, "v u k"] = rows_in_cluster.float()
        self.starts_at_once = max(1, WORK // (self.tuples.shape[1] * len(self.patterns)))

    def evaluate(self, log_shows: Shows) -> tuple[Float[Tensor, "s u"], Float[Tensor, "s v d u"]]:
        """log p(pattern) and p(value | pattern) of every variable, summed over the allowed tuples.

        Products are relative to the largest of their pattern, so that none of many small factors is lost. Sums over
        the tuples that have a value are a matrix product: a scattered sum has no fixed order on a GPU.
        """
        n_variables = len(self.tuples)
        products = self.log_prior.to(log_shows)
        for values, clusters in zip(self.tuples, self.patterns.T, strict=True):
            products = log_shows.index_select(2, clusters).index_select(1, values).add_(products)
        largest = products.amax(1, keepdim=True)
        share = products.sub_(largest).exp_()
        by_value = (self.has_value.to(share) @ share).unflatten(1, (n_variables, -1))
        total = by_value[:, :1].sum(2, keepdim=True)
        return (total[:, 0].log() + largest).squeeze(1), by_value.div_(total)

    def expected_rows(self, log_shows: Shows) -> Shows:
        """How many rows are expected to have each value and cluster."""
        _, posterior = self.evaluate(log_shows)
        return (posterior @ self.rows_in_cluster.to(posterior)).sum(1)


def _climbed(shows: Shows, model: _Model, smoothing: float, steps: int) -> Shows:
    """After `steps` of expectation maximisation, so many starts at a time that memory stays bounded."""
    blocks = []
    for start in shows.split(model.starts_at_once):
        block = start
        for _ in range(steps):
            block = _normalised(model.expected_rows(block.log()) + smoothing / shows.shape[-1])
        blocks.append(block)
    return torch.cat(blocks)


def _log_likelihoods(shows: Shows, model: _Model) -> Float[Tensor, " s"]:
    """In double precision: sums over all examples differ little between good starts."""
    blocks = [model.evaluate(block.double().log())[0] @ model.counts for block in shows.split(model.starts_at_once)]
    return torch.cat(blocks)


def _normalised(shows: Shows) -> Shows:
    return shows / shows.sum(-1, keepdim=True)


def _refuse_what_does_not_fit(constraint: Constraint, clusters: Tensor, n_clusters: int) -> None:
    variables = constraint.variables
    if len({v.values for v in variables}) > 1:
        raise UsageError("name_clusters needs variables with the same values: all of them show the same clusters")
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
