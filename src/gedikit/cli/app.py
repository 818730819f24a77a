"""The commands."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from gedikit.cli.data import data as image_data
from gedikit.cli.reproductions import reproductions
from gedikit.cli.request import (
    BadShards,
    FitRequest,
    Imports,
    LabelsFrom,
    Resume,
    RunImports,
    SpreadsheetSafe,
    Strict,
    asking_for,
    comparable,
)
from gedikit.cli.rule_commands import add_rule_commands

app = typer.Typer(
    name="gedikit",
    help="Cluster data, flag outliers and generate new samples with one network trained without labels.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

Data = Annotated[
    str,
    typer.Argument(
        help="A built-in data set ([bold]gedikit datasets[/]), a .csv, .tsv, .xlsx, .parquet, .npy or .npz file, "
        "a folder of pictures, or shards: .tar or .parquet files by a folder, a pattern, a list or an address."
    ),
]
RunPath = Annotated[Path, typer.Argument(help="A run directory made by [bold]gedikit fit[/].")]
Seed = Annotated[int, typer.Option(help="Same seed, same result.", metavar="N")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.", metavar="DEVICE")]
# flags have no value, and some versions of the parser would show one
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.", metavar="")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress, only errors.", metavar="")]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Also print the decisions of the plan and their reasons.", metavar=""),
]


def set_output(quiet: bool, verbose: bool, spreadsheet_safe: bool = False) -> None:
    """How much is said on standard error, and how tables are written."""
    from gedikit.cli.output import set_spreadsheet_safe, set_verbosity

    set_verbosity(quiet=quiet, verbose=verbose)
    set_spreadsheet_safe(spreadsheet_safe)


def _show_version(wanted: bool) -> bool:
    if wanted:
        from gedikit.version import __version__

        typer.echo(f"gedikit {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", metavar="", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Cluster data, flag outliers and generate new samples with one network trained without labels."""


@app.command()
def demo(
    data: Annotated[str, typer.Argument(help="A built-in data set.")] = "digits",
    out: Annotated[
        Path, typer.Option(help="Run directory; a run that is there is replaced.", metavar="DIR")
    ] = Path("runs/demo"),
    seed: Seed = 0,
) -> None:
    """Fit real handwritten digits without labels, evaluate, and write a report."""
    from gedikit.cli import fitting

    fitting.demo(data, out, seed)


@app.command()
@comparable
@asking_for(FitRequest)
def fit(
    data: Annotated[
        str | None,
        typer.Argument(help="A built-in data set, a file, a folder of pictures, shards; not needed with --resume."),
    ] = None,
    *,
    request: FitRequest,
    out: Annotated[
        Path | None, typer.Option(help="Run directory.", metavar="DIR", show_default="runs/DATA-METHOD-SEED")
    ] = None,
    resume: Resume = False,
    evaluate_every: Annotated[
        int,
        typer.Option(
            help="Epochs between evaluations on the test set of built-in images; 0 for none.", metavar="EPOCHS"
        ),
    ] = 10,
    strict: Strict = False,
    spreadsheet_safe: SpreadsheetSafe = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    typed: Mapping[str, str],
) -> None:
    """Train a model and write clusters, metrics, checkpoints and a report to a run directory."""
    from gedikit.cli import fitting

    set_output(quiet, verbose, spreadsheet_safe)
    fitting.fit(
        data,
        request,
        out=out,
        resume=resume,
        evaluate_every=evaluate_every,
        strict=strict,
        as_json=as_json,
        typed=typed,
    )


@app.command()
@asking_for(FitRequest, but=("device",))
def plan(data: Data, *, request: FitRequest, as_json: Json = False, quiet: Quiet = False) -> None:
    """Show what [bold]gedikit fit[/] would do with the data, and why, without training."""
    from gedikit.cli import fitting

    set_output(quiet, False)
    fitting.show_plan(data, request, as_json=as_json)


@app.command()
def settings(
    component: Annotated[
        str | None, typer.Argument(help="A section or a component, such as sampler or mala; all if not given.")
    ] = None,
    imports: Imports = None,
    as_json: Json = False,
) -> None:
    """List everything that --set can change, with defaults and meanings."""
    from gedikit.cli import listing
    from gedikit.imports import import_as_asked

    import_as_asked(imports)
    listing.show_settings(component, as_json=as_json)


@app.command()
@comparable
def predict(
    run: RunPath,
    data: Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="CSV file to write; - for standard output.", metavar="FILE")
    ],
    device: Device = "auto",
    imports: RunImports = None,
    bad_shards: BadShards = None,
    spreadsheet_safe: SpreadsheetSafe = False,
    quiet: Quiet = False,
    *,
    typed: Mapping[str, str],
) -> None:
    """Write cluster, confidence, log-density and outlier score of every row."""
    from gedikit.cli import inference
    from gedikit.cli.together import together
    from gedikit.imports import import_as_asked

    set_output(quiet, False, spreadsheet_safe)
    with together(typed):
        import_as_asked(imports)
        inference.predict(run, data, output, device, bad_shards)


@app.command()
def sample(
    run: RunPath,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="A .npz, .csv or .png file to write; - for CSV on standard output.",
            metavar="FILE",
        ),
    ],
    n: Annotated[int, typer.Option("-n", help="Number of samples.", metavar="N")] = 100,
    cluster: Annotated[int | None, typer.Option(help="Sample from this cluster only.", metavar="N")] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            help="Langevin steps; by default 200 from the training's chains and 1000 from noise, for images 20 and "
            "500.",
            metavar="N",
        ),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            help="Where chains start: buffer (where those of the training ended) or noise (uniform; for images, "
            "with the mean and covariance of the data).",
            metavar="WHERE",
        ),
    ] = "buffer",
    seed: Seed = 0,
    device: Device = "auto",
    imports: RunImports = None,
    spreadsheet_safe: SpreadsheetSafe = False,
    quiet: Quiet = False,
) -> None:
    """Generate new rows, with the columns and types of the table that was learned from."""
    from gedikit.cli import inference
    from gedikit.imports import import_as_asked

    set_output(quiet, False, spreadsheet_safe)
    import_as_asked(imports)
    inference.sample(run, output, n, cluster=cluster, steps=steps, start=start, seed=seed, device=device)


@app.command()
def evaluate(
    run: RunPath,
    data: Data,
    probes: Annotated[
        bool,
        typer.Option(
            "--probes", help="Linear and nearest-neighbour probes of the features; needs labels.", metavar=""
        ),
    ] = False,
    fid: Annotated[
        int, typer.Option(help="FID of this many generated images against the data; 0 for none.", metavar="N")
    ] = 0,
    ood: Annotated[
        list[str] | None,
        typer.Option(
            help="How well the data is told apart from these: a built-in image set, a file or folder of images, "
            "noise, texture, constant or interpolated; may be repeated.",
            metavar="DATA",
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Langevin steps of the images for --fid.", metavar="N")] = 500,
    seed: Seed = 0,
    device: Device = "auto",
    labels_from: LabelsFrom = None,
    imports: RunImports = None,
) -> None:
    """Measure agreement with labels, density and more; prints JSON that says how each figure was computed."""
    from gedikit.cli import inference
    from gedikit.imports import import_as_asked

    import_as_asked(imports)
    inference.evaluate(
        run,
        data,
        device,
        probes=probes,
        fid=fid,
        outside=ood or [],
        steps=steps,
        seed=seed,
        labels_from=labels_from,
    )


@app.command()
def diagnose(
    run: RunPath,
    data: Annotated[
        str | None,
        typer.Argument(help="Rows to judge the model by, ideally not trained on; the run's own data if not given."),
    ] = None,
    imports: RunImports = None,
    as_json: Json = False,
) -> None:
    """Say which failure mode a run has hit, if any, and what to change."""
    from gedikit.cli import inference
    from gedikit.imports import import_as_asked

    import_as_asked(imports)
    inference.diagnose(run, data, as_json)


@app.command()
def report(
    run: RunPath,
    data: Annotated[
        str | None,
        typer.Option("--data", help="Where the data of the run is, if elsewhere than it says.", metavar="DATA"),
    ] = None,
    imports: RunImports = None,
) -> None:
    """Write the report of a run again: one HTML file that needs no network."""
    from gedikit.cli import inference
    from gedikit.imports import import_as_asked

    import_as_asked(imports)
    typer.echo(inference.report(run, data))


@app.command()
def sort(
    run: RunPath,
    out: Annotated[Path, typer.Argument(help="Folder for a sub-folder of each group; made if it is not there.")],
    link: Annotated[bool, typer.Option("--link", help="Link to the pictures, do not copy.", metavar="")] = False,
    imports: RunImports = None,
    quiet: Quiet = False,
) -> None:
    """Copy the pictures of a folder into one folder for each group; nothing is overwritten."""
    from gedikit.cli import sorting
    from gedikit.imports import import_as_asked

    set_output(quiet, False)
    import_as_asked(imports)
    sorting.sort(run, out, link=link)


@app.command()
def theory(seed: Seed = 0) -> None:
    """Check numerically what the paper proves: its lemmas, its bound and the table of failure modes."""
    from rich.console import Console

    from gedikit.paper.theory.show import show

    if not show(Console(), seed):
        raise typer.Exit(1)


app.add_typer(reproductions, name="reproduce")
add_rule_commands(app)
app.add_typer(image_data, name="data")


@app.command()
def bench(
    batch: Annotated[
        list[int] | None,
        typer.Option(
            help="Images per iteration; may be repeated.", metavar="N", show_default="64 and 256; on a CPU 16"
        ),
    ] = None,
    width: Annotated[
        int | None,
        typer.Option(help="Channels of the network.", metavar="N", show_default="128; on a CPU 32"),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="SGLD steps per iteration.", metavar="N", show_default="20; on a CPU 5")
    ] = None,
    side: Annotated[int, typer.Option(help="Height and width of the images.", metavar="PIXELS")] = 32,
    device: Device = "auto",
) -> None:
    """Time training iterations on images, next to the published loop and as a share of this device's peak rate."""
    from gedikit.cli import timing

    timing.bench(batch, width, steps, side, device)


@app.command()
def methods(imports: Imports = None, as_json: Json = False) -> None:
    """List the methods."""
    from gedikit.cli import listing
    from gedikit.imports import import_as_asked

    import_as_asked(imports)
    listing.show_methods(as_json=as_json)


@app.command()
def datasets() -> None:
    """List the built-in data sets."""
    from gedikit.cli import listing

    listing.show_datasets()
