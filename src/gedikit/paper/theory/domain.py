"""A domain of few cells on which every density, expectation and loss is an exact sum.

The data has one mode a cluster, each five cells wide. The augmentation draws a point of the same mode, so that x′
is distributed as x is; a row is a pair of points of one mode, and all pairs are there.
"""

import functools
import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gedikit.densities import cluster_log_density, importance_generative
from gedikit.objectives import invariance, invariance_optimum, mutual_information, prior, prior_optimum

_MODE = (1, 4, 9, 4, 1)  # points in the cells of a mode

Logits = Float[Tensor, "cells c"]


@dataclass(frozen=True)
class Domain:
    """The unit interval in equal cells, `clusters` modes of data on it, and a uniform class prior."""

    clusters: int

    @property
    def n_cells(self) -> int:
        return self.clusters * len(_MODE)

    @property
    def rows_a_mode(self) -> int:
        return sum(_MODE) ** 2

    @functools.cached_property
    def points(self) -> Int[Tensor, " n"]:
        """The cell of every row's x."""
        return self._data.repeat_interleave(sum(_MODE), dim=1).flatten()

    @functools.cached_property
    def views(self) -> Int[Tensor, " n"]:
        """The cell of every row's x′."""
        return self._data.repeat(1, sum(_MODE)).flatten()

    @functools.cached_property
    def log_density(self) -> Float[Tensor, " cells"]:
        """log p(x) of the data."""
        counts = torch.tensor(_MODE * self.clusters, dtype=torch.float64)
        return torch.log(self.n_cells * counts / counts.sum())

    @functools.cached_property
    def labels(self) -> Int[Tensor, " cells"]:
        """The mode of every cell."""
        return torch.arange(self.n_cells) // len(_MODE)

    @property
    def log_prior(self) -> Float[Tensor, " c"]:
        return torch.full((self.clusters,), -math.log(self.clusters), dtype=torch.float64)

    def optimum(self) -> dict[str, float]:
        """H(x), 0 and H(p(y)): what the losses are where density and labels are right."""
        return {
            "L_GEN": -float(self.log_density[self.points].mean()),
            "L_INV": invariance_optimum(),
            "L_PRIOR": prior_optimum(self.log_prior),
        }

    @property
    def _data(self) -> Int[Tensor, "modes k"]:
        counts = torch.tensor(_MODE * self.clusters)
        return torch.arange(self.n_cells).repeat_interleave(counts).reshape(self.clusters, -1)


@dataclass(frozen=True)
class Solution:
    """Logits of every cell, log p(x, y) up to a constant.

    What the rows' x are given can be tampered with: the prediction of another row, or clusters with other names.
    """

    logits: Logits
    order: Int[Tensor, " n"] | None = None
    relabelled: Int[Tensor, " c"] | None = None


def joint(log_density: Float[Tensor, " cells"], posterior_logits: Float[Tensor, "*cells c"]) -> Logits:
    """Logits with a given density and given posteriors."""
    return log_density[:, None] + torch.log_softmax(posterior_logits, dim=-1)


def losses(domain: Domain, solution: Solution) -> dict[str, Tensor]:
    """L_GEN, L_INV and L_PRIOR to be minimised and a row, and I(x; y)."""
    rows, views = solution.logits[domain.points], solution.logits[domain.views]
    if solution.order is not None:
        rows = rows[solution.order]
    if solution.relabelled is not None:
        rows = rows[:, solution.relabelled]
    log_p, view_log_p = torch.log_softmax(rows, -1), torch.log_softmax(views, -1)
    everywhere = cluster_log_density(solution.logits)
    return {
        "L_GEN": importance_generative(cluster_log_density(rows), everywhere, torch.zeros_like(everywhere)),
        "L_INV": invariance(log_p, view_log_p),
        "L_PRIOR": prior(log_p, domain.log_prior),
        "I(x; y)": mutual_information(log_p),
    }
