"""Image data sets on disk: which are there, and fetching them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from gedikit.data.download import Received

data = typer.Typer(no_args_is_help=True, help="Image data sets: list them, or download them.")


@data.command("list")
def list_data() -> None:
    """List the image data sets, and which of them are on this machine."""
    from rich.console import Console

    from gedikit.cli.listing import plain_table
    from gedikit.data.download import RELEASES
    from gedikit.data.official import OFFICIAL, data_root, is_partly_there, is_there

    root = data_root()
    table = plain_table("data set", "there", "to fetch", "what it is")
    for name, release in RELEASES.items():
        there = "yes" if is_there(name, root) else "in part" if is_partly_there(name, root) else "no"
        size = "" if there == "yes" else f"{release.megabytes} MB"
        table.add_row(name, there, size, OFFICIAL[name].description)
    console = Console(soft_wrap=True, highlight=False)
    console.print(table)
    console.print(f"Folder: {root} (GEDIKIT_DATA sets another one)", markup=False)


@data.command("get")
def get_data(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="From [bold]gedikit data list[/].")],
) -> None:
    """Download image data sets, or verify those on this machine; interrupted downloads are continued."""
    from rich.console import Console

    from gedikit.data.download import RELEASES, get
    from gedikit.errors import UsageError

    for name in names:
        if name not in RELEASES:
            raise UsageError(f"there is no data set {name!r} to fetch; there are {', '.join(RELEASES)}")
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    for name in names:
        with _bars(console) as show:
            sentence = get(name, on_progress=show)
        console.print(sentence, markup=False)


@contextmanager
def _bars(console: "Console") -> Iterator["Received"]:
    """A progress bar for every file that is heard of."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    bars = Progress(*columns, console=console, transient=True)
    tasks: dict[str, TaskID] = {}

    def show(file: str, done: int, total: int | None) -> None:
        bars.start()
        if file not in tasks:
            tasks[file] = bars.add_task(file)
        bars.update(tasks[file], completed=done, total=total)

    try:
        yield show
    finally:
        bars.stop()
