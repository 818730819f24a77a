"""Examples as files: EXAMPLES.csv with a column for every variable of the rules, and labels of a few rows.

All problems of a file are told at once, each with its line and column.
"""

import csv
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64

from gedikit.errors import DataError
from gedikit.symbolic.constraint import Constraint
from gedikit.symbolic.examples import NOTHING, Examples, Known, Rows, stated
from gedikit.symbolic.rule_files import HOLDS, PROBABILITY, RULE, TOLD, WEIGHT, Problems, Rule, RuleFile, short_name
from gedikit.symbolic.shortcuts import Shown
from gedikit.symbolic.symbols import Symbols
from gedikit.symbolic.variables import Variable

_YES, _NO = ("true", "yes", "1"), ("false", "no", "0")

RowOf = Callable[[str], int]
"""The number of the row of data that a cell of a file names; raises a DataError where there is none."""


@dataclass(frozen=True)
class ExampleFile:
    """The examples of every rule that has any, the line that each is on, and how the file calls things."""

    path: Path
    examples: tuple[Examples, ...]
    rules: tuple[Rule, ...]
    lines: tuple[tuple[int, ...], ...]
    columns: tuple[Mapping[str, str], ...]  # of every rule, the column of each of its variables
    images: Mapping[int, str] = field(repr=False)  # how the file calls each row
    without: tuple[Rule, ...] = ()  # rules that have no examples

    @classmethod
    def read(cls, path: Path, rules: RuleFile, row_of: RowOf | None) -> "ExampleFile":
        """From a .csv with a column for every variable; all problems are told at once.

        `row_of` finds the rows that images are; None: cells have the symbols that images show.
        """
        return _examples(path, rules, row_of)

    def example(self, which: int, row: int) -> str:
        of_several = len(self.rules) + len(self.without) > 1
        return f"line {self.lines[which][row]}{f' as an example of {self.rule(which)}' if of_several else ''}"

    def rule(self, which: int) -> str:
        return self.rules[which].name

    def variable(self, which: int, name: str) -> str:
        return self.columns[which][name]

    def image(self, number: int) -> str:
        return self.images[number]

    def shown(self) -> list[Shown]:
        """What may be shown: any symbols that satisfy the rules with the known values of the examples."""
        found = [self._shown(rule, e) for rule, e in zip(self.rules, self.examples, strict=True)]
        return found + [Shown(rule.constraint, {}, rule.known, [], rule.name) for rule in self.without]

    @staticmethod
    def _shown(rule: Rule, examples: Examples) -> Shown:
        told = {
            v.name: list(column.values)
            for v, column in zip(rule.constraint.variables, examples.columns, strict=True)
            if isinstance(column, Known)
        }
        rows: list[int] = []
        for row, (holds, probability) in enumerate(zip(examples.holds, examples.probability, strict=True)):
            values = {name: column[row] for name, column in told.items()}
            if probability == 1 or _possible(rule.constraint, values, holds):
                rows.append(row)
        columns = {name: [column[row] for row in rows] for name, column in told.items()}
        return Shown(rule.constraint, columns, rule.known, examples.holds[rows].tolist(), rule.name)


def row_number(n_rows: int | None) -> RowOf:
    """Cells are numbers of rows, from 0 on."""

    def row_of(cell: str) -> int:
        try:
            number = int(cell)
        except ValueError:
            raise DataError(f"{cell!r} is no number of a row") from None
        if number < 0 or (n_rows is not None and number >= n_rows):
            raise DataError(f"{number} is no row: there are rows from 0 to {(n_rows or 1) - 1}")
        return number

    return row_of


def file_name(names: Sequence[str]) -> RowOf:
    """Cells are names of files of a folder."""
    number = {name: i for i, name in enumerate(names)}

    def row_of(cell: str) -> int:
        if cell not in number:
            raise DataError(f"{cell!r} is no picture of the folder")
        return number[cell]

    return row_of


def any_name() -> RowOf:
    """Cells are whatever the pictures are called: each name is a picture of its own."""
    number: dict[str, int] = {}
    return lambda cell: number.setdefault(cell, len(number))


def _lines(path: Path) -> list[list[str]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return [[cell.strip() for cell in line] for line in csv.reader(file)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}") from None


def _examples(path: Path, rules: RuleFile, row_of: RowOf | None) -> ExampleFile:
    lines, problems = _lines(path), Problems(path)
    if not lines or not any(lines[0]):
        raise DataError(f"{path} is empty: its first line names the columns, one for every variable")
    head = lines[0]
    columns = _columns(head, rules, problems)
    problems.tell()
    read = [_Column(rule, columns[rule.name], row_of) for rule in rules.rules]
    names = {rule.name: column for rule, column in zip(rules.rules, read, strict=True)}
    for number, line in enumerate(lines[1:], start=2):
        if not any(line):
            continue
        if len(line) > len(head):
            problems.add(f"line {number} has {len(line)} cells and the first line {len(head)}")
            continue
        cells = dict(zip(head, line, strict=False))
        chosen = read
        if cells.get(RULE):
            if cells[RULE] not in names:
                problems.add(
                    f"line {number}, column {RULE}: there is no rule {cells[RULE]!r}, only {', '.join(names)}"
                )
                continue
            chosen = [names[cells[RULE]]]
        for column in chosen:
            column.add(number, cells, problems)
    for column in read:
        column.look(problems)
    problems.tell()
    kept = [column for column in read if column.lines]
    if not kept:
        raise DataError(f"{path} has no examples below its first line")
    return ExampleFile(
        path,
        tuple(column.examples() for column in kept),
        tuple(column.rule for column in kept),
        tuple(tuple(column.lines) for column in kept),
        tuple(column.column_of for column in kept),
        {number: name for column in kept for number, name in column.images.items()},
        tuple(column.rule for column in read if not column.lines),
    )


def _columns(head: Sequence[str], rules: RuleFile, problems: Problems) -> dict[str, dict[str, str]]:
    """Of every rule the column of each of its variables."""
    used = {RULE, HOLDS, WEIGHT, PROBABILITY}
    found: dict[str, dict[str, str]] = {}
    for name, times in Counter(head).items():
        if times > 1:
            problems.add(f"column {name!r} is there twice")
    for rule in rules.rules:
        found[rule.name] = {}
        for v in rule.constraint.variables:
            column = next((name for name in (v.name, short_name(v)) if name in head), None)
            if column is None:
                problems.add(f"there is no column for the variable {short_name(v)} of {rule.name}")
            else:
                found[rule.name][v.name] = column
                used.add(column)
    for name in head:
        if name not in used:
            problems.add(
                f"column {name!r} is no variable, nor {', '.join(sorted((RULE, HOLDS, WEIGHT, PROBABILITY)))}"
            )
    return found


class _Column:
    """The examples of one rule as they are read, line by line."""

    def __init__(self, rule: Rule, column_of: Mapping[str, str], row_of: RowOf | None):
        self.rule, self.column_of, self.row_of = rule, column_of, row_of
        self.known = rule.known if row_of is not None else tuple(v.name for v in rule.constraint.variables)
        self.lines: list[int] = []
        self.images: dict[int, str] = {}
        self.entries: dict[str, list[Any]] = {v.name: [] for v in rule.constraint.variables}
        self.more: dict[str, list[Any]] = {HOLDS: [], WEIGHT: [], PROBABILITY: []}
        self._values = {v.name: {str(value): value for value in v.values} for v in rule.constraint.variables}

    def add(self, number: int, cells: Mapping[str, str], problems: Problems) -> None:
        before = len(problems.found)
        entries = {
            v.name: self._entry(v, number, cells.get(self.column_of[v.name], ""), problems)
            for v in self.rule.constraint.variables
        }
        holds = cells.get(HOLDS, "").lower()
        if holds not in ("", *_YES, *_NO):
            problems.add(f"line {number}, column {HOLDS}: {holds!r} is neither true nor false")
        weight = self._number(WEIGHT, 1.0, cells, number, problems)
        probability = self._number(PROBABILITY, self.rule.probability, cells, number, problems)
        if weight < 0:
            problems.add(f"line {number}, column {WEIGHT}: {weight:g} is below 0")
        if not 0.5 < probability <= 1:
            problems.add(f"line {number}, column {PROBABILITY}: {probability:g} is not above 0.5 and at most 1")
        if not any(entries[name] is not None for name in self.rule.kinds):
            problems.add(f"line {number} has no image: there is nothing to be learned from it")
        if len(problems.found) > before:
            return
        for name, entry in entries.items():
            self.entries[name].append(entry)
        self.lines.append(number)
        self.more[HOLDS].append(holds not in _NO)
        self.more[WEIGHT].append(weight * self.rule.weight)
        self.more[PROBABILITY].append(probability)

    def look(self, problems: Problems) -> None:
        """Examples that contradict the rule by their known values alone."""
        for i, line in enumerate(self.lines):
            told = {name: self.entries[name][i] for name in self.known if self.entries[name][i] is not None}
            holds = self.more[HOLDS][i]
            if not told or self.more[PROBABILITY][i] < 1 or _possible(self.rule.constraint, told, holds):
                continue
            said = ", ".join(f"{self.column_of[name]} = {value}" for name, value in told.items())
            why = "no symbols satisfy it" if holds else "it is said to be violated, and all symbols satisfy it"
            problems.add(f"line {line} contradicts {self.rule.name}: {why} with {said}")

    def examples(self) -> Examples:
        columns = {
            name: Known(entries) if name in self.known else Rows([-1 if e is None else e for e in entries])
            for name, entries in self.entries.items()
        }
        return Examples(
            self.rule.constraint,
            columns,
            holds=self.more[HOLDS],
            weights=self.more[WEIGHT],
            probability=self.more[PROBABILITY],
            kinds=self.rule.kinds if self.row_of is not None else None,
        )

    def _entry(self, v: Variable, number: int, cell: str, problems: Problems) -> Any:
        if cell == "":
            return None
        if v.name not in self.known:
            assert self.row_of is not None
            try:
                row = self.row_of(cell)
            except DataError as error:
                problems.add(f"line {number}, column {self.column_of[v.name]}: {error}")
                return None
            self.images[row] = f"row {cell}" if cell.isdecimal() else cell
            return row
        if cell not in self._values[v.name]:
            some = list(self._values[v.name])
            said = ", ".join(some if len(some) <= TOLD else [*some[:3], "…", some[-1]])
            problems.add(f"line {number}, column {self.column_of[v.name]}: {cell!r} is none of {said}")
            return None
        return self._values[v.name][cell]

    @staticmethod
    def _number(column: str, default: float, cells: Mapping[str, str], number: int, problems: Problems) -> float:
        cell = cells.get(column, "")
        if not cell:
            return default
        try:
            return float(cell)
        except ValueError:
            problems.add(f"line {number}, column {column}: {cell!r} is no number")
            return default


def _possible(constraint: Constraint, told: Mapping[str, Hashable], holds: bool) -> bool:
    """Whether some values of what is not told satisfy the constraint; violate it, if it does not hold."""
    known = [NOTHING if told.get(v.name) is None else v.values.index(told[v.name]) for v in constraint.variables]
    given = [
        stated(torch.tensor([at]), v.size, torch.float64) for v, at in zip(constraint.variables, known, strict=True)
    ]
    log_p = float(constraint.log_probability(given))
    return log_p > -inf if holds else log_p < -1e-12


def read_labels(path: Path, symbols: Symbols, row_of: RowOf, n_rows: int | None) -> Int64[np.ndarray, " n"]:
    """Clusters of rows that a .csv labels, −1 of all others: columns picture and symbol, and kind if several."""
    lines, problems = _lines(path), Problems(path)
    several = len(symbols.kinds) > 1
    wanted = ["picture", "symbol", *(["kind"] if several else [])]
    missing = [name for name in wanted if not lines or name not in lines[0]]
    if missing:
        raise DataError(f"{path} needs the columns {', '.join(wanted)}, and has no {missing[0]}")
    found: dict[int, int] = {}
    for number, line in enumerate(lines[1:], start=2):
        cells = dict.fromkeys(wanted, "") | dict(zip(lines[0], line, strict=False))
        if not any(line):
            continue
        name = cells["kind"] if several else symbols.names[0]
        if name not in symbols.names:
            problems.add(f"line {number}, column kind: there is no kind {name!r}, only {', '.join(symbols.names)}")
            continue
        kind = symbols[name]
        written = {str(value): i for i, value in enumerate(kind.values)}
        if cells["symbol"] not in written:
            problems.add(f"line {number}, column symbol: {cells['symbol']!r} is none of {', '.join(written)}")
            continue
        try:
            row = row_of(cells["picture"])
        except DataError as error:
            problems.add(f"line {number}, column picture: {error}")
            continue
        cluster = kind.first + written[cells["symbol"]]
        if found.setdefault(row, cluster) != cluster:
            problems.add(f"line {number}: {cells['picture']} has another symbol than on a line before")
    problems.tell()
    if not found:
        raise DataError(f"{path} has no labels below its first line")
    labels = np.full(n_rows if n_rows is not None else max(found) + 1, -1)
    labels[list(found)] = list(found.values())
    return labels
