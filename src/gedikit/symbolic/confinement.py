"""What a program may ask of ProbLog: its own libraries, but no files, and no numbers without end.

ProbLog runs Python files that a program names by use_module, and reads any file that it names by consult.
"""

import functools
from collections.abc import Callable
from typing import Any

from gedikit.errors import UsageError
from gedikit.symbolic.budget import needs

LIBRARIES = ("aggregate", "apply", "assert", "collect", "control", "cut", "lists", "record", "scope", "string")
MAX_BITS = 4096  # of a number; beyond, a short program fills memory

# which argument of a predicate names a file
_FILES = {
    ("consult", 1): 0,
    ("_consult", 2): 1,
    ("use_module", 1): 0,
    ("use_module", 2): 0,
    ("_use_module", 2): 1,
    ("_use_module", 3): 1,
    (".", 2): 0,
}


def confined_engine() -> Any:
    """An engine of ProbLog for programs that nobody vouches for."""
    engine = needs("problog.engine", "problog").DefaultEngine()
    known = engine.get_builtins()
    for (name, arity), place in _FILES.items():
        number = known.get(f"{name}/{arity}")
        if number is not None:
            engine.add_builtin(name, arity, _of_libraries(engine.get_builtin(number), place))
    return engine


def _of_libraries(builtin: Callable[..., Any], place: int) -> Callable[..., Any]:
    @functools.wraps(builtin, updated=())
    def called(*args: Any, **context: Any) -> Any:
        file = args[place]
        if _library(file) not in LIBRARIES:
            raise UsageError(
                f"the program asks for {file}, and may not read or run files: there are library(…) of "
                f"{', '.join(LIBRARIES)}"
            )
        return builtin(*args, **context)

    return called


def _library(file: Any) -> str | None:
    """The name of a library; these name parts of themselves with their endings and in quotes."""
    if getattr(file, "functor", None) != "library" or file.arity != 1:
        return None
    return str(file.args[0]).strip("'").removesuffix(".py").removesuffix(".pl")


@functools.cache
def bound_numbers() -> None:
    """Once for all: ProbLog keeps its functions in one table."""
    functions = needs("problog.logic", "problog")._arithmetic_functions
    for name, bits in (
        ("**", _bits_of_power),
        ("^", _bits_of_power),
        ("<<", _bits_of_shift),
        ("*", _bits_of_product),
    ):
        functions[name, 2] = _bounded(functions[name, 2], bits)


def _bounded(function: Callable[[Any, Any], Any], bits: Callable[[int, int], int]) -> Callable[[Any, Any], Any]:
    @functools.wraps(function)
    def called(a: Any, b: Any) -> Any:
        if not (isinstance(a, int | float) and isinstance(b, int | float)):
            raise ValueError(f"{a} and {b} are not both numbers")  # ProbLog tells who asked
        if isinstance(a, int) and isinstance(b, int) and bits(a, b) > MAX_BITS:
            raise ValueError(f"a number of more than {MAX_BITS} bits")
        try:
            return function(a, b)
        except OverflowError as error:
            raise ValueError(str(error)) from None

    return called


def _bits_of_power(a: int, b: int) -> int:
    return a.bit_length() * max(b, 0)


def _bits_of_shift(a: int, b: int) -> int:
    return a.bit_length() + max(b, 0)


def _bits_of_product(a: int, b: int) -> int:
    return a.bit_length() + b.bit_length()
