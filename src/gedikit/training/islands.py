"""Clusters held against the neighbour graph: those that are several islands, and islands that are in two clusters.

An island is a part of the graph that no valley crosses (`partitions.dips`). Inside of a cluster a deep valley shows
two islands. Between two clusters there should be one: where as much weight crosses their border as crosses the
clusters themselves, and no valley of both together runs along it, one island was cut.
"""

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from sklearn.metrics import adjusted_rand_score

from gedikit.partitions.choice import members
from gedikit.partitions.dips import DEEP, crossing_weight, deepest_dip, slow_directions, splits
from gedikit.partitions.neighbourhood import Neighbourhood

SEVERAL_ISLANDS, CUT_ISLAND, OUTLIERS = "several islands", "cut island", "outliers"
_MOST_ROWS = 3000
_SHOWN = 24  # rows of a concern
_SURE = 7.5  # depth of a valley inside of a cluster; suspected from what chance does not make
_ADJACENT, _CUT = 0.1, 0.3  # weight that crosses a border, relative to that inside of the clusters
_ALONG = 0.85  # agreement (ARI) of a valley with a border that runs along it
_MOST_ISLANDS = 6  # of a cluster
_SMALL, _MOSTLY = 0.05, 0.5  # share of a cluster of outliers, and of outliers in it


@dataclass(frozen=True)
class Concern:
    """Something about clusters that people should look at."""

    kind: str
    clusters: tuple[int, ...]
    sure: bool
    strength: float  # of several islands: depth of the valley; of a cut: weight across relative to inside
    share: float  # of all rows: the smaller part
    rows: tuple[int, ...]  # some that show it: of the smaller island, along the cut, or outliers

    def tree(self) -> dict[str, Any]:
        """As JSON has it."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    @classmethod
    def from_tree(cls, tree: dict[str, Any]) -> Self:
        given: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in tree.items()}
        return cls(**given)


@dataclass(frozen=True)
class Islands:
    """What clusters look like on the graph."""

    concerns: tuple[Concern, ...]
    agreement: float  # ARI of the clusters with the islands, where these are sure
    n_islands: int

    def numbers(self) -> dict[str, float]:
        return {"agreement_with_islands": self.agreement, "islands": float(self.n_islands)}


def look_at_islands(
    points: Float[np.ndarray, "n d"],
    labels: Int64[np.ndarray, " n"],
    seed: int,
    built: Neighbourhood | None = None,
) -> Islands:
    """Clusters of rows, at most 3000 of them, held against the neighbour graph of these rows.

    A neighbourhood that was built before is taken where it is of the same rows.
    """
    some = np.arange(len(points))
    if len(some) > _MOST_ROWS:
        some = np.sort(np.random.default_rng(seed).choice(some, _MOST_ROWS, replace=False))
    if built is not None and len(some) == len(points) and _is_of(built, points):
        near = built
    else:
        near = Neighbourhood.of_points(points[some], seed)
    return _Look(near, points[some], labels[some], some).islands()


def _is_of(near: Neighbourhood, points: Float[np.ndarray, "n d"]) -> bool:
    """Whether the neighbourhood is that of these points."""
    if near.points is None or len(near.anchor) != len(points):
        return False
    return np.array_equal(near.points, points[near.rows])


class _Look:
    def __init__(
        self,
        near: Neighbourhood,
        points: Float[np.ndarray, "n d"],
        labels: Int64[np.ndarray, " n"],
        numbers: Int64[np.ndarray, " n"],
    ):
        self.near, self.points, self.labels, self.numbers = near, points, labels, numbers
        self.of_anchors = labels[near.rows]
        self.clusters = np.unique(self.of_anchors)
        self.members = {int(c): np.flatnonzero(self.of_anchors == c) for c in self.clusters}

    def islands(self) -> Islands:
        parts = np.zeros(len(self.of_anchors), dtype=np.int64)
        concerns: list[Concern] = []
        n_parts = 0
        for cluster, own in self.members.items():
            found, inside = self._inside(cluster, own)
            concerns += found
            parts[own] = n_parts + inside
            n_parts += int(inside.max()) + 1
        cuts = self._cuts()
        concerns += [*cuts, *self._outliers()]
        for cut in cuts:
            if cut.sure and len({int(p) for c in cut.clusters for p in np.unique(parts[self.members[c]])}) == 2:
                a, b = (self.members[c] for c in cut.clusters)
                parts[np.isin(parts, parts[b])] = parts[a][0]
        together = float(adjusted_rand_score(parts, self.of_anchors))
        return Islands(tuple(concerns), together, len(np.unique(parts)))

    def _inside(self, cluster: int, members: NDArray[np.int64]) -> tuple[list[Concern], NDArray[np.int64]]:
        """Whether a cluster is several islands, and which row of it is on which."""
        weights = self.near.wide[members][:, members]
        whole = np.zeros(len(members), dtype=np.int64)
        dip = deepest_dip(weights, self.near.least)
        strength = dip.strength
        if dip.side is None or strength < DEEP:
            return [], whole
        smaller = dip.side if 2 * dip.side.sum() < len(members) else ~dip.side
        concern = Concern(
            SEVERAL_ISLANDS,
            (cluster,),
            strength >= _SURE,
            float(strength),
            float(smaller.sum() / len(self.of_anchors)),
            self._shown(members[smaller]),
        )
        if not concern.sure:
            return [concern], whole
        weakest, inside = np.inf, whole
        for split in splits(weights, self.near.least, _MOST_ISLANDS):
            weakest = min(weakest, split.strength)
            if weakest >= _SURE:
                inside = split.labels
        return [concern], inside

    def _cuts(self) -> list[Concern]:
        """Borders between clusters that run through an island."""
        wide, found = self.near.wide, []
        member = members(self.of_anchors, int(self.clusters[-1]) + 1)
        between = (member.T @ wide @ member).toarray()
        inside = {c: _most_crossing(wide[m][:, m], self.near.least) for c, m in self.members.items()}
        for i, a in enumerate(self.members):
            for b in list(self.members)[i + 1 :]:
                least = min(inside[a], inside[b])
                if least <= 0 or between[a, b] < _ADJACENT * least:
                    continue
                both = np.concatenate([self.members[a], self.members[b]])
                dip = deepest_dip(wide[both][:, both], self.near.least)
                parted = dip.side is not None and dip.strength >= DEEP
                if parted and adjusted_rand_score(self.of_anchors[both], dip.side) >= _ALONG:
                    continue
                ratio = float(between[a, b] / least)
                smaller = min(len(self.members[a]), len(self.members[b])) / len(self.of_anchors)
                found.append(Concern(CUT_ISLAND, (a, b), ratio >= _CUT, ratio, smaller, self._along(a, b)))
        return found

    def _along(self, a: int, b: int) -> tuple[int, ...]:
        """Rows on both sides of a border that are joined across it most."""
        ma, mb = self.members[a], self.members[b]
        across = self.near.wide[ma][:, mb]
        sides = [(ma, np.asarray(across.sum(1)).ravel()), (mb, np.asarray(across.sum(0)).ravel())]
        chosen = [side[np.argsort(-weight, kind="stable")[: _SHOWN // 2]] for side, weight in sides]
        return self._shown(np.concatenate(chosen))

    def _outliers(self) -> list[Concern]:
        """Small clusters of rows that are far from everything, each other too."""
        near, n = self.near, len(self.labels)
        apart = (self.points != self.points[near.rows[near.anchor]]).any(1)
        found = []
        for cluster in np.unique(self.labels):
            own = self.labels == cluster
            if own.sum() <= max(1, _SMALL * n) and (apart & own).sum() > _MOSTLY * own.sum():
                rows = np.flatnonzero(own)[:_SHOWN]
                share = float(own.sum() / n)
                found.append(Concern(OUTLIERS, (int(cluster),), True, 1.0, share, _plain(self.numbers[rows])))
        return found

    def _shown(self, anchors: NDArray[np.int64]) -> tuple[int, ...]:
        return _plain(self.numbers[self.near.rows[anchors[:_SHOWN]]])


def _most_crossing(weights: sparse.csr_matrix, least: int) -> float:
    """The largest weight that crosses a cut of a cluster's main part along its slowest direction."""
    _, component = connected_components(weights, directed=False)
    main = component == np.bincount(component).argmax()
    if main.sum() < 2 * least:
        return 0.0
    part = weights[main][:, main]
    crossing = crossing_weight(part, np.argsort(slow_directions(part)[:, 0], kind="stable"))
    smooth = np.convolve(crossing, np.full(least, 1 / least), mode="same")
    return float(smooth.max())


def _plain(rows: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(int(row) for row in rows)
