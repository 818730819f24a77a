"""Kinds of symbols that images show: digits, operators; each with its values."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, SupportsIndex

import numpy as np

from gedikit.errors import UsageError
from gedikit.symbolic.constraint import Constraint
from gedikit.symbolic.variables import Variable, variables_over

ONE_KIND = "symbol"  # what the kind is called where there is only one and nobody gave it a name


@dataclass(frozen=True)
class Kind:
    """Symbols of one kind; clusters `first`, `first` + 1, … of a model stand for its values."""

    name: str
    values: tuple[Hashable, ...]
    first: int = 0

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def clusters(self) -> slice:
        return slice(self.first, self.first + self.size)


@dataclass(frozen=True)
class Symbols:
    """The kinds of symbols of one model, whose clusters are numbered kind after kind.

    >>> symbols = Symbols.of({"digit": 10, "operator": ("+", "-")})
    >>> symbols.n_clusters, symbols["operator"].clusters
    (12, slice(10, 12, None))
    """

    kinds: tuple[Kind, ...]

    @classmethod
    def of(cls, given: Mapping[str, SupportsIndex | Iterable[Hashable]]) -> "Symbols":
        """From names of kinds to a number of values, which are 0, 1, … then, or the values themselves."""
        if not isinstance(given, Mapping) or not given:
            raise UsageError(
                f"symbols is {given!r}: give the values of every kind, such as"
                " {'digit': 10, 'operator': ('+', '-')}"
            )
        variables = variables_over([*given.values()], lambda _: [str(name) for name in given])
        return cls.over((v.name, v.values) for v in variables)

    @classmethod
    def over(cls, kinds: Iterable[tuple[str, tuple[Hashable, ...]]]) -> "Symbols":
        """Kinds as they are given, one after the other."""
        listed = list(kinds)
        firsts = accumulate((len(values) for _, values in listed), initial=0)
        return cls(tuple(Kind(name, values, first) for (name, values), first in zip(listed, firsts, strict=False)))

    @property
    def n_clusters(self) -> int:
        return sum(kind.size for kind in self.kinds)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(kind.name for kind in self.kinds)

    @property
    def kind_of_cluster(self) -> list[int]:
        """The position of its kind for every cluster."""
        return [i for i, kind in enumerate(self.kinds) for _ in kind.values]

    @property
    def values(self) -> list[Hashable]:
        """What every cluster stands for."""
        return [value for kind in self.kinds for value in kind.values]

    def __getitem__(self, name: str) -> Kind:
        for kind in self.kinds:
            if kind.name == name:
                return kind
        raise UsageError(f"there is no kind of symbols {name!r}: there are {', '.join(self.names)}")

    def kind_of(self, variable: Variable) -> Kind | None:
        """The kind whose symbols show this variable: of its network's name, else with its values; None for none."""
        named = [kind for kind in self.kinds if kind.name == variable.network and kind.values == variable.values]
        fitting = named or [kind for kind in self.kinds if kind.values == variable.values]
        if len(fitting) > 1:
            raise UsageError(
                f"{variable.name} could be of the kinds {' and '.join(kind.name for kind in fitting)}, which have"
                f" the same values: say which, such as kinds={{{variable.name!r}: {fitting[0].name!r}}}"
            )
        return fitting[0] if fitting else None

    def plain_values(self) -> list[Any]:
        """What clusters stand for, as a file can hold it."""
        plain = (value.item() if isinstance(value, np.generic) else value for value in self.values)
        return [value if isinstance(value, bool | int | float | str) else str(value) for value in plain]


def shown_by_one_network(constraints: Sequence[Constraint]) -> Symbols:
    """The one kind of symbols of constraints all variables of which have the same values and network."""
    for constraint in constraints:
        if not constraint.one_domain:
            raise UsageError(
                f"{constraint.name} has variables with different values or networks, and one network labels all"
                " rows: state it with the same values and the same network for each, or say which symbols there"
                " are, such as symbols={'digit': 10, 'operator': ('+', '-')}"
            )
    first = constraints[0].variables[0]
    return Symbols.over([(first.network or ONE_KIND, first.values)])
