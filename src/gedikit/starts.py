"""What a fit starts from: a partition of the rows, found before any network is trained."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from gedikit.modalities.scaling import Scaler
from gedikit.partitions import NumberChoice, PartitionChoice, choose_number, choose_partition


@dataclass(frozen=True)
class Start:
    """A group for every row, the largest first, and the evidence for it."""

    choice: PartitionChoice
    number: NumberChoice | None = None  # where the number of groups was looked for

    @property
    def labels(self) -> Int64[np.ndarray, " n"]:
        return self.choice.chosen.labels

    @property
    def n_clusters(self) -> int:
        return len(self.choice.chosen.shares)


class Starts:
    """Partitions of one data set, each found once; `codes` are columns that are not scaled."""

    def __init__(self, x: NDArray[np.generic], seed: int, codes: Sequence[int] = ()):
        self._x, self._seed, self._codes = x, seed, codes
        self._found: dict[tuple[int | None, str, tuple[float, ...]], Start] = {}

    def find(
        self, n_clusters: int | None, scaling: str, prior: Sequence[float] | NDArray[np.floating] | None = None
    ) -> Start:
        """Rows, scaled as `scaling` says, in `n_clusters` groups (None: as many as there are) of shares `prior`."""
        key = (n_clusters, scaling, () if prior is None else tuple(float(share) for share in prior))
        if key not in self._found:
            self._found[key] = self._search(n_clusters, scaling, prior)
        return self._found[key]

    def _search(
        self, n_clusters: int | None, scaling: str, prior: Sequence[float] | NDArray[np.floating] | None
    ) -> Start:
        points = Scaler.fit(self._x, scaling, self._codes).transform(self._x)
        if n_clusters is not None:
            return Start(choose_partition(points, n_clusters, seed=self._seed, prior=prior))
        number = choose_number(points, seed=self._seed)
        start = Start(number.choice, number)
        self._found[number.n_clusters, scaling, ()] = start
        return start
