"""Tables thm_toy and nmi_toy with the figures labels_toy_thm, labels_toy and debug, on moons and circles."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from gedikit.assignment import LABELS
from gedikit.evaluation import best_kde
from gedikit.paper.recipes import PRINTED
from gedikit.paper.reproduce import figures
from gedikit.paper.reproduce.fits import Group, Member, Result, points
from gedikit.paper.reproduce.page import ResultTable, Section, write_page
from gedikit.paper.reproduce.paper import ABLATION, COMPARISON, NAMES, NMI
from gedikit.paper.reproduce.running import Done, Request, run_all

SHAPES = ("moons", "circles")
RECIPES = {"as printed": PRINTED, "default": ""}


def reproduce(request: Request, console: Console, *, all_printed: bool = False) -> Path:
    """Fit everything, write the tables and the figures; returns the page.

    GEDI is run as printed and by default, the others as printed only with `all_printed`.
    """
    members = tuple(Member(shape, seed) for shape in SHAPES for seed in request.chosen_seeds)
    names = sorted({*ABLATION, *COMPARISON})
    printed = [name + PRINTED for name in (names if all_printed else ["gedi"])]
    # the longest first, so that no process ends alone
    groups = [Group(name, members, request.iterations, request.first_seed) for name in (*names, *printed)]
    done = run_all(groups, request, console)
    return write_page(request.out, "toy", "Synthetic data: moons and circles", sections(done, request.chosen_seeds))


def sections(done: Sequence[Done[Result]], seeds: Sequence[int]) -> list[Section]:
    results = [result for job in done for result in job.results]
    kde = {shape: [_kde(shape, seed) for seed in seeds] for shape in SHAPES}
    note = (
        f"NMI on 1000 test points, mean ± standard deviation over {len(seeds)} seeds "
        f"({seeds[0]} to {seeds[-1]}); LL is the exact test log-likelihood in nats, its normaliser summed over a "
        "grid. "
        "A kernel density estimate with the bandwidth that is best on the test points reaches "
        + ", ".join(f"{np.mean(values):.2f} on {shape}" for shape, values in kde.items())
        + ". “As printed” is the recipe of the paper's appendix with 7000 iterations; a run is stopped and counted "
        "as diverged when its losses are not finite or its energies run away. Labels: "
        + "; ".join(f"{name} = {text}" for name, text in LABELS.items())
        + "."
    )
    first = [r for r in results if r.seed == seeds[0]]
    made = [
        Section("Which term prevents which failure (Table thm_toy)", note, _table(results, ABLATION)),
        Section("Against other methods (Table nmi_toy)", "As above.", _table(results, COMPARISON)),
    ]
    for recipe, suffix in RECIPES.items():
        drawn = {(r.shape, r.method.removesuffix(suffix)): r for r in first if _is(r, suffix)}
        if len(drawn) <= len(SHAPES):  # of one method there is nothing to compare
            continue
        made += [
            Section(
                f"Clusters without a term, {recipe} (Figure labels_toy_thm)",
                f"Test points of seed {seeds[0]}, coloured by cluster; the first column by their true labels.",
                picture=figures.labels(drawn, SHAPES, ABLATION, with_truth=True),
                name=f"labels_toy_thm-{_file(recipe)}",
            ),
            Section(
                f"Clusters and densities, {recipe} (Figure labels_toy)",
                "Above: clusters of the test points. Below: log-density with generated points; "
                "methods without a generative term have none.",
                picture=figures.labels_and_densities(drawn, SHAPES, COMPARISON),
                name=f"labels_toy-{_file(recipe)}",
            ),
            Section(
                f"Losses and their known optima, {recipe} (Figure debug)",
                "Dashed: the smallest value a loss can have, ln 2 for the prior and 0 for the invariance. "
                "A loss that stays above its optimum names the failure.",
                picture=figures.losses(drawn, SHAPES, ("gedi-no-prior", "gedi-no-inv", "gedi")),
                name=f"debug-{_file(recipe)}",
            ),
        ]
    return made


def _table(results: Sequence[Result], methods: Sequence[str]) -> ResultTable:
    head = ["data", "method", "NMI, paper"]
    head += [f"{what}, {recipe}" for recipe in RECIPES for what in ("NMI", "LL", "labels")]
    rows = []
    for shape in SHAPES:
        for name in methods:
            mean, std = NMI[shape, name]
            row = [shape, NAMES[name], f"{mean:.2f} ± {std:.2f}"]
            for suffix in RECIPES.values():
                group = [r for r in results if r.shape == shape and r.method == name + suffix]
                by = _labels_by(name + suffix, shape) if group else "–"
                row += [summary(group), _likelihood(group), by]
            rows.append(row)
    return ResultTable(head, rows)


def summary(group: Sequence[Result]) -> str:
    """Mean ± standard deviation of the NMI of the runs that ended, and how many did not."""
    if not group:
        return "–"
    known = [r.nmi for r in group if r.nmi is not None]
    failed = [r for r in group if r.failure is not None]
    text = _spread(known)
    if not failed:
        return text
    when = sorted(r.failed_at or 0 for r in failed)
    span = f"{when[0]}" if when[0] == when[-1] else f"{when[0]} to {when[-1]}"
    told = f"diverged {len(failed)}/{len(group)} (iteration {span})"
    return f"{text}, {told}" if text else told


def _labels_by(method: str, shape: str) -> str:
    return Group(method, ()).plan(Member(shape, seed=0)).config.head.labels


def _likelihood(group: Sequence[Result]) -> str:
    known = [r.log_likelihood for r in group if r.log_likelihood is not None]
    return _spread(known) or "–"


def _spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation; one value has none."""
    if len(values) < 2:
        return f"{values[0]:.2f}" if values else ""
    return f"{np.mean(values):.2f} ± {np.std(values):.2f}"


def _kde(shape: str, seed: int) -> float:
    train, test, _ = points(shape, seed)
    return best_kde(train, test)[1]


def _is(result: Result, suffix: str) -> bool:
    return result.method.endswith(PRINTED) == bool(suffix)


def _file(recipe: str) -> str:
    return recipe.replace(" ", "-")
