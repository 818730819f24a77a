"""What commands read: data sets, folders and finished runs."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.progress import Progress

from gedikit.cli.output import console
from gedikit.cli.request import FitRequest
from gedikit.data import sources
from gedikit.data.duplicates import sketches
from gedikit.data.folder import Progress as OnProgress
from gedikit.data.folder import folder_labels, list_pictures
from gedikit.data.index import Index, Indexed, known_index
from gedikit.data.indexing import index_together
from gedikit.data.shards import Shard, is_shards, list_shards
from gedikit.errors import DataError, UsageError
from gedikit.features import FeatureNetwork, PictureFeatures, embed, embed_folder, feature_blocks
from gedikit.fitted import FittedModel
from gedikit.imports import import_as_asked
from gedikit.legacy import FIRST_WITH_PLANS
from gedikit.modalities.image import as_bytes
from gedikit.processes import Share, each, exchanged, is_first, n_processes
from gedikit.runs import Run, RunConfig
from gedikit.tables import ColumnOptions
from gedikit.training.devices import resolve_device
from gedikit.training.fit import fingerprint

_NAMED = 5  # files or folders, in what is said about a folder


def load_run(path: Path, device: str) -> FittedModel:
    run = Run(path)
    config = run.config()
    if not run.model_path.exists():
        if config.format < FIRST_WITH_PLANS:
            raise DataError(unfinished_in_0_1(path))
        raise DataError(f"{path} is not trained to the end: continue with gedikit fit --resume --out {path}")
    return FittedModel.load(run.model_path, resolve_device(device))


def import_to_go_on(request: FitRequest) -> None:
    """Refuse to change a run that goes on; where its code is now may be said."""
    given = replace(request, imports=None).given()
    if given:
        raise UsageError(f"--resume continues a run as it was planned: leave out {', '.join(given)}")
    import_as_asked(request.imports)


def unfinished_in_0_1(path: Path) -> str:
    """Say why a run cannot go on."""
    return f"{path} was begun by gedikit 0.1 and is not finished: finish it with that version, or start a new run"


def other_rows(run: Run, config: RunConfig, data: str | None, labels_from: str | None = None) -> sources.Dataset:
    """Rows to look at a run with, its own where none are given: of a built-in data set those not trained on."""
    return _read_again(run, config, data, "test", config.labels_from if labels_from is None else labels_from)


def rows_of(run: Run, config: RunConfig, data: str | None = None) -> sources.Dataset:
    """The rows a run is trained on; where they are now may be given. Several processes call this together."""
    indexed = None
    if n_processes() > 1 and config.features is None and config.image_shape:
        place = each(lambda: data or own_source(run, config))
        how = config.shards or sources.ShardReading()
        indexed = _together(place, how, config.image_shape[0], lambda shards: _index_of_run(run, shards))
    return each(lambda: _read_again(run, config, data, "train", config.labels_from, indexed))


def _index_of_run(run: Run, shards: Sequence[Shard]) -> Index | None:
    index = Index.load(run.index_path) if run.index_path.exists() else None
    return index if index is not None and index.is_of(shards) else None


def new_rows(
    config: RunConfig, data: str, device: str, bad_shards: str, share: Share
) -> Iterator[Iterable[sources.Block]]:
    """Rows for a trained model in the form of those it was trained on: portions that processes take in turns."""
    if config.features is None:
        options = reading_options(config, data) | {"bad_shards": bad_shards}
        return sources.portions(data, share, split="test", seed=config.data_seed, **options)
    refuse_features_of_shards(data)
    if is_folder(data):
        found = feature_blocks(data, config.features, device=device, share=share)
        return ([sources.Block(block.x, block.paths, block.skipped)] for block in found)
    rows = sources.load(data, split="test", seed=config.data_seed)
    x = rows.x if rows.image_shape is None else _with_features(rows, config.features).x
    return sources.own_blocks(x, share)


def own_source(run: Run, config: RunConfig) -> str:
    """Where a run says that its rows are, on this machine: a run of somebody else could name any address."""
    source = config.source
    listed = [source]
    if source not in sources.BUILTIN and "://" not in source and is_shards(source):
        listed = [shard.place for shard in list_shards(source)]
    address = next((place for place in listed if "://" in place), None)
    if address is not None:
        raise UsageError(
            f"{run.path} says that its rows are at {address}, which is fetched only if you ask for it: "
            f"give {source} with the command, as DATA or --data"
        )
    return source


def indexed_together(data: str, how: sources.ShardReading, size: int) -> sources.ShardReading:
    """How several processes read pictures in shards: by an index of which each has made a share."""
    if n_processes() == 1:
        return how
    kept = how.index if isinstance(how.index, Path) else None
    with _bar() as tell:
        found = _together(
            data, how, size, lambda shards: known_index(kept, shards) if kept and kept.exists() else None, tell
        )
    if found is None:
        return how
    each(lambda: found.index.save(kept) if kept and is_first() and not kept.exists() else None)
    return replace(how, index=found)


def _together(
    data: str,
    how: sources.ShardReading,
    size: int,
    known: Callable[[Sequence[Shard]], Index | None],
    on_progress: OnProgress | None = None,
) -> Indexed | None:
    """What several processes find out of shards of pictures together, if data are such."""
    shards = each(lambda: sources.picture_shards(data))
    if not any(exchanged(len(shards))):
        return None
    return index_together(
        shards, size, lambda: known(shards), memory=how.memory, bad=how.bad, on_progress=on_progress
    )


@contextmanager
def _bar() -> Iterator[OnProgress]:
    """How far reading many pictures is, where somebody looks."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading pictures", total=None, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


def _read_again(
    run: Run,
    config: RunConfig,
    data: str | None,
    split: str,
    labels_from: str,
    indexed: Indexed | None = None,
) -> sources.Dataset:
    if data is None:
        data = own_source(run, config)
    if config.features is None:
        options = reading_options(config, data)
        if labels_from:
            options["labels_from"] = labels_from
        if shards := sources.picture_shards(data):
            known = None if indexed else _index_of_run(run, shards)
            indexed = Indexed(known) if known else indexed
            options["shards"] = replace(config.shards or sources.ShardReading(), index=indexed)
        else:
            options["shards"] = config.shards or sources.ShardReading(memory=sys.maxsize)  # of an earlier version
        return sources.load(data, split=split, seed=config.data_seed, **options)
    if is_folder(data):
        return _folder_with_features(data, config.features, labels_from, keep=run.features_path)
    rows = sources.load(data, split=split, seed=config.data_seed)
    return rows if rows.image_shape is None else _with_features(rows, config.features, keep=run.features_path)


def _folder_with_features(
    data: str,
    network: FeatureNetwork,
    labels_from: str = "",
    *,
    device: str = "auto",
    keep: Path | None = None,
    on_progress: OnProgress | None = None,
) -> sources.Dataset:
    """The pictures of a folder as rows of features, which may be in the file `keep`."""
    version = list_pictures(Path(data)).fingerprint
    found = None if keep is None else PictureFeatures.load(keep, network, version)
    if found is None:
        found = embed_folder(data, network, device=device, on_progress=on_progress)
    return sources.Dataset(
        str(Path(data)),
        found.x,
        folder_labels(found.paths) if labels_from == sources.FOLDERS else None,
        f"all {len(found.x)} pictures",
        names=found.paths,
        skipped=found.skipped,
        folder=Path(data),
        sketches=found.sketches,
        version=version,
    )


def _with_features(
    rows: sources.Dataset,
    network: FeatureNetwork,
    *,
    device: str = "auto",
    keep: Path | None = None,
    on_progress: OnProgress | None = None,
) -> sources.Dataset:
    """Pictures of an array or a built-in data set as rows of features."""
    if rows.image_shape is None:
        raise UsageError(
            f"--features is about pictures, and {rows.name} has none: its numbers are fitted as they are"
        )
    version = fingerprint(rows.x)
    found = None if keep is None else PictureFeatures.load(keep, network, version)
    if found is None:
        pixels = as_bytes(rows.x)[1].reshape(-1, *rows.image_shape)
        found = PictureFeatures(embed(pixels, network, device=device, on_progress=on_progress), sketches(pixels))
    seen = sources.Pixels(rows.x, rows.image_shape)
    return replace(rows, x=found.x, image_shape=None, sketches=found.sketches, pixels=seen, version=version)


def keep_features(run: Run, network: FeatureNetwork, dataset: sources.Dataset) -> None:
    """Write features into the run directory: whoever looks at the run again need not compute them."""
    drawn = dataset.sketches
    assert drawn is not None
    found = PictureFeatures(dataset.x, drawn, dataset.names, dataset.skipped)
    found.save(run.features_path, network, dataset.version)


def reading_options(config: RunConfig, data: str) -> dict[str, Any]:
    """How data is read that is to be as what the run was trained on.

    Columns of a table are found by name and encoded as they were; pictures come as large and with as many channels.
    """
    if config.image_shape:
        return {"image_size": config.image_shape[0], "image_channels": config.image_shape[2]}
    if holds_pictures(data):
        what = "a folder of pictures" if is_folder(data) else "shards of pictures"
        raise UsageError(f"{data} is {what}, and the run was trained on rows of numbers")
    return {"columns": config.columns, "encoding": config.encoding}


def check_labels_from(asked: str, data: str) -> str:
    """Where labels of pictures are said to come from, if that can be."""
    if asked != sources.FOLDERS:
        raise UsageError(f"--labels-from takes {sources.FOLDERS}, not {asked!r}")
    if not is_folder(data):
        raise UsageError(f"--labels-from {asked} is for a folder of pictures, which {data} is not")
    return asked


def is_folder(data: str) -> bool:
    """Whether data are pictures in files of their own."""
    return data not in sources.BUILTIN and Path(data).is_dir() and not is_shards(data)


def holds_pictures(data: str) -> bool:
    """Whether data are pictures of any size, in files or in shards."""
    return is_folder(data) or bool(sources.picture_shards(data))


def refuse_features_of_shards(data: str) -> None:
    if sources.picture_shards(data):
        raise UsageError(f"--features reads pictures in files of their own, and {data} holds them in shards")


def image_shape_of(config: RunConfig) -> tuple[int, int, int] | None:
    """Of what the model generates; small pictures that were treated as vectors are pictures all the same."""
    shape = config.image_shape or config.plan.config.data.image_shape or config.plan.data.image_shape
    if not shape:
        return None
    height, width, channels = shape
    return height, width, channels


def read_data(
    data: str,
    seed: int,
    image_size: int,
    options: ColumnOptions | None = None,
    *,
    network: FeatureNetwork | None = None,
    labels_from: str = "",
    device: str = "auto",
    shards: sources.ShardReading | None = None,
) -> sources.Dataset:
    """The data of a new run; reading many pictures takes a while and says so, and so does what is left out."""
    if network is not None:
        refuse_features_of_shards(data)
    with _bar() as tell:
        if network is not None and is_folder(data):
            dataset = _folder_with_features(data, network, labels_from, device=device, on_progress=tell)
        else:
            dataset = sources.load(
                data,
                seed=seed,
                options=options,
                image_size=image_size,
                labels_from=labels_from,
                shards=shards,
                on_progress=tell,
            )
            if network is not None:
                dataset = _with_features(dataset, network, device=device, on_progress=tell)
    if network is not None:
        what = f"{len(dataset.x)} pictures of {data}"
        console.print(f"{what}, as {dataset.x.shape[1]} features by {network.name} at {network.size} pixels a side")
    if dataset.names and dataset.image_shape:
        height, width, channels = dataset.image_shape
        colour = "grey" if channels == 1 else "colour"
        console.print(f"{len(dataset.rows)} pictures read from {data}, as {height} × {width} pixels in {colour}")
    if dataset.drawn_from is not None and dataset.drawn_from > len(dataset.x):
        console.print(
            f"{len(dataset.x):,} of {dataset.drawn_from:,} rows are learned from, as many as --memory allows; "
            "gedikit predict writes the clusters of all"
        )
    if dataset.stored is not None:
        size = dataset.stored.nbytes / 1e9
        console.print(f"{size:.1f} GB of pixels stay in the shards and are read when they are needed")
    if dataset.encoding is not None:
        console.print(f"columns: {dataset.encoding.summary()}")
        for note in dataset.encoding.notes:
            console.print(f"  {note}")
    if dataset.folder is not None and not labels_from:
        _tell_ignored(dataset.names)
    tell_left_out(dataset.skipped)
    return dataset


def _tell_ignored(names: Sequence[str]) -> None:
    """Say that sub-folders count for nothing, where they could be taken for labels."""
    labels = folder_labels(names)
    if labels is None:
        return
    known = sorted({label for label in labels if label is not None})
    some = ", ".join(known[:_NAMED]) + (", …" if len(known) > _NAMED else "")
    console.print(
        f"{len(known)} sub-folders ({some}) are ignored; --labels-from folders compares clusters with them"
    )


def tell_left_out(files: Sequence[tuple[str, str]]) -> None:
    """Name files that nothing was done with, and why: all of a few, else the first."""
    if not files:
        return
    n = len(files)
    console.print("1 file is left out:" if n == 1 else f"{n} files are left out:")
    for name, why in files[:_NAMED]:
        console.print(f"  {name} ({why})")
    if n > _NAMED:
        console.print(f"  and {n - _NAMED} more")


def left_out_in_words(skipped: Sequence[tuple[str, str]]) -> str:
    """The same in a line: how many there are of each reason, with an example."""
    reasons: dict[str, list[str]] = {}
    for name, why in skipped:
        reasons.setdefault(why, []).append(name)
    return "; ".join(
        f"{names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}: {why}" for why, names in reasons.items()
    )


def title_of(source: str) -> str:
    """What a run is called after its data; `source` is a built-in name or a whole path."""
    path = Path(source)
    return (path.name if path.is_dir() else path.stem) or "data"
