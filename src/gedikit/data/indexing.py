"""An index of shards is made: by one process, or by several of which each reads a share.

Every picture is decoded then, so that what cannot be read is known before anything is trained, and the numbers of
rows stay what they are.
"""

import hashlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from gedikit.data.folder import Progress
from gedikit.data.index import NO_LABEL, Index, Indexed, Texts, version_of
from gedikit.data.pictures import Unreadable, is_grey
from gedikit.data.samples import Sample
from gedikit.data.shard_pictures import STOP, decoded, full_name, stop_at
from gedikit.data.shards import Shard
from gedikit.data.together import gathered_rows
from gedikit.errors import DataError, UsageError
from gedikit.processes import each, exchanged, first_has, first_says, is_first, own_share


def index_together(
    shards: Sequence[Shard],
    size: int,
    known: Callable[[], Index | None],
    *,
    memory: int,
    bad: str = STOP,
    on_progress: Progress | None = None,
) -> Indexed:
    """What several processes that call this together know of shards: the first may have an index of them.

    Else each of them reads a share.
    """
    _check_alike(shards)
    found = each(lambda: known() if is_first() else None)
    if not first_says(lambda: found is not None):
        return index_of(shards, size, memory=memory, bad=bad, on_progress=on_progress)
    arrays, meta = ({}, {}) if found is None else found.parts()
    meta = first_says(lambda: meta)
    names = first_says(lambda: list(arrays))
    made = Index.of_parts({name: first_has(arrays.get(name)) for name in names}, meta)
    return Indexed(replace(made, shards=tuple(shards)))


def _check_alike(shards: Sequence[Shard]) -> None:
    """Refuse processes that see other shards than the first one: each reads pictures where one index says."""
    sizes = np.array([_size(shard) for shard in shards], np.int64)
    first = first_has(sizes)

    def compare() -> None:
        if len(first) != len(sizes):
            raise UsageError(f"there are {len(sizes)} shards here and {len(first)} on process 0")
        for number in np.flatnonzero(first != sizes)[:1]:
            here, there = (f"{n} bytes" if n >= 0 else "missing" for n in (sizes[number], first[number]))
            raise UsageError(f"{shards[number].place} is {here} here and {there} on process 0")

    each(compare)


def index_of(
    shards: Sequence[Shard], size: int, *, memory: int, bad: str = STOP, on_progress: Progress | None = None
) -> Indexed:
    """Decode every picture once. Each of several processes reads a share of the shards, and all get the whole."""
    versions = [version_of(shard) for shard in shards]
    making = _Indexing(shards, size, bad, memory)
    each(lambda: making.read(_own_part(shards), on_progress))
    return making.of_all(versions)


def _own_part(shards: Sequence[Shard]) -> range:
    """Some that follow each other; every process has about as many bytes."""
    ends = np.cumsum([1 + max(0, _size(shard)) for shard in shards])
    share = own_share()
    bounds = [ends[-1] * k // share.count for k in (share.rank, share.rank + 1)]
    return range(*np.searchsorted(ends, bounds, side="right").tolist())


def _size(shard: Shard) -> int:
    """Bytes; −1 where it cannot be seen."""
    try:
        return shard.size
    except OSError:
        return -1


def _number_of(content: bytes) -> int:
    return int.from_bytes(hashlib.sha256(content).digest())


_PRIME, _BASE = 2**255 - 19, _number_of(b"the order of pictures")


@dataclass
class _Indexing:
    """An index while it is made, of the shards that this process reads."""

    shards: Sequence[Shard]
    size: int
    bad: str
    memory: int  # bytes that pictures may take; where they are more, none is kept
    pixels: bytearray | None = field(default_factory=bytearray)
    shard: "array[int]" = field(default_factory=lambda: array("i"))
    place: "array[int]" = field(default_factory=lambda: array("q"))
    bytes: "array[int]" = field(default_factory=lambda: array("q"))
    letters: bytearray = field(default_factory=bytearray)
    n_letters: "array[int]" = field(default_factory=lambda: array("q"))
    label: "array[int]" = field(default_factory=lambda: array("i"))
    values: dict[str, int] = field(default_factory=dict)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    digest: int = 0  # a polynomial, so that parts can be put together
    all_grey: bool = True
    in_colour: bool = False  # whether the kept pictures have three channels

    def read(self, numbers: range, on_progress: Progress | None) -> None:
        for done, number in enumerate(numbers, 1):
            shard = self.shards[number]
            for sample, picture in decoded(shard, self.size, 3):
                if isinstance(picture, Unreadable):
                    name = full_name(shard, sample)
                    if not sample.other:
                        stop_at(name, picture, self.bad)
                    self.skipped.append((name, str(picture)))
                    continue
                self.digest = (self.digest * _BASE + _number_of(sample.content)) % _PRIME
                self.all_grey = self.all_grey and is_grey(picture)
                self._add(number, shard, sample)
                self._keep(picture)
            if on_progress is not None:
                on_progress(done, len(numbers))

    def of_all(self, versions: Sequence[str]) -> Indexed:
        """What all processes have read, in the order of the shards."""
        said = exchanged([self.all_grey, list(self.values), self.skipped, len(self.shard), self.digest])
        all_grey = all(part[0] for part in said)
        values = {value: None for part in said for value in part[1]}
        skipped = tuple((name, why) for part in said for name, why in part[2])
        digest = 0
        for *_, n, part in said:
            digest = (digest * pow(_BASE, n, _PRIME) + part) % _PRIME
        shard = gathered_rows(np.array(self.shard, np.int32))
        if len(shard) < 2:
            first = f"; {skipped[0][0]}: {skipped[0][1]}" if skipped else ""
            raise DataError(f"{self.shards[0].place} and {len(self.shards) - 1} more have too few pictures{first}")
        numbers = {value: number for number, value in enumerate(values)}
        codes = np.array([*(numbers[value] for value in self.values), NO_LABEL], np.int32)
        made = Index(
            tuple(self.shards),
            tuple(versions),
            shard,
            gathered_rows(np.array(self.place, np.int64).reshape(-1, 2)),
            gathered_rows(np.array(self.bytes, np.int64)),
            Texts(
                gathered_rows(np.array(self.letters, np.uint8)),
                np.cumsum(gathered_rows(np.array(self.n_letters, np.int64))),
            ),
            gathered_rows(codes[np.array(self.label, np.int32)]),
            tuple(values),
            skipped,
            all_grey,
            f"{digest:064x}",
        )
        return Indexed(made, self._pixels_of_all(len(shard), all_grey=all_grey))

    def _pixels_of_all(self, n: int, *, all_grey: bool) -> NDArray[np.uint8] | None:
        fit = n * self.size**2 * (1 if all_grey else 3) <= self.memory
        if not all(exchanged(fit and self.pixels is not None)):
            return None
        assert self.pixels is not None
        own = np.frombuffer(self.pixels, np.uint8)
        return gathered_rows(own if all_grey or self.in_colour else np.repeat(own, 3))

    def _keep(self, picture: NDArray[np.uint8]) -> None:
        if self.pixels is None:
            return
        if not self.all_grey and not self.in_colour:
            self.pixels = bytearray(np.repeat(np.frombuffer(self.pixels, np.uint8), 3))
        self.in_colour = not self.all_grey
        self.pixels += picture.tobytes() if self.in_colour else picture[..., 0].tobytes()
        if len(self.pixels) > self.memory:
            self.pixels = None

    def _add(self, number: int, shard: Shard, sample: Sample) -> None:
        self.shard.append(number)
        self.place.extend(sample.place)
        self.bytes.append(len(sample.content))
        name = full_name(shard, sample).encode("utf-8")
        self.letters += name
        self.n_letters.append(len(name))
        known = sample.label
        self.label.append(NO_LABEL if known is None else self.values.setdefault(known, len(self.values)))
