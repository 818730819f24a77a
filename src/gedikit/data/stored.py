"""Pictures in shards as rows that are read through an index when they are needed."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Int64, UInt8
from numpy.typing import NDArray

from gedikit.data.decoding import n_threads
from gedikit.data.folder import Progress, check_size
from gedikit.data.index import Index, Indexed, known_index
from gedikit.data.indexing import index_of
from gedikit.data.parquet_pictures import RowGroups
from gedikit.data.pictures import Unreadable, read_square
from gedikit.data.samples import BrokenShard
from gedikit.data.shard_pictures import STOP
from gedikit.data.shards import Shard
from gedikit.errors import DataError
from gedikit.processes import alone
from gedikit.rows import StoredRows

_POOL = 2**27  # bytes of pictures whose row groups are shuffled together
_AT_ONCE = 1024  # pictures that threads are given together


class StoredPictures(StoredRows):
    """Pictures of shards as rows, decoded when they are asked for."""

    def __init__(self, index: Index, size: int, channels: int):
        check_size(size, channels)
        self.index, self.size, self.channels = index, size, channels
        self._groups = RowGroups()
        self._threads = ThreadPoolExecutor(n_threads(), thread_name_prefix="pictures")

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.index.shard), self.size * self.size * self.channels

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self.shape}{self.index.digest}".encode()).hexdigest()[:16]

    def take(self, rows: Int64[np.ndarray, " k"]) -> NDArray[np.uint8]:
        taken = np.empty((len(rows), self.shape[1]), np.uint8)
        order = np.argsort(rows)  # shards from front to back, and row groups one after the other
        for start in range(0, len(rows), _AT_ONCE):
            some = order[start : start + _AT_ONCE]
            for at, picture in zip(some, self._threads.map(self._read, rows[some].tolist()), strict=True):
                taken[at] = picture.reshape(-1)
        return taken

    def order(self, generator: np.random.Generator) -> Int64[np.ndarray, " n"]:
        """A permutation; of Parquet files, row groups in random order, and rows of some of them shuffled together.

        Rows of a group are read together, so that a batch should be of few groups. Those whose pictures have up to
        so many bytes are one pool.
        """
        if all(shard.is_tar for shard in self.index.shards):
            return super().order(generator)
        firsts, ends, n_bytes = self._runs
        if n_bytes.sum() <= _POOL:
            return super().order(generator)
        shuffled = generator.permutation(len(firsts))
        pools = np.split(shuffled, np.flatnonzero(np.diff(np.cumsum(n_bytes[shuffled]) // _POOL)) + 1)
        return np.concatenate(
            [
                generator.permutation(np.concatenate([np.arange(firsts[run], ends[run]) for run in own]))
                for own in pools
            ]
        )

    @cached_property
    def _runs(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The first row, the last and one, and the bytes of every row group."""
        index = self.index
        new = (np.diff(index.shard) != 0) | (np.diff(index.place[:, 0]) != 0)
        firsts = np.concatenate([[0], np.flatnonzero(new) + 1])
        return firsts, np.concatenate([firsts[1:], [len(self)]]), np.add.reduceat(index.bytes, firsts)

    def _read(self, row: int) -> NDArray[np.uint8]:
        content = self.content(row)
        try:
            return read_square(content, self.size, self.channels)
        except Unreadable as why:
            raise self._lost(row, why) from None

    def content(self, row: int) -> bytes:
        """A picture as it is stored."""
        index = self.index
        shard = index.shards[index.shard[row]]
        first, second = index.place[row].tolist()
        try:
            return shard.read(first, second) if shard.is_tar else self._groups.read(shard, first, second)
        except (OSError, IndexError, BrokenShard) as why:
            raise self._lost(row, why) from None

    def _lost(self, row: int, why: Exception) -> DataError:
        """It could be read when it was indexed."""
        index = self.index
        place = index.shards[index.shard[row]].place
        return DataError(f"{index.names[row]} of {place} cannot be read any more: {why}")


def read_shards(
    shards: Sequence[Shard],
    size: int,
    channels: int | None = None,
    *,
    memory: int,
    bad: str = STOP,
    index: Path | Indexed | None = None,
    on_progress: Progress | None = None,
) -> tuple[Index, UInt8[np.ndarray, "n d"] | StoredPictures]:
    """An index of shards and their pictures: in memory where they fit into so many bytes, else read when needed.

    Every picture is read and decoded once, unless `index`, or the file of this name, knows the shards already;
    else the index is written there. `bad` says what is done about what cannot be read. Without `channels`, pictures
    have one if all of them are grey, else three.
    """
    check_size(size, channels)
    made = index if isinstance(index, Indexed) else None
    if isinstance(index, Path) and index.exists():
        made = Indexed(known_index(index, shards))
    if made is None:
        with alone():
            made = index_of(shards, size, memory=memory, bad=bad, on_progress=on_progress)
        if isinstance(index, Path):
            made.index.save(index)
    found, pixels = made.index, made.pixels
    channels = channels or (1 if found.all_grey else 3)
    stored = StoredPictures(found, size, channels)
    if stored.nbytes > memory:
        return found, stored
    held = 1 if found.all_grey else 3
    if pixels is None or held > channels:
        return found, stored[:]
    return found, (pixels if held == channels else np.repeat(pixels, channels)).reshape(stored.shape)
