"""Rules as files: RULES.toml or RULES.pl. All problems of a file are told at once, each with its place."""

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gedikit.errors import DataError, GediError, UsageError
from gedikit.storage import parsed_toml
from gedikit.symbolic.constraint import Constraint
from gedikit.symbolic.expressions import never_equal, predicate
from gedikit.symbolic.shortcuts import Shown
from gedikit.symbolic.symbols import Symbols
from gedikit.symbolic.variables import MAX_VALUES, Variable

RULE, HOLDS, WEIGHT, PROBABILITY = "rule", "holds", "weight", "probability"
_QUERY = re.compile(r"^\s*query\((?P<query>.*)\)\s*\.\s*(%.*)?$")
_KNOWN = re.compile(r"^\s*%\s*known\s*:\s*(?P<names>.*)$")
TOLD = 20  # problems
_KEYS = {"name", "expression", "table", "weights", "program", "query", "variables", "probability", "weight"}
_STATED = ("expression", "table", "program")


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
        more = [f"and {len(self.found) - TOLD} more"] if len(self.found) > TOLD else []
        lines = "\n".join(f"  {what}" for what in [*self.found[:TOLD], *more])
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
    values, kinds = _variables(name, entry.get("variables", {}), symbols, problems)
    if isinstance(entry.get("expression"), str) and isinstance(entry.get("variables"), dict):
        try:
            predicate(entry["expression"], list(entry["variables"]))
            for what in never_equal(entry["expression"], values):
                problems.add(f"{name}: the expression has {what}")
        except GediError as error:
            problems.add(f"{name}: {error}")
    if len(problems.found) > before:
        return None
    try:
        constraint = _constraint(entry, values)
    except GediError as error:
        problems.add(f"{name}: {error}")
        return None
    if "program" in entry:
        kinds = _kinds_of_program(name, constraint, values, kinds, symbols, problems)
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
