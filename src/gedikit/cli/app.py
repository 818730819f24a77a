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
        help="A built-in data set ([bold]gedikit datasets[/]), a .npy, .npz, .csv or .parquet file, "
        "or a folder of pictures."
    ),
]
RunPath = Annotated[Path, typer.Argument(help="A run directory made by [bold]gedikit fit[/].")]
Seed = Annotated[int, typer.Option(help="Same seed, same result.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Clusters = Annotated[int | None, typer.Option(help="Number of clusters; built-in data sets know theirs, else 8.")]
MethodName = Annotated[
    str | None,
    typer.Option(
        help="A name from [bold]gedikit methods[/], or objectives and a density, such as swav+cluster-energy.",
        show_default="gedi",
    ),
]
OptionalSeed = Annotated[int | None, typer.Option(help="Same seed, same result.", show_default="0")]
Iters = Annotated[int | None, typer.Option(help="Training iterations; the plan's own if not given.")]
Epochs = Annotated[int | None, typer.Option(help="Passes over the data, instead of --iters.")]
Budget = Annotated[
    str | None,
    typer.Option(help="quick, default or best: how large the network is and how long it trains.", metavar="BUDGET"),
]
ViewsName = Annotated[
    str | None,
    typer.Option(
        help="What pictures are of: photos, drawings, writing (in any colours) or things (on a plain ground); auto "
        "takes views that are safe for any picture.",
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
    str | None, typer.Option(help="How often each cluster is expected, as 0.5,0.3,0.2; equally if not given.")
]
OptionalDevice = Annotated[str | None, typer.Option(help="auto, cpu or cuda.", show_default="auto")]
ImageSize = Annotated[
    int | None, typer.Option(help="Pictures of a folder become this large, in pixels.", show_default="32")
]
Imports = Annotated[
    list[str] | None,
    typer.Option(
        "--import", metavar="FILE", help="A Python file or module that registers components; may be repeated."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more: why the plan is what it is.")]


def set_output(quiet: bool, verbose: bool) -> None:
    """How much is said on standard error."""
    from gedikit.cli.output import set_verbosity

    set_verbosity(quiet=quiet, verbose=verbose)


def _show_version(wanted: bool) -> None:
    if wanted:
        from gedikit.version import __version__

        typer.echo(f"gedikit {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Cluster data, flag outliers and generate new samples with one network trained without labels."""


@app.command()
def demo(
    data: Annotated[str, typer.Argument(help="A built-in data set.")] = "digits",
    out: Annotated[Path, typer.Option(help="Run directory; replaced if it is there.")] = Path("runs/demo"),
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
    out: Annotated[Path | None, typer.Option(help="Run directory; runs/DATA-METHOD-SEED if not given.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    settings: Assignments = None,
    prior: Prior = None,
    device: OptionalDevice = None,
    image_size: ImageSize = None,
    imports: Imports = None,
    evaluate_every: Annotated[
        int, typer.Option(help="Epochs between evaluations on the test set of built-in images; 0 for none.")
    ] = 10,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 3 unless the verdict is healthy.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train a model and write clusters, metrics, checkpoints and a report to a run directory."""
    from gedikit.cli import fitting

    set_output(quiet, verbose)
    request = fitting.FitRequest(
        clusters, method, seed, iters, epochs, settings or [], prior, device, image_size, views, budget, imports or []
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
    imports: Imports = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Print what [bold]gedikit fit[/] would do with the data, and why; nothing is fitted."""
    from gedikit.cli import fitting

    set_output(quiet, False)
    request = fitting.FitRequest(
        clusters, method, seed, iters, epochs, settings or [], prior, None, image_size, views, budget, imports or []
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
    """List what can be set with --set, with defaults and meanings."""
    from gedikit.cli import listing
    from gedikit.components import import_plugin

    for module in imports or []:
        import_plugin(module)
    listing.show_settings(component, as_json=as_json)


@app.command()
def predict(
    run: RunPath,
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="CSV file to write; - for standard output.")],
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
    output: Annotated[Path, typer.Option("--output", "-o", help="A .npz, .csv or .png file; - for CSV on standard output.")],
    n: Annotated[int, typer.Option("-n", help="How many.")] = 100,
    cluster: Annotated[int | None, typer.Option(help="Only from this cluster.")] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Langevin steps; 200 from the training's chains, 1000 from noise, for images 20 and 500."),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            help="buffer: chains of the training; noise: uniform, for images with the data's mean and covariance."
        ),
    ] = "buffer",
    seed: Seed = 0,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Generate new rows by Langevin dynamics."""
    from gedikit.cli import inference

    set_output(quiet, False)
    inference.sample(run, output, n, cluster=cluster, steps=steps, start=start, seed=seed, device=device)


@app.command()
def evaluate(
    run: RunPath,
    data: Data,
    probes: Annotated[
        bool, typer.Option("--probes", help="Linear and neighbour probes of the features, on labels.")
    ] = False,
    fid: Annotated[int, typer.Option(help="Compare this many generated images with the data.")] = 0,
    ood: Annotated[
        list[str] | None,
        typer.Option(
            help="Tell the data from this: built-in images, a file or folder of images, noise, constant or "
            "interpolated; may be repeated."
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Langevin steps of the images for --fid.")] = 500,
    seed: Seed = 0,
    device: Device = "auto",
) -> None:
    """Print what can be measured as JSON with protocols: agreement with labels, density, and more if asked for."""
    from gedikit.cli import inference

    inference.evaluate(run, data, device, probes=probes, fid=fid, outside=ood or [], steps=steps, seed=seed)


@app.command()
def diagnose(
    run: RunPath,
    data: Annotated[str | None, typer.Argument(help="Rows the model was not trained on, if there are any.")] = None,
    as_json: Json = False,
) -> None:
    """Tell which failure mode a run has hit, if any, and what to change."""
    from gedikit.cli import inference

    inference.diagnose(run, data, as_json)


@app.command()
def report(run: RunPath) -> None:
    """Write the run's report, one HTML file that opens without a network."""
    from gedikit.cli import inference

    typer.echo(inference.report(run))


@app.command()
def theory(seed: Seed = 0) -> None:
    """Compute what the paper proves and print it: its lemmas, its bound, and the table of failure modes."""
    from rich.console import Console

    from gedikit.paper.theory.show import show

    if not show(Console(), seed):
        raise typer.Exit(1)


reproductions = typer.Typer(no_args_is_help=True, help="Run the paper's experiments: its figures beside ours.")
app.add_typer(reproductions, name="reproduce")
Seeds = Annotated[int, typer.Option(help="Runs of every method.")]
FirstSeed = Annotated[int, typer.Option(help="The first seed.")]
Workers = Annotated[int | None, typer.Option(help="Processes; one for each core, and one on a GPU, if not given.")]
Iterations = Annotated[int, typer.Option(help="Training iterations; 0 takes each recipe's own.")]


@reproductions.command("toy")
def reproduce_toy(
    out: Annotated[Path, typer.Option(help="Directory; finished fits there are not repeated.")] = Path(
        "runs/reproduce-toy"
    ),
    seeds: Seeds = 5,
    first_seed: FirstSeed = 300,
    iters: Iterations = 0,
    workers: Workers = None,
    device: Device = "auto",
    all_printed: Annotated[
        bool, typer.Option("--all-printed", help="The other methods as printed too, not GEDI alone.")
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
    out: Annotated[Path, typer.Option(help="Directory; finished fits there are not repeated.")] = Path(
        "runs/reproduce-sensitivity"
    ),
    method: Annotated[str, typer.Option(help="gedi or gedi-as-printed.")] = "gedi",
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
    out: Annotated[Path, typer.Option(help="Directory; finished fits there are not repeated.")] = Path(
        "runs/reproduce-addition"
    ),
    examples: Annotated[
        list[int] | None,
        typer.Option(help="100, 1000 or (of one digit) 10000; may be repeated. All of them if not given."),
    ] = None,
    digits: Annotated[
        int,
        typer.Option(
            help="Digits of the numbers that are added: 1 as in the paper; 2 and 3 need the extra symbolic."
        ),
    ] = 1,
    seeds: Seeds = 5,
    first_seed: FirstSeed = 300,
    iters: Iterations = 0,
    workers: Workers = None,
    device: Device = "auto",
    printed: Annotated[bool, typer.Option("--printed", help="The paper's recipe to the letter too.")] = False,
) -> None:
    """Digits from sums: three MNIST images an example, of which only a + b = c is known. Needs MNIST (data get)."""
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
        list[int] | None, typer.Option(help="Images an iteration; may be repeated.", show_default="64 256; CPU 16")
    ] = None,
    width: Annotated[int | None, typer.Option(help="Channels.", show_default="128; CPU 32")] = None,
    steps: Annotated[int | None, typer.Option(help="SGLD steps an iteration.", show_default="20; CPU 5")] = None,
    side: Annotated[int, typer.Option(help="Pixels along an image.")] = 32,
    device: Device = "auto",
) -> None:
    """Time a training iteration on images beside the published loop, and as a share of this device's rate."""
    from gedikit.cli import timing

    timing.bench(batch, width, steps, side, device)


@app.command()
def methods(as_json: Json = False) -> None:
    """List the methods."""
    from gedikit.cli import listing

    listing.show_methods(as_json=as_json)


@app.command()
def datasets() -> None:
    """List the built-in data sets."""
    from gedikit.cli import listing

    listing.show_datasets()
