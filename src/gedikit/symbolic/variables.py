"""What a constraint is about: named variables, each with finitely many values and a network's word on them."""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import SupportsIndex

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.errors import UsageError

Posteriors = Sequence[Float[Tensor, "*b _"] | Float[np.ndarray, "*b _"]]
"""log p(value) of every variable, one normalised tensor a variable; the last dimension runs over its values."""

Domains = Collection[SupportsIndex | Iterable[Hashable]]
"""Of every variable the number of its values, which are 0, 1, … then, or the values themselves."""

MAX_VALUES = 1_000_000  # of a variable
MAX_BITS = 4096  # of a number; beyond, a short rule or program fills memory
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


def variables_over(domains: Domains, names_of: Callable[[int], Sequence[str]]) -> tuple[Variable, ...]:
    """A variable for every domain: a number of values 0, 1, … or the values themselves."""
    if not isinstance(domains, Collection):
        raise UsageError(
            f"domains is {domains!r}: give a domain for every variable, such as ({domains!r},) for one"
        )
    if not len(domains):
        raise UsageError("domains is empty: a constraint needs at least one variable")
    names = names_of(len(domains))
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
    posteriors = [torch.as_tensor(p) for p in log_p]
    rows = posteriors[0].shape[:-1]
    for variable, posterior in zip(variables, posteriors, strict=True):
        if not posterior.is_floating_point():
            raise UsageError(
                f"log_p of {variable.name} has numbers of type {posterior.dtype}: give log-probabilities,"
                " such as torch.log_softmax of a network's output"
            )
        if posterior.shape[-1:] != (variable.size,):
            raise UsageError(
                f"log_p of {variable.name} has {posterior.shape[-1] if posterior.ndim else 0} columns and the"
                f" variable {variable.size} values: give one log-probability a value"
            )
        if posterior.shape[:-1] != rows:
            raise UsageError(
                f"log_p of {variable.name} has rows {tuple(posterior.shape[:-1])} and that of {variables[0].name}"
                f" {tuple(rows)}: give as many rows for every variable"
            )
    return [p.float() if p.dtype in _HALF else p for p in posteriors]


def _values(name: str, domain: SupportsIndex | Iterable[Hashable]) -> tuple[Hashable, ...]:
    try:
        if not isinstance(domain, Iterable) and index(domain) > MAX_VALUES:
            raise UsageError(f"the domain of {name} has {index(domain)} values, more than {MAX_VALUES}")
        values = tuple(domain) if isinstance(domain, Iterable) else tuple(range(index(domain)))
        distinct = set(values)
    except TypeError:
        raise UsageError(
            f"the domain of {name} is {domain!r}: give a number of values or the values themselves"
        ) from None
    if not values:
        raise UsageError(f"the domain of {name} is empty: a variable needs at least one value")
    if len(distinct) != len(values):
        raise UsageError(f"the domain of {name} names a value twice: {values}")
    return values
