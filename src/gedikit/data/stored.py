"""Pictures in shards: an index that says where each is, and rows that are read through it when they are needed.

The index is made once. Every picture is decoded then, so that what cannot be read is known before anything is
trained, and the numbers of rows stay what they are.
"""

import codecs
import hashlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, overload

import numpy as np
from jaxtyping import Int32, Int64, UInt8
from numpy.typing import NDArray

from gedikit.data.decoding import each_read, n_threads
from gedikit.data.folder import Progress, Skipped, check_size
from gedikit.data.parquet_pictures import RowGroups, parquet_samples
from gedikit.data.pictures import Unreadable, is_grey, read_square
from gedikit.data.samples import BrokenShard, Sample, tar_samples
from gedikit.data.shards import Shard
from gedikit.data.tar_members import LARGEST
from gedikit.data.together import gathered_rows
from gedikit.errors import DataError, UsageError
from gedikit.processes import alone, each, exchanged, first_has, first_says, is_first, own_share
from gedikit.rows import StoredRows
from gedikit.storage import damaged, read_tensors, write_tensors

SKIP, STOP = "skip", "stop"  # what is done about shards and members that cannot be read
_KIND = "index of shards"
_POOL = 2**27  # bytes of pictures whose row groups are shuffled together
_AT_ONCE = 1024  # pictures that threads are given together
_NO_LABEL = -1
_LETTERS = 2**20  # that are looked at together


class Texts(Sequence[str]):
    """Names by the million, in no more memory than their letters take."""

    def __init__(self, letters: UInt8[np.ndarray, " l"], ends: Int64[np.ndarray, " n"]):
        self.letters, self.ends = letters, ends

    def __len__(self) -> int:
        return len(self.ends)

    @staticmethod
    def check(letters: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        """Raise ValueError where some would be no text."""
        if letters.ndim != 1 or (np.diff(ends, prepend=0) < 0).any():
            raise ValueError("names that end before they begin")
        if (ends[-1] if len(ends) else 0) != len(letters):
            raise ValueError("letters of no name")
        if (letters[ends[ends < len(letters)]] & 0xC0 == 0x80).any():
            raise ValueError("names that end within a letter")
        decode = codecs.getincrementaldecoder("utf-8")().decode
        for start in range(0, len(letters), _LETTERS):
            decode(letters[start : start + _LETTERS].tobytes())
        decode(b"", final=True)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        place = range(len(self))[place]
        start = self.ends[place - 1] if place else 0
        return self.letters[start : self.ends[place]].tobytes().decode("utf-8")


@dataclass(frozen=True)
class Index:
    """Where the pictures of shards are, and what is known of them."""

    shards: tuple[Shard, ...]
    versions: tuple[str, ...]  # of the shards, when they were read
    shard: Int32[np.ndarray, " n"]  # which of them a picture is in
    place: Int64[np.ndarray, "n 2"]  # offset and length, or row group and row
    bytes: Int64[np.ndarray, " n"]  # of a picture as it is stored
    names: Texts  # that of the shard, and of the member or row
    label: Int32[np.ndarray, " n"]  # places in `values`
    values: tuple[str, ...]  # of labels
    skipped: Skipped  # what could not be read, and why
    all_grey: bool
    digest: str  # of all stored pictures in their order

    @property
    def labels(self) -> NDArray[np.object_] | None:
        """What pictures are said to show, None where nothing is said."""
        return np.array([*self.values, None], dtype=object)[self.label] if self.values else None

    def is_of(self, shards: Sequence[Shard]) -> bool:
        """Whether it is about these shards, and none has been written since; links may lead to them."""
        if [shard.resolved for shard in shards] != [shard.resolved for shard in self.shards]:
            return False
        return all(_version(shard) == version for shard, version in zip(shards, self.versions, strict=True))

    def parts(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Its arrays, and what is plain text of it."""
        arrays = {"shard": self.shard, "place": self.place, "bytes": self.bytes, "label": self.label}
        arrays |= {"names.letters": self.names.letters, "names.ends": self.names.ends}
        return arrays, {
            "shards": [shard.place for shard in self.shards],
            "versions": list(self.versions),
            "values": list(self.values),
            "skipped": list(map(list, self.skipped)),
            "all_grey": self.all_grey,
            "digest": self.digest,
        }

    @classmethod
    def of_parts(cls, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> "Index":
        return cls(
            tuple(map(Shard, meta["shards"])),
            tuple(meta["versions"]),
            arrays["shard"],
            arrays["place"],
            arrays["bytes"],
            Texts(arrays["names.letters"], arrays["names.ends"]),
            arrays["label"],
            tuple(meta["values"]),
            tuple((name, why) for name, why in meta["skipped"]),
            meta["all_grey"],
            meta["digest"],
        )

    def save(self, path: Path) -> None:
        import torch

        arrays, meta = self.parts()
        write_tensors(path, {name: torch.from_numpy(values) for name, values in arrays.items()}, meta, _KIND)

    @classmethod
    def load(cls, path: Path) -> "Index":
        tensors, meta = read_tensors(path, _KIND)
        with damaged(path):
            arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
            _check(arrays, meta)
            return cls.of_parts(arrays, meta)


@dataclass(frozen=True)
class Indexed:
    """An index, and the pixels of its pictures where they fit: in one channel if all are grey, else in three."""

    index: Index
    pixels: NDArray[np.uint8] | None = None


_KINDS = {
    **{"shard": np.int32, "place": np.int64, "bytes": np.int64, "label": np.int32},
    **{"names.letters": np.uint8, "names.ends": np.int64},
}


def _check(arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> None:
    """Raise ValueError where parts of an index do not fit together: its digest tells damage, not who wrote it."""
    texts = [meta["digest"], *meta["shards"], *meta["versions"], *meta["values"], *chain(*meta["skipped"])]
    if not all(isinstance(text, str) for text in texts) or not isinstance(meta["all_grey"], bool):
        raise ValueError("something else where text should be")
    if any(arrays[name].dtype != kind for name, kind in _KINDS.items()):
        raise ValueError("other kinds of numbers")
    n = len(arrays["shard"])
    shapes = [arrays[name].shape for name in ("shard", "place", "bytes", "label", "names.ends")]
    if shapes != [(n,), (n, 2), (n,), (n,), (n,)] or len(meta["versions"]) != len(meta["shards"]):
        raise ValueError("other lengths")
    shard, place, held = arrays["shard"], arrays["place"], arrays["bytes"]
    if not (_within(shard, 0, len(meta["shards"])) and _within(arrays["label"], _NO_LABEL, len(meta["values"]))):
        raise ValueError("shards or labels that are not there")
    of_tar = np.array([Shard(place).is_tar for place in meta["shards"]], bool)[shard]
    if (place < 0).any() or not _within(held, 0, LARGEST + 1) or (of_tar & (place[:, 1] != held)).any():
        raise ValueError("places that are not there")
    Texts.check(arrays["names.letters"], arrays["names.ends"])


def _within(values: NDArray[np.integer], first: int, end: int) -> bool:
    return bool(((values >= first) & (values < end)).all())


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


def read_pictures(
    shards: Sequence[Shard], size: int, channels: int, *, bad: str = STOP
) -> Iterator[tuple[str, NDArray[np.uint8] | Unreadable]]:
    """Names and pictures from the first shard to the last, for who needs each once."""
    check_size(size, channels)
    for shard in shards:
        for sample, picture in _decoded(shard, size, channels):
            name = _full_name(shard, sample)
            if isinstance(picture, Unreadable) and not sample.other:
                stop_at(name, picture, bad)
            yield name, picture


def check_bad(bad: str) -> str:
    if bad not in (SKIP, STOP):
        raise UsageError(f"--bad-shards takes {SKIP} or {STOP}, not {bad!r}")
    return bad


def _decoded(shard: Shard, size: int, channels: int) -> Iterator[tuple[Sample, NDArray[np.uint8] | Unreadable]]:
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


def _full_name(shard: Shard, sample: Sample) -> str:
    return f"{shard.name}/{sample.name}" if sample.name else shard.place


def stop_at(name: str, why: object, bad: str) -> None:
    """Refuse what cannot be read, unless it is to be left out."""
    if bad == STOP:
        raise DataError(f"{name}: {why}; --bad-shards {SKIP} leaves out what cannot be read, and lists it")


def _version(shard: Shard) -> str:
    try:
        return shard.version
    except OSError:
        return "missing"


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


def known_index(path: Path, shards: Sequence[Shard]) -> Index:
    """The index in a file that was named for these shards."""
    found = Index.load(path)
    if not found.is_of(shards):
        raise UsageError(f"{path} is of other shards, or some were written since: remove it, or name another")
    return found


def index_of(
    shards: Sequence[Shard], size: int, *, memory: int, bad: str = STOP, on_progress: Progress | None = None
) -> Indexed:
    """Decode every picture once. Each of several processes reads a share of the shards, and all get the whole."""
    versions = [_version(shard) for shard in shards]
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
            for sample, picture in _decoded(shard, self.size, 3):
                if isinstance(picture, Unreadable):
                    name = _full_name(shard, sample)
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
        codes = np.array([*(numbers[value] for value in self.values), _NO_LABEL], np.int32)
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
        name = _full_name(shard, sample).encode("utf-8")
        self.letters += name
        self.n_letters.append(len(name))
        known = sample.label
        self.label.append(_NO_LABEL if known is None else self.values.setdefault(known, len(self.values)))
