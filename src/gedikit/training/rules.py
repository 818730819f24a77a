"""Rules to learn from: a constraint, and examples of images that satisfy it."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64
from torch import Tensor

from gedikit.errors import DataError, UsageError
from gedikit.symbolic import Constraint


@dataclass(frozen=True)
class Rules:
    """Each example is a row of numbers of rows of the data, one for every variable of the constraint."""

    constraint: Constraint
    examples: Int64[np.ndarray, "m v"]
    reading: Float[Tensor, "n c"] | None = None  # p(value | row) before the network has learned

    @property
    def n_variables(self) -> int:
        return len(self.constraint.variables)

    def check(self, n_rows: int, n_clusters: int) -> None:
        shape, variables = self.examples.shape, self.constraint.variables
        if self.examples.ndim != 2 or shape[1] != len(variables) or shape[0] < 1:
            raise UsageError(
                f"examples has shape {shape}: give a row for every example and one number for each of "
                f"{', '.join(v.name for v in variables)}"
            )
        if self.examples.min() < 0 or self.examples.max() >= n_rows:
            raise DataError(f"examples name rows from 0 to {n_rows - 1}, not {self.examples.max()}")
        ordered = np.sort(self.examples, axis=1)
        if (ordered[:, 1:] == ordered[:, :-1]).any():
            raise DataError("an example names the same row twice: rows of one example must differ")
        for variable in variables:
            if variable.size != n_clusters:
                raise UsageError(
                    f"{variable.name} has {variable.size} values and the model {n_clusters} clusters: "
                    "a cluster stands for a value"
                )
