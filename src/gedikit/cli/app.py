"""The commands."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from gedikit.cli.data import data as image_data
from gedikit.cli.request import (
    BadShards,
    FitRequest,
    Imports,
    LabelsFrom,
    RunImports,
    SpreadsheetSafe,
    asking_for,
    comparable,
)
from gedikit.cli.rule_commands import add_rule_commands
from gedikit.cli.tasks import add_tasks

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
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out after an interruption.", metavar="")
    ] = False,
    evaluate_every: Annotated[
        int,
        typer.Option(
            help="Epochs between evaluations on the test set of built-in images; 0 for none.", metavar="EPOCHS"
        ),
    ] = 10,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit with code 3 if the diagnosis is anything but healthy.", metavar=""),
    ] = False,
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
            "noise, constant or interpolated; may be repeated.",
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


reproductions = typer.Typer(no_args_is_help=True, help="Repeat the paper's experiments: its figures next to ours.")
app.add_typer(reproductions, name="reproduce")
Seeds = Annotated[int, typer.Option(help="Fits of every method, each with its own seed.", metavar="N")]
FirstSeed = Annotated[int, typer.Option(help="The first seed.", metavar="N")]
Workers = Annotated[
    int | None, typer.Option(help="Processes.", metavar="N", show_default="one per core, one on a GPU")
]
Iterations = Annotated[int, typer.Option(help="Training iterations; 0 takes those of each recipe.", metavar="N")]


@reproductions.command("toy")
def reproduce_toy(
    out: Annotated[
        Path, typer.Option(help="Directory; finished fits there are not repeated.", metavar="DIR")
    ] = Path("runs/reproduce-toy"),
    seeds: Seeds = 5,
    first_seed: FirstSeed = 300,
    iters: Iterations = 0,
    workers: Workers = None,
    device: Device = "auto",
    all_printed: Annotated[
        bool,
        typer.Option("--all-printed", help="The other methods as printed, too, not just GEDI.", metavar=""),
    ] = False,
) -> None:
    """Moons and circles: seven methods, GEDI as printed and by default, with the paper's tables and figures."""
    from rich.console import Console

    from gedikit.paper.reproduce import toy
    from gedikit.paper.reproduce.running import Request

    request = Request(out, seeds, first_seed, iters, device, workers)
    typer.echo(toy.reproduce(request, Console(stderr=True), all_printed=all_printed))


@reproductions.command("sensitivity")
def reproduce_sensitivity(
    out: Annotated[
        Path, typer.Option(help="Directory; finished fits there are not repeated.", metavar="DIR")
    ] = Path("runs/reproduce-sensitivity"),
    method: Annotated[str, typer.Option(help="gedi or gedi-as-printed.", metavar="NAME")] = "gedi",
    seeds: Seeds = 5,
    first_seed: FirstSeed = 300,
    iters: Iterations = 0,
    workers: Workers = None,
    device: Device = "auto",
) -> None:
    """The weights of invariance and prior over {0, 10, …, 50}², as heat maps of the NMI."""
    from rich.console import Console

    from gedikit.paper.reproduce import sensitivity
    from gedikit.paper.reproduce.running import Request

    request = Request(out, seeds, first_seed, iters, device, workers)
    typer.echo(sensitivity.reproduce(request, method, Console(stderr=True)))


@reproductions.command("addition")
def reproduce_addition(
    out: Annotated[
        Path, typer.Option(help="Directory; finished fits there are not repeated.", metavar="DIR")
    ] = Path("runs/reproduce-addition"),
    examples: Annotated[
        list[int] | None,
        typer.Option(
            help="Number of examples: 100, 1000 or (with --digits 1) 10000; may be repeated.",
            metavar="N",
            show_default="all of them",
        ),
    ] = None,
    digits: Annotated[
        int,
        typer.Option(
            help="Digits of the numbers that are added: 1 as in the paper; 2 and 3 need the extra symbolic.",
            metavar="N",
        ),
    ] = 1,
    seeds: Seeds = 5,
    first_seed: FirstSeed = 300,
    iters: Iterations = 0,
    workers: Workers = None,
    device: Device = "auto",
    printed: Annotated[
        bool, typer.Option("--printed", help="The paper's recipe as printed, too.", metavar="")
    ] = False,
) -> None:
    """Digits from sums: each example is three MNIST images with a + b = c. Needs MNIST (gedikit data get mnist)."""
    from rich.console import Console

    from gedikit.paper.reproduce import addition
    from gedikit.paper.reproduce.running import Request
    from gedikit.paper.reproduce.sums import Sums

    request = Request(out, seeds, first_seed, iters, device, workers)
    sums = Sums(digits)
    typer.echo(addition.reproduce(request, Console(stderr=True), examples or [], sums, printed=printed))


ImageSets = Annotated[
    list[str] | None,
    typer.Option(
        "--data", help="svhn, cifar10, cifar100, mnist or fashion-mnist; may be repeated.", metavar="NAME"
    ),
]
ImageMethods = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        help="jem, barlow-twins, swav, gedi-no-gen, gedi, gedi-two-stage or gedi-as-printed; may be repeated.",
        metavar="NAME",
    ),
]
ImageSeeds = Annotated[list[int] | None, typer.Option("--seed", help="A seed; may be repeated.", metavar="N")]
ImageResults = Annotated[
    Path, typer.Option(help="Directory of the tables, with stored runs in runs/ below it.", metavar="DIR")
]
Minutes = Annotated[
    float,
    typer.Option(help="Stop after so long; the same command goes on.", metavar="N", show_default="no limit"),
]
Commit = Annotated[
    str, typer.Option(help="What figures are said to be of.", metavar="NAME", show_default="that of the checkout")
]
Measured = Annotated[
    bool,
    typer.Option("--measure/--no-measure", help="Measure what was not, or take what is there.", metavar=""),
]
Small = Annotated[
    bool, typer.Option("--small", help="Small networks, to try the command on a CPU.", metavar="", hidden=True)
]


@reproductions.command("images")
def reproduce_images(
    out: ImageResults = Path("runs/reproduce-images"),
    data: ImageSets = None,
    method: ImageMethods = None,
    seed: ImageSeeds = None,
    epochs: Annotated[
        int, typer.Option(help="Passes over the data; 0 takes those planned for it.", metavar="N")
    ] = 0,
    minutes: Minutes = 0.0,
    device: Device = "auto",
    commit: Commit = "",
    unfinished: Annotated[Path, typer.Option(help="Where runs are that are not finished.", metavar="DIR")] = Path(
        "runs/unfinished"
    ),
    listed: Annotated[
        bool, typer.Option("--list", help="Only say what is planned and what is stored.", metavar="")
    ] = False,
    checked: Annotated[
        bool,
        typer.Option(
            "--check-losses", help="Only repeat the first 50 iterations of stored runs and compare.", metavar=""
        ),
    ] = False,
    pretrained: Annotated[
        bool,
        typer.Option("--pretrained", help="Only write the models that gedikit.load_pretrained opens.", metavar=""),
    ] = False,
    fitted: Annotated[
        bool, typer.Option("--fit/--no-fit", help="Fit what is not stored, or take what is there.", metavar="")
    ] = True,
    measured: Measured = True,
    small: Small = False,
) -> None:
    """SVHN, CIFAR-10 and CIFAR-100: clusters and samples of five methods, GEDI also as printed.

    Fits, then measures from stored weights, then writes the table; stopped anywhere, the same command goes on.
    """
    from rich.console import Console

    from gedikit.paper.reproduce import images

    told = Console(stderr=True)
    place = images.place(out, unfinished, device, minutes, commit)
    chosen = images.Selection(data or (), method or (), seed or (), epochs, small)
    if listed:
        images.show_states(chosen, place, Console())
        return
    if checked:
        if not images.check_stored(chosen, place, told):
            raise typer.Exit(1)
        return
    if pretrained:
        images.write_pretrained(chosen, place, told)
        return
    if fitted and not images.fit_missing(chosen, place, told):
        return
    typer.echo(images.reproduce(chosen, place, told, measured=measured))


@reproductions.command("ood")
def reproduce_ood(
    out: ImageResults = Path("runs/reproduce-images"),
    data: ImageSets = None,
    method: ImageMethods = None,
    seed: ImageSeeds = None,
    minutes: Minutes = 0.0,
    device: Device = "auto",
    commit: Commit = "",
    measured: Measured = True,
) -> None:
    """Other images told apart by the fits of `gedikit reproduce images`: the paper's score and three others."""
    from rich.console import Console

    from gedikit.paper.reproduce import images

    place = images.place(out, Path(), device, minutes, commit)
    chosen = images.Selection(data or (), method or (), seed or ())
    typer.echo(images.reproduce_ood(chosen, place, Console(stderr=True), measured=measured))


@reproductions.command("probe")
def reproduce_probe(
    out: ImageResults = Path("runs/reproduce-images"),
    data: ImageSets = None,
    method: ImageMethods = None,
    seed: ImageSeeds = None,
    minutes: Minutes = 0.0,
    device: Device = "auto",
    commit: Commit = "",
    measured: Measured = True,
) -> None:
    """A linear classifier and neighbours on the features of the fits of `gedikit reproduce images`."""
    from rich.console import Console

    from gedikit.paper.reproduce import images

    place = images.place(out, Path(), device, minutes, commit)
    chosen = images.Selection(data or (), method or (), seed or ())
    typer.echo(images.reproduce_probe(chosen, place, Console(stderr=True), measured=measured))


add_tasks(reproductions)
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
