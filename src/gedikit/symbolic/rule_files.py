"""Rules and examples as files: RULES.toml or RULES.pl, and EXAMPLES.csv.

All problems of a file are told at once, each with its place.
"""

import csv
import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64

from gedikit.errors import DataError, GediError, UsageError
from gedikit.storage import parsed_toml
from gedikit.symbolic.constraint import Constraint
from gedikit.symbolic.examples import Examples, Known, Rows
from gedikit.symbolic.expressions import predicate
from gedikit.symbolic.shortcuts import Shown
from gedikit.symbolic.symbols import Symbols
from gedikit.symbolic.variables import MAX_VALUES, Variable

RULE, HOLDS, WEIGHT, PROBABILITY = "rule", "holds", "weight", "probability"
_YES, _NO = ("true", "yes", "1"), ("false", "no", "0")
_QUERY = re.compile(r"^\s*query\((?P<query>.*)\)\s*\.\s*(%.*)?$")
_KNOWN = re.compile(r"^\s*%\s*known\s*:\s*(?P<names>.*)$")
_TOLD = 20  # problems
_KEYS = {"name", "expression", "table", "weights", "program", "query", "variables", "probability", "weight"}
_STATED = ("expression", "table", "program")

RowOf = Callable[[str], int]
"""The number of the row of data that a cell of a file names; raises a DataError where there is none."""


class Problems:
    """What is wrong with a file, collected until everything was looked at."""

    def __init__(self, path: Path):
        self.path, self.found = path, list[str]()

    def add(self, what: str) -> None:
        self.found.append(what)

    def tell(self) -> None:
        """Raise one error about all of them, if there are any."""
        if not self.found:
            return
        more = [f"and {len(self.found) - _TOLD} more"] if len(self.found) > _TOLD else []
        lines = "\n".join(f"  {what}" for what in [*self.found[:_TOLD], *more])
        n = len(self.found)
        raise DataError(f"{self.path} has {n} problem{'s' if n > 1 else ''}:\n{lines}")


@dataclass(frozen=True)
class Rule:
    """A constraint of a file: of its variables some are known with each example, others are images of a kind."""

    name: str
    constraint: Constraint
    kinds: Mapping[str, str]  # of the variables that are images
    probability: float = 1.0
    weight: float = 1.0

    @property
    def known(self) -> tuple[str, ...]:
        return tuple(v.name for v in self.constraint.variables if v.name not in self.kinds)


@dataclass(frozen=True)
class RuleFile:
    """Rules over kinds of symbols."""

    path: Path
    symbols: Symbols
    rules: tuple[Rule, ...]

    @classmethod
    def read(cls, path: Path) -> "RuleFile":
        """From .toml or .pl."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path} cannot be read: {error}") from None
        if path.suffix == ".toml":
            return _from_toml(path, text)
        if path.suffix == ".pl":
            return _from_program(path, text)
        raise UsageError(f"{path} is no file of rules: they are .toml or .pl")

    @property
    def kinds(self) -> dict[str, str]:
        return {name: kind for rule in self.rules for name, kind in rule.kinds.items()}

    def shown(self) -> list[Shown]:
        """What may be shown without knowing any example."""
        return [Shown(rule.constraint, None, rule.known) for rule in self.rules]


@dataclass(frozen=True)
class ExampleFile:
    """The examples of every rule, with the line of the file that each is on, and the cells of all columns."""

    path: Path
    examples: tuple[Examples, ...]
    rules: tuple[Rule, ...]
    lines: tuple[tuple[int, ...], ...]
    cells: tuple[tuple[dict[str, str], ...], ...] = field(repr=False, default=())

    @classmethod
    def read(cls, path: Path, rules: RuleFile, row_of: RowOf | None) -> "ExampleFile":
        """From a .csv with a column for every variable; all problems are told at once.

        `row_of` finds the rows that images are; None: cells have the symbols that images show.
        """
        return _examples(path, rules, row_of)

    def shown(self) -> list[Shown]:
        """What may be shown: any symbols that satisfy the rules with the known values of the examples."""
        found = []
        for rule, examples in zip(self.rules, self.examples, strict=True):
            columns: dict[str, Sequence[Any]] = {}
            for v, column in zip(rule.constraint.variables, examples.columns, strict=True):
                if isinstance(column, Known):
                    columns[v.name] = [None if value is None else value for value in column.values]
            true = [i for i, holds in enumerate(examples.holds.tolist()) if holds]
            some = {name: [column[i] for i in true] for name, column in columns.items()}
            found.append(Shown(rule.constraint, some if some and true else None, rule.known))
        return found


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


def _from_toml(path: Path, text: str) -> RuleFile:
    try:
        table = parsed_toml(text)
    except ValueError as error:
        raise DataError(f"{path} is no TOML: {error}") from None
    problems = Problems(path)
    for key in table.keys() - {"symbols", "rule"}:
        problems.add(f"{key}: there are [symbols] and [[rule]], and nothing else")
    symbols = _symbols(table.get("symbols"), problems)
    stated = table.get("rule", [])
    stated = [stated] if isinstance(stated, dict) else stated
    if not stated:
        problems.add("there is no [[rule]]")
    rules = []
    for i, entry in enumerate(stated):
        name = str(entry.get("name", f"rule {i + 1}")) if isinstance(entry, dict) else f"rule {i + 1}"
        if not isinstance(entry, dict):
            problems.add(f"{name} is no table: write [[rule]]")
        elif symbols is not None:
            rule = _rule(name, entry, symbols, problems)
            rules += [] if rule is None else [rule]
    if len({rule.name for rule in rules}) < len(rules):
        problems.add("two rules have the same name")
    problems.tell()
    assert symbols is not None
    return RuleFile(path, symbols, tuple(rules))


def _symbols(given: Any, problems: Problems) -> Symbols | None:
    if not isinstance(given, dict) or not given:
        problems.add(
            '[symbols] is missing: it has the values of every kind, such as digit = 10 or mark = ["+", "-"]'
        )
        return None
    try:
        return Symbols.of(given)
    except GediError as error:
        problems.add(f"[symbols]: {error}")
        return None


def _rule(name: str, entry: Mapping[str, Any], symbols: Symbols, problems: Problems) -> Rule | None:
    before = len(problems.found)
    for key in entry.keys() - _KEYS:
        problems.add(f"{name}: there is no {key!r}, only {', '.join(sorted(_KEYS))}")
    ways = [key for key in _STATED if key in entry]
    if len(ways) != 1:
        problems.add(f"{name} needs one of {', '.join(_STATED)}, and has {', '.join(ways) or 'none'}")
    probability, weight = entry.get("probability", 1.0), entry.get("weight", 1.0)
    if not isinstance(probability, int | float) or not 0.5 < probability <= 1:
        problems.add(f"{name}: probability must be above 0.5 and at most 1, not {probability!r}")
    if not isinstance(weight, int | float) or weight <= 0:
        problems.add(f"{name}: weight must be above 0, not {weight!r}")
    variables, kinds = _variables(name, entry.get("variables", {}), symbols, problems)
    if isinstance(entry.get("expression"), str) and isinstance(entry.get("variables"), dict):
        try:
            predicate(entry["expression"], list(entry["variables"]))
        except GediError as error:
            problems.add(f"{name}: {error}")
    if len(problems.found) > before:
        return None
    try:
        constraint = _constraint(entry, variables)
    except GediError as error:
        problems.add(f"{name}: {error}")
        return None
    if "program" in entry:
        kinds = _kinds_of_program(name, constraint, variables, kinds, symbols, problems)
    if not kinds:
        problems.add(f"{name} has no variable that is an image: give one a kind of symbols")
    if len(problems.found) > before:
        return None
    return Rule(name, constraint, kinds, float(probability), float(weight))


def _variables(
    name: str, given: Any, symbols: Symbols, problems: Problems
) -> tuple[dict[str, tuple[Hashable, ...]], dict[str, str]]:
    """The values of variables, and the kinds of those that are images."""
    values: dict[str, tuple[Hashable, ...]] = {}
    kinds: dict[str, str] = {}
    if not isinstance(given, dict):
        problems.add(f'{name}: variables is no table: write [rule.variables] and a = "digit"')
        return values, kinds
    for variable, domain in given.items():
        where = f"{name}, variable {variable}"
        if variable in (RULE, HOLDS, WEIGHT, PROBABILITY):
            problems.add(f"{where}: this name is of a column of examples; take another")
        elif isinstance(domain, str):
            if domain in symbols.names:
                values[variable], kinds[variable] = symbols[domain].values, domain
            else:
                problems.add(f"{where}: there is no kind of symbols {domain!r}, only {', '.join(symbols.names)}")
        else:
            known = _domain(domain, symbols)
            if known is None:
                problems.add(
                    f"{where}: give a kind of symbols, a number of values, their list, {{from = 0, to = 18}}, or "
                    f'{{known = "digit"}}, at most {MAX_VALUES} values, not {domain!r}'
                )
            else:
                values[variable] = known
    return values, kinds


def _domain(given: Any, symbols: Symbols) -> tuple[Hashable, ...] | None:
    """The values of what is known with an example."""
    match given:
        case bool():
            return None
        case int() if 0 < given <= MAX_VALUES:
            return tuple(range(given))
        case list() if given and all(isinstance(value, str | int | float) for value in given):
            return tuple(given)
        case {"from": int() as low, "to": int() as high, **rest} if 0 <= high - low < MAX_VALUES and not rest:
            return tuple(range(low, high + 1))
        case {"known": str() as kind, **rest} if kind in symbols.names and not rest:
            return symbols[kind].values
    return None


def _constraint(entry: Mapping[str, Any], variables: Mapping[str, tuple[Hashable, ...]]) -> Constraint:
    names, domains = list(variables), list(variables.values())
    if "program" in entry:
        if not isinstance(entry.get("query"), str):
            raise UsageError('a program needs a query, such as query = "addition(a, b, s)"')
        return Constraint.from_program(str(entry["program"]), entry["query"])
    if not names:
        raise UsageError("it has no variables: write [rule.variables] and the values of each")
    if "table" in entry:
        return Constraint.from_table(entry["table"], domains, entry.get("weights"), names)
    text = str(entry["expression"])
    made = Constraint(predicate(text, names), domains, names)
    made.name = f"the rule {text}"
    return made


def _kinds_of_program(
    name: str,
    constraint: Constraint,
    variables: Mapping[str, tuple[Hashable, ...]],
    given: Mapping[str, str],
    symbols: Symbols,
    problems: Problems,
) -> dict[str, str]:
    """Variables of a program are images of the kind of their network, unless it is said that they are known."""
    kinds: dict[str, str] = {}
    known = {v for v in variables if v not in given}
    for v in constraint.variables:
        short = short_name(v)
        if {v.name, short} & known:
            continue
        kind = given.get(v.name) or given.get(short) or v.network
        if kind not in symbols.names or symbols[str(kind)].values != v.values:
            problems.add(
                f"{name}: {v.name} has the values {', '.join(map(str, v.values))}, which [symbols] has not for "
                f"{kind}: write them there, or say in [rule.variables] that it is known"
            )
        else:
            kinds[v.name] = str(kind)
    return kinds


def short_name(variable: Variable) -> str:
    """What a variable digit(a) of a program may be called in examples: a."""
    found = re.fullmatch(r"\w+\((.*)\)", variable.name)
    return found.group(1) if found else variable.name


def _from_program(path: Path, text: str) -> RuleFile:
    """A ProbLog program with a query, and comments such as `% known: s` for what is known with each example."""
    problems = Problems(path)
    lines, queries, known = [], [], set[str]()
    for line in text.splitlines():
        query, comment = _QUERY.match(line), _KNOWN.match(line)
        if query:
            queries.append(query["query"])
        if comment:
            known |= {name.strip() for name in comment["names"].split(",")}
        lines.append("" if query else line)
    if not queries:
        problems.add("there is no query: end the program with a line such as query(addition(a, b, s)).")
    rules, listed = [], dict[str, tuple[Hashable, ...]]()
    for i, asked in enumerate(queries):
        try:
            constraint = Constraint.from_program("\n".join(lines), asked)
        except GediError as error:
            problems.add(f"query({asked}): {error}")
            continue
        kinds = {}
        for v in constraint.variables:
            if {v.name, short_name(v)} & known:
                continue
            kind = v.network or "symbol"
            kinds[v.name] = kind
            if listed.setdefault(kind, v.values) != v.values:
                problems.add(f"query({asked}): {v.name} has other values than the rest of {kind}")
        rules.append(Rule(asked if len(queries) > 1 else f"rule {i + 1}", constraint, kinds))
    if rules and not listed:
        problems.add("all variables are known: none is an image")
    problems.tell()
    return RuleFile(path, Symbols.over(listed.items()), tuple(rules))


def _examples(path: Path, rules: RuleFile, row_of: RowOf | None) -> ExampleFile:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    problems = Problems(path)
    if not lines or not any(cell.strip() for cell in lines[0]):
        raise DataError(f"{path} is empty: its first line names the columns, one for every variable")
    head = [cell.strip() for cell in lines[0]]
    columns = _columns(head, rules, problems)
    problems.tell()
    read = [_Column(rule, columns[rule.name], row_of) for rule in rules.rules]
    names = {rule.name: column for rule, column in zip(rules.rules, read, strict=True)}
    for number, line in enumerate(lines[1:], start=2):
        if not any(cell.strip() for cell in line):
            continue
        if len(line) > len(head):
            problems.add(f"line {number} has {len(line)} cells and the first line {len(head)}")
            continue
        cells = dict(zip(head, [cell.strip() for cell in line], strict=False))
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
        tuple(tuple(column.cells) for column in kept),
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
                problems.add(f"there is no column for the variable {v.name} of {rule.name}")
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
        self.cells: list[dict[str, str]] = []
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
        self.cells.append(dict(cells))
        self.more[HOLDS].append(holds not in _NO)
        self.more[WEIGHT].append(weight * self.rule.weight)
        self.more[PROBABILITY].append(probability)

    def look(self, problems: Problems) -> None:
        """Examples that contradict the rule by their known values alone."""
        for i, line in enumerate(self.lines):
            if not self.more[HOLDS][i] or self.more[PROBABILITY][i] < 1:
                continue
            told = {name: self.entries[name][i] for name in self.known if self.entries[name][i] is not None}
            if told and not _allowed(self.rule.constraint, told):
                said = ", ".join(f"{name} = {value}" for name, value in told.items())
                problems.add(f"line {line} contradicts {self.rule.name}: no symbols satisfy it with {said}")

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
                return self.row_of(cell)
            except DataError as error:
                problems.add(f"line {number}, column {self.column_of[v.name]}: {error}")
                return None
        if cell not in self._values[v.name]:
            some = list(self._values[v.name])
            said = ", ".join(some if len(some) <= _TOLD else [*some[:3], "…", some[-1]])
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


def _allowed(constraint: Constraint, told: Mapping[str, Hashable]) -> bool:
    """Whether some values of the other variables satisfy the constraint."""
    blocks = [
        torch.tensor([0.0 if v.name not in told or value == told[v.name] else -torch.inf for value in v.values])
        for v in constraint.variables
    ]
    return float(constraint.body.log_joint(torch.cat(blocks).double()[:, None])) > -torch.inf


def read_labels(path: Path, symbols: Symbols, row_of: RowOf, n_rows: int | None) -> Int64[np.ndarray, " n"]:
    """Clusters of rows that a .csv labels, −1 of all others: columns picture and symbol, and kind if several."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    problems = Problems(path)
    several = len(symbols.kinds) > 1
    wanted = ["picture", "symbol", *(["kind"] if several else [])]
    missing = [name for name in wanted if not lines or name not in lines[0]]
    if missing:
        raise DataError(f"{path} needs the columns {', '.join(wanted)}, and has no {missing[0]}")
    found: dict[int, int] = {}
    for number, line in enumerate(lines, start=2):
        name = (line.get("kind") or "").strip() if several else symbols.names[0]
        if name not in symbols.names:
            problems.add(f"line {number}, column kind: there is no kind {name!r}, only {', '.join(symbols.names)}")
            continue
        kind = symbols[name]
        written, cell = {str(v): i for i, v in enumerate(kind.values)}, (line["symbol"] or "").strip()
        if cell not in written:
            problems.add(f"line {number}, column symbol: {cell!r} is none of {', '.join(written)}")
            continue
        try:
            row = row_of((line["picture"] or "").strip())
        except DataError as error:
            problems.add(f"line {number}, column picture: {error}")
            continue
        if found.setdefault(row, kind.first + written[cell]) != kind.first + written[cell]:
            problems.add(f"line {number}: {line['picture']} has another symbol than on a line before")
    problems.tell()
    labels = np.full(n_rows if n_rows is not None else max(found) + 1, -1)
    labels[list(found)] = list(found.values())
    return labels
