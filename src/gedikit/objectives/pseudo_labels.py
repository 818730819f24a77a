"""Pseudo-labels from clusters of neighbours: targets for the first part of the training.

A network that has to find clusters from nothing may settle for a constant posterior, or for two clusters that are
one; one that starts from a constraint alone also guesses what its clusters stand for, and keeps a wrong guess.
Spectral clusters of the neighbour graph are there at once. A constraint names them all together: several
clusterings, coarser and finer, are named one by one, and the resulting posteriors of a row are averaged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor

from gedikit.components import setting
from gedikit.guidance import guided
from gedikit.known import UNKNOWN, Known
from gedikit.objectives import batch
from gedikit.objectives.base import (
    PAPER,
    Memory,
    Objective,
    Outputs,
    Rules,
    Stage,
    TrainingData,
    both_views,
    register_objective,
)
from gedikit.objectives.loss import full_precision, times_log
from gedikit.symbolic import Placed, Symbols, expected_of_rows, name_rows
from gedikit.symbolic.examples import parted
from gedikit.views.neighbours import Likeness, Likest, Nearest, NeighbourGraph, affinity, spectral_clusters

_CLUSTERS_A_VALUE = (1.6, 2, 2.5, 3, 4)  # a value is shown in several ways
_STARTS, _FEWEST_STARTS = 1000, 20  # of naming
_FEW_IMAGES = 7  # of an example
_MOST_ROWS = 3000  # memory grows with their square, and more are not needed to name clusters
_NEIGHBOURS = 10
_DOUBT = 0.01  # of what the rows most like one show: none is impossible
_SMALLEST_SHARE = 0.2  # of what the prior expects: a smaller cluster is a group of near-duplicates


@full_precision
def pseudo_label_loss(log_p: Float[Tensor, "*m n c"], targets: Float[Tensor, "*m n c"]) -> Float[Tensor, "*m"]:
    """Mean cross-entropy to the targets; rows whose targets are zeros have none and are left out."""
    total = batch.over_processes(times_log(targets, log_p).sum((-2, -1)))
    return -total / batch.over_processes(targets.sum((-2, -1))).clamp(min=1)


@register_objective("pseudo-labels")
@dataclass(frozen=True)
class PseudoLabels(Objective):
    """Cross-entropy to a partition found before the training, named by the constraint if there is one.

    For rows of numbers the partition is the plan's start, and so it is for images where that is clear (`started`);
    for other images it is the spectral clusters of the neighbour graph.
    """

    weight: float = setting(25.0, "weight in the sum that is minimised", at_least=0)
    symmetric: bool = setting(False, "of x′ as well as of x")
    share: float = setting(
        0.0,
        "share of the training in which it is minimised, of stages with invariance and prior",
        at_least=0,
        at_most=1,
    )
    started: bool = setting(False, "of images too, the partition is the one that the plan starts from")
    _targets: Float[Tensor, "n c"] | None = field(default=None, repr=False, compare=False, kw_only=True)

    summary: ClassVar[str] = "cross-entropy to a partition of the neighbour graph, at the beginning"
    reference: ClassVar[str] = PAPER + "; cf. SCAN (Van Gansbeke et al., 2020)"
    standalone: ClassVar[bool] = False
    title: ClassVar[str] = "Pseudo-label loss"
    caption: ClassVar[str] = "Cross-entropy to the partition that the training starts from."

    def __call__(self, out: Outputs, memory: Memory) -> tuple[Tensor, Memory]:
        targets = self.targets[out.rows]
        return both_views(self.symmetric, lambda log_p: pseudo_label_loss(log_p, targets), out), memory

    @property
    def n_views(self) -> int:
        return int(self.symmetric)

    @property
    def targets(self) -> Float[Tensor, "n c"]:
        """What rows are taken for, zeros of those that are taken for nothing; there once it is bound to data."""
        assert self._targets is not None, "bound before the training"
        return self._targets

    def bind(self, data: TrainingData) -> Self:
        partition = None if data.images and not self.started else data.partition
        if data.rules is not None:
            assert data.likeness is not None, "there are rules"
            named = (data.likeness, data.rules, data.n_rows, data.seed, data.device)
            targets = labels_by_constraint(*named, known=data.known)
        elif data.known is not None and data.known.labels is not None:  # groups have the names of labels already
            groups = _guided_partition(data) if partition is None else partition()
            targets = one_hot(groups, len(data.prior), data.device)
        elif partition is not None:
            targets = labels_by_partition(partition(), data.prior, data.device)
        else:
            targets = labels_by_clusters(data.graph(), data.prior, data.seed, data.device)
        return replace(self, _targets=targets)

    def join(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        """The first part of every stage that has both invariance and prior."""
        if not self.share:
            return stages
        joined, begun = [], 0.0
        for stage in stages:
            if {"invariance", "prior"} <= {*stage.terms}:
                begun += self.share * (stage.until - begun)
                joined.append(Stage(begun, (*stage.terms, self.name)))
            if begun < stage.until:
                joined.append(stage)
            begun = stage.until
        return tuple(joined)


def labels_by_partition(
    groups: Int64[np.ndarray, " n"], prior: NDArray[np.float64], device: torch.device
) -> Float[Tensor, "n c"]:
    """Each row in its group, zeros for rows in none; larger groups, which come first, have the likelier labels."""
    label = np.argsort(-prior, kind="stable")
    targets = one_hot(label[groups.clip(min=0)], len(prior), device)
    targets[torch.from_numpy(groups < 0).to(device)] = 0.0
    return targets


def one_hot(labels: Int64[np.ndarray, " n"], n_clusters: int, device: torch.device) -> Float[Tensor, "n c"]:
    return torch.nn.functional.one_hot(torch.from_numpy(labels), n_clusters).float().to(device)


def _guided_partition(data: TrainingData) -> Int64[np.ndarray, " n"]:
    """Clusters of the neighbour graph and what known labels make of it, where no partition was looked for."""
    assert data.known is not None
    graph, n_clusters = data.graph(), len(data.prior)
    clusters = graph.clusters(n_clusters, data.seed)
    return guided(graph, [clusters] if clusters.min() >= 0 else [], data.known, n_clusters)


def labels_by_clusters(
    graph: NeighbourGraph, prior: NDArray[np.float64], seed: int, device: torch.device
) -> Float[Tensor, "n c"]:
    """Each row in its spectral cluster, zeros for rows in none; larger clusters get more probable labels."""
    clusters = graph.clusters(len(prior), seed, smallest=_SMALLEST_SHARE * prior.min() * len(graph.rows))
    inside = clusters >= 0
    by_size = np.argsort(np.bincount(clusters[inside], minlength=len(prior)), kind="stable")
    label = np.empty(len(prior), dtype=np.int64)
    label[by_size] = np.argsort(prior, kind="stable")
    targets = torch.zeros(len(clusters), len(prior))
    targets[inside, label[clusters[inside]]] = 1
    return targets.to(device)


def labels_by_constraint(
    likeness: Likeness,
    rules: Rules,
    n_rows: int,
    seed: int,
    device: torch.device,
    starts: int | None = None,
    known: Known | None = None,
) -> Float[Tensor, "n c"]:
    """p(symbol | row) by clusters and the rules; zeros for rows that are in no example.

    Rows of each kind of symbols are clustered by themselves. Of names that a rule leaves open, all clusterings get
    those of the first. Where there are very many examples, some are named by clusters; rows of the others show what
    those nearest to them show, and what their rule makes of that.
    """
    placed, others = parted(rules.placed, _MOST_ROWS, seed)
    starts = _starts(placed) if starts is None else starts
    labels = None if known is None or known.labels is None else torch.from_numpy(known.labels).to(device)
    rows_of_kind = [_rows_of(placed, kind.name) for kind in rules.symbols.kinds]
    sizes = [kind.size for kind in rules.symbols.kinds]
    found = torch.zeros(n_rows, rules.symbols.n_clusters, device=device)
    for together in _clusterings(likeness.nearest, rows_of_kind, sizes, seed):
        clusters = torch.full((n_rows,), UNKNOWN, device=device)
        for rows, numbers in zip(rows_of_kind, together, strict=True):
            clusters[torch.from_numpy(rows).to(device)] = torch.from_numpy(numbers).to(device)
        found += name_rows(placed, clusters, labels=labels, like=found, starts=starts, seed=seed).expected
    targets = _normalised(found)
    if others:
        before = _by_likeness(likeness.likest, targets, [*placed, *others], rules.symbols)
        log_p = ((1 - _DOUBT) * before + _DOUBT * _evenly(rules.symbols, before)).double().log()
        for p in others:
            found += expected_of_rows(p, log_p).to(found)
        targets = _normalised(found)
    if labels is not None:
        labelled = labels != UNKNOWN
        targets[labelled] = torch.nn.functional.one_hot(labels[labelled], targets.shape[1]).to(targets)
    return targets


def _starts(placed: Sequence[Placed]) -> int:
    """Long rules say more than short ones, and known values more than images: they need fewer starts."""
    if all(p.plain and p.rows.shape[1] <= _FEW_IMAGES for p in placed):
        return _STARTS
    images = sum(int((p.rows != UNKNOWN).sum()) for p in placed) / sum(map(len, placed))
    return min(_STARTS, max(_FEWEST_STARTS, int(2 * _STARTS / images)))


def _normalised(found: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
    total = found.sum(-1, keepdim=True)
    return torch.where(total > 0, found / total.clamp_min(1e-30), 0.0)


def _by_likeness(
    likest: Likest, named: Float[Tensor, "n c"], placed: Sequence[Placed], symbols: Symbols
) -> Float[Tensor, "n c"]:
    """What rows without names show: the mean of what those with names show most like them, of their kind."""
    found = named.clone()
    has_name = (named.sum(-1) > 0).cpu().numpy()
    for kind in symbols.kinds:
        rows = _rows_of(placed, kind.name)
        anchors, nameless = rows[has_name[rows]], rows[~has_name[rows]]
        if len(anchors) and len(nameless):
            places = likest(nameless, anchors, min(_NEIGHBOURS, len(anchors)))
            shown = named[torch.from_numpy(anchors[places]).to(named.device)].mean(1)
            found[torch.from_numpy(nameless).to(named.device)] = shown
    return found


def _evenly(symbols: Symbols, like: Float[Tensor, "n c"]) -> Float[Tensor, " c"]:
    """Equal shares of the symbols of every kind."""
    return torch.cat([torch.full((kind.size,), 1 / kind.size) for kind in symbols.kinds]).to(like)


def _rows_of(placed: Sequence[Placed], kind: str) -> Int64[np.ndarray, " r"]:
    """Rows that show symbols of a kind."""
    own = [
        rows
        for p in placed
        for of, rows in zip(p.kinds, p.rows.T, strict=True)
        if of is not None and of.name == kind
    ]
    rows = np.unique(np.concatenate(own))
    return np.asarray(rows[rows != UNKNOWN])


def _clusterings(
    nearest: Nearest, rows_of_kind: Sequence[Int64[np.ndarray, " _"]], n_values: Sequence[int], seed: int
) -> Iterator[list[Int64[np.ndarray, " _"]]]:
    """Clusters of the rows of every kind, coarser and finer."""
    graphs = [affinity(*nearest(rows, min(_NEIGHBOURS, len(rows) - 1))) for rows in rows_of_kind]
    together = [
        tuple(max(1, min(round(share * n), len(rows) // 2)) for n, rows in zip(n_values, rows_of_kind, strict=True))
        for share in _CLUSTERS_A_VALUE
    ]
    for sizes in dict.fromkeys(together):
        yield [spectral_clusters(graph, size, seed) for graph, size in zip(graphs, sizes, strict=True)]
