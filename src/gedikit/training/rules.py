"""Rules to learn from: constraints, and examples of rows that satisfy them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gedikit.errors import DataError, UsageError
from gedikit.planning import ExamplesProfile
from gedikit.symbolic import Constraint, Examples, Placed, Symbols, symbols_of
from gedikit.symbolic.bundles import Bundles
from gedikit.symbolic.contradictions import contradiction
from gedikit.symbolic.examples import NOTHING
from gedikit.symbolic.expectations import expected_symbols, first_contradiction
from gedikit.symbolic.wording import Numbered, Wording, told

_NEVER = 1e-9
_TRACE = 1e-3  # of an equal share, for symbols that never occur: the logarithm of a share must be finite


@dataclass(frozen=True)
class Rules:
    """Examples of one or several constraints over symbols of one or several kinds; rows are those of the data."""

    symbols: Symbols
    placed: tuple[Placed, ...]

    @classmethod
    def of(
        cls,
        rules: Constraint | Examples | Sequence[Examples],
        examples: ArrayLike | Any = None,
        *,
        symbols: Symbols | None = None,
        n_clusters: int | None = None,
        **given: Any,
    ) -> Self:
        """From what a user gives: a constraint and columns of examples, or Examples, one or several.

        `given` are further arguments of `Examples`. Without symbols these are what the images can show.
        """
        if isinstance(rules, Examples | list | tuple):
            listed = [rules] if isinstance(rules, Examples) else list(rules)
            if examples is not None or any(value is not None for value in given.values()):
                raise UsageError("examples are in the first argument already: give holds, weights and kinds there")
            if not listed or not all(isinstance(one, Examples) for one in listed):
                raise UsageError("a list of rules must hold Examples(constraint, columns), at least one")
        else:
            kept = {name: value for name, value in given.items() if value is not None}
            listed = [Examples(cast(Constraint, rules), examples, **kept)]
        symbols = symbols or symbols_of(listed, n_clusters)
        return cls(symbols, tuple(one.of(symbols) for one in listed))

    @cached_property
    def bundles(self) -> Bundles:
        """The examples as batches draw them."""
        return Bundles.of(self.placed)

    @property
    def values(self) -> list[Any]:
        """What clusters stand for, as a file can hold it."""
        return self.symbols.plain_values()

    def tree(self) -> dict[str, list[Any]]:
        """The values of every kind of symbols, as a file can hold them."""
        return {kind.name: self.values[kind.clusters] for kind in self.symbols.kinds}

    def profile(self) -> ExamplesProfile:
        """What a plan takes from the examples."""
        rows = self.bundles.rows
        return ExamplesProfile(rows.size, rows.shape[1], tuple(self.prior().tolist()))

    def prior(self) -> NDArray[np.float64]:
        """How often each symbol occurs among the images of examples; one that never does keeps a trace."""
        p = np.maximum(self._shares, _TRACE / len(self._shares))
        kept: NDArray[np.float64] = p / p.sum()
        return kept

    @property
    def absent(self) -> list[str]:
        """Symbols that no example can show."""
        listed = [(kind.name, value) for kind in self.symbols.kinds for value in kind.values]
        return [f"{kind} {value}" for (kind, value), p in zip(listed, self._shares, strict=True) if p < _NEVER]

    @cached_property
    def _shares(self) -> NDArray[np.float64]:
        if len(self.placed) == len(self.symbols.kinds) == 1 and self.placed[0].plain:
            return self.placed[0].constraint.implied_prior().shared.cpu().numpy().astype(np.float64)
        return self._expected_shares()

    def _expected_shares(self) -> NDArray[np.float64]:
        """What examples make of equal shares.

        The most likely shares would be degenerate: 5 + 5, 1 + 5 and 5 + 7 explain sums of 10, 6 and 12.
        """
        equal = np.concatenate([np.full(kind.size, 1 / kind.size) for kind in self.symbols.kinds])
        counts = sum((expected_symbols(p, equal) for p in self.placed), np.zeros(len(equal)))
        return np.asarray(counts / counts.sum())

    def check(self, n_rows: int, n_clusters: int, words: Wording | None = None) -> None:
        """Refuse examples that do not fit the data or the model, or that contradict their rule."""
        symbols, words = self.symbols, words or Numbered(self.placed)
        if symbols.n_clusters != n_clusters:
            said = [f"{v.name} has {v.size} values" for p in self.placed for v in p.constraint.variables]
            whole = said[0] if len(symbols.kinds) == 1 else f"symbols has {symbols.n_clusters} values in all"
            raise UsageError(f"{whole} and the model {n_clusters} clusters: a cluster stands for a value")
        for p in self.placed:
            _check_rows(p, n_rows)
        rows = np.concatenate([p.rows[p.rows != NOTHING] for p in self.placed])
        if len(np.unique(rows)) < 2:
            raise DataError("examples name a single row: at least two are needed")
        self._check_kinds(n_rows, words)
        for which, p in enumerate(self.placed):
            example = first_contradiction(p)
            if example is not None:
                raise DataError(_contradiction(p, which, example, words))
        together = contradiction(self.placed)
        if together is not None:
            raise DataError(together.said(words))

    def _check_kinds(self, n_rows: int, words: Wording) -> None:
        """Every kind is shown by some column, and every row is of one kind."""
        kind_of_row = np.full(n_rows, NOTHING)
        position = {name: i for i, name in enumerate(self.symbols.names)}
        for which, p in enumerate(self.placed):
            for v, kind, rows in zip(p.constraint.variables, p.kinds, p.rows.T, strict=True):
                if kind is None:
                    continue
                named, own = rows[rows != NOTHING], position[kind.name]
                other = (kind_of_row[named] != NOTHING) & (kind_of_row[named] != own)
                if other.any():
                    row = named[other.argmax()]
                    raise DataError(
                        f"examples name {words.image(int(row))} as {words.variable(which, v.name)}, which is of the"
                        f" kind {kind.name}, and elsewhere as of the kind {self.symbols.names[kind_of_row[row]]}: a"
                        " row shows a symbol of one kind"
                    )
                kind_of_row[named] = own
        absent = [name for name, i in position.items() if i not in kind_of_row]
        if absent:
            raise UsageError(f"no example shows a symbol of the kind {absent[0]}: no column of images is of it")


def _check_rows(placed: Placed, n_rows: int) -> None:
    names = [v.name for v in placed.constraint.variables]
    outside = np.argwhere((placed.rows < NOTHING) | (placed.rows >= n_rows))
    if len(outside):
        example, j = outside[0]
        raise DataError(
            f"row {example} of examples names row {placed.rows[example, j]} for {names[j]}: X has rows from 0 to"
            f" {n_rows - 1}"
        )
    bare = np.flatnonzero((placed.rows == NOTHING).all(1))
    if len(bare):
        raise DataError(f"row {bare[0]} of examples has no image: there is nothing to be learned from it")


def _contradiction(placed: Placed, which: int, example: int, words: Wording) -> str:
    said = told(placed, which, example, words)
    what = "it cannot hold" if placed.examples.holds[example] else "it holds in any case"
    return (
        f"{words.example(which, example)} contradicts {words.rule(which)}: with {said} {what}, whatever images show"
    )
