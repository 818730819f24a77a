"""What can be asked about rules on the command line."""

from pathlib import Path
from typing import Annotated

import typer

from gedikit.cli.request import FitRequest, Resume, RunImports, SpreadsheetSafe, Strict, asking_for

rules = typer.Typer(no_args_is_help=True, help="Rules: look at them before training.")

Rules = Annotated[Path, typer.Argument(help="A file of rules, .toml or .pl.", show_default=False)]
Images = Annotated[
    Path | None, typer.Option(help="Folder of the pictures that examples name by file.", metavar="DIR")
]
DataName = Annotated[
    str | None, typer.Option("--data", help="Built-in data set whose rows examples name by number.", metavar="NAME")
]
TableFile = Annotated[
    Path | None, typer.Option("--table", help="File with the rows that examples name by number.", metavar="FILE")
]
Labels = Annotated[
    Path | None,
    typer.Option(
        "--labels", help="A .csv with the columns picture and symbol: labels of a few rows.", metavar="FILE"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.", metavar="")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress, only errors.", metavar="")]


@rules.command("check")
def check(
    file: Rules,
    examples: Annotated[Path | None, typer.Argument(help="A .csv of examples.", show_default=False)] = None,
    labels: Labels = None,
    symbols: Annotated[
        bool,
        typer.Option("--symbols", help="EXAMPLES has the symbols that pictures show, not their names.", metavar=""),
    ] = False,
    as_json: Json = False,
) -> None:
    """Say which names rules and examples settle, and the fewest labels or examples that would settle the rest.

    The exit status is 0 if every symbol has one name; 1 if some names stay open, if rules or examples contradict
    each other, or if a file is wrong; 2 if the command is wrong.
    """
    from gedikit.cli import rules as commands

    if not commands.check(file, examples, labels, symbols=symbols, as_json=as_json):
        raise typer.Exit(1)


@asking_for(FitRequest, but=("clusters", "known", "features", "labels_from", "memory", "bad_shards", "index"))
def fit_rules(
    file: Annotated[
        Path | None, typer.Argument(metavar="RULES", help="A file of rules; not needed with --resume.")
    ] = None,
    examples: Annotated[
        Path | None, typer.Argument(metavar="EXAMPLES", help="A .csv of examples; not needed with --resume.")
    ] = None,
    *,
    request: FitRequest,
    images: Images = None,
    data: DataName = None,
    table: TableFile = None,
    labels: Labels = None,
    out: Annotated[
        Path | None, typer.Option(help="Run directory.", metavar="DIR", show_default="runs/DATA-RULES-SEED")
    ] = None,
    resume: Resume = False,
    strict: Strict = False,
    spreadsheet_safe: SpreadsheetSafe = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also print the decisions of the plan.", metavar="")
    ] = False,
) -> None:
    """Learn what pictures or rows show from rules that hold between them, and write a run directory.

    The exit status is 0 for a finished run, 1 if a file is wrong or the fit failed, 2 if the command is wrong, 3
    with --strict if the diagnosis is not healthy, and 130 after an interruption.
    """
    from gedikit.cli import rules as commands
    from gedikit.cli.output import set_spreadsheet_safe, set_verbosity

    set_verbosity(quiet=quiet, verbose=verbose)
    set_spreadsheet_safe(spreadsheet_safe)
    places = commands.Places(images, data, table)
    commands.fit_rules(
        file, examples, places, request, labels=labels, out=out, resume=resume, strict=strict, as_json=as_json
    )


def explain(
    run: Annotated[Path, typer.Argument(help="A run directory made by [bold]gedikit fit-rules[/].")],
    examples: Annotated[Path, typer.Argument(help="A .csv of examples.")],
    images: Images = None,
    data: DataName = None,
    table: TableFile = None,
    worlds: Annotated[int, typer.Option(help="Most probable symbols to show.", metavar="N", min=1)] = 3,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", metavar="DEVICE")] = "auto",
    imports: RunImports = None,
    as_json: Json = False,
) -> None:
    """Say how probable examples are, and which symbols most probably stand behind them.

    What an example leaves open is not held against it. The exit status is 0 if all were explained, however
    probable; 1 if a file is wrong; 2 if the command is wrong.
    """
    from gedikit.cli import rules as commands
    from gedikit.imports import import_as_asked

    import_as_asked(imports)
    commands.explain(run, examples, commands.Places(images, data, table), k=worlds, device=device, as_json=as_json)


def add_rule_commands(app: typer.Typer) -> None:
    """Register the commands."""
    app.add_typer(rules, name="rules")
    app.command("fit-rules")(fit_rules)
    app.command("explain")(explain)
