"""Rules to learn from: a constraint, and examples of images that satisfy it."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from jaxtyping import Int64
from numpy.typing import ArrayLike, NDArray

from gedikit.errors import DataError, UsageError
from gedikit.planning import ExamplesProfile
from gedikit.symbolic import Constraint


@dataclass(frozen=True)
class Rules:
    """Each example is a row of numbers of rows of the data, one for every variable of the constraint."""

    constraint: Constraint
    examples: Int64[np.ndarray, "m v"]

    @classmethod
    def of(cls, constraint: Constraint, examples: ArrayLike) -> Self:
        """From what a user gives."""
        if not isinstance(constraint, Constraint):
            kind = type(constraint).__name__
            raise UsageError(
                f"constraint is a {kind}: state it as a Constraint, such as Constraint(f, domains=(10, 10))"
            )
        try:
            numbers = np.asarray(examples)
        except ValueError:
            raise UsageError("examples has rows of different lengths: give a number for every variable") from None
        if numbers.dtype.kind not in "iu":
            raise UsageError(f"examples has values of type {numbers.dtype}: give whole numbers, those of rows of X")
        return cls(constraint, numbers.astype(np.int64))

    @property
    def n_variables(self) -> int:
        return len(self.constraint.variables)

    @property
    def values(self) -> list[Any]:
        """What clusters stand for, as a file can hold it."""
        plain = (
            value.item() if isinstance(value, np.generic) else value
            for value in self.constraint.variables[0].values
        )
        return [value if isinstance(value, bool | int | float | str) else str(value) for value in plain]

    def profile(self) -> ExamplesProfile:
        """What a plan takes from the examples."""
        return ExamplesProfile(self.examples.size, self.n_variables, tuple(self.prior().tolist()))

    def prior(self) -> NDArray[np.float64]:
        """How often each value occurs in examples; a value that never does keeps a trace, as its logarithm must."""
        p = self.constraint.implied_prior().shared.cpu().numpy().astype(np.float64)
        p = np.maximum(p, 1e-3 / len(p))
        kept: NDArray[np.float64] = p / p.sum()
        return kept

    def check(self, n_rows: int, n_clusters: int) -> None:
        shape, variables = self.examples.shape, self.constraint.variables
        if self.examples.ndim != 2 or shape[1] != len(variables) or shape[0] < 1:
            raise UsageError(
                f"examples has shape {shape}: give a row for every example and one number for each of "
                f"{', '.join(v.name for v in variables)}"
            )
        outside = self.examples[(self.examples < 0) | (self.examples >= n_rows)]
        if outside.size:
            raise DataError(f"examples name rows from 0 to {n_rows - 1}, not {outside[0]}")
        if len(np.unique(self.examples)) < 2:
            raise DataError("examples name a single row: at least two are needed")
        ordered = np.sort(self.examples, axis=1)
        if (ordered[:, 1:] == ordered[:, :-1]).any():
            raise DataError("an example names the same row twice: rows of one example must differ")
        if not self.constraint.one_domain:
            raise UsageError(
                f"{self.constraint.name} has variables with different values or networks, and one network labels "
                "all rows: state it with the same values and the same network for each"
            )
        for variable in variables:
            if variable.size != n_clusters:
                raise UsageError(
                    f"{variable.name} has {variable.size} values and the model {n_clusters} clusters: "
                    "a cluster stands for a value"
                )
