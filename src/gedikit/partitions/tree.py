"""Partitions from a minimum spanning tree: Genie's linkage, and the densest or widest-parted branches."""

import heapq
from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import minimum_spanning_tree

_LEAST = 1e-300  # scipy takes an explicit zero for no edge


@dataclass(frozen=True)
class SpanningTree:
    """The edges of a tree over all nodes, the shortest first."""

    ends: Int64[np.ndarray, "e 2"]
    lengths: Float[np.ndarray, " e"]

    @property
    def n_nodes(self) -> int:
        return len(self.ends) + 1

    @classmethod
    def of(cls, lengths: sparse.csr_matrix) -> "SpanningTree":
        """The minimum spanning tree of a connected graph whose stored entries are lengths."""
        lengths = lengths.copy()
        lengths.data = np.maximum(lengths.data, _LEAST)
        tree = minimum_spanning_tree(lengths).tocoo()
        order = np.argsort(tree.data, kind="stable")
        ends = np.stack([tree.row[order], tree.col[order]], axis=1).astype(np.int64)
        return cls(ends, tree.data[order])

    def spread(self, labels: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        """Labels for nodes that have none (−1), taken along the shortest edges."""
        parent = list(range(self.n_nodes))
        own = labels.tolist()
        for a, b in self.ends.tolist():
            left, right = _root(parent, a), _root(parent, b)
            if own[left] < 0 or own[right] < 0:
                if own[left] < 0:
                    left, right = right, left
                parent[right] = left
        return np.array([own[_root(parent, i)] for i in range(self.n_nodes)], dtype=np.int64)


def genie(tree: SpanningTree, n_clusters: int, largest_gini: float) -> Int64[np.ndarray, " n"]:
    """Single linkage that merges a smallest cluster first whenever sizes are too unequal.

    The idea of Gagolewski, Bartoszuk & Cena (2016): where the Gini index of the cluster sizes exceeds
    `largest_gini`, the shortest edge that touches a cluster of the smallest size is merged, else the shortest.
    """
    n = tree.n_nodes
    ends = tree.ends.tolist()
    parent, size = list(range(n)), [1] * n
    after = list(range(1, len(ends) + 1))  # a linked list of edges that are left
    before = list(range(-1, len(ends) - 1))
    first, cursor, cursor_size = 0, 0, 1
    sizes = _Sizes(n)
    for left_over in range(n, n_clusters, -1):
        if sizes.differences > largest_gini * (left_over - 1) * n:
            smallest = sizes.ordered[0]
            if smallest != cursor_size:
                cursor, cursor_size = first, smallest
            cursor = max(cursor, first)
            while min(size[_root(parent, ends[cursor][0])], size[_root(parent, ends[cursor][1])]) != smallest:
                cursor = after[cursor]
            edge = cursor
            cursor = after[edge]
        else:
            edge = first
        previous, following = before[edge], after[edge]
        if previous >= 0:
            after[previous] = following
        else:
            first = following
        if following < len(ends):
            before[following] = previous
        if cursor == edge:
            cursor = following
        a, b = _root(parent, ends[edge][0]), _root(parent, ends[edge][1])
        if size[a] > size[b]:
            a, b = b, a
        sizes.merge(size[a], size[b])
        parent[a] = b
        size[b] += size[a]
    roots = np.array([_root(parent, i) for i in range(n)])
    return np.unique(roots, return_inverse=True)[1].astype(np.int64)


class _Sizes:
    """How many clusters there are of each size, and how unequal they are."""

    def __init__(self, n: int):
        self.n = n
        self.counts = {1: n}
        self.ordered = [1]
        self.differences = 0  # Σ |size_i − size_j| over pairs of clusters

    def merge(self, small: int, large: int) -> None:
        """Two clusters become one.

        |o − merged| − |o − small| − |o − large| is −o for a size o above the merged one, so few are looked at.
        """
        merged = small + large
        for gone in (small, large):
            self.counts[gone] -= 1
            if not self.counts[gone]:
                del self.counts[gone], self.ordered[bisect_left(self.ordered, gone)]
        self.differences += merged - self.n - (large - small)
        for other in self.ordered:
            if other >= merged:
                break
            self.differences += 2 * self.counts[other] * min(other, small, merged - other)
        if merged not in self.counts:
            self.counts[merged] = 0
            insort(self.ordered, merged)
        self.counts[merged] += 1


@dataclass(frozen=True)
class Branch:
    """A set of nodes that hangs together from the length `born` down to `died`, where it falls apart."""

    members: NDArray[np.int64]
    born: float
    died: float
    persistence: float  # Σ over members of (1/length at which they leave − 1/born): HDBSCAN's excess of mass
    children: tuple["Branch", ...]


def branches(tree: SpanningTree, smallest: int) -> Branch:
    """The branches with at least `smallest` nodes: the condensed tree of Campello, Moulavi & Sander (2013)."""
    n = tree.n_nodes
    merges, heights, sizes = _dendrogram(tree)
    order, start = _leaf_order(merges, n)
    merged: list[tuple[int, int]] = merges.tolist()

    def size_of(node: int) -> int:
        return 1 if node < n else int(sizes[node - n])

    def members(node: int) -> NDArray[np.int64]:
        return order[start[node] : start[node] + size_of(node)]

    def inverse(length: float) -> float:
        return 1.0 / max(length, 1e-12)

    def grow(node: int, born: float) -> Branch:
        whole, mass, density_born = members(node), 0.0, inverse(born)
        while True:
            height = float(heights[node - n]) if node >= n else 0.0
            left, right = merged[node - n] if node >= n else (-1, -1)
            kept = [child for child in (left, right) if child >= 0 and size_of(child) >= smallest]
            lost = size_of(node) - sum(map(size_of, kept))
            mass += lost * (inverse(height) - density_born)
            if len(kept) == 1:
                node = kept[0]
                continue
            for child in kept:
                mass += size_of(child) * (inverse(height) - density_born)
            return Branch(whole, born, height, mass, tuple(grow(child, height) for child in kept))

    return grow(2 * n - 2, float("inf"))


def widest_parted(root: Branch, n_clusters: int) -> list[NDArray[np.int64]]:
    """The branches left when the longest-lived lengths are cut first; fewer where the tree has fewer."""
    open_ends = [(-root.died, 0, root)]
    finished: list[Branch] = []
    serial = 0
    while open_ends and len(open_ends) + len(finished) < n_clusters:
        _, _, branch = heapq.heappop(open_ends)
        if not branch.children:
            finished.append(branch)
            continue
        for child in branch.children:
            serial += 1
            heapq.heappush(open_ends, (-child.died, serial, child))
    return [branch.members for *_, branch in open_ends] + [branch.members for branch in finished]


def most_persistent(root: Branch, n_clusters: int) -> list[NDArray[np.int64]]:
    """Branches that leave no other out, with the largest excess of mass; fewer where there are fewer leaves."""

    def best(branch: Branch, top: bool) -> list[tuple[float, list[Branch]]]:
        """Entry j: the best j + 1 branches below here."""
        own = (-np.inf if top else branch.persistence, [branch])
        table: list[tuple[float, list[Branch]]] = []
        for child in branch.children:
            below = best(child, False)
            both = (
                list(below)
                if not table
                else [
                    max(
                        (
                            (table[i][0] + below[j - i - 1][0], table[i][1] + below[j - i - 1][1])
                            for i in range(len(table))
                            if 0 <= j - i - 1 < len(below)
                        ),
                        key=lambda entry: entry[0],
                        default=(-np.inf, []),
                    )
                    for j in range(min(len(table) + len(below), n_clusters))
                ]
            )
            table = both
        if not table:
            return [own]
        if own[0] > table[0][0]:
            table[0] = own
        return table

    table = best(root, True)
    return [branch.members for branch in table[min(n_clusters, len(table)) - 1][1]]


def _dendrogram(tree: SpanningTree) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    n = tree.n_nodes
    parent, node, count = list(range(n)), list(range(n)), [1] * n
    merged = np.empty((n - 1, 2), dtype=np.int64)
    sizes = np.empty(n - 1, dtype=np.int64)
    for i, (a, b) in enumerate(tree.ends.tolist()):
        left, right = _root(parent, a), _root(parent, b)
        merged[i] = node[left], node[right]
        if count[left] > count[right]:
            left, right = right, left
        parent[left] = right
        count[right] += count[left]
        node[right] = n + i
        sizes[i] = count[right]
    return merged, tree.lengths.astype(np.float64), sizes


def _leaf_order(merged: NDArray[np.int64], n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Leaves in an order in which every node's are side by side, and where each node's begin."""
    start = np.zeros(2 * n - 1, dtype=np.int64)
    size = np.ones(2 * n - 1, dtype=np.int64)
    for i, (left, right) in enumerate(merged):
        size[n + i] = size[left] + size[right]
    for i in range(n - 2, -1, -1):
        left, right = merged[i]
        start[left] = start[n + i]
        start[right] = start[n + i] + size[left]
    order = np.empty(n, dtype=np.int64)
    order[start[:n]] = np.arange(n)
    return order, start


def _root(parent: list[int], i: int) -> int:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i
