"""Constraints too large to list: a formula and the circuit it was compiled to."""

import heapq
from collections.abc import Sequence
from itertools import accumulate
from math import inf

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.errors import UsageError
from gedikit.symbolic.budget import Budget
from gedikit.symbolic.compiler import compiled
from gedikit.symbolic.formula import NEVER, TRUE, All, Fact, Formula, substituted
from gedikit.symbolic.table import Worlds
from gedikit.symbolic.variables import Variable


class Compiled:
    """`holds` where `given` does: with evidence the probability is that of both over that of the evidence."""

    def __init__(self, variables: Sequence[Variable], holds: Formula, given: Formula, budget: Budget, name: str):
        self.variables, self.holds, self.given = tuple(variables), holds, given
        self.limits = (budget.seconds, budget.nodes)
        budget.doing = f"compiling {name}"
        roots = [holds] if given is TRUE else [All((given, holds)), given]
        self.diagram = compiled(roots, budget)
        self.circuit = self.diagram.circuit(self.variables)
        possible = self.circuit(torch.zeros(self.circuit.n_inputs, 1, dtype=torch.float64))[:, 0] > -inf
        if not possible[-1] and given is not TRUE:
            raise UsageError(f"the evidence for {name} cannot hold, whatever the values of its variables")
        if not possible[0]:
            raise UsageError(f"{name} {NEVER}")

    @property
    def size(self) -> int:
        """How many numbers are computed for every column."""
        return self.circuit.size

    @property
    def has_facts(self) -> bool:
        return any(isinstance(choice, Fact) for choice in self.diagram.choices)

    def log_joint(self, columns: Float[Tensor, "i n"]) -> Float[Tensor, " n"]:
        """log-probability of query and evidence, from one row for every value of every variable."""
        return self.circuit(columns)[0]

    def log_probability(self, columns: Float[Tensor, "i n"]) -> Float[Tensor, " n"]:
        """log-probability of the query, given the evidence; −inf where that is impossible."""
        roots = self.circuit(columns)
        return roots[0] if self.given is TRUE else roots[0] - torch.where(roots[1] == -inf, 0.0, roots[1])

    def worlds(self, columns: Float[Tensor, " i"], k: int) -> Worlds:
        """The k most probable values of the variables, facts summed out, and the log-weights of each.

        With facts, best first: beginnings of an assignment, by an upper bound on what they can lead to.
        """
        if not self.has_facts:
            return self.diagram.worlds(self.variables, columns, k)
        first = [0, *accumulate(v.size for v in self.variables)]
        heap: list[tuple[float, tuple[int, ...]]] = [(-inf, ())]
        found: Worlds = []
        while heap and len(found) < k:
            bound, beginning = heapq.heappop(heap)
            at = len(beginning)
            if at == len(self.variables):
                found.append((beginning, -bound))
                continue
            options = torch.arange(self.variables[at].size)
            allowed = torch.ones(first[-1], len(options), dtype=torch.bool)
            for v, value in enumerate((*beginning, options)):
                allowed[first[v] : first[v + 1]] = torch.arange(self.variables[v].size)[:, None] == value
            fixed = torch.where(allowed.to(columns.device), columns[:, None], -inf)
            for value, best in enumerate(self.circuit.best(fixed)[0].tolist()):
                if best > -inf:
                    heapq.heappush(heap, (-best, (*beginning, value)))
        return found

    def formula(self) -> tuple[Formula, Formula]:
        return self.holds, self.given

    def renamed(self, variables: Sequence[Variable], position: Sequence[int], name: str) -> "Compiled":
        """Over `variables`, of which the i-th of ours is number position[i]."""
        names = {v.name: variables[i] for v, i in zip(self.variables, position, strict=True)}
        holds, given = (f if f is TRUE else substituted(f, names) for f in (self.holds, self.given))
        return Compiled(variables, holds, given, Budget(*self.limits), name)
