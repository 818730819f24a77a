"""How many groups there are: splits are made as long as the graph is thin where they are made."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from gedikit.errors import UsageError
from gedikit.partitions.choice import PartitionChoice, choose_among
from gedikit.partitions.dips import DEEP, PARTED, splits
from gedikit.partitions.neighbourhood import Neighbourhood, neighbourhood
from gedikit.views.neighbours import NeighbourGraph

_COPIES = 10


@dataclass(frozen=True)
class NumberChoice:
    """A number of groups with its evidence.

    `curve[k]` for k ≥ 2 is the depth of the dip that makes k groups of k − 1, or of a dip before it that is
    shallower; a number is accepted as long as it is above `threshold`. `runner_up` is the other number whose dip is
    nearest to the threshold.
    """

    n_clusters: int
    curve: dict[int, float]
    threshold: float
    runner_up: int
    choice: PartitionChoice

    @property
    def margin(self) -> float:
        """How far the nearest dip is from the threshold, as a share of it."""
        last, following = self.curve.get(self.n_clusters, np.inf), self.curve.get(self.n_clusters + 1, 0.0)
        return float(min(last - self.threshold, self.threshold - following) / self.threshold)


def choose_number(
    points: Float[np.ndarray, "n d"] | None,
    *,
    seed: int,
    largest: int = 20,
    graph: NeighbourGraph | None = None,
) -> NumberChoice:
    """The number of groups, from 1 to `largest`, and the partition into so many."""
    return choose_number_among(neighbourhood(points, graph, seed), seed=seed, largest=largest)


def choose_number_among(near: Neighbourhood, *, seed: int, largest: int = 20) -> NumberChoice:
    """`choose_number` where the neighbourhood is known."""
    if largest < 1:
        raise UsageError(f"the largest number of clusters must be at least 1, not {largest}")
    if 1 < near.n_anchors <= largest and len(near.anchor) >= _COPIES * near.n_anchors:
        k = near.n_anchors  # a handful of different rows, each many times
        curve = dict.fromkeys(range(2, k + 1), PARTED)
        return NumberChoice(k, curve, DEEP, k - 1, choose_among(near, k, seed=seed))
    made = splits(near.wide, near.least, min(largest + 1, near.n_anchors))
    curve = {}
    weakest = np.inf
    for k, split in enumerate(made, start=2):
        # a split is only as well-founded as those before it
        weakest = min(weakest, split.strength)
        curve[k] = float(weakest)
    n_clusters = 1 + sum(depth >= DEEP for k, depth in curve.items() if k <= largest)
    more = DEEP - curve.get(n_clusters + 1, 0.0)
    fewer = curve.get(n_clusters, np.inf) - DEEP
    runner_up = n_clusters - 1 if n_clusters > 1 and fewer < more else n_clusters + 1
    return NumberChoice(n_clusters, curve, DEEP, runner_up, choose_among(near, n_clusters, seed=seed))
