"""The pictures of shards one after the other, and what is done about those that cannot be read."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from gedikit.data.decoding import each_read
from gedikit.data.folder import check_size
from gedikit.data.parquet_pictures import parquet_samples
from gedikit.data.pictures import Unreadable, read_square
from gedikit.data.samples import BrokenShard, Sample, tar_samples
from gedikit.data.shards import Shard
from gedikit.errors import DataError, UsageError

SKIP, STOP = "skip", "stop"  # what is done about shards and members that cannot be read


def read_pictures(
    shards: Sequence[Shard], size: int, channels: int, *, bad: str = STOP
) -> Iterator[tuple[str, NDArray[np.uint8] | Unreadable]]:
    """Names and pictures from the first shard to the last, for who needs each once."""
    check_size(size, channels)
    for shard in shards:
        for sample, picture in decoded(shard, size, channels):
            name = full_name(shard, sample)
            if isinstance(picture, Unreadable) and not sample.other:
                stop_at(name, picture, bad)
            yield name, picture


def check_bad(bad: str) -> str:
    if bad not in (SKIP, STOP):
        raise UsageError(f"--bad-shards takes {SKIP} or {STOP}, not {bad!r}")
    return bad


def decoded(shard: Shard, size: int, channels: int) -> Iterator[tuple[Sample, NDArray[np.uint8] | Unreadable]]:
    """The samples of a shard as pictures; a shard that breaks off ends with one that has no name."""

    def read(sample: Sample) -> NDArray[np.uint8]:
        if sample.refused or sample.other:
            raise Unreadable(sample.refused or sample.other)
        return read_square(sample.content, size, channels)

    return each_read(_to_the_end(shard), read, lambda sample: len(sample.content))


def _to_the_end(shard: Shard) -> Iterator[Sample]:
    found = 0
    try:
        for sample in tar_samples(shard) if shard.is_tar else parquet_samples(shard):
            found += 1
            yield sample
    except BrokenShard as why:
        yield Sample("", refused=str(why))
    except OSError as error:
        yield Sample("", refused=error.strerror or str(error))
    else:
        if not found:
            yield Sample("", refused="there is no picture in it")


def full_name(shard: Shard, sample: Sample) -> str:
    return f"{shard.name}/{sample.name}" if sample.name else shard.place


def stop_at(name: str, why: object, bad: str) -> None:
    """Refuse what cannot be read, unless it is to be left out."""
    if bad == STOP:
        raise DataError(f"{name}: {why}; --bad-shards {SKIP} leaves out what cannot be read, and lists it")
