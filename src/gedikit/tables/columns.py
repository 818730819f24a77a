"""A column of a table: what it holds, and what stands for it in rows of numbers."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gedikit.errors import UsageError

LEARNED = ("number", "boolean", "date", "category")
SET_ASIDE = ("id", "label", "constant", "dropped")
KINDS = LEARNED + SET_ASIDE
LABEL_COLUMNS = ("label", "labels", "target", "class", "y")
_ASKED = (*LEARNED, "id", "label")


@dataclass(frozen=True)
class Column:
    """What is known of one column; numbers, booleans and dates have one value a row, categories one a category."""

    name: str
    kind: str
    dtype: str = "float64"  # of the input, which decoded columns have again
    step: float = 0.0  # all values are offset + step·k; 0 where there is no such grid
    offset: float = 0.0
    decimals: int | None = None  # that numbers without a grid are written with; None: as many as there are
    fill: float | None = None  # stands for gaps; None where gaps were never allowed for
    gaps: float = 0.0  # share of the rows
    marks_gaps: bool = False  # gaps have a value of their own beside the filled one
    categories: tuple[str, ...] = ()
    rare: tuple[str, ...] = ()  # categories that share one value, most frequent first
    date_format: str = ""  # of dates written as text
    value: str | None = None  # of a constant column
    note: str = ""  # what was decided, where that is not obvious

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"column {self.name!r}: there is no type {self.kind!r}; there are {', '.join(KINDS)}")

    @property
    def learned(self) -> bool:
        return self.kind in LEARNED

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the values that stand for the column."""
        if not self.learned:
            return ()
        missing = (f"{self.name} is missing",) if self.marks_gaps else ()
        if self.kind != "category":
            return (self.name, *missing)
        others = (f"{self.name} is rare",) if self.rare else ()
        return (*(f"{self.name}={category}" for category in self.categories), *missing, *others)

    @property
    def described(self) -> str:
        """The type in words."""
        if self.kind == "category":
            n = len(self.categories) + len(self.rare)
            words = f"category of {n} value{'s' if n > 1 else ''}"
        elif self.kind == "number" and self.step:
            words = f"number in steps of {self.step:g}"
        else:
            words = f"constant {self.value}" if self.value is not None else self.kind
        return f"{words}, {self.gaps:.1%} gaps" if self.gaps else words

    def tree(self) -> dict[str, Any]:
        """What differs from the defaults, as JSON has it."""
        shown = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        kept = {
            f.name: shown[f.name]
            for f in dataclasses.fields(self)
            if f.default is dataclasses.MISSING or shown[f.name] != f.default
        }
        return {name: list(value) if isinstance(value, tuple) else value for name, value in kept.items()}

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> "Column":
        known: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in tree.items()}
        return cls(**known)


@dataclass(frozen=True)
class ColumnOptions:
    """What a user says about columns; everything else is inferred."""

    columns: tuple[str, ...] = ()  # to learn from; empty means all
    drop: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    label: str | None = None  # None: by its name; "": none
    types: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, kind in self.types.items():
            if kind not in _ASKED:
                raise UsageError(f"the type of {name!r} must be one of {', '.join(_ASKED)}, not {kind!r}")

    @classmethod
    def of(cls, given: "ColumnOptions | Mapping[str, Any] | None") -> "ColumnOptions":
        """From a mapping of the fields; names may be one text instead of several."""
        if given is None or isinstance(given, ColumnOptions):
            return given or cls()
        known = [f.name for f in dataclasses.fields(cls)]
        for name in given:
            if name not in known:
                raise UsageError(f"nothing about columns is called {name!r}; there are {', '.join(known)}")
        several = {name: given[name] for name in ("columns", "drop", "ids") if name in given}
        names = {name: (value,) if isinstance(value, str) else tuple(value) for name, value in several.items()}
        return cls(**{**given, **names})

    def tree(self) -> dict[str, Any]:
        """As JSON has it; `of` reads it again."""
        names = {"columns": list(self.columns), "drop": list(self.drop), "ids": list(self.ids)}
        return {**names, "label": self.label, "types": dict(self.types)}

    @classmethod
    def parse(
        cls, columns: str | None, drop: str | None, ids: str | None, label: str | None, types: str | None
    ) -> "ColumnOptions":
        """From names separated by commas, and types as "column=type,..."."""
        pairs = {}
        for part in _names(types):
            name, equals, kind = part.rpartition("=")
            if not equals or not name:
                raise UsageError(f"--types takes column=type pairs separated by commas, not {part!r}")
            pairs[name.strip()] = kind.strip()
        return cls(_names(columns), _names(drop), _names(ids), label, pairs)

    def kind_of(self, name: str) -> str | None:
        """The type that was asked for; where columns to learn from are named, others are dropped."""
        kind = self.said_of(name)
        return "dropped" if kind is None and self.columns and name not in self.columns else kind

    def said_of(self, name: str) -> str | None:
        """What was said of this very column; contradictions are refused."""
        said = [self.types[name]] if name in self.types else []
        said += ["dropped"] if name in self.drop else []
        said += ["id"] if name in self.ids else []
        said += ["label"] if self.label == name else []
        if len(set(said)) > 1:
            raise UsageError(f"column {name!r} cannot be {' and '.join(said)} at once")
        return said[0] if said else None

    def check(self, names: Sequence[str], where: str) -> None:
        """Every column that is named must be there."""
        asked = (*self.columns, *self.drop, *self.ids, *self.types, *([self.label] if self.label else []))
        absent = [name for name in dict.fromkeys(asked) if name not in names]
        if absent:
            raise UsageError(f"{where} has no column {', '.join(map(repr, absent))}; it has {some(names, 20)}")


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def some(names: Sequence[str], most: int = 3) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
