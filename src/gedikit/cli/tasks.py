"""Reproductions of tasks of learning from rules."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gedikit.paper.reproduce.running import Request
    from gedikit.paper.reproduce.tasks import Selection

Out = Annotated[Path, typer.Option(help="Directory; finished fits there are not repeated.", metavar="DIR")]
Size = Annotated[
    str,
    typer.Option(
        help="mnist, digits (of scikit-learn: minutes on a CPU) or tiny (seconds, to try it).", metavar="SIZE"
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        help="full, no-density, no-pseudo-labels, rule or pseudo-labels; may be repeated.",
        metavar="VARIANT",
        show_default="all of them",
    ),
]
Seeds = Annotated[int, typer.Option(help="Fits of every variant, each with its own seed.", metavar="N")]
FirstSeed = Annotated[int, typer.Option(help="The first seed.", metavar="N")]
Iterations = Annotated[int, typer.Option(help="Training iterations; 0 takes those of the task.", metavar="N")]
Minutes = Annotated[
    float,
    typer.Option(help="Stop after so long; the same command goes on.", metavar="N", show_default="no limit"),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Change a setting of all fits; may be repeated."),
]
Workers = Annotated[
    int | None, typer.Option(help="Processes.", metavar="N", show_default="one per core, one on a GPU")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.", metavar="DEVICE")]
_FIRST_SEED = 500  # settings were chosen with seeds below


def add_tasks(reproductions: typer.Typer) -> None:
    """Register the commands."""
    for name, command in (
        ("sums", _sums),
        ("shortcuts", _shortcuts),
        ("sudoku", _sudoku),
        ("formulas", _formulas),
    ):
        reproductions.command(name)(command)


def _sums(
    out: Out = Path("runs/reproduce-sums"),
    size: Size = "mnist",
    digits: Annotated[
        list[int] | None,
        typer.Option(
            help="Digits of each number; may be repeated.", metavar="N", show_default="1, 2, 4, 15 and 100"
        ),
    ] = None,
    tenth: Annotated[bool, typer.Option("--tenth", help="Also with a tenth of the examples.", metavar="")] = False,
    only: Only = None,
    seeds: Seeds = 3,
    first_seed: FirstSeed = _FIRST_SEED,
    iters: Iterations = 0,
    minutes: Minutes = 0.0,
    assignments: Assignments = None,
    workers: Workers = None,
    device: Device = "auto",
) -> None:
    """Digits from sums that are given: two numbers of N digits as images, and what they come to."""
    from rich.console import Console

    from gedikit.paper.reproduce.given_sums import reproduce_sums

    request = _request(out, seeds, first_seed, iters, device, workers, minutes)
    selection = _selection(size, only, assignments)
    page = reproduce_sums(
        digits or [], tenth=tenth, selection=selection, request=request, console=Console(stderr=True)
    )
    typer.echo(page)


def _shortcuts(
    out: Out = Path("runs/reproduce-shortcuts"),
    size: Size = "mnist",
    equations: Annotated[
        list[str] | None,
        typer.Option(help="even-odd or half; may be repeated.", metavar="NAME", show_default="both"),
    ] = None,
    only: Only = None,
    seeds: Seeds = 3,
    first_seed: FirstSeed = _FIRST_SEED,
    iters: Iterations = 0,
    minutes: Minutes = 0.0,
    assignments: Assignments = None,
    workers: Workers = None,
    device: Device = "auto",
) -> None:
    """Rules that leave names open: MNIST-Even-Odd and MNIST-Half, without and with the labels that settle them."""
    from rich.console import Console

    from gedikit.paper.reproduce.rule_shortcuts import reproduce_shortcuts

    request = _request(out, seeds, first_seed, iters, device, workers, minutes)
    selection = _selection(size, only, assignments)
    page = reproduce_shortcuts(equations or [], selection=selection, request=request, console=Console(stderr=True))
    typer.echo(page)


def _sudoku(
    out: Out = Path("runs/reproduce-sudoku"),
    size: Size = "mnist",
    side: Annotated[
        list[int] | None,
        typer.Option(help="Side of the boards, 4 or 9; may be repeated.", metavar="N", show_default="4"),
    ] = None,
    only: Only = None,
    seeds: Seeds = 3,
    first_seed: FirstSeed = _FIRST_SEED,
    iters: Iterations = 0,
    minutes: Minutes = 0.0,
    assignments: Assignments = None,
    workers: Workers = None,
    device: Device = "auto",
) -> None:
    """Visual Sudoku: digits from complete boards, no cell labelled."""
    from rich.console import Console

    from gedikit.paper.reproduce.visual_sudoku import reproduce_sudoku

    request = _request(out, seeds, first_seed, iters, device, workers, minutes)
    selection = _selection(size, only, assignments)
    typer.echo(reproduce_sudoku(side or [], selection=selection, request=request, console=Console(stderr=True)))


def _formulas(
    out: Out = Path("runs/reproduce-formulas"),
    size: Size = "mnist",
    only: Only = None,
    seeds: Seeds = 3,
    first_seed: FirstSeed = _FIRST_SEED,
    iters: Iterations = 0,
    minutes: Minutes = 0.0,
    assignments: Assignments = None,
    workers: Workers = None,
    device: Device = "auto",
) -> None:
    """Handwritten formulas: digits and operators from what the formulas come to."""
    from rich.console import Console

    from gedikit.paper.reproduce.formulas import reproduce_formulas

    request = _request(out, seeds, first_seed, iters, device, workers, minutes)
    selection = _selection(size, only, assignments)
    typer.echo(reproduce_formulas(selection=selection, request=request, console=Console(stderr=True)))


def _request(
    out: Path, seeds: int, first_seed: int, iters: int, device: str, workers: int | None, minutes: float
) -> "Request":
    from gedikit.paper.reproduce.running import Request

    return Request(out, seeds, first_seed, iters, device, workers, minutes or None)


def _selection(size: str, only: list[str] | None, assignments: list[str] | None) -> "Selection":
    from gedikit.components import parse_assignments
    from gedikit.paper.reproduce.tasks import Selection

    return Selection(size, tuple(only or ()), tuple(parse_assignments(assignments or []).items()))
