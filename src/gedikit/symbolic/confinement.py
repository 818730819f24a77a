"""What a program may ask of ProbLog: its own libraries, but no files, no output, and nothing without end.

ProbLog runs Python files that a program names by use_module, reads any file that it names by consult, and writes
whatever it is told to the terminal.
"""

import functools
from collections.abc import Callable
from typing import Any

from gedikit.errors import UsageError
from gedikit.symbolic.budget import needs
from gedikit.symbolic.variables import MAX_BITS

LIBRARIES = ("aggregate", "apply", "assert", "collect", "control", "cut", "lists", "record", "scope", "string")
MAX_PARTS = 1_000_000  # of a list or a term that is made by saying how many it has

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
# which argument of a predicate says how many parts something is to have
_SIZES = {("length", 2): 1, ("functor", 3): 2}
_OUTPUT = ("write", "writeln", "writenl", "nl", "debugprint")


def confined_engine() -> Any:
    """An engine of ProbLog for programs that nobody vouches for."""
    engine = needs("problog.engine", "problog").DefaultEngine()
    for signature, number in engine.get_builtins().items():
        name, _, digits = signature.rpartition("/")
        arity, builtin = int(digits), engine.get_builtin(number)
        if (name, arity) in _FILES:
            engine.add_builtin(name, arity, _of_libraries(builtin, _FILES[name, arity]))
        elif (name, arity) in _SIZES:
            engine.add_builtin(name, arity, _of_few_parts(builtin, _SIZES[name, arity]))
        elif name in _OUTPUT:
            engine.add_builtin(name, arity, type(builtin)(_true))  # as before, but nothing is written
    return engine


def _of_few_parts(builtin: Callable[..., Any], place: int) -> Callable[..., Any]:
    @functools.wraps(builtin, updated=())
    def called(*args: Any, **context: Any) -> Any:
        size = args[place]
        if getattr(size, "is_constant", bool)() and isinstance(size.value, int) and size.value > MAX_PARTS:
            raise UsageError(f"the program asks for something of {size} parts, and may have {MAX_PARTS}")
        return builtin(*args, **context)

    return called


def _true(*_: Any, **_context: Any) -> bool:
    return True


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
    for signature, function in functions.items():
        functions[signature] = _bounded(function, _BITS.get(signature))


def _bounded(function: Callable[..., Any], bits: Callable[[int, int], int] | None) -> Callable[..., Any]:
    @functools.wraps(function, updated=())
    def called(*values: Any) -> Any:
        if not all(
            isinstance(value, int | float) for value in values
        ):  # text can be repeated, joined and formatted
            raise ValueError(f"{' and '.join(map(str, values))}: not all are numbers")  # ProbLog tells who asked
        if bits and all(isinstance(value, int) for value in values) and bits(*values) > MAX_BITS:
            raise ValueError(f"a number of more than {MAX_BITS} bits")
        try:
            return function(*values)
        except (OverflowError, TypeError) as error:
            raise ValueError(str(error)) from None

    return called


def _bits_of_power(a: int, b: int) -> int:
    return a.bit_length() * max(b, 0)


def _bits_of_shift(a: int, b: int) -> int:
    return a.bit_length() + max(b, 0)


def _bits_of_product(a: int, b: int) -> int:
    return a.bit_length() + b.bit_length()


_BITS = {
    ("**", 2): _bits_of_power,
    ("^", 2): _bits_of_power,
    ("<<", 2): _bits_of_shift,
    ("*", 2): _bits_of_product,
}
