"""How much the weights of INV and PRIOR matter: the paper's heat maps over {0, 10, …, 50}²."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from gedikit.paper.reproduce import figures
from gedikit.paper.reproduce.fits import Group, Member, Result
from gedikit.paper.reproduce.page import ResultTable, Section, write_page
from gedikit.paper.reproduce.running import Request, run_all
from gedikit.paper.reproduce.toy import SHAPES

WEIGHTS = (0, 10, 20, 30, 40, 50)


def reproduce(request: Request, method: str, console: Console) -> Path:
    """Fit every pair of weights for every seed, write the heat maps; returns the page."""
    pairs = [(float(i), float(p)) for i in WEIGHTS for p in WEIGHTS]
    groups = [
        Group(
            method,
            tuple(Member(shape, seed, (("invariance", i), ("prior", p))) for i, p in pairs),
            request.iterations,
        )
        for seed in request.chosen_seeds
        for shape in SHAPES
    ]
    done = run_all(groups, request, console)
    results = [result for job in done for result in job.results]
    note = (
        f"Method {method}, weight of the generative term 1. Mean NMI on 1000 test points over {request.seeds} "
        f"seeds ({request.chosen_seeds[0]} to {request.chosen_seeds[-1]}); a run that diverged counts as 0."
    )
    made = [
        Section("Sensitivity to the weights (Figure sensitivity)", note, picture=_maps(results), name="sensitivity")
    ]
    made += [
        Section(f"The numbers: {shape}", _failures(results, shape), _table(results, shape)) for shape in SHAPES
    ]
    return write_page(request.out, "sensitivity", "Sensitivity to the weights of the losses", made)


def _mean_nmi(results: Sequence[Result], shape: str) -> np.ndarray:
    grid = np.zeros((len(WEIGHTS), len(WEIGHTS)))
    for i, invariance in enumerate(WEIGHTS):
        for j, prior in enumerate(WEIGHTS):
            cell = _cell(results, shape, invariance, prior)
            grid[i, j] = np.mean([r.nmi or 0.0 for r in cell])
    return grid


def _cell(results: Sequence[Result], shape: str, invariance: float, prior: float) -> list[Result]:
    wanted = {"invariance": float(invariance), "prior": float(prior)}
    return [r for r in results if r.shape == shape and r.weights == wanted]


def _maps(results: Sequence[Result]) -> bytes:
    return figures.heat_maps({shape: _mean_nmi(results, shape) for shape in SHAPES}, WEIGHTS)


def _failures(results: Sequence[Result], shape: str) -> str:
    group = [r for r in results if r.shape == shape]
    failed = sum(r.failure is not None for r in group)
    return f"Mean NMI ± standard deviation; {failed} of {len(group)} runs diverged."


def _table(results: Sequence[Result], shape: str) -> ResultTable:
    head = ["INV \\ PRIOR", *(str(w) for w in WEIGHTS)]
    rows = []
    for invariance in WEIGHTS:
        row = [str(invariance)]
        for prior in WEIGHTS:
            values = [r.nmi or 0.0 for r in _cell(results, shape, invariance, prior)]
            row.append(f"{np.mean(values):.2f} ± {np.std(values):.2f}")
        rows.append(row)
    return ResultTable(head, rows)
