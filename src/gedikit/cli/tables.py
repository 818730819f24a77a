"""Lists for people."""

from rich.console import Console
from rich.table import Table

from gedikit.data.sources import BUILTIN
from gedikit.methods import METHODS


def show_methods() -> None:
    table = _table("method", "terms", "what it does", "reference")
    for method in METHODS.values():
        terms = ", then ".join(" + ".join(stage.terms) for stage in method.stages)
        table.add_row(method.name, terms, method.summary, method.reference)
    Console().print(table)


def show_datasets() -> None:
    table = _table("data set", "clusters", "what it is")
    for data in BUILTIN.values():
        table.add_row(data.name, str(data.n_clusters), data.description)
    Console().print(table)
    Console().print(
        "Files: .npy, .npz (x, and y for evaluation), .csv and .parquet (numeric columns; "
        "a column named label, target, class or y is kept for evaluation)."
    )


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for i, column in enumerate(columns):
        table.add_column(column, no_wrap=i == 0)
    return table
