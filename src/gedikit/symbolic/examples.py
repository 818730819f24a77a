"""Examples of a constraint as they come: of every variable an image, a known value, or nothing.

An image may be in many examples, or twice in one. A known value and a gap enter a constraint as posteriors of their
own, certain and uniform: one circuit serves all examples.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int, Int64
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from gedikit.errors import DataError, UsageError
from gedikit.symbolic.constraint import Constraint
from gedikit.symbolic.symbols import ONE_KIND, Kind, Symbols, shown_by_one_network
from gedikit.symbolic.variables import Variable

NOTHING = -1  # where an example has no image, or no known value
SMALLEST = 1e-6  # probability that a rule does not hold: the logarithm of less has no gradient that helps
MAX_PATTERNS = 64  # ways in which the rows of an example repeat, each of which takes a circuit of its own
_HOLDS, _WEIGHT, _PROBABILITY = "holds", "weight", "probability"  # columns of a table that are no variables
_SHOWN = 12  # values in a sentence


@dataclass(frozen=True)
class Rows:
    """A column of numbers of images, rows of X; −1, NaN or None where there is none."""

    numbers: ArrayLike


@dataclass(frozen=True)
class Known:
    """A column of values that are known; −1 (unless that is a value), NaN or None where one is not."""

    values: Iterable[Any]


class Examples:
    """Examples of a constraint: for every variable a column of images, of known values, or of gaps.

    `columns` has a row for every example and the number of an image for every variable; or it is a mapping, or a
    table, from names of variables to columns. A bare column of a mapping has numbers of images if its variable is
    of a kind of symbols of the model, else known values; `Rows` and `Known` say so themselves. `holds` is False of
    examples that are known to violate the constraint, `weights` say how much each counts, and the constraint holds
    (or does not) with `probability` only, a number above 0.5. `kinds` says which kind of symbols a variable is of.

    An image that is in one example twice has one value there, so its probability counts once; examples are
    independent of each other, so their log-probabilities add up. A gap may have any value, all alike.

    >>> addition = Constraint(lambda a, b, c: a + b == c, domains=(10, 10, 10))
    >>> examples = Examples(addition, torch.tensor([[8, 5, 2], [5, 5, 8]]))
    >>> examples.images.tolist()
    [2, 5, 8]
    >>> uniform = torch.full((3, 10), 0.1).log()
    >>> examples.log_probability(uniform).exp()
    tensor([0.0550, 0.0500])
    >>> thirteen = Examples(
    ...     Constraint(lambda a, b, s: a + b == s, domains=(10, 10, 19)),
    ...     {"a": Rows([8]), "b": Rows([5]), "s": Known([13])},
    ... )
    >>> round(thirteen.log_probability(uniform[:2]).exp().item(), 4)  # 4 + 9, 5 + 8, …, 9 + 4
    0.06
    """

    def __init__(
        self,
        constraint: Constraint,
        columns: ArrayLike | Tensor | Mapping[str, Any],
        *,
        holds: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        probability: ArrayLike = 1.0,
        kinds: Mapping[str, str] | None = None,
    ):
        if not isinstance(constraint, Constraint):
            raise UsageError(
                f"constraint is a {type(constraint).__name__}: state it as a Constraint, such as"
                " Constraint(f, domains=(10, 10))"
            )
        self.constraint = constraint
        self.kinds = dict(kinds or {})
        unknown = [name for name in self.kinds if name not in {v.name for v in constraint.variables}]
        if unknown:
            raise UsageError(f"kinds has {unknown[0]!r}, which is none of the variables {_names(constraint)}")
        if hasattr(columns, "keys"):
            table = dict(cast(Mapping[str, Any], columns).items())
            extra = {_HOLDS: holds, _WEIGHT: weights, _PROBABILITY: probability}
            own = {v.name for v in constraint.variables}
            for name in [name for name in extra if name in table and name not in own]:
                extra[name] = np.asarray(table.pop(name))
            holds, weights, probability = extra[_HOLDS], extra[_WEIGHT], cast(ArrayLike, extra[_PROBABILITY])
            self.columns = self._of_table(table)
        else:
            self.columns = self._of_array(columns)
        self.holds = _one_each(holds, len(self), "holds", np.dtype(bool), True)
        self.weights = _one_each(weights, len(self), "weights", np.dtype(np.float64), 1.0)
        self.probability = _one_each(probability, len(self), "probability", np.dtype(np.float64), 1.0)
        if not (np.isfinite(self.weights) & (self.weights >= 0)).all() or not self.weights.any():
            raise UsageError("weights must be finite and not negative, and some above 0")
        outside = np.flatnonzero(~((self.probability > 0.5) & (self.probability <= 1)))
        if len(outside):
            raise UsageError(
                f"probability must be above 0.5 and at most 1, not {self.probability[outside[0]]:g} as in row"
                f" {outside[0]}: a rule that holds less often is better stated as its opposite"
            )

    def __len__(self) -> int:
        return len(_entries(self.columns[0]))

    def of(self, symbols: Symbols) -> "Placed":
        """The examples of a model with these symbols: every column is of images of one kind or of known values."""
        return Placed.of(self, symbols)

    @property
    def shown(self) -> list[Variable]:
        """The variables that are images for certain, whatever symbols a model has."""
        return [
            v
            for v, column in zip(self.constraint.variables, self.columns, strict=True)
            if isinstance(column, Rows) or v.name in self.kinds
        ]

    @property
    def undecided(self) -> list[Variable]:
        """Those whose columns are numbers of images or known values as a model's symbols have it."""
        variables, columns = self.constraint.variables, self.columns
        bare = [v for v, column in zip(variables, columns, strict=True) if not isinstance(column, Rows | Known)]
        return [v for v in bare if v.name not in self.kinds]

    @cached_property
    def alone(self) -> "Placed":
        """The examples without a model: symbols are what the images can show."""
        return self.of(symbols_of([self]))

    @property
    def images(self) -> Int64[Tensor, " u"]:
        """Numbers of the images in the examples, in order, each once."""
        return self.alone.images

    def log_probability(
        self, log_p: Float[Tensor, "*m u c"] | Float[np.ndarray, "*m u c"]
    ) -> Float[Tensor, "*m n"]:
        """log P of every example, from the log-posteriors of `images`, in their order."""
        return self.alone.log_probability(log_p)

    def _of_array(self, columns: Any) -> list[Rows | Known | Any]:
        try:
            numbers = np.asarray(columns.cpu() if isinstance(columns, Tensor) else columns)
        except ValueError:
            raise UsageError("examples has rows of different lengths: give a number for every variable") from None
        if numbers.dtype.kind not in "iu":
            raise UsageError(
                f"examples has values of type {numbers.dtype}: give whole numbers, those of rows of X, or a mapping"
                " from names of variables to columns"
            )
        if numbers.ndim != 2 or numbers.shape[1] != len(self.constraint.variables):
            raise UsageError(
                f"examples has shape {numbers.shape}: give a row for every example and one number for each of"
                f" {_names(self.constraint)}"
            )
        if not len(numbers):
            raise UsageError("examples has no rows: give those of at least one example")
        return [Rows(column) for column in numbers.astype(np.int64).T]

    def _of_table(self, table: Mapping[str, Any]) -> list[Rows | Known | Any]:
        names = [v.name for v in self.constraint.variables]
        unknown = [name for name in table if name not in names]
        if unknown:
            raise UsageError(
                f"examples has a column {unknown[0]!r}, which is none of the variables {_names(self.constraint)}"
            )
        missing = [name for name in names if name not in table]
        if missing:
            raise UsageError(
                f"examples has no column for {missing[0]}: give one for each of {_names(self.constraint)}, with"
                " None where nothing is known"
            )
        columns: list[Rows | Known | Any] = []
        for name in names:
            given = table[name]
            if isinstance(given, Rows):
                columns.append(Rows(_numbers(name, _listed(name, given.numbers))))
            elif isinstance(given, Known):
                columns.append(Known(_listed(name, given.values)))
            else:
                columns.append(_listed(name, given))
        lengths = [len(_entries(column)) for column in columns]
        for name, length in zip(names, lengths, strict=True):
            if length != lengths[0]:
                raise UsageError(
                    f"the columns of examples have different lengths: {names[0]} has {lengths[0]} rows and {name}"
                    f" {length}"
                )
        if not lengths[0]:
            raise UsageError("examples has no rows: give those of at least one example")
        return columns


def symbols_of(examples: Sequence[Examples], n_clusters: int | None = None) -> Symbols:
    """The symbols that images in examples show, where a user named none: one kind, or those that `kinds` names."""
    shown = [(v, e.kinds.get(v.name)) for e in examples for v in e.shown]
    if all(kind is not None for _, kind in shown) and shown:
        listed: dict[str, tuple[Any, ...]] = {}
        for v, kind in shown:
            assert kind is not None
            if listed.setdefault(kind, v.values) != v.values:
                raise UsageError(f"{v.name} is of the kind {kind}, whose values are {listed[kind]}, not {v.values}")
        return Symbols.over(listed.items())
    undecided = [v for e in examples for v in e.undecided]
    if not shown and undecided:
        if all(e.constraint.one_domain for e in examples) and len({v.values for v in undecided}) == 1:
            return shown_by_one_network([e.constraint for e in examples])
        fitting = [v for v in undecided if v.size == n_clusters]
        if not fitting:
            sizes = ", ".join(f"{v.name} has {v.size}" for v in undecided[:_SHOWN])
            raise UsageError(
                f"which columns of examples are images? Of the values {sizes}"
                f"{'' if n_clusters is None else f', and the model has {n_clusters} clusters'}: say it by symbols,"
                " such as symbols={'digit': 10}, or by Rows([...]) and Known([...])"
            )
        shown = [(v, None) for v in fitting]
    if not shown:
        raise UsageError("no column of examples is of images: wrap one in Rows([...]), numbers of rows of X")
    first, networks = shown[0][0], {v.network for v, _ in shown} - {None}
    if len({v.values for v, _ in shown}) > 1 or len(networks) > 1:
        names = ", ".join(f"{v.name} of {v.size}" for v, _ in shown[:_SHOWN])
        raise UsageError(
            f"Examples needs variables with the same values and the same network where no symbols are named, and"
            f" these have different values or networks: {names}; say which symbols there are, such as"
            " symbols={'digit': 10, 'operator': ('+', '-')}"
        )
    return Symbols.over([(first.network or ONE_KIND, first.values)])


@dataclass(frozen=True)
class Group:
    """Examples in which the same variables share an image: they are one variable of the constraint then."""

    constraint: Constraint
    kinds: tuple[Kind | None, ...]
    numbers: Int64[np.ndarray, " g"]  # of the examples
    rows: Int64[np.ndarray, "g v"]
    known: Int64[np.ndarray, "g v"]

    def posteriors(
        self,
        log_p: Float[Tensor, "*k u c"],
        places: Int[Tensor, "*m n v"],
        is_image: Bool[Tensor, "*m n v"],
        known: Int[Tensor, "*m n v"],
        *,
        shown: Sequence[bool],
        within: bool,
    ) -> list[Float[Tensor, "*k n _"]]:
        """log p(value) of every variable: of an image as `log_p` has it, certain if it is known, uniform of a gap.

        `places` are rows of `log_p`, which is over all symbols: those of other kinds are left out, and `within` the
        kind the rest is normalised. `shown` says which variables are images in every example.
        """
        found = []
        for j, (v, kind) in enumerate(zip(self.constraint.variables, self.kinds, strict=True)):
            if kind is None:
                given = stated(known[..., j], v.size, log_p.dtype)
                found.append(given.expand(*log_p.shape[:-2], *given.shape[-2:]))
                continue
            place = places[(None,) * (log_p.ndim - places.ndim)][..., j, None]
            of_image = torch.take_along_dim(log_p[..., kind.clusters], place, dim=-2)
            if within:
                of_image = torch.log_softmax(of_image, dim=-1)
            if not shown[j]:
                given = stated(known[..., j], v.size, log_p.dtype)
                of_image = torch.where(is_image[..., j, None], of_image, given)
            found.append(of_image)
        return found


@dataclass(frozen=True)
class Placed:
    """Examples of a model: `rows` of images and positions of `known` values, −1 where there is none.

    `kinds` has the kind of symbols of every variable; None for those that are never images.
    """

    examples: Examples
    symbols: Symbols
    kinds: tuple[Kind | None, ...]
    rows: Int64[np.ndarray, "n v"]
    known: Int64[np.ndarray, "n v"]

    @classmethod
    def of(cls, examples: Examples, symbols: Symbols) -> "Placed":
        kinds: list[Kind | None] = []
        rows, known = [], []
        for v, column in zip(examples.constraint.variables, examples.columns, strict=True):
            kind = None if isinstance(column, Known) else _kind(v, examples, symbols)
            if kind is None and isinstance(column, Rows):
                raise UsageError(
                    f"{v.name} has {v.size} values, {_some(v.values)}, which are those of no kind of symbols:"
                    f" {', '.join(f'{k.name} has {k.size}' for k in symbols.kinds)}"
                )
            nothing = np.full(len(examples), NOTHING)
            kinds.append(kind)
            rows.append(nothing if kind is None else _numbers(v.name, _entries(column)))
            known.append(nothing if kind is not None else _positions(v, _entries(column)))
        return cls(examples, symbols, tuple(kinds), np.stack(rows, 1), np.stack(known, 1))

    @property
    def constraint(self) -> Constraint:
        return self.examples.constraint

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def several(self) -> bool:
        """Whether there are symbols of other kinds, which a row of known kind cannot show."""
        return len(self.symbols.kinds) > 1

    @property
    def plain(self) -> bool:
        """Whether every variable is an image, as in a rule that is about images alone, and holds for certain."""
        return not (self.rows == NOTHING).any() and self.certain

    @property
    def certain(self) -> bool:
        """Whether the constraint holds in all examples, without doubt."""
        return bool(self.examples.holds.all() and (self.examples.probability == 1).all())

    def some(self, which: Int64[np.ndarray, " k"]) -> "Placed":
        """Some of the examples."""
        kept = copy.copy(self.examples)
        kept.__dict__.pop("alone", None)
        kept.columns = [_of_entries(column, which) for column in kept.columns]
        kept.holds, kept.weights = kept.holds[which], kept.weights[which]
        kept.probability = kept.probability[which]
        return Placed(kept, self.symbols, self.kinds, self.rows[which], self.known[which])

    @cached_property
    def images(self) -> Int64[Tensor, " u"]:
        return torch.from_numpy(np.unique(self.rows[self.rows != NOTHING]))

    @cached_property
    def groups(self) -> list[Group]:
        """By which variables share an image."""
        first = _first_places(self.rows)
        patterns, which = np.unique(first, axis=0, return_inverse=True)
        if len(patterns) > MAX_PATTERNS:
            example = int((first != np.arange(first.shape[1])).any(1).argmax())
            row = self.rows[example][np.flatnonzero(first[example] != np.arange(first.shape[1]))[0]]
            raise DataError(
                f"examples repeat images in {len(patterns)} different ways, such as image {row} in row {example}: a"
                f" circuit is compiled for each, and more than {MAX_PATTERNS} are too many; leave out examples that"
                " name an image twice"
            )
        return [self._group(pattern, np.flatnonzero(which.ravel() == i)) for i, pattern in enumerate(patterns)]

    def log_probability(
        self, log_p: Float[Tensor, "*m u c"] | Float[np.ndarray, "*m u c"]
    ) -> Float[Tensor, "*m n"]:
        """log P of every example, from the log-posteriors of `images`, in their order, over all symbols."""
        log_p = torch.as_tensor(log_p)
        if log_p.shape[-2] != len(self.images):
            raise UsageError(f"log_p has {log_p.shape[-2]} rows: give one for each of {len(self.images)} images")
        if log_p.shape[-1] != self.symbols.n_clusters:
            raise UsageError(f"log_p has {log_p.shape[-1]} columns: give one for each of {self.symbols.values}")
        parts, device = [], log_p.device
        for group in self.groups:
            places = np.searchsorted(self.images.numpy(), group.rows)
            is_image = group.rows != NOTHING
            given = (torch.from_numpy(part).to(device) for part in (places, is_image, group.known))
            posteriors = group.posteriors(log_p, *given, shown=is_image.all(0).tolist(), within=self.several)
            parts.append(group.constraint.log_probability(posteriors))
        found = parts[0]
        if len(parts) > 1:
            order = np.argsort(np.concatenate([group.numbers for group in self.groups]))
            found = torch.cat(parts, dim=-1)[..., torch.from_numpy(order).to(device)]
        if self.certain:
            return found
        holds, probability = self.examples.holds, self.examples.probability
        return of_observed(found, torch.from_numpy(holds).to(device), torch.from_numpy(probability).to(found))

    def _group(self, pattern: Int64[np.ndarray, " v"], numbers: Int64[np.ndarray, " g"]) -> Group:
        """Of examples in which the image at i is that at pattern[i]."""
        names = [v.name for v in self.constraint.variables]
        same = {names[i]: names[j] for i, j in enumerate(pattern.tolist()) if i != j}
        kept = np.unique(pattern)
        try:
            constraint = self.constraint.renamed(same) if same else self.constraint
        except UsageError as error:
            twice = ", ".join(f"{i} and {j}" for i, j in same.items())
            raise DataError(f"row {numbers[0]} of examples has one image for {twice}: {error}") from None
        return Group(
            constraint,
            tuple(self.kinds[i] for i in kept),
            numbers,
            self.rows[numbers][:, kept],
            self.known[numbers][:, kept],
        )


def parted(placed: Sequence[Placed], most_images: int, seed: int) -> tuple[list[Placed], list[Placed]]:
    """Examples with so many images in all, drawn, because files are often sorted; and the others."""
    images = sum(int((p.rows != NOTHING).sum()) for p in placed)
    if images <= most_images:
        return list(placed), []
    rng = np.random.default_rng(seed)
    share = most_images / images
    orders = [np.split(rng.permutation(len(p)), [max(1, int(share * len(p)))]) for p in placed]
    drawn, others = ([p.some(part[i]) for p, part in zip(placed, orders, strict=True)] for i in (0, 1))
    return drawn, [p for p in others if len(p)]


def of_observed(
    log_p: Float[Tensor, "*k n"], holds: Bool[Tensor, "*m n"], probability: Float[Tensor, "*m n"]
) -> Float[Tensor, "*k n"]:
    """log P of what is known of examples, from log P(constraint): it holds or not, as said with `probability`."""
    p = log_p.exp()
    said = torch.where(holds, p, 1 - p)
    observed = probability * said + (1 - probability) * (1 - said)
    return torch.where(holds & (probability == 1), log_p, observed.clamp_min(SMALLEST).log())


def stated(known: Int[Tensor, "*m n"], size: int, dtype: torch.dtype) -> Float[Tensor, "*m n d"]:
    """log p(value) of what is known: 0 and −∞, or uniform where nothing is."""
    values = torch.arange(size, device=known.device)
    impossible = torch.full((*known.shape, size), -torch.inf, dtype=dtype, device=known.device)
    certain = impossible.masked_fill(known[..., None] == values, 0.0)
    return certain.masked_fill(known[..., None] == NOTHING, -log(size))


def _kind(variable: Variable, examples: Examples, symbols: Symbols) -> Kind | None:
    if variable.name not in examples.kinds:
        return symbols.kind_of(variable)
    kind = symbols[examples.kinds[variable.name]]
    if kind.values != variable.values:
        raise UsageError(
            f"{variable.name} has {variable.size} values, {_some(variable.values)}, and the symbols of the kind"
            f" {kind.name} are {_some(kind.values)}"
        )
    return kind


def _entries(column: Any) -> NDArray[Any]:
    if isinstance(column, Rows):
        column = column.numbers
    elif isinstance(column, Known):
        column = column.values
    return cast(NDArray[Any], column)


def _of_entries(column: Any, which: Int64[np.ndarray, " k"]) -> Any:
    """Some entries of a column, which stays of its kind."""
    entries = _entries(column)[which]
    return type(column)(entries) if isinstance(column, Rows | Known) else entries


def _listed(name: str, column: Any) -> NDArray[Any]:
    """A column as an array of one dimension, of its numbers or of whatever it holds."""
    if isinstance(column, Tensor):
        column = column.cpu().numpy()
    if isinstance(column, np.ndarray) or hasattr(column, "to_numpy"):
        made: NDArray[Any] = np.asarray(column)
    else:
        if isinstance(column, str) or not isinstance(column, Iterable):
            raise UsageError(f"the column of {name} is {column!r}: give one entry for every example")
        entries = list(column)
        made = np.empty(len(entries), dtype=object)
        made[:] = entries
    if made.ndim != 1:
        raise UsageError(f"the column of {name} has shape {made.shape}: give one entry for every example")
    return made


def _is_gap(value: Any) -> bool:
    """None, NaN and what tables have for them."""
    missing = pd.isna(value)
    return isinstance(missing, bool) and missing


def _numbers(name: str, column: NDArray[Any]) -> NDArray[np.int64]:
    """Numbers of images, −1 for gaps."""
    if column.dtype.kind in "iu":
        return column.astype(np.int64)
    found = np.full(len(column), NOTHING)
    for i, value in enumerate(column.tolist()):
        if _is_gap(value):
            continue
        if isinstance(value, bool | str | bytes) or value != int(value):
            raise DataError(
                f"row {i} of examples has {value!r} for {name}: give the number of a row of X, or Known([...])"
                " where values are known"
            )
        found[i] = int(value)
    return found


def _positions(variable: Variable, column: NDArray[Any]) -> NDArray[np.int64]:
    """Positions of known values, −1 for gaps."""
    position = {value: i for i, value in enumerate(variable.values)}
    found = np.full(len(column), NOTHING)
    for i, value in enumerate(column.tolist()):
        at = position.get(value) if not _is_gap(value) and _hashable(value) else None
        if at is not None:
            found[i] = at
        elif not _is_gap(value) and value != NOTHING:
            raise DataError(
                f"row {i} of examples has {value!r} for {variable.name}, whose values are {_some(variable.values)}"
            )
    return found


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _first_places(rows: Int64[np.ndarray, "n v"]) -> Int64[np.ndarray, "n v"]:
    """Where in its example each image is first; entries without one are at their own place."""
    places = np.broadcast_to(np.arange(rows.shape[1]), rows.shape).copy()
    ordered = np.sort(rows, axis=1)
    repeated = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != NOTHING)).any(1)
    for i in np.flatnonzero(repeated):
        equal = rows[i][:, None] == rows[i][None, :]
        places[i] = np.where(rows[i] == NOTHING, places[i], equal.argmax(1))
    return places


def _one_each(given: ArrayLike | None, n: int, name: str, dtype: np.dtype[Any], default: Any) -> NDArray[Any]:
    """A number an example, from one for all or one for each."""
    if given is None:
        return np.full(n, default, dtype=dtype)
    values = np.asarray(given)
    of_truth = dtype.kind == "b"
    if values.dtype.kind not in "biuf" or (of_truth and not np.isin(values, (0, 1)).all()):
        what = "True or False" if of_truth else "a number"
        raise UsageError(f"{name} must be {what} for every example, not {values.ravel()[:1]}")
    if values.ndim and values.shape != (n,):
        raise UsageError(f"{name} has shape {values.shape}: give one for each of {n} examples")
    return np.broadcast_to(values.astype(dtype), (n,)).copy()


def _names(constraint: Constraint) -> str:
    return ", ".join(v.name for v in constraint.variables)


def _some(values: Sequence[Any]) -> str:
    said = [repr(value) for value in values]
    return ", ".join(said if len(said) <= _SHOWN else [*said[: _SHOWN - 2], "…", said[-1]])
