"""Reproductions of tasks of learning from rules."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gedikit.cli.request import asking_for

if TYPE_CHECKING:
    from gedikit.paper.reproduce.running import Request
    from gedikit.paper.reproduce.tasks import Selection

Out = Annotated[Path, typer.Option(help="Directory; finished fits there are not repeated.", metavar="DIR")]


@dataclass(frozen=True)
class TaskRequest:
    """What every reproduction of a task can be asked for."""

    size: Annotated[
        str,
        typer.Option(
            help="mnist (for a GPU), mnist-small (a smaller network, for a CPU), digits (of scikit-learn: minutes "
            "on a CPU) or tiny (seconds, to try it).",
            metavar="SIZE",
        ),
    ] = "mnist"
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="full, no-density, no-pseudo-labels, rule or pseudo-labels; may be repeated.",
            metavar="VARIANT",
            show_default="all of them",
        ),
    ] = None
    seeds: Annotated[int, typer.Option(help="Fits of every variant, each with its own seed.", metavar="N")] = 3
    first_seed: Annotated[int, typer.Option(help="The first seed.", metavar="N")] = (
        500  # settings were chosen with seeds below
    )
    iters: Annotated[int, typer.Option(help="Training iterations; 0 takes those of the task.", metavar="N")] = 0
    minutes: Annotated[
        float,
        typer.Option(help="Stop after so long; the same command goes on.", metavar="N", show_default="no limit"),
    ] = 0.0
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Change a setting of all fits; may be repeated."),
    ] = None
    workers: Annotated[
        int | None, typer.Option(help="Processes.", metavar="N", show_default="one per core, one on a GPU")
    ] = None
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", metavar="DEVICE")] = "auto"
    no_fit: Annotated[
        bool,
        typer.Option(
            "--no-fit",
            help="Only write the page of the fits that are in the directory, those of a GPU.",
            metavar="",
        ),
    ] = False

    def of(self, out: Path) -> "Request":
        from gedikit.paper.reproduce.running import Request

        limits = (self.workers, self.minutes or None)
        return Request(out, self.seeds, self.first_seed, self.iters, self.device, *limits, fits=not self.no_fit)

    @property
    def selection(self) -> "Selection":
        from gedikit.components import parse_assignments
        from gedikit.paper.reproduce.tasks import Selection

        settings = parse_assignments(self.assignments or [])
        return Selection(self.size, tuple(self.only or ()), tuple(settings.items()))


def add_tasks(reproductions: typer.Typer) -> None:
    """Register the commands."""
    for name, command in (
        ("sums", _sums),
        ("shortcuts", _shortcuts),
        ("sudoku", _sudoku),
        ("formulas", _formulas),
    ):
        reproductions.command(name)(asking_for(TaskRequest)(command))


def _sums(
    out: Out = Path("runs/reproduce-sums"),
    digits: Annotated[
        list[int] | None,
        typer.Option(
            help="Digits of each number; may be repeated.", metavar="N", show_default="1, 2, 4, 15 and 100"
        ),
    ] = None,
    tenth: Annotated[bool, typer.Option("--tenth", help="Also with a tenth of the examples.", metavar="")] = False,
    *,
    request: TaskRequest,
) -> None:
    """Digits from sums that are given: two numbers of N digits as images, and what they come to."""
    from rich.console import Console

    from gedikit.paper.reproduce.given_sums import reproduce_sums

    chosen, place, console = request.selection, request.of(out), Console(stderr=True)
    typer.echo(reproduce_sums(digits or [], tenth=tenth, selection=chosen, request=place, console=console))


def _shortcuts(
    out: Out = Path("runs/reproduce-shortcuts"),
    equations: Annotated[
        list[str] | None,
        typer.Option(help="even-odd or half; may be repeated.", metavar="NAME", show_default="both"),
    ] = None,
    *,
    request: TaskRequest,
) -> None:
    """Rules that leave names open: MNIST-Even-Odd and MNIST-Half, without and with the labels that settle them."""
    from rich.console import Console

    from gedikit.paper.reproduce.rule_shortcuts import reproduce_shortcuts

    chosen, place = request.selection, request.of(out)
    typer.echo(reproduce_shortcuts(equations or [], selection=chosen, request=place, console=Console(stderr=True)))


def _sudoku(
    out: Out = Path("runs/reproduce-sudoku"),
    side: Annotated[
        list[int] | None,
        typer.Option(help="Side of the boards, 4 or 9; may be repeated.", metavar="N", show_default="4"),
    ] = None,
    *,
    request: TaskRequest,
) -> None:
    """Visual Sudoku: digits from complete boards, no cell labelled."""
    from rich.console import Console

    from gedikit.paper.reproduce.visual_sudoku import reproduce_sudoku

    chosen, place = request.selection, request.of(out)
    typer.echo(reproduce_sudoku(side or [], selection=chosen, request=place, console=Console(stderr=True)))


def _formulas(out: Out = Path("runs/reproduce-formulas"), *, request: TaskRequest) -> None:
    """Handwritten formulas: digits and operators from what the formulas come to."""
    from rich.console import Console

    from gedikit.paper.reproduce.formulas import reproduce_formulas

    typer.echo(
        reproduce_formulas(selection=request.selection, request=request.of(out), console=Console(stderr=True))
    )
