"""One registry of built-in data sets, one way to load them, files and folders of pictures."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gedikit.data import toy
from gedikit.data.duplicates import sketches
from gedikit.data.files import ENDINGS, FileTable, file_blocks, read_file
from gedikit.data.folder import Progress, folder_blocks, folder_labels, list_pictures, read_folder
from gedikit.data.index import Index, Indexed
from gedikit.data.official import OFFICIAL, OfficialSet, read_official
from gedikit.data.parquet_pictures import has_pictures
from gedikit.data.parquet_tables import Tables, read_tables, table_portions
from gedikit.data.pictures import Unreadable
from gedikit.data.samples import BrokenShard
from gedikit.data.shard_pictures import STOP, read_pictures, stop_at
from gedikit.data.shards import PARQUET, Shard, is_shards, list_shards
from gedikit.data.sizes import memory
from gedikit.data.stored import read_shards
from gedikit.errors import DataError, UsageError
from gedikit.processes import WHOLE, Share
from gedikit.rows import Rows, StoredRows, looked_at
from gedikit.tables import ColumnOptions, TableEncoding

FOLDERS = "folders"  # where labels of pictures may come from
_TOY_SIZE = 1000
IMAGE_SIZE = 32  # of pictures from a folder, unless another is asked for
_SHARE_OF_MEMORY = 0.25  # that rows of shards may take, unless it is said
_BLOCK = 4096


@dataclass(frozen=True)
class Dataset:
    """Rows of numbers; labels, where there are any, are for evaluation only.

    With an `image_shape` (height, width, channels), rows are images flattened in that order.
    """

    name: str
    x: NDArray[Any]
    y: NDArray[Any] | None = None
    split: str = "all rows"
    image_shape: tuple[int, int, int] | None = None
    columns: tuple[str, ...] = ()
    label_column: str | None = None
    names: tuple[str, ...] = ()  # of the rows
    skipped: tuple[tuple[str, str], ...] = ()  # files of a folder that could not be read, and why
    encoding: TableEncoding | None = None  # of a table: what its rows stand for
    ids: Any = None  # of the rows of a table: a frame of columns that are passed through
    folder: Path | None = None  # of pictures: where those with these names are
    sketches: NDArray[Any] | None = None  # of pictures of a folder: what near-duplicates are found by
    pixels: "Pixels | None" = None  # where x are features of pictures: these
    version: str = ""  # of pictures whose features x are: tells whether they have changed since
    drawn_from: int | None = None  # rows, where x is some of those of a table
    index: Index | None = None  # of pictures in shards
    stored: StoredRows | None = None  # all rows, where memory does not hold them and x is some of them
    numbers: NDArray[np.int64] | None = None  # which these are

    @property
    def rows(self) -> Rows:
        """All rows, to be trained on."""
        return self.x if self.stored is None else self.stored

    @property
    def all_names(self) -> Sequence[str]:
        """Names of all rows."""
        return self.names if self.stored is None or self.index is None else self.index.names


@dataclass(frozen=True)
class ShardReading:
    """How shards are read: how much of them is held in memory, and what is done about what cannot be read."""

    memory: int = field(default_factory=lambda: int(_SHARE_OF_MEMORY * memory()))  # bytes of rows
    bad: str = STOP
    index: Path | Indexed | None = None  # or where it is kept


@dataclass(frozen=True)
class Pixels:
    """Pictures as rows, flattened as (height, width, channels)."""

    rows: NDArray[Any]
    shape: tuple[int, int, int]


@dataclass(frozen=True)
class Block:
    """Some rows of a source, and what is known of them."""

    x: NDArray[Any]
    names: Sequence[str] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    ids: Any = None  # of the rows of a table: a frame of columns that are passed through


@dataclass(frozen=True)
class Builtin:
    name: str
    description: str
    n_clusters: int
    load: Callable[[str, int], Dataset]


def load(
    source: str,
    *,
    split: str = "train",
    seed: int = 0,
    columns: tuple[str, ...] = (),
    options: ColumnOptions | None = None,
    encoding: TableEncoding | None = None,
    image_size: int = IMAGE_SIZE,
    image_channels: int | None = None,
    labels_from: str = "",
    shards: ShardReading | None = None,
    on_progress: Progress | None = None,
) -> Dataset:
    """A built-in name, a file of rows (an array or a table), a folder of pictures, or shards of pictures.

    A table is encoded as a model knows it, by its `encoding` or the names of its `columns`; else as it looks and
    `options` say. The pictures of a folder become squares of `image_size` pixels a side; without `image_channels`
    they have one channel if all of them are grey, else three. With `labels_from="folders"` names of sub-folders are
    their labels.
    """
    if source in BUILTIN:
        return BUILTIN[source].load(split, seed)
    found = picture_shards(source)
    how = shards or ShardReading()
    if found:
        index, x = read_shards(
            found,
            image_size,
            image_channels,
            memory=how.memory,
            bad=how.bad,
            index=how.index,
            on_progress=on_progress,
        )
        some = looked_at(x, seed)
        numbers = np.arange(len(x)) if some is None else some
        labels = index.labels
        return Dataset(
            source,
            x[:] if some is None else x[some],
            None if labels is None else labels[numbers],
            f"all {len(x)} pictures" if len(numbers) == len(x) else f"{len(numbers)} of {len(x)} pictures",
            image_shape=(image_size, image_size, x.shape[1] // image_size**2),
            names=tuple(index.names[i] for i in numbers.tolist()),
            skipped=index.skipped,
            index=index,
            stored=x if isinstance(x, StoredRows) else None,
            numbers=some,
        )
    tables = table_shards(source, how)
    if tables is not None:
        drawn = read_tables(tables, columns, options=options, encoding=encoding, memory=how.memory, seed=seed)
        return replace(
            _of_table(source, drawn.table),
            split=f"{len(drawn.table.x)} of {drawn.n_rows} rows",
            skipped=drawn.skipped,
            drawn_from=drawn.n_rows,
        )
    path = _existing(source)
    if path.is_dir():
        folder = read_folder(path, size=image_size, channels=image_channels, on_progress=on_progress)
        n, height, width, channels = folder.images.shape
        return Dataset(
            str(path),
            folder.images.reshape(n, -1),
            folder_labels(folder.paths) if labels_from == FOLDERS else None,
            f"all {n} pictures",
            image_shape=(height, width, channels),
            names=folder.paths,
            skipped=folder.skipped,
            folder=path,
            sketches=sketches(folder.images),
        )
    return _of_table(str(path), read_file(path, columns, options=options, encoding=encoding))


def _of_table(name: str, table: FileTable) -> Dataset:
    return Dataset(
        name,
        table.x,
        table.y,
        image_shape=table.image_shape,
        columns=table.columns,
        label_column=table.label_column,
        encoding=table.encoding,
        ids=table.ids,
    )


def default_clusters(source: str) -> int | None:
    """How many clusters a built-in data set has."""
    return BUILTIN[source].n_clusters if source in BUILTIN else None


def portions(
    source: str,
    share: Share = WHOLE,
    *,
    split: str = "train",
    seed: int = 0,
    columns: tuple[str, ...] = (),
    encoding: TableEncoding | None = None,
    image_size: int = IMAGE_SIZE,
    image_channels: int | None = None,
    bad_shards: str = STOP,
) -> Iterator[Iterable[Block]]:
    """The rows of `source` piece by piece; a file or folder larger than memory is never read whole.

    Portions come in the order of the rows: blocks, which several processes take in turns, or shards and files
    where there are enough of them. Of several, a portion may have no row, and what is left out may be told twice.
    """
    size = image_size
    if source in BUILTIN:
        yield from own_blocks(load(source, split=split, seed=seed).x, share)
    elif found := picture_shards(source):
        channels = image_channels or 3
        if share.count == 1:
            yield from ([block] for block in _blocks_with_pictures(found, size, channels, bad_shards))
            return
        for shard in found[share.rank :: share.count]:
            yield _shard_blocks([shard], size, channels, bad_shards)
    elif tables := table_shards(source, ShardReading(bad=bad_shards)):
        width = 0

        def block(table: FileTable) -> Block:
            nonlocal width
            width = table.x.shape[1]
            return Block(table.x, ids=table.ids)

        for some in table_portions(tables, columns, encoding=encoding, share=share):
            yield map(block, some)
        if tables.skipped:
            yield [Block(np.empty((0, width)), skipped=tuple(tables.skipped))]
    elif (path := _existing(source)).is_dir():
        for folder in folder_blocks(path, size=size, channels=image_channels, share=share):
            yield [Block(folder.images.reshape(len(folder.images), -1), folder.paths, folder.skipped)]
    else:
        for table in file_blocks(path, columns, encoding=encoding, share=share):
            yield [Block(table.x, ids=table.ids)]


def blocks(source: str, **options: Any) -> Iterator[Block]:
    """The same for one process, without portions."""
    return chain.from_iterable(portions(source, **options))


def extent(source: str) -> str:
    """What there is of a source on this machine, as far as that can be seen without reading it."""
    if source in BUILTIN:
        return source
    if is_shards(source):
        sizes = [_size(shard) for shard in list_shards(source)]
    elif Path(source).is_dir():
        sizes = [_size(Shard(str(path))) for _, path in list_pictures(Path(source)).files]
    elif Path(source).exists():
        sizes = [_size(Shard.at(source))]
    else:
        return f"no {source}"
    return f"{len(sizes)} file{'s' * (len(sizes) != 1)} of {sum(sizes):,} bytes in {source}"


def _size(shard: Shard) -> int:
    try:
        return shard.size
    except OSError:  # said by who reads it
        return 0


def own_blocks(x: NDArray[Any], share: Share) -> Iterator[Iterable[Block]]:
    """Blocks of rows in memory that a process takes in its turn."""
    for start in range(share.rank * _BLOCK, len(x), share.count * _BLOCK):
        yield [Block(x[start : start + _BLOCK])]


def picture_shards(source: str) -> list[Shard]:
    """The shards of a source that is a set of them, or one; none where it is something else."""
    if source in BUILTIN:
        return []
    if Path(source).suffix.lower() == PARQUET and Path(source).is_file():
        return [Shard.at(source)] if _hold_pictures([Shard.at(source)]) else []
    if not is_shards(source):
        return []
    found = list_shards(source)
    return found if found[0].is_tar or _hold_pictures(found) else []


def table_shards(source: str, how: ShardReading) -> Tables | None:
    """A table in several Parquet files, or in one that memory cannot hold."""
    one = Path(source).suffix.lower() == PARQUET and Path(source).is_file()
    if source in BUILTIN or not (one or is_shards(source)):
        return None
    try:
        found = Tables(list_shards(source), partial(stop_at, bad=how.bad))
    except DataError:
        if one:  # said by who reads files
            return None
        raise
    return None if one and not found.exceeds(how.memory) else found


def _hold_pictures(shards: Sequence[Shard]) -> bool:
    """Whether Parquet files hold pictures, by the first that can be read."""
    for shard in shards:
        with suppress(BrokenShard, OSError):  # said by who reads it
            return has_pictures(shard)
    return False


def _shard_blocks(shards: Sequence[Shard], size: int, channels: int, bad: str) -> Iterator[Block]:
    """Pictures of shards, so many at a time; the last block may have none and says what was left out."""
    pictures, names, skipped = list[NDArray[Any]](), list[str](), list[tuple[str, str]]()
    for name, picture in read_pictures(shards, size, channels, bad=bad):
        if isinstance(picture, Unreadable):
            skipped.append((name, str(picture)))
            continue
        pictures.append(picture.reshape(-1))
        names.append(name)
        if len(pictures) == _BLOCK:
            yield Block(np.stack(pictures), names, tuple(skipped))
            pictures, names, skipped = [], [], []
    if pictures or skipped:
        rows = np.stack(pictures) if pictures else np.empty((0, size * size * channels), np.uint8)
        yield Block(rows, names, tuple(skipped))


def _blocks_with_pictures(shards: Sequence[Shard], size: int, channels: int, bad: str) -> Iterator[Block]:
    some = False
    for block in _shard_blocks(shards, size, channels, bad):
        some = some or len(block.x) > 0
        if not some:
            raise DataError(
                f"there is no picture in {shards[0].place}{' and the other shards' if shards[1:] else ''}"
            )
        yield block


def _toy(name: str) -> Callable[[str, int], Dataset]:
    def load_toy(split: str, seed: int) -> Dataset:
        x, y = toy.SHAPES[name](2 * _TOY_SIZE, seed)
        half = slice(0, _TOY_SIZE) if split == "train" else slice(_TOY_SIZE, None)
        return Dataset(
            name, x[half], y[half], f"{split}: {_TOY_SIZE} of {2 * _TOY_SIZE} points drawn with seed {seed}"
        )

    return load_toy


def _digits(split: str, seed: int) -> Dataset:  # noqa: ARG001
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return Dataset("digits", bunch.data, bunch.target, "all 1797 images, no split", image_shape=(8, 8, 1))


def _image_set(data: OfficialSet) -> Builtin:
    def load_images(split: str, seed: int) -> Dataset:  # noqa: ARG001
        images, labels = read_official(data.name, split)
        n, height, width, channels = images.shape
        return Dataset(
            data.name,
            images.reshape(n, -1),
            labels,
            f"official {split} split, {n} images",
            image_shape=(height, width, channels),
        )

    return Builtin(data.name, data.description, data.n_classes, load_images)


BUILTIN: dict[str, Builtin] = {
    name: Builtin(
        name,
        (shape.__doc__ or f"scikit-learn's {name}, noise 0.05").rstrip("."),
        toy.N_CLASSES[name],
        _toy(name),
    )
    for name, shape in toy.SHAPES.items()
}
BUILTIN["digits"] = Builtin("digits", "scikit-learn's 1797 real handwritten digits, 8×8 pixels", 10, _digits)
BUILTIN.update({data.name: _image_set(data) for data in OFFICIAL.values()})


def _existing(source: str) -> Path:
    path = Path(source)
    if not path.is_dir() and path.suffix.lower() not in ENDINGS:
        raise UsageError(
            f"{source!r} is neither a built-in data set ({', '.join(BUILTIN)}), nor an existing folder "
            f"of pictures, nor shards ending in .tar, nor a file ending in {', '.join(ENDINGS)}"
        )
    return path
