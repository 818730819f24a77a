"""What a constraint is about: named variables, each with finitely many values and a network's word on them."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.errors import UsageError

Posteriors = Sequence[Float[Tensor, "*b _"]]
"""log p(value) of every variable, one normalised tensor a variable; the last dimension runs over its values."""

_HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Variable:
    """Something with one of `values`; constraints that name it alike share it."""

    name: str
    values: tuple[Hashable, ...]
    network: str | None = field(default=None, compare=False)

    @property
    def size(self) -> int:
        return len(self.values)


def variables_over(domains: Sequence[int | Sequence[Hashable]], names: Sequence[str]) -> tuple[Variable, ...]:
    """A variable for every domain: a number of values 0, 1, … or the values themselves."""
    if not domains:
        raise UsageError("domains is empty: a constraint needs at least one variable")
    if len(names) != len(domains):
        raise UsageError(f"names has {len(names)} entries for {len(domains)} domains: give one name a variable")
    if len(set(names)) != len(names):
        raise UsageError(f"names must differ, not {', '.join(names)}: one name is one variable")
    return tuple(Variable(n, _values(n, d)) for n, d in zip(names, domains, strict=True))


def checked(variables: Sequence[Variable], log_p: Posteriors) -> list[Float[Tensor, "*b _"]]:
    """The posteriors in at least float32, refused where they do not fit the variables."""
    if len(log_p) != len(variables):
        names = ", ".join(v.name for v in variables)
        raise UsageError(
            f"log_p has {len(log_p)} tensors for {len(variables)} variables: give one for each of {names}"
        )
    for variable, posterior in zip(variables, log_p, strict=True):
        if posterior.shape[-1] != variable.size:
            raise UsageError(
                f"log_p of {variable.name} has {posterior.shape[-1]} columns and the variable {variable.size}"
                " values: give one log-probability a value"
            )
        if posterior.shape[:-1] != log_p[0].shape[:-1]:
            raise UsageError(
                f"log_p of {variable.name} has rows {tuple(posterior.shape[:-1])} and that of {variables[0].name}"
                f" {tuple(log_p[0].shape[:-1])}: give as many rows for every variable"
            )
    return [p.float() if p.dtype in _HALF else p for p in log_p]


def _values(name: str, domain: int | Sequence[Hashable]) -> tuple[Hashable, ...]:
    values = tuple(range(domain)) if isinstance(domain, int) else tuple(domain)
    if not values:
        raise UsageError(f"the domain of {name} is empty: a variable needs at least one value")
    if len(set(values)) != len(values):
        raise UsageError(f"the domain of {name} names a value twice: {values}")
    return values
