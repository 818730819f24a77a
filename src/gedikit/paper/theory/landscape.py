"""Theorem 1: the failure modes built on a domain with exact densities, and which loss each of them raises.

Losses that have no upper bound (L_INV for inconsistent labels, L_PRIOR for cluster collapse) are as large as the
labels are certain; here a certain label is `CERTAIN` nats above the others.
"""

import math
from dataclasses import dataclass

import torch

from gedikit.paper.theory.check import Check
from gedikit.paper.theory.constant_posteriors import CERTAIN, best_constant, peaked, peaked_at
from gedikit.paper.theory.domain import Domain, Solution, joint, losses
from gedikit.paper.theory.draws import Draws

PENALISED = 1e-6  # nats above the optimum
LOSSES = ("L_GEN", "L_INV", "L_PRIOR")
OBJECTIVE = "Eq. gedi_obj"
INFORMATION = "I(x; y)"
REPRESENTATION, COLLAPSE, INCONSISTENT = "representation collapse", "cluster collapse", "label inconsistency"
IGNORES_X = "posterior ignores x"
MODES = (REPRESENTATION, COLLAPSE, INCONSISTENT, IGNORES_X)
PAPER = {
    "L_GEN": (True, False, False),
    "L_INV": (False, False, True),
    "L_PRIOR": (False, True, False),
    OBJECTIVE: (True, True, True),
}


@dataclass(frozen=True)
class Cell:
    """A loss in a failure mode: nats above its optimum; in the row of I(x; y), the information itself."""

    mode: str
    nats: float
    penalised: bool


@dataclass(frozen=True)
class Row:
    loss: str
    cells: tuple[Cell, ...]


def healthy(domain: Domain) -> Solution:
    """The data's density, and certain labels that are those of the modes."""
    certain = CERTAIN * torch.eye(domain.clusters, dtype=torch.float64)[domain.labels]
    return Solution(joint(domain.log_density, certain))


def representation_collapse(domain: Domain, loss: str) -> Solution:
    """g(x) = k for every x, with the k that suits a loss best: certain, uniform, or best for their sum."""
    certain, uniform = peaked(torch.tensor([CERTAIN, 0.0], dtype=torch.float64), domain.clusters)
    compromise = best_constant((1.0, 1.0), domain.clusters)
    logits = {"L_INV": certain, "L_PRIOR": uniform}.get(loss, compromise)
    return Solution(joint(torch.zeros_like(domain.log_density), logits))


def cluster_collapse(domain: Domain) -> Solution:
    """Every x in the first cluster with certainty, and the data's density."""
    certain = peaked(torch.tensor(CERTAIN, dtype=torch.float64), domain.clusters)
    return Solution(joint(domain.log_density, certain))


def label_inconsistency(domain: Domain) -> Solution:
    """The healthy solution, where the rows of a mode are given the predictions of the next one."""
    order = torch.arange(len(domain.points)).roll(domain.rows_a_mode)
    return Solution(healthy(domain).logits, order)


def posterior_ignores_x(domain: Domain, peak: float) -> Solution:
    """One constant posterior, and the data's density."""
    return Solution(joint(domain.log_density, peaked_at(peak, domain.clusters)))


def excesses(domain: Domain, solution: Solution) -> dict[str, float]:
    """Nats above the optimum for every loss and for their sum, and I(x; y)."""
    values, optimum = losses(domain, solution), domain.optimum()
    above = {name: float(values[name]) - optimum[name] for name in LOSSES}
    return above | {OBJECTIVE: sum(above.values()), INFORMATION: float(values[INFORMATION])}


def landscape_table(clusters: int = 2, peak: float = 0.9) -> tuple[Row, ...]:
    """The paper's summary of the loss landscape with computed entries, the fourth mode and a row of I(x; y)."""
    domain = Domain(clusters)
    alike = {
        COLLAPSE: excesses(domain, cluster_collapse(domain)),
        INCONSISTENT: excesses(domain, label_inconsistency(domain)),
        IGNORES_X: excesses(domain, posterior_ignores_x(domain, peak)),
    }
    rows = []
    for loss in (*LOSSES, OBJECTIVE, INFORMATION):
        collapsed = {REPRESENTATION: excesses(domain, representation_collapse(domain, loss))}
        nats = {mode: values[loss] for mode, values in (collapsed | alike).items()}
        short = {mode: math.log(clusters) - x if loss == INFORMATION else x for mode, x in nats.items()}
        rows.append(Row(loss, tuple(Cell(mode, nats[mode], short[mode] > PENALISED) for mode in MODES)))
    return tuple(rows)


def theorem_1(seed: int = 0) -> list[Check]:
    return [_table(), _healthy(), _uniform_density(), _permutations(Draws(seed))]


def _table() -> Check:
    admitted, penalised = {}, {}
    for clusters in (2, 3):
        for row in landscape_table(clusters)[: len(PAPER)]:
            for cell, expected in zip(row.cells[:3], PAPER[row.loss], strict=True):
                name = f"{row.loss}, {cell.mode}, c = {clusters}"
                if expected:
                    penalised[name] = cell.nats
                else:
                    admitted[name] = abs(cell.nats)
    statement = "Computed on exact densities (c = 2, 3), the landscape's Yes and No are those of the paper's table."
    return Check("Theorem 1", statement, admitted, penalised, PENALISED)


def _healthy() -> Check:
    domain = Domain(3)
    values = excesses(domain, healthy(domain))
    information = values.pop(INFORMATION) - math.log(domain.clusters)
    collapses = (
        cluster_collapse(domain),
        posterior_ignores_x(domain, 0.9),
        representation_collapse(domain, "L_INV"),
    )
    zeros = [abs(excesses(domain, solution)[INFORMATION]) for solution in collapses]
    errors = {name: abs(excess) for name, excess in (values | {"I(x; y) − ln c": information}).items()}
    statement = "The healthy solution attains every optimum and I(x; y) = ln c; I(x; y) is 0 in modes 1, 2 and 4."
    return Check("Theorem 1", statement, errors | {"I(x; y) in modes 1, 2, 4": max(zeros)}, tolerance=PENALISED)


def _uniform_density() -> Check:
    domain = Domain(3)
    excess = excesses(domain, representation_collapse(domain, "L_GEN"))["L_GEN"]
    density = domain.log_density.exp() / domain.n_cells
    divergence = float((density * domain.log_density).sum())
    statement = "A constant g has the uniform density, and L_GEN is too high by KL(p ‖ uniform)."
    return Check("Theorem 1", statement, {"excess − KL": abs(excess - divergence)}, {"KL": divergence})


def _permutations(draws: Draws) -> Check:
    domain = Domain(3)
    logits = healthy(domain).logits
    before = excesses(domain, healthy(domain))
    n = len(domain.points)
    across = [Solution(logits, order=draws.permutation(n)) for _ in range(50)]
    renamed = [Solution(logits, relabelled=torch.arange(3).roll(k)) for k in (1, 2)]
    within = torch.cat([draws.permutation(domain.rows_a_mode) + k * domain.rows_a_mode for k in range(3)])
    changes = [
        {loss: excesses(domain, solution)[loss] - before[loss] for loss in LOSSES} for solution in across + renamed
    ]
    unmoved = excesses(domain, Solution(logits, order=within))["L_INV"] - before["L_INV"]
    return Check(
        "Theorem 1",
        "Predictions swapped across rows, or clusters renamed for x alone, raise L_INV and nothing else.",
        {
            "L_GEN": max(abs(change["L_GEN"]) for change in changes),
            "L_PRIOR": max(abs(change["L_PRIOR"]) for change in changes),
            "L_INV, within clusters": abs(unmoved),
        },
        {"L_INV": min(change["L_INV"] for change in changes)},
    )
