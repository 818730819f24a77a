"""Rules to learn from: a constraint, and examples of images that satisfy it."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64
from numpy.typing import NDArray
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

    def whole(self, batch_size: int) -> int:
        """Rows of as many whole examples as fit, and of one at least."""
        return max(1, batch_size // self.n_variables) * self.n_variables

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
        if self.examples.min() < 0 or self.examples.max() >= n_rows:
            raise DataError(f"examples name rows from 0 to {n_rows - 1}, not {self.examples.max()}")
        ordered = np.sort(self.examples, axis=1)
        if (ordered[:, 1:] == ordered[:, :-1]).any():
            raise DataError("an example names the same row twice: rows of one example must differ")
        if not self.constraint.one_domain:
            raise UsageError(
                f"{self.constraint.name} has variables with different values, and one network labels the rows of "
                "all of them: state it with the same values for each"
            )
        for variable in variables:
            if variable.size != n_clusters:
                raise UsageError(
                    f"{variable.name} has {variable.size} values and the model {n_clusters} clusters: "
                    "a cluster stands for a value"
                )
