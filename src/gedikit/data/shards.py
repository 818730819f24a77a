"""Where shards are: tar archives or Parquet files by a folder, a pattern, a list, a path or an address."""

import errno
import glob
import os
import re
import stat
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gedikit.data.pictures import is_picture
from gedikit.errors import DataError, UsageError

TAR, PARQUET, LIST = ".tar", ".parquet", ".txt"
_COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_MOST = 1_000_000  # shards
# what a list of shards may lead to: fsspec has others that unpack, join and run what they find
_PROTOCOLS = ("s3", "gs", "gcs", "az", "abfs", "abfss", "hf", "hdfs", "http", "https", "sftp", "file", "memory")


@dataclass(frozen=True)
class Shard:
    """One archive or file of a data set, on this machine or elsewhere; opened when something is read."""

    place: str

    @classmethod
    def at(cls, place: str) -> "Shard":
        """An address, or a path from wherever this process is."""
        return cls(place if "://" in place else str(Path(place).absolute()))

    @property
    def resolved(self) -> str:
        """Its place without links; the name at the end of a link may tell nothing of what the file is."""
        return self.place if self.is_remote else str(Path(self.place).resolve())

    @property
    def is_remote(self) -> bool:
        return "://" in self.place

    @property
    def name(self) -> str:
        return self.place.rstrip("/").rsplit("/", 1)[-1]

    @property
    def is_tar(self) -> bool:
        return not self.place.lower().endswith(PARQUET)

    @cached_property
    def size(self) -> int:
        """Bytes; raises OSError where there is no such file."""
        if self.is_remote:
            system, path = self._remote
            return int(system.size(path))
        status = Path(self.place).stat()
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return status.st_size

    @property
    def version(self) -> str:
        """Tells whether it was written since, as far as that can be seen without reading it."""
        return str(self.size) if self.is_remote else f"{self.size}-{Path(self.place).stat().st_mtime_ns}"

    def read(self, offset: int, length: int) -> bytes:
        """Some bytes, by any thread; no file stays open, however many shards there are."""
        if self.is_remote:
            system, path = self._remote
            return bytes(system.cat_file(path, start=offset, end=offset + length))
        file = os.open(self.place, os.O_RDONLY)
        try:
            return os.pread(file, length, offset)
        finally:
            os.close(file)

    def open(self) -> Any:
        """The whole file, for readers that look for places in it themselves."""
        if not self.is_remote:
            return Path(self.place).open("rb")
        system, path = self._remote
        return system.open(path, "rb")

    @cached_property
    def _remote(self) -> tuple[Any, str]:
        if self.place.split("://")[0] not in _PROTOCOLS:
            raise UsageError(f"{self.place} cannot be opened: addresses begin with one of {', '.join(_PROTOCOLS)}")
        try:
            import fsspec
        except ImportError:
            raise UsageError(f"reading {self.place} needs fsspec: pip install 'gedikit[remote]'") from None
        try:
            system, path = fsspec.core.url_to_fs(self.place)
        except (ImportError, ValueError) as error:  # a protocol that needs another package
            raise UsageError(f"{self.place} cannot be opened: {error}") from None
        return system, path


class ReadAhead:
    """Bytes of a shard from front to back, a large piece at a time."""

    def __init__(self, shard: Shard, piece: int = 2**20):
        self._shard, self._piece = shard, piece
        self._start, self._held = 0, b""

    def __call__(self, offset: int, length: int) -> bytes:
        at = offset - self._start
        if at < 0 or at + length > len(self._held):
            self._start, self._held = offset, self._shard.read(offset, max(length, self._piece))
            at = 0
        return self._held[at : at + length]


def is_shards(source: str) -> bool:
    """Whether a source is a set of shards: by its name, or as a folder of archives or Parquet files alone."""
    path, ending = Path(source), source.lower()
    if "://" not in source and path.is_dir():
        return bool(_shards_in(path))
    if ending.endswith((TAR, LIST, *_COMPRESSED)):
        return True
    return ending.endswith(PARQUET) and not path.is_file() and any(mark in source for mark in ("://", "*", "{"))


def list_shards(source: str) -> list[Shard]:
    """The shards of a source in their order; each may be missing or damaged."""
    path = Path(source)
    if "://" not in source and path.is_dir():
        places = sorted(map(str, _shards_in(path)))
    elif source.lower().endswith(LIST):
        places = _listed(path)
    else:
        places = [place for one in _ranges(source) for place in _matching(one)]
    endings = {TAR if Shard(place).is_tar else PARQUET for place in places}
    if len(endings) > 1:
        raise UsageError(f"{source} has both tar archives and Parquet files: give one kind")
    for place in places:
        if place.lower().endswith(_COMPRESSED):
            raise UsageError(
                f"{place} is a compressed archive, whose members cannot be read one by one: unpack it to a plain "
                ".tar (pictures are compressed already)"
            )
    return [Shard.at(place) for place in places]


def _shards_in(folder: Path) -> list[Path]:
    """Shards directly in a folder, of the kind there is; none where it holds pictures or further folders."""
    try:
        seen = [path for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError:  # said by who lists pictures
        return []
    if any(is_picture(path.suffix.lower()) or path.is_dir() for path in seen):
        return []
    of_kinds = ([path for path in seen if path.name.lower().endswith(ending)] for ending in (TAR, PARQUET))
    return next((found for found in of_kinds if found), [])


def _listed(path: Path) -> list[str]:
    """A text file with a path or an address on each line; relative ones are beside the file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise DataError(f"{path} cannot be read as a list of shards: {error}") from None
    named = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not named:
        raise DataError(f"{path} names no shard")
    return [name if "://" in name else str(path.parent / name) for name in named]


def _ranges(source: str) -> list[str]:
    """Names with {0000..0012} written out, as WebDataset does."""
    found = _RANGE.search(source)
    if found is None:
        return [source]
    first, last = found.groups()
    if not int(first) <= int(last) < int(first) + _MOST:
        raise UsageError(f"{found.group()} in {source} is no range of shards")
    written = (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
    head, tail = source[: found.start()], source[found.end() :]
    return [place for number in written for place in _ranges(f"{head}{number}{tail}")]


def _matching(pattern: str) -> list[str]:
    if "*" not in pattern:
        return [pattern]
    if "://" in pattern:
        raise UsageError(f"{pattern}: addresses are given by a range such as {{0000..0012}}, or a list, not by *")
    found = sorted(glob.glob(pattern))  # noqa: PTH207
    if not found:
        raise UsageError(f"no file matches {pattern}")
    return found
