"""Rules as people write them, `a + b == s`, read without running any code.

An expression is parsed by Python's grammar and translated piece by piece. What is not listed here (calls of other
functions, attributes, subscripts, assignments, comprehensions) is refused, so a file with rules can do nothing but
state rules.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gedikit.errors import UsageError
from gedikit.symbolic.variables import MAX_BITS

Values = Mapping[str, Any]
Evaluated = Callable[[Values], Any]

MAX_POWER = 64  # exponent; more would be larger than any domain
MAX_LENGTH = 2000  # characters


def _of_numbers(combine: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Arithmetic alone: Python also repeats text by * and formats it by %, without end."""

    def apply(a: Any, b: Any) -> Any:
        if not (isinstance(a, int | float) and isinstance(b, int | float)):
            raise TypeError(f"{a!r} and {b!r} are not both numbers")
        return combine(a, b)

    return apply


_BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: _of_numbers(operator.mul),
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: _of_numbers(operator.mod),
    ast.BitXor: operator.xor,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}
_UNARY: dict[type[ast.AST], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """A comparison of numbers: that of text would be alphabetical, which nobody means by small < large."""

    def of_numbers(a: Any, b: Any) -> bool:
        if isinstance(a, str) or isinstance(b, str):
            raise TypeError(f"{a!r} and {b!r} have no order: compare numbers")
        return compare(a, b)

    return of_numbers


_COMPARED: dict[type[ast.AST], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: _ordered(operator.lt),
    ast.LtE: _ordered(operator.le),
    ast.Gt: _ordered(operator.gt),
    ast.GtE: _ordered(operator.ge),
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "min": min,
    "max": max,
    "distinct": lambda *values: len(set(values)) == len(values),
    "implies": lambda a, b: (not a) or b,
}
_LONE_EQUALS = re.compile(r"(?<![<>=!])=(?!=)")


def predicate(text: str, names: Sequence[str]) -> Callable[..., bool]:
    """What an expression over variables says of their values, given in the order of `names`.

    >>> holds = predicate("a + b = s and distinct(a, b)", ["a", "b", "s"])
    >>> holds(1, 2, 3), holds(1, 1, 2)
    (True, False)
    """
    if len(text) > MAX_LENGTH:
        raise UsageError(f"an expression has {len(text)} characters, more than {MAX_LENGTH}: state it as a program")
    try:
        tree = ast.parse(_LONE_EQUALS.sub("==", text).strip(), mode="eval")
    except (SyntaxError, ValueError) as error:
        where = f" near character {error.offset}" if isinstance(error, SyntaxError) and error.offset else ""
        raise UsageError(f"the expression {text!r} cannot be read{where}: write it as in a + b == s") from None
    try:
        evaluated = _translated(tree.body, frozenset(names))
    except RecursionError:
        raise UsageError("an expression is nested too deeply to be read") from None
    except _Refused as refused:
        raise UsageError(f"the expression {text!r} {refused}") from None

    def holds(*values: Any) -> bool:
        return bool(evaluated(dict(zip(names, values, strict=True))))

    return holds


def never_equal(text: str, values: Mapping[str, Sequence[Any]]) -> list[str]:
    """Comparisons that cannot be meant: of a variable with text that is none of its values, or with the other type.

    >>> never_equal("a == 1 if op == 0 else op == '-'", {"op": ("+", "-"), "a": (0, 1)})
    ["op == 0: op is one of '+', '-'"]
    """
    found = []
    tree = ast.parse(_LONE_EQUALS.sub("==", text).strip(), mode="eval")
    for node in (n for n in ast.walk(tree) if isinstance(n, ast.Compare)):
        for one, op, other in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            for name, given in ((one, other), (other, one)):
                if not isinstance(name, ast.Name) or not isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn):
                    continue
                listed = given.elts if isinstance(given, ast.Tuple | ast.List | ast.Set) else [given]
                constants = [part.value for part in listed if isinstance(part, ast.Constant)]
                own = values.get(name.id, constants)
                if any(_is_foreign(constant, own) for constant in constants):
                    said = ", ".join(map(repr, own))
                    found.append(f"{ast.unparse(ast.Compare(one, [op], [other]))}: {name.id} is one of {said}")
    return found


def _is_foreign(constant: Any, values: Sequence[Any]) -> bool:
    """Text that is no value, or a number where all values are text."""
    return constant not in values if isinstance(constant, str) else all(isinstance(value, str) for value in values)


class _Refused(Exception):
    """What cannot be in an expression."""


def _translated(node: ast.expr, names: frozenset[str]) -> Evaluated:  # noqa: PLR0912
    def of(part: ast.expr) -> Evaluated:
        return _translated(part, names)

    match node:
        case ast.Constant(value=bool() | int() | float() | str()):
            value = node.value
            return lambda _: value
        case ast.Name(id=name):
            if name not in names:
                raise _Refused(f"names {name}, which is none of the variables {', '.join(sorted(names))}")
            return lambda values: values[name]
        case ast.UnaryOp(op=op, operand=inner) if type(op) in _UNARY:
            apply, a = _UNARY[type(op)], of(inner)
            return lambda values: apply(a(values))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            a, b = of(left), of(right)
            return lambda values: _power(a(values), b(values))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            combine, a, b = _BINARY[type(op)], of(left), of(right)
            return lambda values: combine(a(values), b(values))
        case ast.BoolOp(op=op, values=operands):
            parts = [of(part) for part in operands]
            if isinstance(op, ast.And):
                return lambda values: all(part(values) for part in parts)
            return lambda values: any(part(values) for part in parts)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARED for op in ops):
            sides = [of(part) for part in (left, *others)]
            compare = [_COMPARED[type(op)] for op in ops]
            return lambda values: _chain([side(values) for side in sides], compare)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            asked, yes, no = of(test), of(body), of(orelse)
            return lambda values: yes(values) if asked(values) else no(values)
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            parts = [of(part) for part in elements]
            return lambda values: tuple(part(values) for part in parts)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            function, parts = _FUNCTIONS[name], [of(part) for part in arguments]
            return lambda values: function(*(part(values) for part in parts))
        case ast.Call():
            raise _Refused(f"calls a function that is none of {', '.join(_FUNCTIONS)}")
    raise _Refused(
        f"has {ast.unparse(node)!r}, which is no part of an expression: there are numbers, text, variables, "
        f"arithmetic, comparisons, and, or, not, if, in, and {', '.join(_FUNCTIONS)}"
    )


def _chain(values: list[Any], compare: list[Callable[[Any, Any], bool]]) -> bool:
    return all(holds(a, b) for a, b, holds in zip(values, values[1:], compare, strict=False))


def _power(a: Any, b: Any) -> Any:
    if isinstance(b, int | float) and abs(b) > MAX_POWER:
        raise ValueError(f"the exponent {b} is beyond {MAX_POWER}")
    if isinstance(a, int) and isinstance(b, int) and a.bit_length() * b > MAX_BITS:
        raise ValueError(f"the power is a number of more than {MAX_BITS} bits")
    return a**b
