"""Tables in Parquet files that may be larger than memory: some rows to learn from, all of them piece by piece."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gedikit.data.files import FileTable, encoded, encoding_of, reading, valid
from gedikit.data.folder import Skipped
from gedikit.data.parquet_pictures import opened
from gedikit.data.samples import BrokenShard
from gedikit.data.shards import PARQUET, Shard
from gedikit.data.sizes import PER_VALUE, parquet_bytes, refuse_beyond_memory
from gedikit.errors import DataError
from gedikit.processes import Share
from gedikit.tables import ColumnOptions, TableEncoding

_BLOCK = 65_536
_COPIES = 2  # of the rows, as the share of memory is counted
_FEWEST = 1000  # rows that are always read
_ROW = "row_in_data"
Stop = Callable[[str, object], None]  # is told what cannot be read and why, and may raise


@dataclass(frozen=True)
class DrawnTable:
    """Rows of a table; where they are only some, they have their numbers among their ids."""

    table: FileTable
    n_rows: int  # that there are
    skipped: Skipped


@dataclass(frozen=True)
class Rows:
    """Some rows of a file as an Arrow table."""

    arrow: Any
    file: str
    first: int  # the number of the first of them there


@dataclass
class Tables:
    """Parquet files of the same columns, one after the other."""

    shards: Sequence[Shard]
    stop: Stop
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._of_lists = 0  # bytes
        self._sizes = [self._size(shard) for shard in self.shards]
        if not any(self._sizes):
            raise self.no_row()

    def no_row(self) -> DataError:
        """Why there is nothing to be read."""
        first = f"; {self.skipped[0][0]}: {self.skipped[0][1]}" if self.skipped else ""
        return DataError(f"no row of {self.named} can be read{first}")

    @property
    def named(self) -> str:
        """In words."""
        return self.shards[0].place + (f" and {len(self.shards) - 1} more" if self.shards[1:] else "")

    @property
    def n_rows(self) -> int:
        return sum(self._sizes)

    @property
    def n_columns(self) -> int:
        first = next(shard for shard, size in zip(self.shards, self._sizes, strict=True) if size)
        with opened(first) as file:
            return int(file.metadata.num_columns)

    def exceeds(self, memory: int) -> bool:
        """Whether all rows are more than so many bytes are enough for."""
        return self.n_rows > _FEWEST and self.n_rows * self.n_columns * PER_VALUE * _COPIES > memory

    def n_bytes(self, rows: int) -> int:
        """What so many rows take at most: each may have all the lists that there are."""
        return self._of_lists + rows * self.n_columns * PER_VALUE

    def check_columns(self) -> None:
        """Files of one table have the same columns, with types that go together: leave out the others."""
        expected, of = None, ""
        for number, shard in enumerate(self.shards):
            if not self._sizes[number]:
                continue
            with opened(shard) as file:
                schema = file.schema_arrow
            if expected is None:
                expected, of = schema, shard.name
            elif why := _difference(schema, expected, of):
                self._leave_out(shard, why)
                self._sizes[number] = 0

    def batches(self) -> Iterator[tuple[int, Rows]]:
        """The number of the first row, and some rows; there is at least one."""
        some = False
        for number in range(len(self.shards)):
            for found in self.batches_of(number):
                yield found
                some = True
        if not some:
            raise self.no_row()

    def batches_of(self, number: int) -> Iterator[tuple[int, Rows]]:
        """The same of one file, which may have none."""
        shard, first, at = self.shards[number], sum(self._sizes[:number]), 0
        try:
            for batch in _batches(shard) if self._sizes[number] else ():
                yield first + at, Rows(batch, shard.place, at)
                at += batch.num_rows
        except (BrokenShard, OSError) as why:
            self._leave_out(shard, why)

    def _size(self, shard: Shard) -> int:
        try:
            with opened(shard) as file:
                refuse_beyond_memory("the file", parquet_bytes(file.metadata, min(_BLOCK, file.metadata.num_rows)))
                self._of_lists += parquet_bytes(file.metadata, 0)
                return int(file.metadata.num_rows)
        except (BrokenShard, DataError, OSError) as why:
            self._leave_out(shard, why)
            return 0

    def _leave_out(self, shard: Shard, why: object) -> None:
        self.stop(shard.place, why)
        self.skipped.append((shard.place, str(why)))


def read_tables(
    tables: Tables,
    columns: tuple[str, ...] = (),
    *,
    options: ColumnOptions | None = None,
    encoding: TableEncoding | None = None,
    memory: int,
    seed: int,
) -> DrawnTable:
    """All rows, or as many as so many bytes are enough for, drawn by the seed."""
    import pyarrow

    tables.check_columns()
    n, numbers, name = tables.n_rows, None, tables.named
    if tables.exceeds(memory):
        most = max(_FEWEST, memory // (_COPIES * PER_VALUE * tables.n_columns))
        numbers = np.sort(np.random.default_rng([seed, n]).choice(n, most, replace=False))
    refuse_beyond_memory(tables.named, tables.n_bytes(n if numbers is None else len(numbers)))
    parts, seen = [], list[NDArray[np.int64]]()
    for first, rows in tables.batches():
        batch = rows.arrow
        wanted = np.arange(batch.num_rows)
        if numbers is not None:
            own = numbers[slice(*np.searchsorted(numbers, [first, first + batch.num_rows]))]
            wanted = own - first
        if len(wanted):
            parts.append(batch if numbers is None else batch.take(pyarrow.array(wanted)))
            seen.append(first + wanted)
    if not parts:
        raise tables.no_row()
    frame = _frame(pyarrow.concat_tables(parts, promote_options="permissive"), name)
    table = encoded(frame, encoding_of(frame, columns, options, encoding, name), name)
    if numbers is not None:
        table = replace(table, ids=table.ids.assign(**{_ROW: np.concatenate(seen)}))
    return DrawnTable(table, n, tuple(tables.skipped))


def table_portions(
    tables: Tables, columns: tuple[str, ...] = (), *, encoding: TableEncoding | None = None, share: Share
) -> Iterator[Iterable[FileTable]]:
    """All rows for a trained model, piece by piece.

    Several processes take files in turns, or pieces where there are fewer files than processes.
    """

    def table(rows: Rows) -> FileTable:
        nonlocal encoding
        frame = _frame(rows.arrow, rows.file)
        encoding = encoding_of(frame, columns, None, encoding, rows.file, numbers=True)
        return encoded(frame, encoding, rows.file, rows.first)

    if share.count > 1 and encoding is None:
        table(next(tables.batches())[1])  # columns are in the order of the first file, whoever reads it
    if 1 < share.count <= len(tables.shards):
        for number in range(share.rank, len(tables.shards), share.count):
            yield (table(rows) for _, rows in tables.batches_of(number))
        return
    for number, (_, rows) in enumerate(tables.batches()):
        if share.has(number):
            yield [table(rows)]


def _batches(shard: Shard) -> Iterator[Any]:
    import pyarrow

    with opened(shard) as file:
        for batch in file.iter_batches(_BLOCK):
            yield valid(pyarrow.Table.from_batches([batch]))


def _difference(schema: Any, expected: Any, of: str) -> str:
    """What is other in a file than in the first one of a table, in words."""
    import pyarrow

    for name in expected.names:
        if name not in schema.names:
            return f"it has no column {name!r}, which {of} has"
    for name in schema.names:
        if name not in expected.names:
            return f"it has a column {name!r}, which {of} has not"
        own, other = schema.field(name).type, expected.field(name).type
        try:
            pyarrow.unify_schemas(
                [pyarrow.schema([(name, kind)]) for kind in (own, other)], promote_options="permissive"
            )
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):
            return f"its column {name!r} is of type {own}, that of {of} of type {other}"
    return ""


def _frame(arrow: Any, name: str) -> Any:
    with reading(name, PARQUET):
        return arrow.to_pandas()
