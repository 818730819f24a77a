"""Reproductions of the paper's experiments."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gedikit.cli.request import asking_for
from gedikit.cli.tasks import Out, add_tasks

if TYPE_CHECKING:
    from gedikit.paper.reproduce.image_runs import Place
    from gedikit.paper.reproduce.images import Selection
    from gedikit.paper.reproduce.running import Request

reproductions = typer.Typer(no_args_is_help=True, help="Repeat the paper's experiments: its figures next to ours.")


@dataclass(frozen=True)
class FitsRequest:
    """What a reproduction that fits many small models can be asked for."""

    seeds: Annotated[int, typer.Option(help="Fits of every method, each with its own seed.", metavar="N")] = 5
    first_seed: Annotated[int, typer.Option(help="The first seed.", metavar="N")] = 300
    iters: Annotated[int, typer.Option(help="Training iterations; 0 takes those of each recipe.", metavar="N")] = 0
    workers: Annotated[
        int | None, typer.Option(help="Processes.", metavar="N", show_default="one per core, one on a GPU")
    ] = None
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", metavar="DEVICE")] = "auto"

    def of(self, out: Path) -> "Request":
        from gedikit.paper.reproduce.running import Request

        return Request(out, self.seeds, self.first_seed, self.iters, self.device, self.workers)


@dataclass(frozen=True)
class ImagesRequest:
    """Which fits of images a table is about, where they are, and what may be done for it."""

    out: Annotated[
        Path, typer.Option(help="Directory of the tables, with stored runs in runs/ below it.", metavar="DIR")
    ] = Path("runs/reproduce-images")
    data: Annotated[
        list[str] | None,
        typer.Option(help="svhn, cifar10, cifar100, mnist or fashion-mnist; may be repeated.", metavar="NAME"),
    ] = None
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="jem, barlow-twins, swav, gedi-no-gen, gedi, gedi-two-stage or gedi-as-printed; may be repeated.",
            metavar="NAME",
        ),
    ] = None
    seed: Annotated[list[int] | None, typer.Option(help="A seed; may be repeated.", metavar="N")] = None
    minutes: Annotated[
        float,
        typer.Option(help="Stop after so long; the same command goes on.", metavar="N", show_default="no limit"),
    ] = 0.0
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", metavar="DEVICE")] = "auto"
    commit: Annotated[
        str,
        typer.Option(help="What figures are said to be of.", metavar="NAME", show_default="that of the checkout"),
    ] = ""
    measured: Annotated[
        bool,
        typer.Option("--measure/--no-measure", help="Measure what was not, or take what is there.", metavar=""),
    ] = True

    def place(self, unfinished: Path = Path()) -> "Place":
        from gedikit.paper.reproduce import images

        return images.place(self.out, unfinished, self.device, self.minutes, self.commit)

    def selection(self, epochs: int = 0, *, small: bool = False) -> "Selection":
        from gedikit.paper.reproduce.images import Selection

        return Selection(self.data or (), self.method or (), self.seed or (), epochs, small)


@reproductions.command("toy")
@asking_for(FitsRequest)
def _toy(
    out: Out = Path("runs/reproduce-toy"),
    *,
    request: FitsRequest,
    all_printed: Annotated[
        bool,
        typer.Option("--all-printed", help="The other methods as printed, too, not just GEDI.", metavar=""),
    ] = False,
) -> None:
    """Moons and circles: seven methods, GEDI as printed and by default, with the paper's tables and figures."""
    from rich.console import Console

    from gedikit.paper.reproduce import toy

    typer.echo(toy.reproduce(request.of(out), Console(stderr=True), all_printed=all_printed))


@reproductions.command("sensitivity")
@asking_for(FitsRequest)
def _sensitivity(
    out: Out = Path("runs/reproduce-sensitivity"),
    *,
    request: FitsRequest,
    method: Annotated[str, typer.Option(help="gedi or gedi-as-printed.", metavar="NAME")] = "gedi",
) -> None:
    """The weights of invariance and prior over {0, 10, …, 50}², as heat maps of the NMI."""
    from rich.console import Console

    from gedikit.paper.reproduce import sensitivity

    typer.echo(sensitivity.reproduce(request.of(out), method, Console(stderr=True)))


@reproductions.command("addition")
@asking_for(FitsRequest)
def _addition(
    out: Out = Path("runs/reproduce-addition"),
    *,
    request: FitsRequest,
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
    printed: Annotated[
        bool, typer.Option("--printed", help="The paper's recipe as printed, too.", metavar="")
    ] = False,
) -> None:
    """Digits from sums: each example is three MNIST images with a + b = c. Needs MNIST (gedikit data get mnist)."""
    from rich.console import Console

    from gedikit.paper.reproduce import addition
    from gedikit.paper.reproduce.sums import Sums

    console, sums = Console(stderr=True), Sums(digits)
    typer.echo(addition.reproduce(request.of(out), console, examples or [], sums, printed=printed))


@reproductions.command("images")
@asking_for(ImagesRequest)
def _images(
    *,
    request: ImagesRequest,
    epochs: Annotated[
        int, typer.Option(help="Passes over the data; 0 takes those planned for it.", metavar="N")
    ] = 0,
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
    samples: Annotated[
        bool,
        typer.Option(
            "--samples/--no-samples",
            help="Draw 10,000 samples of each fit for its FID, which is hours of work without a GPU, or leave "
            "those out that are not there.",
            metavar="",
        ),
    ] = True,
    small: Annotated[
        bool, typer.Option("--small", help="Small networks, to try the command on a CPU.", metavar="", hidden=True)
    ] = False,
) -> None:
    """SVHN, CIFAR-10 and CIFAR-100: clusters and samples of five methods, GEDI also as printed.

    Fits, then measures from stored weights, then writes the table; stopped anywhere, the same command goes on.
    """
    from rich.console import Console

    from gedikit.paper.reproduce import images

    told = Console(stderr=True)
    chosen, place = request.selection(epochs, small=small), request.place(unfinished)
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
    typer.echo(images.reproduce(chosen, place, told, measured=request.measured, samples=samples))


@reproductions.command("ood")
@asking_for(ImagesRequest)
def _ood(*, request: ImagesRequest) -> None:
    """Other images told apart by the fits of `gedikit reproduce images`: the paper's score and three others."""
    from rich.console import Console

    from gedikit.paper.reproduce import images

    chosen, place = request.selection(), request.place()
    typer.echo(images.reproduce_ood(chosen, place, Console(stderr=True), measured=request.measured))


@reproductions.command("probe")
@asking_for(ImagesRequest)
def _probe(*, request: ImagesRequest) -> None:
    """A linear classifier and neighbours on the features of the fits of `gedikit reproduce images`."""
    from rich.console import Console

    from gedikit.paper.reproduce import images

    chosen, place = request.selection(), request.place()
    typer.echo(images.reproduce_probe(chosen, place, Console(stderr=True), measured=request.measured))


add_tasks(reproductions)
