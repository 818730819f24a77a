"""Where the pictures of shards are: an index that is made once and kept in a file."""

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, overload

import numpy as np
from jaxtyping import Int32, Int64, UInt8
from numpy.typing import NDArray

from gedikit.data.folder import Skipped
from gedikit.data.shards import Shard
from gedikit.data.tar_members import LARGEST
from gedikit.errors import UsageError
from gedikit.storage import damaged, read_tensors, write_tensors

NO_LABEL = -1
_KIND = "index of shards"
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
        return all(version_of(shard) == version for shard, version in zip(shards, self.versions, strict=True))

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
    if not (_within(shard, 0, len(meta["shards"])) and _within(arrays["label"], NO_LABEL, len(meta["values"]))):
        raise ValueError("shards or labels that are not there")
    of_tar = np.array([Shard(place).is_tar for place in meta["shards"]], bool)[shard]
    if (place < 0).any() or not _within(held, 0, LARGEST + 1) or (of_tar & (place[:, 1] != held)).any():
        raise ValueError("places that are not there")
    Texts.check(arrays["names.letters"], arrays["names.ends"])


def _within(values: NDArray[np.integer], first: int, end: int) -> bool:
    return bool(((values >= first) & (values < end)).all())


def known_index(path: Path, shards: Sequence[Shard]) -> Index:
    """The index in a file that was named for these shards."""
    found = Index.load(path)
    if not found.is_of(shards):
        raise UsageError(f"{path} is of other shards, or some were written since: remove it, or name another")
    return found


def version_of(shard: Shard) -> str:
    try:
        return shard.version
    except OSError:
        return "missing"
