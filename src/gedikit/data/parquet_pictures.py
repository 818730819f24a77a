"""Pictures in a column of Parquet files: bytes, or a struct with `bytes` as Hugging Face's datasets write it."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from gedikit.data.samples import BrokenShard, Sample
from gedikit.data.shards import Shard
from gedikit.data.tar_members import LARGEST
from gedikit.errors import GediError, UsageError
from gedikit.tables import LABEL_COLUMNS

_NAMES = ("image", "img", "picture", "jpg", "png")  # of the column, where there are several of bytes
_AT_ONCE, _AT_ONCE_BYTES = 32, 2**28  # rows that are decoded together, if each was as large as all in the file
LARGEST_GROUP = 2**29  # bytes of the pictures of a row group, which are held together
_HELD = 2**29  # bytes of row groups that are kept


def picture_column(schema: Any) -> str | None:
    """The column of a file that holds pictures, if one does."""
    import pyarrow.types as kinds

    found = [
        field.name
        for field in schema
        if _is_bytes(field.type)
        or (
            kinds.is_struct(field.type)
            and any(inner.name == "bytes" and _is_bytes(inner.type) for inner in field.type)
        )
    ]
    named = [name for name in found if name.lower() in _NAMES]
    return next(iter(named or found), None)


def _is_bytes(kind: Any) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_binary(kind) or kinds.is_large_binary(kind))


def has_pictures(shard: Shard) -> bool:
    """Whether a Parquet file holds pictures rather than a table of values."""
    with opened(shard) as file:
        return picture_column(file.schema_arrow) is not None


@contextmanager
def opened(shard: Shard) -> Iterator[Any]:
    """A Parquet file; whatever is wrong with it is `BrokenShard`."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise UsageError("reading .parquet needs pyarrow: pip install 'gedikit[parquet]'") from None
    try:
        if not shard.size:
            raise BrokenShard("the file is empty")
        checked = {"page_checksum_verification": True}  # of pages that have one
        with shard.open() as raw, pyarrow.parquet.ParquetFile(raw, **checked) as file:
            yield file
    except (GediError, BrokenShard):
        raise
    except Exception as error:  # damaged files make the reader raise nearly anything
        if isinstance(error, OSError) and error.strerror:  # of the system, not of the reader
            raise BrokenShard(error.strerror) from None
        raise BrokenShard(f"damaged, cut short or no Parquet file: {error or type(error).__name__}") from None


def parquet_samples(shard: Shard) -> Iterator[Sample]:
    with opened(shard) as file:
        column = picture_column(file.schema_arrow)
        if column is None:
            raise BrokenShard("no column of it holds pictures")
        label = next((name for name in file.schema_arrow.names if name in LABEL_COLUMNS and name != column), None)
        first = 0
        for group in range(file.metadata.num_row_groups):
            held = 0
            columns = [column] if label is None else [column, label]
            for number, (value, said) in enumerate(_values(file, group, columns)):
                content, name = _content(value)
                held += len(content or b"")
                if held > LARGEST_GROUP:
                    raise BrokenShard(
                        f"the pictures of row group {group} have more than {LARGEST_GROUP >> 20} MiB, and a group "
                        "is held in memory: write it with smaller row groups"
                    )
                why = "" if content else "no picture in this row"
                if content and len(content) > LARGEST:
                    why = f"{len(content)} bytes: more than {LARGEST >> 20} MiB"
                known = None if said is None else str(said)
                named = f"{first + number}/{name}" if name else str(first + number)
                yield Sample(named, (group, number), content or b"", known, refused=why)
            first += file.metadata.row_group(group).num_rows


def _values(file: Any, group: int, columns: list[str]) -> Iterator[tuple[Any, Any]]:
    about = file.metadata.row_group(group)
    largest = max(1, about.total_byte_size)
    at_once = max(1, min(_AT_ONCE, _AT_ONCE_BYTES // largest))  # one value may stand for all rows of a group
    for batch in file.iter_batches(at_once, row_groups=[group], columns=columns):
        found = [batch.column(batch.schema.get_field_index(name)) for name in columns]
        for row in range(batch.num_rows):
            yield found[0][row].as_py(), found[1][row].as_py() if len(found) > 1 else None


def _content(value: Any) -> tuple[bytes | None, str]:
    """The bytes of a picture and the name that comes with them."""
    if not isinstance(value, dict):
        return value, ""
    name = value.get("path")
    return value.get("bytes"), name if isinstance(name, str) else ""


class RowGroups:
    """Pictures by row group and row; the groups last asked for are kept, up to so many bytes."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], list[bytes]] = OrderedDict()
        self._bytes: dict[tuple[str, int], int] = {}
        self._lock = Lock()

    def read(self, shard: Shard, group: int, row: int) -> bytes:
        key = shard.place, group
        with self._lock:
            if key not in self._kept:
                self._kept[key] = pictures = self._group(shard, group)
                self._bytes[key] = sum(map(len, pictures))
                while len(self._kept) > 1 and sum(self._bytes.values()) > _HELD:
                    oldest, _ = self._kept.popitem(last=False)
                    del self._bytes[oldest]
            self._kept.move_to_end(key)
            return self._kept[key][row]

    def _group(self, shard: Shard, group: int) -> list[bytes]:
        with opened(shard) as file:
            column = picture_column(file.schema_arrow)
            assert column is not None  # it had one when it was indexed
            return [_content(value)[0] or b"" for value, _ in _values(file, group, [column])]
