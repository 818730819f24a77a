"""The checks and the loss landscape as tables for people."""

from rich.console import Console
from rich.table import Table

from gedikit.paper.theory import run
from gedikit.paper.theory.check import Check
from gedikit.paper.theory.constant_posteriors import CERTAIN, interpolation
from gedikit.paper.theory.landscape import INFORMATION, MODES, Cell, landscape_table

CLUSTERS, PEAK = 2, 0.9


def show(console: Console, seed: int = 0) -> bool:
    """Print every check and the computed landscape; True where all hold."""
    checks = run(seed)
    _show_checks(console, checks)
    _show_landscape(console)
    _show_constants(console)
    failed = [check for check in checks if not check.holds]
    verdict = (
        f"All {len(checks)} statements hold." if not failed else f"{len(failed)} of {len(checks)} do not hold."
    )
    console.print(f"\n{verdict}", highlight=False)
    return not failed


def _show_checks(console: Console, checks: list[Check]) -> None:
    console.print("What the paper states, computed. An error must be near 0, a margin must not.\n", highlight=False)
    table = _table("", "statement", "error", "margin", "holds")
    above = ""
    for check in checks:
        name = check.name if check.name != above else ""
        error = f"{check.largest_error:.0e}" if check.largest_error else "0"
        margin = f"{check.smallest_margin:.2g}" if check.margins else ""
        table.add_row(name, check.statement, error, margin, "yes" if check.holds else "NO")
        above = check.name
    console.print(table, highlight=False)


def _show_landscape(console: Console) -> None:
    console.print(
        f"\nDoes a loss penalise a failure mode? Nats above its optimum, c = {CLUSTERS}, labels certain by "
        f"{CERTAIN:.0f} nats,\nthe fourth mode with a posterior of {PEAK:g} for one cluster everywhere.\n",
        highlight=False,
    )
    table = _table("", *(f"{number} {mode}" for number, mode in enumerate(MODES, 1)))
    for row in landscape_table(CLUSTERS, PEAK):
        entry = _information if row.loss == INFORMATION else _excess
        table.add_row(row.loss, *(entry(cell) for cell in row.cells))
    console.print(table, highlight=False)


def _show_constants(console: Console) -> None:
    console.print(
        f"\nPosteriors that ignore x, from uniform to cluster collapse, c = {CLUSTERS}.\n", highlight=False
    )
    table = _table("largest entry", "L_INV", "L_PRIOR", "sum", INFORMATION)
    for constant in interpolation(CLUSTERS):
        numbers = (constant.invariance, constant.prior, constant.invariance + constant.prior, constant.information)
        table.add_row(f"{constant.peak:.2f}", *(_nats(number) for number in numbers))
    console.print(table, highlight=False)


def _excess(cell: Cell) -> str:
    return f"{'Yes' if cell.penalised else 'No':<3} {_nats(cell.nats)}"


def _information(cell: Cell) -> str:
    return _nats(cell.nats)


def _nats(number: float) -> str:
    return f"{abs(number) if abs(number) < 0.005 else number:.2f}"


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for i, column in enumerate(columns):
        table.add_column(column, no_wrap=i == 0)
    return table
