"""Additions whose digits are seen as clusters, and rules to name these by."""

import torch
from symbolic_cases import CARRY, carry_query
from torch import Tensor

from gedikit.symbolic import Constraint, likelihoods, naming
from gedikit.symbolic.situations import allowed

ADDITIONS = torch.tensor([(a, b, a + b) for a in range(10) for b in range(10 - a)])
FEW = torch.tensor([[0, 1, 1], [2, 2, 4]])
A, B = torch.cartesian_prod(torch.arange(100), torch.arange(100)).T
SUMS = torch.stack([x // 10**i % 10 for x, n in ((A, 2), (B, 2), (A + B, 3)) for i in range(n)], 1)
CPU = torch.device("cpu")
RULES = (likelihoods.ByTuples, likelihoods.ByCircuit)
WEIGHTS = {(0, 1, 1): 0.5, (0, 0, 0): 1.0, (1, 1, 2): 0.1, (2, 0, 2): 0.8, (2, 2, 1): 0.3}


def seen(n: int, n_clusters: int, noise: float, seed: int, rows: Tensor = ADDITIONS) -> tuple[Tensor, Tensor]:
    """Digits of n additions and clusters of which every one is of one digit, but for noise, in random order."""
    generator = torch.Generator().manual_seed(seed)
    digits = rows[torch.randint(len(rows), (n,), generator=generator)]
    digit_of = torch.arange(n_clusters)[torch.randperm(n_clusters, generator=generator)] % 10
    chance = torch.rand(*digits.shape, n_clusters, generator=generator)
    clusters = torch.where(digit_of == digits[..., None], chance, -1.0).argmax(-1)
    anything = torch.randint(n_clusters, digits.shape, generator=generator)
    return digits, torch.where(torch.rand(digits.shape, generator=generator) < noise, anything, clusters)


def weighted() -> Constraint:
    return Constraint.from_table(list(WEIGHTS), (3, 3, 3), list(WEIGHTS.values()))


def long_addition() -> Constraint:
    return Constraint.from_program(CARRY, carry_query(2))


class OneKind:
    """Examples of one rule over symbols of one kind, by the way of computing that is asked for."""

    def __init__(
        self, constraint: Constraint, clusters: Tensor, n_clusters: int, rule: type = likelihoods.ByTuples
    ):
        seen, sizes = as_seen(constraint, clusters), [(constraint.variables[0].size, n_clusters)]
        if rule is likelihoods.ByTuples:
            listed = allowed(constraint, seen.images, {}, joint=True)
            made: likelihoods._Rule = likelihoods.ByTuples(*listed, seen.kinds, sizes, CPU)
        else:
            made = likelihoods.ByCircuit(constraint, CPU)
        self.model = likelihoods.Model([seen], sizes, naming._no_labels(sizes, CPU))
        self.model.parts = [likelihoods.Part(made, seen, sizes)]
        self.patterns = self.model.parts[0].patterns.clusters

    def evaluate(self, log_shows: Tensor) -> tuple[Tensor, Tensor]:
        ((log_p, (posterior,)),) = self.model.evaluate([log_shows])
        return log_p, posterior

    def expected_rows(self, log_shows: Tensor) -> Tensor:
        return self.model.expected_rows([log_shows])[0]

    def climbed(self, shows: Tensor, smoothing: float, steps: int) -> Tensor:
        return naming._climbed([shows], self.model, smoothing, steps)[0]

    def log_likelihoods(self, shows: Tensor) -> Tensor:
        return naming._log_likelihoods([shows], self.model)


def as_seen(constraint: Constraint, clusters: Tensor) -> likelihoods.Seen:
    nothing = torch.full_like(clusters, -1)
    return likelihoods.Seen(constraint, (0,) * len(constraint.variables), clusters.long(), nothing)


def random_shows(n_values: int, n_clusters: int, starts: int = 1, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(starts, n_values, n_clusters, generator=generator, dtype=torch.float64)
    return torch.softmax(logits, -1)
