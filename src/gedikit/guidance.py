"""A partition to start from that agrees with what is known of some rows.

Candidates are the partitions found without labels, named by the known ones, and two that the known labels make
themselves by spreading along the neighbour graph (Zhou et al., 2004; Zhu, Ghahramani & Lafferty, 2003). A candidate
counts by how little it cuts the graph and by how probable it makes what is known; the one taken agrees best with a
candidate drawn by that weight, as without labels. Spreading alone would give every label an equal part of the rows,
and groups found without labels alone would not listen.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.sparse.linalg import cg
from scipy.special import gammaln

from gedikit.known import UNKNOWN, Known
from gedikit.partitions.choice import LEAST_CONDUCTANCE, agreements, mean_conductance
from gedikit.views.neighbours import NeighbourGraph

Labels = Int64[np.ndarray, " n"]
_KEEP = 0.99  # of a label's mass that goes on along an edge
_STEPS = 300
_PURE = 0.1  # Dirichlet's parameter of the labels in a group: one label has nearly all of it
_BROKEN = 0.05  # probability that a link does not hold
_AS_GOOD = 0.5  # nats that one label in a wrong group exceeds
_CLAMPED, _LEAK, _TOLERANCE = 1e4, 1e-6, 1e-6


def guided(graph: NeighbourGraph, found: Sequence[Labels], known: Known, n_clusters: int) -> Labels:
    """Cluster numbers of all rows; known labels are kept, and clusters without any have the other numbers.

    The first of `found` is the one that was chosen without labels, and stays where nothing known speaks against it.
    """
    named = [_named(groups, known, n_clusters) for groups in found]
    if known.labels is not None:
        named += _spread(graph, _best(graph, named, known, n_clusters), known, n_clusters)
    evidence = [log_evidence(groups, known, n_clusters) for groups in named]
    settled = bool(found) and evidence[0] >= max(evidence) - _AS_GOOD
    chosen = named[0] if settled else _best(graph, named, known, n_clusters)
    assert chosen is not None
    return chosen if known.labels is None else np.where(known.labels == UNKNOWN, chosen, known.labels)


def _best(graph: NeighbourGraph, named: Sequence[Labels], known: Known, n_clusters: int) -> Labels | None:
    if len(named) < 2:
        return named[0] if named else None
    cut = np.array([mean_conductance(graph.weights, groups[graph.rows], n_clusters) for groups in named])
    evidence = np.array([log_evidence(groups, known, n_clusters) for groups in named])
    weight = np.exp(evidence - evidence.max()) / (cut + LEAST_CONDUCTANCE)
    agreement = agreements(np.stack([groups[graph.rows] for groups in named]), n_clusters)
    return named[int((agreement @ weight).argmax())]


def log_evidence(groups: Labels, known: Known, n_clusters: int) -> float:
    """How probable a partition makes what is known: labels are nearly pure in a group, links nearly always hold."""
    total = 0.0
    if known.labels is not None:
        table = _table(groups, known, n_clusters)
        whole = gammaln(n_clusters * _PURE) - gammaln(table.sum(1) + n_clusters * _PURE)
        total += float((whole + (gammaln(table + _PURE) - gammaln(_PURE)).sum(1)).sum())
    for pairs, wanted in ((known.must_link, True), (known.cannot_link, False)):
        holds = (groups[pairs[:, 0]] == groups[pairs[:, 1]]) == wanted
        total += float(holds.sum() * np.log(1 - _BROKEN) + (~holds).sum() * np.log(_BROKEN))
    return total


def _table(groups: Labels, known: Known, n_clusters: int) -> Float[np.ndarray, "k k"]:
    """How many rows of each group have each label."""
    assert known.labels is not None
    table = np.zeros((n_clusters, n_clusters))
    np.add.at(table, (groups[known.labelled], known.labels[known.labelled]), 1)
    return table


def _named(groups: Labels, known: Known, n_clusters: int) -> Labels:
    """Groups with the numbers under which most known labels are theirs."""
    if known.labels is None:
        return groups
    place, number = linear_sum_assignment(-_table(groups, known, n_clusters))
    name = np.empty(n_clusters, dtype=np.int64)
    name[place] = number
    numbered: NDArray[np.int64] = name[groups]
    return numbered


def _spread(graph: NeighbourGraph, start: Labels | None, known: Known, n_clusters: int) -> list[Labels]:
    """Labels that go along the graph from known rows, in two ways; `start` says where they do not come."""
    assert known.labels is not None
    n_rows, n_anchors = len(graph.anchor), len(graph.rows)
    seeds = np.zeros((n_rows, n_clusters))
    seeds[known.labelled, known.labels[known.labelled]] = 1
    bare = np.setdiff1d(np.arange(n_clusters), known.labels)
    if start is not None:
        each = len(known.labelled) / max(1, n_clusters - len(bare))
        for number in bare:  # clusters that nobody named hold their place
            members = start == number
            seeds[members & (known.labels == UNKNOWN), number] = each / max(1, int(members.sum()))
    of_anchors = np.zeros((n_anchors, n_clusters))
    np.add.at(of_anchors, graph.anchor, seeds)
    fallback = seeds if start is None else np.eye(n_clusters)[start]
    made = []
    for mass in (_diffused(graph.weights, of_anchors), _harmonic(graph.weights, of_anchors)):
        of_rows = mass[graph.anchor]
        reached = of_rows.max(1, keepdims=True) > 1e-12
        groups = np.where(reached, of_rows, fallback).argmax(1).astype(np.int64)
        made.append(np.where(known.labels == UNKNOWN, groups, known.labels))
    return made


def _diffused(weights: sparse.csr_matrix, seeds: NDArray[np.float64]) -> NDArray[np.float64]:
    scale = sparse.diags(1 / np.sqrt(np.asarray(weights.sum(1)).ravel()))
    step = (scale @ weights @ scale).tocsr()
    mass = seeds
    for _ in range(_STEPS):
        mass = _KEEP * (step @ mass) + (1 - _KEEP) * seeds
    return mass


def _harmonic(weights: sparse.csr_matrix, seeds: NDArray[np.float64]) -> NDArray[np.float64]:
    """The label that a random walk meets first."""
    degree = np.asarray(weights.sum(1)).ravel()
    diagonal = degree * (1 + _LEAK) + _CLAMPED * seeds.sum(1)
    system = (sparse.diags(diagonal) - weights).tocsr()
    scaled = sparse.diags(1 / diagonal)
    columns = [cg(system, _CLAMPED * column, M=scaled, rtol=_TOLERANCE, maxiter=_STEPS)[0] for column in seeds.T]
    return np.stack(columns, axis=1)
