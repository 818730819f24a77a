"""The rule of the addition experiment, for numbers of one digit and of more."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gedikit.data.addition import SIZES, addition_examples, long_addition_examples
from gedikit.errors import UsageError
from gedikit.symbolic import Constraint

_BATCH = 60  # images, 20 examples: the paper's
_LARGER = {1000: 120, 10_000: 240}  # by default: fewer, better filled iterations where there are examples enough
_LONG_SIZES = {100: 200, 1000: 50}  # sums of longer numbers, which the paper has not: examples and epochs
CARRIED = """
nn(digit, [X], Y, [0,1,2,3,4,5,6,7,8,9]) :: digit(X, Y).
sum([], [], C, [Z]) :- digit(Z, C).
sum([A|As], [B|Bs], C, [Z|Zs]) :-
    digit(A, X), digit(B, Y), S is X + Y + C, D is S mod 10, digit(Z, D), T is S // 10, sum(As, Bs, T, Zs).
"""


@dataclass(frozen=True)
class Sums:
    """a + b = c of images. Of one digit each, c too, as in the paper; of more with a carry, stated as a program."""

    digits: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.digits <= 3:
            raise UsageError(f"numbers of 1 to 3 digits can be added, not of {self.digits}")

    @property
    def sizes(self) -> dict[int, int]:
        """Numbers of examples, and for how many epochs each is trained on."""
        return SIZES if self.digits == 1 else _LONG_SIZES

    @property
    def lengths(self) -> tuple[int, int, int]:
        return (1, 1, 1) if self.digits == 1 else (self.digits, self.digits, self.digits + 1)

    def batch_size(self, n: int, *, printed: bool) -> int:
        """Images of whole examples."""
        size = _BATCH if printed else _LARGER.get(n, _BATCH)
        return size // sum(self.lengths) * sum(self.lengths)

    @property
    def names(self) -> list[list[str]]:
        """Variables of a, b and c, the last digit of each first."""
        return [[f"{name}{i}" for i in range(n)] for name, n in zip("abc", self.lengths, strict=True)]

    @property
    def query(self) -> str:
        a, b, c = (f"[{', '.join(names)}]" for names in self.names)
        return f"sum({a}, {b}, 0, {c})"

    def constraint(self) -> Constraint:
        if self.digits == 1:
            return Constraint(lambda a0, b0, c0: a0 + b0 == c0, domains=(10, 10, 10))
        stated = Constraint.from_program(CARRIED, self.query)
        return stated.renamed({f"digit({name})": name for names in self.names for name in names})

    def examples(self, labels: NDArray[Any], n: int, seed: int) -> NDArray[np.int64]:
        if self.digits == 1:
            return addition_examples(labels, n, seed)
        return long_addition_examples(labels, n, seed, self.digits)

    def written(self, values: Mapping[str, Any]) -> str:
        a, b, c = ("".join(str(values[name]) for name in reversed(names)) for names in self.names)
        return f"{a} + {b} = {c}"
