"""Rows that are read when they are asked for: what stands for an array that memory cannot hold."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

_LOOKED_AT = 20_000  # rows that are held in memory at once, where a look at some is enough
_LOOKED_AT_BYTES = 2**28
_FEWEST = 2000


class StoredRows(ABC):
    """Rows of bytes by their numbers; an index of row numbers gives an array, as it does of an array.

    `take` may be called from another thread than the one that trains.
    """

    dtype: ClassVar[np.dtype[np.uint8]] = np.dtype(np.uint8)
    ndim: ClassVar[int] = 2

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]: ...

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Tells whether two are the same rows."""

    @abstractmethod
    def take(self, rows: Int64[np.ndarray, " k"]) -> NDArray[np.uint8]:
        """Rows in the order of their numbers, which are all there."""

    def order(self, generator: np.random.Generator) -> Int64[np.ndarray, " n"]:
        """The rows of an epoch, each once, in a random order that can be read fast."""
        return generator.permutation(len(self))

    @property
    def nbytes(self) -> int:
        return self.shape[0] * self.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: "int | np.integer | slice | list[int] | NDArray[Any]") -> NDArray[np.uint8]:
        if isinstance(rows, int | np.integer):
            return np.asarray(self[[int(rows)]][0])
        if isinstance(rows, slice):
            return self.take(np.arange(*rows.indices(len(self))))
        numbers = np.asarray(rows)
        if numbers.dtype == bool:
            return self.take(np.flatnonzero(numbers))
        return self.take(np.where(numbers < 0, numbers + len(self), numbers).astype(np.int64))


class SomeHeld(StoredRows):
    """Stored rows, those of them in memory that are needed often."""

    def __init__(self, rows: StoredRows, often: Int64[np.ndarray, " k"]):
        """`often` are sorted, each once."""
        self._rows, self._often, self._held = rows, often, rows[often]

    @property
    def shape(self) -> tuple[int, int]:
        return self._rows.shape

    @property
    def fingerprint(self) -> str:
        return self._rows.fingerprint

    def order(self, generator: np.random.Generator) -> Int64[np.ndarray, " n"]:
        return self._rows.order(generator)

    def take(self, rows: Int64[np.ndarray, " k"]) -> NDArray[np.uint8]:
        held = np.isin(rows, self._often)
        taken = np.empty((len(rows), self.shape[1]), dtype=self.dtype)
        taken[held] = self._held[np.searchsorted(self._often, rows[held])]
        taken[~held] = self._rows.take(rows[~held])
        return taken


Rows = NDArray[Any] | StoredRows


def looked_at(x: Rows, seed: int) -> Int64[np.ndarray, " k"] | None:
    """Which of very many stored rows a plan looks at, in their order; None for an array, of which it may be all."""
    if not isinstance(x, StoredRows):
        return None
    most = max(_FEWEST, min(_LOOKED_AT, _LOOKED_AT_BYTES // x.shape[1]))
    if len(x) <= most:
        return np.arange(len(x))
    return np.sort(np.random.default_rng([seed, len(x)]).choice(len(x), most, replace=False))


def blocks(x: Rows, size: int) -> Iterator[NDArray[Any]]:
    """The rows in pieces."""
    for start in range(0, len(x), size):
        yield x[start : start + size]
