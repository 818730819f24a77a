"""What commands read: data sets, folders and finished runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress

from gedikit.cli.output import console
from gedikit.data import sources
from gedikit.errors import DataError, UsageError
from gedikit.fitted import FittedModel
from gedikit.legacy import FIRST_WITH_PLANS
from gedikit.runs import Run, RunConfig
from gedikit.tables import ColumnOptions
from gedikit.training.devices import resolve_device


def load_run(path: Path, device: str) -> FittedModel:
    run = Run(path)
    config = run.config()
    if not run.model_path.exists():
        if config.format < FIRST_WITH_PLANS:
            raise DataError(unfinished_in_0_1(path))
        raise DataError(f"{path} is not trained to the end: continue with gedikit fit --resume --out {path}")
    return FittedModel.load(run.model_path, resolve_device(device))


def unfinished_in_0_1(path: Path) -> str:
    """Say why a run cannot go on."""
    return f"{path} was begun by gedikit 0.1 and is not finished: finish it with that version, or start a new run"


def other_rows(config: RunConfig, data: str) -> sources.Dataset:
    """Rows to look at a run with: of a built-in data set those it was not trained on."""
    return sources.load(data, split="test", seed=config.data_seed, **reading_options(config, data))


def rows_of(config: RunConfig, data: str) -> sources.Dataset:
    """The rows a run is trained on."""
    return sources.load(data, seed=config.data_seed, **reading_options(config, data))


def reading_options(config: RunConfig, data: str) -> dict[str, Any]:
    """How data is read that is to be as what the run was trained on.

    Columns of a table are found by name and encoded as they were; pictures come as large and with as many channels.
    """
    if config.image_shape:
        return {"image_size": config.image_shape[0], "image_channels": config.image_shape[2]}
    if is_folder(data):
        raise UsageError(f"{data} is a folder of pictures, and the run was trained on rows of numbers")
    return {"columns": config.columns, "encoding": config.encoding}


def is_folder(data: str) -> bool:
    return data not in sources.BUILTIN and Path(data).is_dir()


def image_shape_of(config: RunConfig) -> tuple[int, int, int] | None:
    """Of what the model generates; small pictures that were treated as vectors are pictures all the same."""
    shape = config.image_shape or config.plan.config.data.image_shape or config.plan.data.image_shape
    if not shape:
        return None
    height, width, channels = shape
    return height, width, channels


def read_data(data: str, seed: int, image_size: int, options: ColumnOptions | None = None) -> sources.Dataset:
    """The data of a new run; reading many pictures takes a while and says so, and so does what is left out."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading pictures", total=None, visible=False)
        dataset = sources.load(
            data,
            seed=seed,
            options=options,
            image_size=image_size,
            on_progress=lambda done, total: bar.update(task, completed=done, total=total, visible=True),
        )
    if dataset.names and dataset.image_shape:
        height, width, channels = dataset.image_shape
        colour = "grey" if channels == 1 else "colour"
        console.print(f"{len(dataset.x)} pictures read from {data}, as {height} × {width} pixels in {colour}")
    if dataset.encoding is not None:
        console.print(f"columns: {dataset.encoding.summary()}")
        for note in dataset.encoding.notes:
            console.print(f"  {note}")
    tell_skipped(dataset.skipped)
    return dataset


def tell_skipped(skipped: Sequence[tuple[str, str]]) -> None:
    if skipped:
        (first, why), n = skipped[0], len(skipped)
        some = (
            "1 file could not be read and is left out:"
            if n == 1
            else (f"{n} files could not be read and are left out, such as")
        )
        console.print(f"{some} {first} ({why})")


def title_of(source: str) -> str:
    """What a run is called after its data; `source` is a built-in name or a whole path."""
    path = Path(source)
    return (path.name if path.is_dir() else path.stem) or "data"
