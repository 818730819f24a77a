"""Which value each row shows, from clusters without names and a rule that the examples satisfy.

A clustering that is pure often has more clusters than there are values: a digit is written in several ways. No
exchange of names helps there, but the rule says more than which naming is allowed. An example is one of the tuples
that the constraint allows, and a value shows one cluster or another with probabilities that all variables share.
Expectation maximisation finds these probabilities. It ends in one of many local optima, so it starts from many
places at once; most of them are hopeless after a few steps and are given up.

What an example shows under such probabilities is a sum over the allowed tuples. Where these are too many, it is the
derivative of the constraint's log-probability, which a circuit has without going through them.
"""

from dataclasses import dataclass
from math import inf, log
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor
from torch.nn.functional import one_hot

from gedikit.errors import UsageError
from gedikit.symbolic.constraint import Constraint

SCREENING, FINISHING = 25, 55  # steps of all starts, and of the best after these
FINALISTS = 200
# circuits are slower: after a glance at part of the examples most starts are given up, and few see the end
GLANCE, LAST_FINALISTS = 10, 20
PART, ROWS_A_PROBABILITY = 100, 2  # examples; more where that leaves fewer rows for each p(cluster | value)
MAX_LISTED = 1000  # allowed tuples; with more of them a circuit is faster
WORK = 2_000_000  # numbers computed at once, a product of an example and an allowed tuple each, or a circuit's

Shows = Float[Tensor, "s d k"]
"""p(cluster | value) of every start: rows over clusters add up to 1."""

Patterns = Int64[Tensor, "u v"]
"""Tuples of clusters that examples have."""

Answer = tuple[Float[Tensor, "s u"], Float[Tensor, "s v d u"]]
"""log p(pattern) and p(value | pattern) of every variable."""


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
    if starts < 1 or not 0 < smoothing < inf:
        raise UsageError(
            f"starts must be at least 1 and smoothing positive and finite, not {starts} and {smoothing}"
        )
    rule = _rule(constraint, clusters.device)
    model = _Model(rule, clusters, n_clusters)
    generator = torch.Generator().manual_seed(seed)
    random = torch.rand(starts, constraint.variables[0].size, n_clusters, generator=generator)
    shows = _normalised(random.square() + 0.05).to(clusters.device)
    if isinstance(rule, _ByTuples):
        rounds = [(starts, model, SCREENING), (FINALISTS, model, FINISHING)]
    else:
        part = _Model(rule, _part(clusters, shows[0].numel(), generator), n_clusters)
        later = SCREENING - GLANCE
        rounds = [(starts, part, GLANCE), (FINALISTS, part, later), (LAST_FINALISTS, model, FINISHING)]
    for kept, examples, steps in rounds:
        shows = _climbed(_best(shows, examples, kept), examples, smoothing, steps)
    best, order = _log_likelihoods(shows, model).sort(descending=True)
    posterior = model.evaluate(shows[order[:1]].double().log())[1][0]
    return Naming(
        log_posterior=posterior.permute(2, 0, 1)[model.pattern_of_example].log().float(),
        shows=shows[order[0]],
        log_likelihood=float(best[0]),
        runner_up=float(best[1]) if len(best) > 1 else float("-inf"),
    )


class _Rule(Protocol):
    """What a constraint says about patterns, given p(cluster | value)."""

    @property
    def numbers(self) -> int:
        """How many are held at once for every start and pattern."""

    def __call__(self, log_shows: Shows, patterns: Patterns) -> Answer: ...


class _ByTuples:
    """Sums over the allowed tuples, one by one."""

    def __init__(self, constraint: Constraint, device: torch.device):
        n_values, n_variables = constraint.variables[0].size, len(constraint.variables)
        every = torch.cartesian_prod(*[torch.arange(n_values)] * n_variables).reshape(-1, n_variables)
        known = one_hot(every, n_values).double().log().flatten(1)
        blocks = known.split(max(1, WORK // constraint.body.size))
        log_weights = torch.cat([constraint.body.log_joint(block.mT.contiguous()) for block in blocks])
        allowed = log_weights > -torch.inf
        self.tuples: Int64[Tensor, "v t"] = every[allowed].T.contiguous().to(device)
        self.log_prior = torch.log_softmax(log_weights[allowed], 0)[:, None].to(device)
        self.has_value: Float[Tensor, "v*d t"] = one_hot(self.tuples, n_values).mT.flatten(0, 1).float()
        self.numbers = self.tuples.shape[1]

    def __call__(self, log_shows: Shows, patterns: Patterns) -> Answer:
        """Products are relative to the largest of their pattern, so that none of many small factors is lost.

        Sums over the tuples that have a value are a matrix product: a scattered sum has no fixed order on a GPU.
        """
        products = self.log_prior.to(log_shows)
        for values, clusters in zip(self.tuples, patterns.T, strict=True):
            products = log_shows.index_select(2, clusters).index_select(1, values).add_(products)
        largest = products.amax(1, keepdim=True)
        share = products.sub_(largest).exp_()
        by_value = (self.has_value.to(share) @ share).unflatten(1, (len(self.tuples), -1))
        total = by_value[:, :1].sum(2, keepdim=True)
        return (total[:, 0].log() + largest).squeeze(1), by_value.div_(total)


class _ByCircuit:
    """The constraint's log-probability, given p(value | cluster) of every row, and its derivatives.

    p(value | cluster) is p(cluster | value) over its sum, and the sums come back at the end: what goes through the
    circuit is near 1 and loses few digits. Derivatives with respect to log p(value) are p(value | rule).
    """

    def __init__(self, constraint: Constraint, device: torch.device):
        self.body, self.n_variables = constraint.body, len(constraint.variables)
        n_inputs = sum(v.size for v in constraint.variables)
        every = torch.zeros(n_inputs, 1, dtype=torch.float64, device=device)
        self.log_weight = self.body.log_joint(every)  # of all allowed tuples together
        self.numbers = n_inputs + self.body.size

    def __call__(self, log_shows: Shows, patterns: Patterns) -> Answer:
        with torch.inference_mode(False), torch.enable_grad():
            scale = log_shows.logsumexp(1)
            by_value = (log_shows - scale[:, None]).transpose(0, 1).contiguous()
            columns = torch.cat([by_value.index_select(2, clusters) for clusters in patterns.T])
            inputs = columns.flatten(1).requires_grad_()
            log_joint = self.body.log_joint(inputs)
            (gradient,) = torch.autograd.grad(log_joint.sum(), inputs)
        log_p = (log_joint.detach() - self.log_weight.to(log_joint)).reshape(columns.shape[1:])
        posterior = gradient.reshape(self.n_variables, -1, *columns.shape[1:]).permute(2, 0, 1, 3)
        return log_p + scale[:, patterns].sum(-1), posterior


def _rule(constraint: Constraint, device: torch.device) -> _ByTuples | _ByCircuit:
    """By tuples where these are few; the sum of their weights is their number, unless some are less than 1."""
    by_circuit = _ByCircuit(constraint, device)
    if not constraint.few_tuples or by_circuit.log_weight > log(MAX_LISTED + 0.5):
        return by_circuit
    by_tuples = _ByTuples(constraint, device)
    return by_tuples if by_tuples.numbers <= MAX_LISTED else by_circuit


class _Model:
    """A rule and the patterns seen, each once, with its number."""

    def __init__(self, rule: _Rule, clusters: Int[Tensor, "n v"], n_clusters: int):
        self.rule = rule
        self.patterns, self.pattern_of_example, counts = clusters.long().unique(
            dim=0, return_inverse=True, return_counts=True
        )
        self.counts = counts.double()
        rows_in_cluster = one_hot(self.patterns.T, n_clusters) * counts[:, None]
        self.rows_in_cluster: Float[Tensor, "v u k"] = rows_in_cluster.float()
        self.starts_at_once = max(1, WORK // (rule.numbers * len(self.patterns)))

    def evaluate(self, log_shows: Shows) -> Answer:
        """What the rule says about every pattern, so many of them at a time that memory stays bounded."""
        blocks = self.patterns.split(max(1, WORK // (self.rule.numbers * len(log_shows))))
        answers = [self.rule(log_shows, block) for block in blocks]
        if len(answers) == 1:
            return answers[0]
        log_p, posterior = zip(*answers, strict=True)
        return torch.cat(log_p, 1), torch.cat(posterior, 3)

    def expected_rows(self, log_shows: Shows) -> Shows:
        """How many rows are expected to have each value and cluster."""
        _, posterior = self.evaluate(log_shows)
        return (posterior @ self.rows_in_cluster.to(posterior)).sum(1)


def _part(clusters: Int[Tensor, "n v"], n_unknown: int, generator: torch.Generator) -> Int[Tensor, "m v"]:
    """Examples drawn at random, enough to tell good starts from bad ones."""
    n, n_variables = clusters.shape
    size = max(PART, -(-ROWS_A_PROBABILITY * n_unknown // n_variables))
    return clusters[torch.randperm(n, generator=generator)[:size].to(clusters.device)]


def _best(shows: Shows, model: _Model, n: int) -> Float[Tensor, "n d k"]:
    if n >= len(shows):
        return shows
    return shows[_log_likelihoods(shows, model).topk(n).indices]


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
