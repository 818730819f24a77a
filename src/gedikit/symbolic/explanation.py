"""What a constraint says about one example, and about all of them."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.errors import UsageError
from gedikit.symbolic.variables import Variable


@dataclass(frozen=True)
class World:
    """Values that satisfy the constraint, and their probability given that it is satisfied."""

    values: dict[str, Hashable]
    probability: float

    def __str__(self) -> str:
        return f"{self.probability:.4f}  {', '.join(f'{name}={value}' for name, value in self.values.items())}"


@dataclass(frozen=True)
class Explanation:
    """How probable the constraint is, the most probable worlds in which it holds, and marginals given that."""

    log_probability: float
    worlds: list[World]
    marginals: dict[str, Float[Tensor, " _"]]

    def __str__(self) -> str:
        return "\n".join([f"log P = {self.log_probability:.4f}", *map(str, self.worlds)])


@dataclass(frozen=True)
class ImpliedPrior:
    """p(value | constraint) of every variable when all values are equally probable beforehand."""

    variables: Sequence[Variable]
    marginals: dict[str, Float[Tensor, " _"]]

    @property
    def pooled(self) -> dict[tuple[Hashable, ...], Float[Tensor, " _"]]:
        """For variables with the same values the mean of their marginals: how often a class occurs among them."""
        pools: dict[tuple[Hashable, ...], list[Tensor]] = {}
        for v in self.variables:
            pools.setdefault(v.values, []).append(self.marginals[v.name])
        return {values: torch.stack(pool).mean(0) for values, pool in pools.items()}

    @property
    def shared(self) -> Float[Tensor, " c"]:
        """The pooled prior where all variables have the same values."""
        pools = list(self.pooled.values())
        if len(pools) > 1:
            raise UsageError(f"the variables have {len(pools)} different domains: take one from pooled")
        return pools[0]
