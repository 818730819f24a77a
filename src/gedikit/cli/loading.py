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
    options = image_options(config, data)
    return sources.load(data, split="test", seed=config.data_seed, columns=config.columns, **options)


def rows_of(config: RunConfig, data: str) -> sources.Dataset:
    """The rows a run is trained on."""
    return sources.load(data, seed=config.data_seed, columns=config.columns, **image_options(config, data))


def image_options(config: RunConfig, data: str) -> dict[str, Any]:
    """Pictures come as large and with as many channels as those the run was trained on."""
    if config.image_shape:
        return {"image_size": config.image_shape[0], "image_channels": config.image_shape[2]}
    if is_folder(data):
        raise UsageError(f"{data} is a folder of pictures, and the run was trained on rows of numbers")
    return {}


def is_folder(data: str) -> bool:
    return data not in sources.BUILTIN and Path(data).is_dir()


def image_shape_of(config: RunConfig) -> tuple[int, int, int] | None:
    """Of what the model generates; small pictures that were treated as vectors are pictures all the same."""
    shape = config.image_shape or config.plan.config.data.image_shape or config.plan.data.image_shape
    if not shape:
        return None
    height, width, channels = shape
    return height, width, channels


def read_data(data: str, seed: int, image_size: int) -> sources.Dataset:
    """The data of a new run; reading many pictures takes a while and says so."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading pictures", total=None, visible=False)
        dataset = sources.load(
            data,
            seed=seed,
            image_size=image_size,
            on_progress=lambda done, total: bar.update(task, completed=done, total=total, visible=True),
        )
    if dataset.names and dataset.image_shape:
        height, width, channels = dataset.image_shape
        colour = "grey" if channels == 1 else "colour"
        console.print(f"{len(dataset.x)} pictures read from {data}, as {height} × {width} pixels in {colour}")
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
