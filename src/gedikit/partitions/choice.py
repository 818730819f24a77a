"""The candidate partition that agrees best with all that cut the neighbour graph little."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from scipy import sparse

from gedikit.errors import DataError, UsageError
from gedikit.partitions.candidates import BALANCED, Labels, candidates
from gedikit.partitions.neighbourhood import Neighbourhood, neighbourhood
from gedikit.views.neighbours import NeighbourGraph

LEAST_CONDUCTANCE = 0.003  # below which a cut is as good as none
_SAME = 0.95  # the agreement (ARI) from which two partitions are one finding
_SHARES_OFF = 0.02  # the distance of shares that chance can make
# when groups of equal shares are as good an answer: other candidates agree with them, and they are found again
_NEARLY = 0.25  # of what the chosen one's agreement lacks
_LESS_STABLE = 0.1
_CHANCE = 0.02  # a difference of expected agreements that says nothing
_AGAIN, _AGAIN_SHARE = 2, 0.8  # how often, and from what share of the anchors, partitions are found again


@dataclass(frozen=True)
class Partition:
    """A group for every row, the largest group first."""

    labels: Int64[np.ndarray, " n"]
    name: str
    criterion: float  # the share of a group's weight in the graph that leaves it, mean over groups; small is good
    agreement: float  # the expected ARI with a candidate drawn by its criterion; large is good

    @property
    def shares(self) -> Float[np.ndarray, " k"]:
        return np.bincount(self.labels) / len(self.labels)


@dataclass(frozen=True)
class PartitionChoice:
    """The chosen partition and the others, by falling agreement.

    `runner_up` is the best one that is another finding (ARI below 0.95 with the chosen one), if any is.
    """

    chosen: Partition
    runner_up: Partition | None
    candidates: tuple[Partition, ...]

    @property
    def margin(self) -> float:
        """How much better the chosen one agrees with the candidates than the runner-up; 1 without a rival."""
        return 1.0 if self.runner_up is None else self.chosen.agreement - self.runner_up.agreement


def choose_partition(
    points: Float[np.ndarray, "n d"] | None,
    n_clusters: int,
    *,
    seed: int,
    prior: Sequence[float] | NDArray[np.floating] | None = None,
    graph: NeighbourGraph | None = None,
) -> PartitionChoice:
    """Partition rows into `n_clusters` groups without labels.

    Every candidate has a weight, the inverse of its mean conductance on the graph of ten neighbours. The chosen one
    has the largest expected agreement (adjusted Rand index) with a candidate drawn by weight: the Bayes decision
    where the weights are taken for a posterior. A method's freak cut agrees with no other, however little it cuts.
    Groups of equal shares, the paper's assumption, are taken instead where the data do not speak against them: they
    agree with the candidates nearly as well and are as stable.

    `prior` has the share of every group in any order; candidates count less the farther their shares are from it.
    With `graph` rows are as near as it says, and methods that need coordinates are left out.
    """
    return choose_among(neighbourhood(points, graph, seed), n_clusters, seed=seed, prior=prior)


def choose_among(
    near: Neighbourhood,
    n_clusters: int,
    *,
    seed: int,
    prior: Sequence[float] | NDArray[np.floating] | None = None,
) -> PartitionChoice:
    """`choose_partition` where the neighbourhood is known."""
    if n_clusters < 1:
        raise UsageError(f"the number of clusters must be at least 1, not {n_clusters}")
    if near.n_anchors < n_clusters:
        raise DataError(f"{n_clusters} clusters need as many different rows, and there are {near.n_anchors}")
    shares = None if prior is None else _sorted_shares(prior, n_clusters)
    if n_clusters in (1, near.n_anchors):
        whole = _over_rows(near, np.arange(near.n_anchors) % n_clusters)
        only = Partition(whole, "whole" if n_clusters == 1 else "single rows", 0.0, 1.0)
        return PartitionChoice(only, None, (only,))
    found = candidates(near, n_clusters, seed, shares)
    names = list(found)
    labels = np.stack([found[name] for name in names])
    conductance = np.array([mean_conductance(near.weights, own, n_clusters) for own in labels])
    agreement = agreements(labels, n_clusters)
    weight = 1 / (conductance + LEAST_CONDUCTANCE)
    off = np.zeros(len(names))
    if shares is not None:
        sizes = [np.bincount(own, near.sizes, n_clusters) / len(near.anchor) for own in labels]
        off = np.array([np.abs(np.sort(own)[::-1] - shares).sum() / 2 for own in sizes])
        weight = weight / (off + _SHARES_OFF)
    expected = agreement @ (weight / weight.sum())
    order = np.argsort(off - expected, kind="stable")
    if shares is None and BALANCED in found:
        first, equal = int(order[0]), names.index(BALANCED)
        more_equal = agreement[first, equal] < _SAME and _inequality(labels[equal]) < _inequality(labels[first])
        as_good = more_equal and expected[first] - expected[equal] <= _NEARLY * (1 - expected[first])
        if as_good and _found_again(near, found, names[first], n_clusters, seed):
            order = np.concatenate([[equal], order[order != equal]])
    if shares is None:
        # a row cut off at the edge is no group: expected agreement likes it where nobody agrees on the last split
        smallest = np.array([np.bincount(own, near.sizes, n_clusters).min() for own in labels])
        as_good = (smallest > 1) & (expected > expected[order[0]] - _CHANCE)
        if smallest[order[0]] == 1 and as_good.any():
            instead = int(np.where(as_good, conductance, np.inf).argmin())
            order = np.concatenate([[instead], order[order != instead]])
    ranked = tuple(
        Partition(_over_rows(near, labels[i]), names[i], float(conductance[i]), float(expected[i])) for i in order
    )
    rivals = [place for place, i in enumerate(order) if agreement[order[0], i] < _SAME]
    return PartitionChoice(ranked[0], ranked[rivals[0]] if rivals else None, ranked)


def mean_conductance(weights: sparse.csr_matrix, labels: Labels, n_clusters: int) -> float:
    """(1/k) Σ_c cut(c)/vol(c): the normalised cut (Shi & Malik 2000) a group."""
    member = members(labels, n_clusters)
    between = (member.T @ weights @ member).toarray()
    volume = between.sum(1)
    leaves = np.where(volume > 0, 1 - between.diagonal() / np.where(volume > 0, volume, 1.0), 0.0)
    return float(leaves.mean())


def agreements(labels: Int64[np.ndarray, "m a"], n_clusters: int) -> Float[np.ndarray, "m m"]:
    """The adjusted Rand index of every pair of partitions."""
    m, n = labels.shape
    stacked = sparse.hstack([members(own, n_clusters) for own in labels]).tocsr()
    table = (stacked.T @ stacked).toarray().reshape(m, n_clusters, m, n_clusters)
    together = (table * (table - 1) / 2).sum((1, 3))
    own = together.diagonal()
    chance = np.outer(own, own) / (n * (n - 1) / 2)
    most = (own[:, None] + own[None, :]) / 2
    spread = most - chance
    index: NDArray[np.float64] = np.where(spread > 0, (together - chance) / np.where(spread > 0, spread, 1.0), 1.0)
    return index


def _inequality(labels: Labels) -> float:
    shares = np.bincount(labels) / len(labels)
    return float(np.abs(shares - 1 / len(shares)).sum())


def _found_again(near: Neighbourhood, found: dict[str, Labels], chosen: str, n_clusters: int, seed: int) -> bool:
    """Whether groups of equal shares come out of other samples of the rows nearly as well as the chosen ones.

    Equal shares that cut through groups do it elsewhere in every sample (Ben-Hur, Elisseeff & Guyon 2002).
    """
    if near.points is None:
        return False
    names = (chosen, BALANCED)
    stable = dict.fromkeys(names, 0.0)
    rng = np.random.default_rng(seed)
    for again in range(1, _AGAIN + 1):
        some = np.sort(rng.permutation(near.n_anchors)[: round(_AGAIN_SHARE * near.n_anchors)])
        fewer = Neighbourhood.of_points(near.points[some], seed)
        if fewer.n_anchors <= n_clusters:
            return False
        repeated = candidates(fewer, n_clusters, seed + again, only=names)
        for name in names:
            if name in repeated:
                pair = np.stack([found[name][some], repeated[name][fewer.anchor]])
                stable[name] += agreements(pair, n_clusters)[0, 1] / _AGAIN
    return bool(stable[BALANCED] >= stable[chosen] - _LESS_STABLE)


def members(labels: Labels, n_clusters: int) -> sparse.csr_matrix:
    """A row for each label with a 1 in its column."""
    n = len(labels)
    return sparse.csr_matrix((np.ones(n), (np.arange(n), labels)), shape=(n, n_clusters))


def _over_rows(near: Neighbourhood, of_anchors: Labels) -> Int64[np.ndarray, " n"]:
    labels: NDArray[np.int64] = of_anchors[near.anchor]
    rank = np.empty(int(labels.max()) + 1, dtype=np.int64)
    rank[np.argsort(-np.bincount(labels), kind="stable")] = np.arange(len(rank))
    ranked: NDArray[np.int64] = rank[labels]
    return ranked


def _sorted_shares(prior: Sequence[float] | NDArray[np.floating], n_clusters: int) -> NDArray[np.float64]:
    shares = np.asarray(prior, dtype=np.float64)
    if shares.shape != (n_clusters,) or not (shares > 0).all():
        raise UsageError(f"the prior must be {n_clusters} positive shares, not {prior!r}")
    descending: NDArray[np.float64] = np.sort(shares / shares.sum())[::-1]
    return descending
