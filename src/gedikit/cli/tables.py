"""Lists for people."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gedikit.data.sources import BUILTIN
from gedikit.methods import (
    DISCRIMINATIVE,
    GENERATIVE,
    GRAPHS,
    LABELS,
    METHODS,
    PRINTED,
    PRINTED_METHODS,
)


def show_methods() -> None:
    console = Console()
    for family, graph in GRAPHS.items():
        console.print(f"[bold]{family or 'generative only'}[/]  [dim]graphical model: {graph}[/]")
        table = plain_table("method", "terms", "labels", "what it does", "reference")
        for method in METHODS.values():
            if method.family == family:
                terms = ", then ".join(" + ".join(stage.terms) for stage in method.stages)
                table.add_row(method.name, terms, method.labels, method.summary, method.reference)
        console.print(table)
        console.print()
    console.print("[bold]densities[/]  [dim]a generative term is the negative log-likelihood of one of them[/]")
    table = plain_table("density", "what it is", "reference")
    for name, density in GENERATIVE.items():
        table.add_row(name, escape(density.summary), density.reference)
    console.print(table)
    console.print(
        "\nAny of bound (invariance + prior), "
        + ", ".join(name for name in DISCRIMINATIVE if name != "bound")
        + " with any density is a method, such as [bold]swav+cluster-energy[/] or [bold]simclr+flow[/].\n"
        "Labels: " + "; ".join(f"{name} = {text}" for name, text in LABELS.items()) + ".\n"
        "The paper's recipes: " + ", ".join(name + PRINTED for name in PRINTED_METHODS) + ".\n"
        "From rules, in Python (GEDI.fit_examples): "
        + ", ".join(m.name for m in METHODS.values() if m.needs_rules)
        + ".",
        highlight=False,
    )


def show_datasets() -> None:
    table = plain_table("data set", "clusters", "what it is")
    for data in BUILTIN.values():
        table.add_row(data.name, str(data.n_clusters), data.description)
    Console().print(table)
    Console().print(
        "Files: .npy, .npz (x, and y for evaluation), .csv and .parquet (numeric columns; "
        "a column named label, target, class or y is kept for evaluation).\n"
        "Folders of pictures, of any size and format; names of sub-folders are kept for evaluation.\n"
        "[bold]gedikit data[/] lists and fetches the image data sets."
    )


def plain_table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for i, column in enumerate(columns):
        table.add_column(column, no_wrap=i == 0)
    return table
