"""Lists for people, and the same as JSON."""

import json
import sys
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gedikit.components import Component, settings_of
from gedikit.components.component import unknown
from gedikit.config import OBJECTIVES, all_components, place_of
from gedikit.data.sources import BUILTIN
from gedikit.densities import densities
from gedikit.errors import UsageError
from gedikit.methods import GRAPHS, Method, methods
from gedikit.planning import Plan

_AS_PRINTED = "-as-printed"


def show_methods(*, as_json: bool = False) -> None:
    if as_json:
        _print_json([_described(method) for method in methods.values()])
        return
    console = Console()
    for family, graph in GRAPHS.items():
        console.print(f"[bold]{family or 'generative only'}[/]  [dim]graphical model: {graph}[/]")
        table = plain_table("method", "terms", "labels", "what it does", "reference")
        for method in methods.values():
            if method.family == family and method.recipe is None:
                terms = ", then ".join(" + ".join(stage.terms) for stage in method.stages)
                table.add_row(method.name, terms, method.labels, method.summary, method.reference)
        console.print(table)
        console.print()
    console.print("[bold]densities[/]  [dim]a generative term is the negative log-likelihood of one of them[/]")
    table = plain_table("density", "what it is", "reference")
    for name, density in densities.items():
        table.add_row(name, escape(density.summary), density.reference)
    console.print(table)
    console.print()
    _show_recipes(console, [method.name for method in methods.values() if method.recipe is not None])
    from_rules = ", ".join(m.name for m in methods.values() if m.needs_examples and m.recipe is None)
    console.print(
        "\nObjectives can be joined, with at most one density: [bold]swav+cluster-energy[/] and "
        "[bold]bound+flow[/] (bound is invariance + prior) are methods, too.\n"
        f"{from_rules} learn from rules, which can be given in Python only (GEDI.fit_examples).\n"
        "[bold]gedikit settings[/] lists the settings of objectives and densities.",
        highlight=False,
    )


def _show_recipes(console: Console, names: list[str]) -> None:
    """Recipes by their ending, which all but the first part of a name is."""
    by_ending: dict[str, list[str]] = {}
    for name in names:
        method, mark, ending = name.rpartition(_AS_PRINTED)
        by_ending.setdefault(f"METHOD{mark}{ending}" if mark else name, []).append(method if mark else "–")
    if by_ending:
        console.print("[bold]recipes[/]  [dim]with all settings as they were published[/]")
        table = plain_table("recipe", "of the methods")
        for ending, found in by_ending.items():
            table.add_row(ending, ", ".join(found))
        console.print(table)


def _described(method: Method) -> dict[str, Any]:
    return {
        "name": method.name,
        "summary": method.summary,
        "reference": method.reference,
        "family": method.family,
        "density": method.density,
        "labels": method.labels,
        "stages": [{"until": stage.until, "terms": list(stage.terms)} for stage in method.stages],
    }


def show_settings(component: str | None, *, as_json: bool = False) -> None:
    """All settings, or those of one section or component."""
    tables = [(section, name, cls) for section, name, cls in all_components() if _matches(component, section, name)]
    if not tables:
        known = dict.fromkeys(part for section, name, _ in all_components() for part in (section, name) if part)
        raise UsageError(unknown("section or component", str(component), known))
    if as_json:
        _print_json([_settings(section, name, cls) for section, name, cls in tables])
        return
    console = Console()
    for section, name, cls in tables:
        title = f"{section}.{name}" if section == OBJECTIVES else f'{section}.name = "{name}"' if name else section
        about = cls.summary or (cls.__doc__ or "").partition("\n")[0].rstrip(".")
        console.print(f"[bold]{escape(title)}[/]  [dim]{escape(about)}[/]", highlight=False)
        if not settings_of(cls):
            console.print("no settings\n")
            continue
        table = plain_table("setting", "default", "meaning")
        prefix = place_of(section, name)
        for item in settings_of(cls):
            choices = f"; one of {', '.join(item.choices)}" if item.choices else ""
            table.add_row(f"{prefix}.{item.name}", escape(_shown(item.default)), escape(item.meaning + choices))
        console.print(table)
        console.print()


def _matches(asked: str | None, section: str, name: str) -> bool:
    return asked is None or asked in (section, name, f"{section}.{name}")


def _settings(section: str, name: str, cls: type[Component]) -> dict[str, Any]:
    shown = [vars(item) | {"choices": list(item.choices)} for item in settings_of(cls)]
    return {"section": section, "name": name, "summary": cls.summary, "settings": shown}


def print_plan(made: Plan) -> None:
    """The decisions of a plan with their reasons, then its settings."""
    console = Console()
    clusters = "1 cluster" if made.n_clusters == 1 else f"{made.n_clusters} clusters"
    console.print(f"[bold]{made.method}[/], {clusters}, seed {made.seed}, budget {made.budget}", highlight=False)
    table = plain_table("decision", "choice", "reason")
    for decision in made.decisions:
        table.add_row(decision.what, escape(decision.choice), escape(decision.reason))
    console.print(table)
    console.print()
    table = plain_table("section", "settings")
    for section, values in made.config.tree().items():
        if section == OBJECTIVES:
            for name, inner in values.items():
                table.add_row(f"{section}.{name}", escape(_line(inner)))
        else:
            name = values.get("name")
            rest = {key: value for key, value in values.items() if key != "name"}
            line = ": ".join(filter(None, (str(name) if name else "", _line(rest))))
            table.add_row(section, escape(line))
    console.print(table)
    console.print(
        "\n[bold]gedikit settings[/] says what they mean; --set SECTION.NAME=VALUE changes one.", highlight=False
    )


def _line(values: dict[str, Any]) -> str:
    return ", ".join(f"{key} {_shown(value)}" for key, value in values.items())


def _shown(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ",".join(map(_shown, value)) or "–"
    if isinstance(value, float):
        return f"{value:g}"
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def show_datasets() -> None:
    table = plain_table("data set", "clusters", "what it is")
    for data in BUILTIN.values():
        table.add_row(data.name, str(data.n_clusters), data.description)
    console = Console()
    console.print(table)
    console.print(
        "\nFiles: .npy, .npz (x, and y for evaluation), .csv and .parquet (numeric columns; "
        "a column named label, target, class or y is kept for evaluation).\n"
        "Folders of pictures of any size and format; names of sub-folders are kept for evaluation.\n"
        "Shards of pictures or rows, of any size: .tar and .parquet files by a folder, a pattern or a list.\n"
        "[bold]gedikit data[/] lists and downloads the image data sets.",
        highlight=False,
    )


def plain_table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for i, column in enumerate(columns):
        table.add_column(column, no_wrap=i == 0)
    return table


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
