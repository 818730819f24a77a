"""The commands."""

from pathlib import Path
from typing import Annotated

import typer

from gedikit.cli.data import data as image_data

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
        "or a folder of pictures."
    ),
]
RunPath = Annotated[Path, typer.Argument(help="A run directory made by [bold]gedikit fit[/].")]
Seed = Annotated[int, typer.Option(help="Same seed, same result.", metavar="N")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.", metavar="DEVICE")]
Clusters = Annotated[
    int | None,
    typer.Option(
        help="Number of clusters; else that of a built-in data set, or as many as are found.", metavar="N"
    ),
]
MethodName = Annotated[
    str | None,
    typer.Option(
        help="A name from [bold]gedikit methods[/], or objectives and a density, such as swav+cluster-energy.",
        metavar="NAME",
        show_default="gedi",
    ),
]
OptionalSeed = Annotated[int | None, typer.Option(help="Same seed, same result.", metavar="N", show_default="0")]
Iters = Annotated[int | None, typer.Option(help="Training iterations, instead of those of the plan.", metavar="N")]
Epochs = Annotated[int | None, typer.Option(help="Passes over the data, instead of --iters.", metavar="N")]
Budget = Annotated[
    str | None,
    typer.Option(
        help="quick, default or best: how large the network is and how long it trains.",
        metavar="BUDGET",
        show_default="default",
    ),
]
ViewsName = Annotated[
    str | None,
    typer.Option(
        help="What the pictures are: photos, drawings, writing (in any colours) or things (on a plain background). "
        "auto makes views that are safe for any picture, none leaves pictures as they are.",
        metavar="KIND",
        show_default="auto",
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="SECTION.NAME=VALUE", help="Change a setting ([bold]gedikit settings[/]); may be repeated."
    ),
]
Prior = Annotated[
    str | None,
    typer.Option(
        help="Expected shares of the clusters: auto (from the data), uniform, or such as 0.5,0.3,0.2.",
        metavar="SHARES",
        show_default="auto",
    ),
]
OptionalDevice = Annotated[
    str | None, typer.Option(help="auto, cpu or cuda.", metavar="DEVICE", show_default="auto")
]
ImageSize = Annotated[
    int | None,
    typer.Option(
        help="Height and width that pictures of a folder are resized to.",
        metavar="PIXELS",
        show_default="32; with --features 160",
    ),
]
Features = Annotated[
    str | None,
    typer.Option(
        help="Describe pictures by a pretrained network instead of their pixels: efficientnet-lite0 (of the extra "
        "pretrained), or one that --import registers.",
        metavar="NETWORK",
    ),
]
LabelsFrom = Annotated[
    str | None,
    typer.Option(help="folders: names of sub-folders are labels to compare the clusters with.", metavar="folders"),
]
LearnedColumns = Annotated[
    str | None,
    typer.Option("--columns", help="Columns of a table to learn from, separated by commas.", metavar="NAMES"),
]
DroppedColumns = Annotated[
    str | None, typer.Option("--drop", help="Columns to leave out, separated by commas.", metavar="NAMES")
]
IdColumns = Annotated[
    str | None,
    typer.Option("--id", help="Columns to pass through to outputs and not to train on.", metavar="NAMES"),
]
LabelColumn = Annotated[
    str | None,
    typer.Option(
        "--label",
        help='Column that is kept for evaluation; "" if there is none.',
        metavar="NAME",
        show_default="label, labels, target, class or y",
    ),
]
KnownColumn = Annotated[
    str | None,
    typer.Option(
        "--known",
        help="Column with the labels of some rows, empty for the others: learned from, one cluster a value.",
        metavar="NAME",
    ),
]
ColumnTypes = Annotated[
    str | None,
    typer.Option(
        "--types",
        help="Types of columns that are not what they look like, such as region=category,born=date: number, "
        "boolean, category, date, id or label.",
        metavar="NAME=TYPE,…",
    ),
]
Imports = Annotated[
    list[str] | None,
    typer.Option(
        "--import", metavar="FILE", help="A Python file or module that registers components; may be repeated."
    ),
]
# flags have no value, and some versions of the parser would show one
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.", metavar="")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress, only errors.", metavar="")]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Also print the decisions of the plan and their reasons.", metavar=""),
]


def set_output(quiet: bool, verbose: bool) -> None:
    """How much is said on standard error."""
    from gedikit.cli.output import set_verbosity

    set_verbosity(quiet=quiet, verbose=verbose)


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
def fit(
    data: Annotated[
        str | None,
        typer.Argument(help="A built-in data set, a file or a folder of pictures; not needed with --resume."),
    ] = None,
    clusters: Clusters = None,
    method: MethodName = None,
    seed: OptionalSeed = None,
    iters: Iters = None,
    epochs: Epochs = None,
    budget: Budget = None,
    views: ViewsName = None,
    out: Annotated[
        Path | None, typer.Option(help="Run directory.", metavar="DIR", show_default="runs/DATA-METHOD-SEED")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out after an interruption.", metavar="")
    ] = False,
    settings: Assignments = None,
    prior: Prior = None,
    device: OptionalDevice = None,
    image_size: ImageSize = None,
    columns: LearnedColumns = None,
    drop: DroppedColumns = None,
    ids: IdColumns = None,
    label: LabelColumn = None,
    types: ColumnTypes = None,
    features: Features = None,
    labels_from: LabelsFrom = None,
    known: KnownColumn = None,
    imports: Imports = None,
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
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train a model and write clusters, metrics, checkpoints and a report to a run directory."""
    from gedikit.cli import fitting

    set_output(quiet, verbose)
    request = fitting.FitRequest(
        clusters,
        method,
        seed,
        iters,
        epochs,
        settings or [],
        prior,
        device,
        image_size,
        views,
        budget,
        imports or [],
        columns,
        drop,
        ids,
        label,
        types,
        features,
        labels_from,
        known,
    )
    fitting.fit(
        data, request, out=out, resume=resume, evaluate_every=evaluate_every, strict=strict, as_json=as_json
    )


@app.command()
def plan(
    data: Data,
    clusters: Clusters = None,
    method: MethodName = None,
    seed: OptionalSeed = None,
    iters: Iters = None,
    epochs: Epochs = None,
    budget: Budget = None,
    views: ViewsName = None,
    settings: Assignments = None,
    prior: Prior = None,
    image_size: ImageSize = None,
    columns: LearnedColumns = None,
    drop: DroppedColumns = None,
    ids: IdColumns = None,
    label: LabelColumn = None,
    types: ColumnTypes = None,
    features: Features = None,
    labels_from: LabelsFrom = None,
    known: KnownColumn = None,
    imports: Imports = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show what [bold]gedikit fit[/] would do with the data, and why, without training."""
    from gedikit.cli import fitting

    set_output(quiet, False)
    request = fitting.FitRequest(
        clusters,
        method,
        seed,
        iters,
        epochs,
        settings or [],
        prior,
        None,
        image_size,
        views,
        budget,
        imports or [],
        columns,
        drop,
        ids,
        label,
        types,
        features,
        labels_from,
        known,
    )
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
    from gedikit.components import import_plugin

    for module in imports or []:
        import_plugin(module)
    listing.show_settings(component, as_json=as_json)


@app.command()
def predict(
    run: RunPath,
    data: Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="CSV file to write; - for standard output.", metavar="FILE")
    ],
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Write cluster, confidence, log-density and outlier score of every row."""
    from gedikit.cli import inference

    set_output(quiet, False)
    inference.predict(run, data, output, device)


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
    quiet: Quiet = False,
) -> None:
    """Generate new rows, with the columns and types of the table that was learned from."""
    from gedikit.cli import inference

    set_output(quiet, False)
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
) -> None:
    """Measure agreement with labels, density and more; prints JSON that says how each figure was computed."""
    from gedikit.cli import inference

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
    as_json: Json = False,
) -> None:
    """Say which failure mode a run has hit, if any, and what to change."""
    from gedikit.cli import inference

    inference.diagnose(run, data, as_json)


@app.command()
def report(run: RunPath) -> None:
    """Write the report of a run again: one HTML file that needs no network."""
    from gedikit.cli import inference

    typer.echo(inference.report(run))


@app.command()
def sort(
    run: RunPath,
    out: Annotated[Path, typer.Argument(help="Folder for a sub-folder of each group; made if it is not there.")],
    link: Annotated[bool, typer.Option("--link", help="Link to the pictures, do not copy.", metavar="")] = False,
    quiet: Quiet = False,
) -> None:
    """Copy the pictures of a folder into one folder for each group; nothing is overwritten."""
    from gedikit.cli import sorting

    set_output(quiet, False)
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
    from gedikit.components import import_plugin

    for module in imports or []:
        import_plugin(module)
    listing.show_methods(as_json=as_json)


@app.command()
def datasets() -> None:
    """List the built-in data sets."""
    from gedikit.cli import listing

    listing.show_datasets()
