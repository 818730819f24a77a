"""What the data says of its own scale: a kernel width, and a walk along its neighbours.

The walk is the augmentation T(x′|x) for data that has no obvious one. A step goes to a near neighbour,
so x′ stays on the data; many steps reach everything that is connected to x and nothing else. How
many is read off the data: a walk of length t sees K(t) = trace P^t separate groups, and the longest
useful walk is the one that still sees as many as there are clusters.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import sparse
from torch import Tensor

from gedikit.randomness import integers
from gedikit.views.neighbours import NeighbourGraph

_DOUBLINGS = 16
_ENDPOINTS = 64
_STRANGE = 0.02
_COARSE = 4
_WIDE = 64  # columns


def kernel_bandwidth(x: Float[Tensor, "n d"], generator: torch.Generator, max_points: int = 2000) -> float:
    """The Gaussian kernel width that maximises the leave-one-out likelihood of (a subset of) x.

    Copies of a point say nothing about the scale and are left out; so is the strangest part of the points, because
    a single far outlier would otherwise ask for kernels as wide as its distance.
    """
    x = torch.unique(x.cpu().double(), dim=0)
    if len(x) > max_points:
        x = x[torch.randperm(len(x), generator=generator)[:max_points]]
    n, d = x.shape
    if n < 2:
        return 1.0
    mode = "donot_use_mm_for_euclid_dist" if d <= _WIDE else "use_mm_for_euclid_dist"  # products where they pay
    squared = torch.cdist(x, x, compute_mode=mode).square()
    squared.fill_diagonal_(math.inf)
    closest = squared.amin(1)
    nearest = float(closest.median()) ** 0.5 / d**0.5
    widths = np.geomspace(0.1 * nearest, max(10 * nearest, 2 * float(x.std(0).max())), 60)
    farther = squared - closest[:, None]  # relative to the closest: no sum of kernels underflows

    @cache
    def likelihood(place: int) -> float:
        h = float(widths[place])
        log_norm = 0.5 * d * math.log(2 * math.pi * h * h)
        kernels = torch.exp((farther / (-2 * h * h)).clamp_min_(-700)).sum(1).log()  # denormals are slow
        by_point = kernels - closest / (2 * h * h) - log_norm
        return float(by_point.sort().values[int(_STRANGE * n) :].mean())

    # the likelihood has one maximum: every fourth width tells where, and those around it which
    best = max(range(0, len(widths), _COARSE), key=likelihood)
    around = range(max(0, best - _COARSE + 1), min(len(widths), best + _COARSE))
    return float(widths[max(around, key=likelihood)])


@dataclass(frozen=True)
class NeighbourWalk:
    """Endpoints of random walks of length 1, 2, 4, … from every anchor point.

    ends[l, i] holds end points of walks of length 2^l from anchor i; anchor[j] is the anchor of sample j.
    """

    ends: Int[Tensor, "l a r"]
    anchor: Int[Tensor, " n"]
    anchor_rows: Int[Tensor, " a"]
    groups: tuple[float, ...]

    @property
    def n_levels(self) -> int:
        return len(self.ends)

    def to(self, device: torch.device | str) -> "NeighbourWalk":
        return NeighbourWalk(self.ends.to(device), self.anchor.to(device), self.anchor_rows.to(device), self.groups)

    def step(self, rows: Int[Tensor, " b"], level: int, generator: torch.Generator) -> Int[Tensor, " b"]:
        """Rows reached from `rows` by independent walks of length 2^level."""
        pick = integers(self.ends.shape[2], rows.shape, generator)
        return self.anchor_rows[self.ends[level, self.anchor[rows], pick].long()]


def neighbour_walk(
    graph: NeighbourGraph, n_clusters: int, generator: torch.Generator, *, slack: float = 1.1
) -> NeighbourWalk:
    """Walks that double in length until they see at most `slack`·`n_clusters` groups."""
    weights = graph.weights
    degree = torch.from_numpy(np.asarray(weights.sum(1)).ravel())
    # two independent halves: a meeting of walks of one half with the other's is unbiased
    halves = [_one_step(weights, _ENDPOINTS, generator) for _ in range(2)]
    levels, groups = [torch.cat(halves, 1)], []
    for _ in range(_DOUBLINGS):
        groups.append(_groups(halves[0], halves[1], degree))
        if groups[-1] <= slack * n_clusters:
            break
        halves = [_compose(half, generator) for half in halves]
        levels.append(torch.cat(halves, 1))
    return NeighbourWalk(
        torch.stack(levels).to(torch.int32),
        torch.from_numpy(graph.anchor),
        torch.from_numpy(graph.rows),
        tuple(groups),
    )


def _one_step(weights: sparse.csr_matrix, r: int, generator: torch.Generator) -> Int[Tensor, "n r"]:
    """r steps from every node, by inverting the cumulated weights of all rows at once."""
    n = weights.shape[0]
    first = torch.from_numpy(weights.indptr[:-1].astype(np.int64))[:, None]
    last = torch.from_numpy(weights.indptr[1:].astype(np.int64))[:, None] - 1
    row_sum = np.repeat(np.asarray(weights.sum(1)).ravel(), np.diff(weights.indptr))
    cumulated = torch.from_numpy(np.concatenate([[0.0], np.cumsum(weights.data / row_sum)]))
    start, end = cumulated[first], cumulated[last + 1]
    u = start + (end - start) * torch.rand(n, r, generator=generator, dtype=torch.float64)
    position = torch.searchsorted(cumulated, u, right=True) - 1
    position = torch.minimum(torch.maximum(position, first), last)  # rounding at a row's border
    return torch.from_numpy(weights.indices.astype(np.int64))[position]


def _compose(ends: Int[Tensor, "n r"], generator: torch.Generator) -> Int[Tensor, "n r"]:
    """Walks of twice the length: go on from each end point with one of its own walks."""
    pick = torch.randint(ends.shape[1], ends.shape, generator=generator)
    return ends[ends, pick]


def _groups(a: Int[Tensor, "n r"], b: Int[Tensor, "n r"], degree: Float[Tensor, " n"]) -> float:
    """trace P^2t = Σ_ij P^t_ij² d_i/d_j of a reversible walk, from how often two walks of length t meet."""
    total = 0.0
    shifts = range(min(a.shape[1], max(1, 2_000_000 // a.numel())))
    for shift in shifts:
        other = b.roll(shift, 1)
        meet = a == other
        i, _ = meet.nonzero(as_tuple=True)
        total += float((degree[i] / degree[a[meet]]).sum())
    return total / (len(shifts) * a.shape[1])


def walk_level(walk: NeighbourWalk, progress: float, hold: float, end: float) -> int:
    """The longest walks until `hold`, single steps from `end` on."""
    return round((walk.n_levels - 1) * min(1.0, max(0.0, (end - progress) / (end - hold))))
