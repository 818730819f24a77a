"""What sets a group apart from all other rows, in one column at a time.

The effect is the same for every kind of column: by how much the share of rows differs, in the group and elsewhere,
that have some category, or a value in some range. For numbers and dates the range is the one for which it differs
most, which makes it Kuiper's (1960) statistic: it needs no unit, is not moved by outliers, sees a group that lies
between others, and lies in [0, 1] as a difference of shares does. It describes a sample; groups were made from the
same rows, so that nothing here is a test.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import NDArray

from gedikit.groups.cells import ColumnValues, percent, written
from gedikit.tables.columns import Column

_LEAST = 0.2  # a difference of shares worth a word
_BY_CHANCE = 2.4  # Kuiper's statistic of one distribution drawn twice is above this / √n once in 2,000 times
_ONE_SIDED = 0.25  # the smaller one of both deviations, as a share of their sum, below which a group is shifted
_QUARTILES = (0.25, 0.5, 0.75)
_IQR = 1.349  # interquartile range of a normal distribution, in deviations
_FARTHEST = 1e6


@dataclass(frozen=True)
class Contrast:
    """How the values of one column differ between a group and the other rows."""

    column: str
    how: str  # a key of _SENTENCES
    effect: float  # difference of shares, in [0, 1]
    here: float  # the median, or a share
    elsewhere: float
    outcome: str = ""  # the category that `how` is about
    low: float = 0.0  # the range that it is about
    high: float = 0.0

    def tree(self) -> dict[str, Any]:
        return asdict(self)

    def in_words(self, column: Column) -> str:
        """For example "income higher (median 81,000; elsewhere 34,000)"."""
        medians = self.how in _OF_MEDIANS
        here, there = (
            written(column, value) if medians else percent(value) for value in (self.here, self.elsewhere)
        )
        low, high = written(column, self.low), written(column, self.high)
        how = _SENTENCES[self.how].format(outcome=self.outcome, low=low, high=high)
        if column.kind == "date":
            how = {"higher": "later", "lower": "earlier"}.get(how, how.replace("above", "after"))
        return f"{self.column} {how} ({'median ' if medians else ''}{here}; elsewhere {there})"


_OF_MEDIANS = ("higher", "lower")
_SENTENCES = {
    "higher": "higher",
    "lower": "lower",
    "above": "more often above {low}",
    "up to": "more often up to {high}",
    "within": "mostly between {low} and {high}",
    "outside": "seldom between {low} and {high}",
    "more": "more often {outcome}",
    "less": "less often {outcome}",
}


@dataclass(frozen=True)
class Ranked:
    """A contrast and its place among those of other columns."""

    contrast: Contrast
    distance: float  # in robust deviations: tells apart what differs in all rows

    @property
    def rank(self) -> tuple[float, bool, float]:
        c = self.contrast
        return -round(c.effect, 2), c.how == "less", -self.distance


def strongest(values: ColumnValues, groups: Int64[np.ndarray, " n"], n_groups: int) -> list[Ranked | None]:
    """What differs most in a column, for each group; None where nothing does that is worth a word."""
    sizes = np.bincount(groups, minlength=n_groups)
    least = np.maximum(_LEAST, _BY_CHANCE / np.sqrt(np.maximum(sizes * (1 - sizes / sizes.sum()), 1e-9)))
    found: list[list[Ranked]] = [[] for _ in range(n_groups)]
    if values.numbers is not None:
        known = np.isfinite(values.numbers)
        for group, ranked in _of_numbers(values.column, values.numbers[known], groups[known], least):
            found[group].append(ranked)
    for name, outcome in values.outcomes.items():
        for group, ranked in _of_outcome(values.column, name, outcome, groups, least):
            found[group].append(ranked)
    return [min(some, key=lambda ranked: ranked.rank, default=None) for some in found]


def _of_numbers(
    column: Column,
    numbers: Float64[np.ndarray, " n"],
    groups: Int64[np.ndarray, " n"],
    least: Float64[np.ndarray, " groups"],
) -> Iterator[tuple[int, Ranked]]:
    distinct, code = np.unique(numbers, return_inverse=True)
    counts = np.bincount(code * len(least) + groups, minlength=len(distinct) * len(least))
    up_to = np.cumsum(counts.reshape(len(distinct), len(least)), axis=0).astype(np.float64)
    sizes = np.bincount(groups, minlength=len(least))
    compared = np.flatnonzero((sizes > 0) & (sizes < sizes.sum()))
    here = up_to[:, compared] / sizes[compared]
    elsewhere = (up_to.sum(1, keepdims=True) - up_to[:, compared]) / (sizes.sum() - sizes[compared])
    gap = here - elsewhere
    effect = gap.max(0, initial=0.0) - gap.min(0, initial=0.0)
    for place in np.flatnonzero(effect >= least[compared]):
        ranked = _range(column, distinct, here[:, place], elsewhere[:, place], float(effect[place]))
        yield int(compared[place]), ranked


def _range(
    column: Column,
    distinct: NDArray[np.float64],
    here: NDArray[np.float64],
    elsewhere: NDArray[np.float64],
    effect: float,
) -> Ranked:
    """The range in which shares differ most; `here` and `elsewhere` are the shares up to each distinct value."""
    own, others = (distinct[np.searchsorted(shares, _QUARTILES)] for shares in (here, elsewhere))
    spread = (own[2] - own[0] + others[2] - others[0]) / (2 * _IQR)
    apart = abs(own[1] - others[1])
    distance = min(apart / spread, _FARTHEST) if spread > 0 else (_FARTHEST if apart > 0 else 0.0)
    gap = here - elsewhere
    most, least = int(gap.argmax()), int(gap.argmin())
    if min(gap[most], -gap[least]) < _ONE_SIDED * effect:
        contrast = _one_sided(column, distinct, here, elsewhere, effect, float(own[1]), float(others[1]))
        return Ranked(contrast, distance)
    first, last = sorted((most, least))
    shares = float(here[last] - here[first]), float(elsewhere[last] - elsewhere[first])
    low, high = float(distinct[first + 1]), float(distinct[last])
    how = "within" if least < most else "outside"
    return Ranked(Contrast(column.name, how, effect, *shares, low=low, high=high), distance)


def _one_sided(
    column: Column,
    distinct: NDArray[np.float64],
    here: NDArray[np.float64],
    elsewhere: NDArray[np.float64],
    effect: float,
    median: float,
    others: float,
) -> Contrast:
    """Told by the medians where these differ, else by the value at which shares differ most."""
    gap = here - elsewhere
    cut = int(np.abs(gap).argmax())
    higher = bool(gap[cut] < 0)
    if written(column, median) != written(column, others) and (median > others) == higher:
        how = "higher" if higher else "lower"
        return Contrast(column.name, how, effect, median, others)
    up_to = float(here[cut]), float(elsewhere[cut])
    if higher:
        return Contrast(column.name, "above", effect, 1 - up_to[0], 1 - up_to[1], low=float(distinct[cut]))
    return Contrast(column.name, "up to", effect, *up_to, high=float(distinct[cut]))


def _of_outcome(
    column: Column,
    name: str,
    outcome: Float64[np.ndarray, " n"],
    groups: Int64[np.ndarray, " n"],
    least: Float64[np.ndarray, " groups"],
) -> Iterator[tuple[int, Ranked]]:
    known = np.isfinite(outcome)
    sizes = np.bincount(groups[known], minlength=len(least))
    having = np.bincount(groups[known], outcome[known], len(least))
    for group in np.flatnonzero((sizes > 0) & (sizes < sizes.sum())):
        here = float(having[group] / sizes[group])
        elsewhere = float((having.sum() - having[group]) / (sizes.sum() - sizes[group]))
        effect = abs(here - elsewhere)
        if effect < least[group]:
            continue
        variance = (here * (1 - here) + elsewhere * (1 - elsewhere)) / 2
        distance = min(effect / variance**0.5, _FARTHEST) if variance > 0 else _FARTHEST
        how = "more" if here > elsewhere else "less"
        yield int(group), Ranked(Contrast(column.name, how, effect, here, elsewhere, outcome=name), distance)
