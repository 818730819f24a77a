"""What commands can be asked for: each option once, however many commands have it."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any, get_type_hints

import typer

from gedikit.errors import UsageError

Imports = Annotated[
    list[str] | None,
    typer.Option(
        "--import", metavar="FILE", help="A Python file or module that registers components; may be repeated."
    ),
]
RunImports = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="FILE",
        help="Code of a run that comes from elsewhere, or where its file is now; may be repeated.",
    ),
]
LabelsFrom = Annotated[
    str | None,
    typer.Option(help="folders: names of sub-folders are labels to compare the clusters with.", metavar="folders"),
]
BadShards = Annotated[
    str | None,
    typer.Option(
        help="Shards and members of shards that cannot be read: stop, or skip (and list) them.",
        metavar="stop|skip",
        show_default="stop",
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the run in --out after an interruption.", metavar="")
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Exit with code 3 if the diagnosis is anything but healthy.", metavar="")
]
SpreadsheetSafe = Annotated[
    bool,
    typer.Option(
        "--spreadsheet-safe",
        help="Put an apostrophe before text in CSV files that a spreadsheet would run as a formula.",
        metavar="",
    ),
]


@dataclass(frozen=True)
class FitRequest:
    """What a command asks of a fit; None means that it was not said."""

    clusters: Annotated[
        int | None,
        typer.Option(
            help="Number of clusters; else that of a built-in data set, or as many as are found.", metavar="N"
        ),
    ] = None
    method: Annotated[
        str | None,
        typer.Option(
            help="A name from [bold]gedikit methods[/], or objectives and a density, such as swav+cluster-energy.",
            metavar="NAME",
            show_default="gedi",
        ),
    ] = None
    seed: Annotated[int | None, typer.Option(help="Same seed, same result.", metavar="N", show_default="0")] = None
    iters: Annotated[
        int | None, typer.Option(help="Training iterations, instead of those of the plan.", metavar="N")
    ] = None
    epochs: Annotated[int | None, typer.Option(help="Passes over the data, instead of --iters.", metavar="N")] = (
        None
    )
    budget: Annotated[
        str | None,
        typer.Option(
            help="quick, default or best: how large the network is and how long it trains.",
            metavar="BUDGET",
            show_default="default",
        ),
    ] = None
    views: Annotated[
        str | None,
        typer.Option(
            help="What the pictures are: photos, drawings, writing (in any colours) or things (on a plain "
            "background). auto makes views that are safe for any picture, none leaves pictures as they are.",
            metavar="KIND",
            show_default="auto",
        ),
    ] = None
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.NAME=VALUE",
            help="Change a setting ([bold]gedikit settings[/]); may be repeated.",
        ),
    ] = None
    prior: Annotated[
        str | None,
        typer.Option(
            help="Expected shares of the clusters: auto (from the data), uniform, or such as 0.5,0.3,0.2.",
            metavar="SHARES",
            show_default="auto",
        ),
    ] = None
    device: Annotated[
        str | None, typer.Option(help="auto, cpu or cuda.", metavar="DEVICE", show_default="auto")
    ] = None
    image_size: Annotated[
        int | None,
        typer.Option(
            help="Height and width that pictures of a folder are resized to.",
            metavar="PIXELS",
            show_default="32; with --features 160",
        ),
    ] = None
    columns: Annotated[
        str | None, typer.Option(help="Columns of a table to learn from, separated by commas.", metavar="NAMES")
    ] = None
    drop: Annotated[
        str | None, typer.Option(help="Columns to leave out, separated by commas.", metavar="NAMES")
    ] = None
    ids: Annotated[
        str | None,
        typer.Option("--id", help="Columns to pass through to outputs and not to train on.", metavar="NAMES"),
    ] = None
    label: Annotated[
        str | None,
        typer.Option(
            help='Column that is kept for evaluation; "" if there is none.',
            metavar="NAME",
            show_default="label, labels, target, class or y",
        ),
    ] = None
    types: Annotated[
        str | None,
        typer.Option(
            help="Types of columns that are not what they look like, such as region=category,born=date: number, "
            "boolean, category, date, id or label.",
            metavar="NAME=TYPE,…",
        ),
    ] = None
    features: Annotated[
        str | None,
        typer.Option(
            help="Describe pictures by a pretrained network instead of their pixels: efficientnet-lite0 (of the "
            "extra pretrained), or one that --import registers.",
            metavar="NETWORK",
        ),
    ] = None
    labels_from: LabelsFrom = None
    bad_shards: BadShards = None
    memory: Annotated[
        float | None,
        typer.Option(
            help="GB that rows of shards may take in memory; pictures beyond that are read when they are needed, "
            "and of a larger table some rows are drawn.",
            metavar="GB",
            show_default="a quarter of this machine's",
        ),
    ] = None
    index: Annotated[
        str | None,
        typer.Option(
            help="File that the index of shards is kept in, and read from if it is there.",
            metavar="FILE",
            show_default="in the run directory",
        ),
    ] = None
    known: Annotated[
        str | None,
        typer.Option(
            help="Column with the labels of some rows, empty for the others: learned from, one cluster a value.",
            metavar="NAME",
        ),
    ] = None
    imports: Imports = None

    @property
    def seed_or_first(self) -> int:
        if self.seed is not None and self.seed < 0:
            raise UsageError(f"--seed must not be negative, not {self.seed}")
        return self.seed or 0

    def given(self) -> list[str]:
        """The options that were typed."""
        return [_spelled(name) for name, value in vars(self).items() if value not in (None, [])]


Command = Callable[..., None]


def asking_for(kind: type[Any], *, but: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """Give a command the fields of a dataclass as options instead of its parameter `request`, all `but` some."""
    names = [field.name for field in fields(kind) if field.name not in but]
    hints = get_type_hints(kind, include_extras=True)
    options = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
        for f in fields(kind)
        if f.name in names
    ]

    def decorate(command: Command) -> Command:
        own = [p for p in inspect.signature(command).parameters.values() if p.name != "request"]
        first = [p for p in own if p.kind is not inspect.Parameter.KEYWORD_ONLY]

        @functools.wraps(command)
        def called(**given: Any) -> None:
            asked = {name: given.pop(name) for name in names}
            command(request=kind(**asked), **given)

        called.__signature__ = inspect.Signature([*first, *options, *own[len(first) :]])  # type: ignore[attr-defined]
        return called

    return decorate


def comparable(command: Command) -> Command:
    """Give a command all that it was asked for, by the names of its options, as its parameter `typed`."""
    parameters = [p for p in inspect.signature(command).parameters.values() if p.name != "typed"]
    names = {p.name: _name_of(p.name, *p.annotation.__metadata__) for p in parameters}

    @functools.wraps(command)
    def called(**given: Any) -> None:
        typed = {"command": f"the command {command.__name__}"}
        for parameter, value in given.items():
            name = names[parameter]
            if isinstance(value, list):
                typed |= {f"{name} {item.partition('=')[0]}": f"{name} {item}" for item in value}
            elif value is not None and value is not False:
                typed[name] = name if value is True else f"{name} {value}"
        command(typed=typed, **given)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return called


def _spelled(name: str) -> str:
    """An option of a fit as it is typed."""
    return _name_of(name, *get_type_hints(FitRequest, include_extras=True)[name].__metadata__)


def _name_of(name: str, option: Any) -> str:
    """An argument as the help calls it; an option like its field, or by a name that Typer keeps as `default`."""
    if isinstance(option, typer.models.ArgumentInfo):
        return name.upper()
    return option.default if isinstance(option.default, str) else f"--{name.replace('_', '-')}"
