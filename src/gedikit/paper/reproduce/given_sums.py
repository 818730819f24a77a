"""Addition with the sum given: two numbers of N digits as images, and what they come to (Manhaeve et al., 2018)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from rich.console import Console

from gedikit.data.addition import GivenSums, digits_of_sum, given_sums, redrawn_sums
from gedikit.errors import UsageError
from gedikit.estimator import GEDI
from gedikit.paper.reproduce.running import Request
from gedikit.paper.reproduce.tasks import Classify, Page, Pictures, Problem, Selection, reproduce
from gedikit.symbolic import Constraint, Examples, Known, Rows

# of whole sums: DeepProofLog (Jiao et al., 2025), which has no figure for N = 2
PUBLISHED = {1: "0.98", 4: "0.940", 15: "0.808", 100: "0.378"}
DIGITS = (1, 2, 4, 15, 100)
TENTH = 0.1
# images: of 600, sums of 1, 2, 4, 15 and 100 digits are whole, so that all fits have the same shapes
_BATCH, _SMALL_BATCH = 600, 400

PAGE = Page(
    "sums",
    "Digits from sums that are given",
    "Two numbers of N digits are images; their sum is known, and nothing else. Training images are each used once, "
    "60,000 of them (1/10 of the examples: 6,000). A test sum is right if the digits that the network reads add up "
    "to it; every test sum is drawn anew from the test images. Published: DeepProofLog, whole sums.",
    {"sums": "whole sums right", "digits": "digits right"},
)


@dataclass(frozen=True)
class SumsTask:
    """Sums of two numbers of so many digits; `share` of the training images are used."""

    digits: int
    share: float = 1.0

    @property
    def title(self) -> str:
        return f"N = {self.digits}" + ("" if self.share == 1 else f", {self.share:g} of the examples")

    @property
    def published(self) -> str:
        return PUBLISHED.get(self.digits, "–") if self.share == 1 else "–"

    def batch_size(self, pictures: Pictures) -> int:
        together, most = 2 * self.digits, _BATCH if pictures.image_shape else _SMALL_BATCH
        return max(1, most // together) * together

    def problem(self, pictures: Pictures, seed: int) -> Problem:
        n = int(self.share * len(pictures.y)) // (2 * self.digits)
        if n < 1:
            raise UsageError(
                f"{pictures.name}: {self.share * len(pictures.y):.0f} images make no sum of {self.digits} digits"
            )
        train = given_sums(pictures.y, n, seed, self.digits)
        test = redrawn_sums(pictures.test_y, pictures.n_tests, seed, self.digits)

        def measure(classify: Classify, model: GEDI | None) -> dict[str, float]:  # noqa: ARG001
            shown = classify(pictures.test_x, "digit")
            found = digits_of_sum(*np.split(shown[test.rows], 2, axis=1))
            right = (found == test.sums).all(1).mean()
            return {"sums": float(right), "digits": float((shown == pictures.test_y).mean())}

        rows = np.arange(train.rows.size).reshape(train.rows.shape)
        examples = sum_examples(GivenSums(rows, train.sums))
        return Problem(pictures.x[train.rows.ravel()], {"digit": tuple(range(10))}, [examples], measure)


@lru_cache
def addition(digits: int) -> Constraint:
    """Digits of a, of b and of their sum s, the last of each first: a chain that carries the carry along."""

    def add(carry: int, a: int, b: int, s: int) -> int | None:
        after, digit = divmod(a + b + carry, 10)
        return after if s == digit else None

    def end(carry: int, s: int) -> int | None:
        return 0 if s == carry else None

    names = [(f"a{i}", f"b{i}", f"s{i}") for i in range(digits)]
    return Constraint.from_chain(
        [add] * digits + [end], [(10, 10, 10)] * digits + [(10,)], 0, names=[*names, (f"s{digits}",)]
    )


def sum_examples(sums: GivenSums) -> Examples:
    a, b = np.split(sums.rows, 2, axis=1)
    columns: dict[str, Rows | Known] = {}
    for name, numbers in (("a", a), ("b", b)):
        columns |= {f"{name}{i}": Rows(column) for i, column in enumerate(numbers.T)}
    columns |= {f"s{i}": Known(column) for i, column in enumerate(sums.sums.T)}
    return Examples(addition(a.shape[1]), columns)


def tasks(digits: Sequence[int], *, tenth: bool) -> list[SumsTask]:
    chosen = sorted(set(digits or DIGITS))
    if chosen[0] < 1:
        raise UsageError(f"numbers have at least 1 digit, not {chosen[0]}")
    return [SumsTask(n, share) for share in (1.0, *([TENTH] if tenth else [])) for n in chosen]


def reproduce_sums(
    digits: Sequence[int], *, tenth: bool, selection: Selection, request: Request, console: Console
) -> Path:
    return reproduce(PAGE, tasks(digits, tenth=tenth), selection, request, console)
