"""Pickles of plain arrays, read without running what they contain."""

import pickle
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gedikit.errors import DataError

_REBUILD_ARRAY = np.empty(0).__reduce__()[0]  # lives in numpy.core or numpy._core, as the version has it
_LOADERS: dict[int, Any] = pickle._Unpickler.dispatch
_NUMBERS = re.compile(r"[<>|=]?[biuf][1-8]")  # names of types that hold no pointers
_ORDERS = ("<", ">", "|", "=", b"<", b">", b"|", b"=")  # of the bytes of a number
_OTHER_CALLS = (
    *(pickle.INST, pickle.OBJ, pickle.NEWOBJ, pickle.NEWOBJ_EX, pickle.EXT1, pickle.EXT2, pickle.EXT4),
    *(pickle.PERSID, pickle.BINPERSID),
)


def read_pickle(path: Path) -> Any:
    """Numbers, text, lists, dictionaries and arrays; text of Python 2 comes as bytes."""
    try:
        with path.open("rb") as file:
            return _ArraysOnly(file, encoding="bytes").load()
    except _Refused as error:
        raise DataError(
            f"{path} asks for {error}, which a file of images does not need: it was refused and nothing of it was "
            "run; get the file anew from a place you trust"
        ) from None
    except Exception as error:  # damaged pickles raise nearly anything
        raise DataError(f"{path} is damaged or not a pickle: {error}") from error


class _Refused(Exception):
    """The name of something that a pickle wants."""


class _Encode:
    """As `codecs.encode`, for bytes that Python 3 stores as text; other encodings take time without end."""

    __slots__ = ()

    def __call__(self, text: Any, encoding: Any) -> bytes:
        if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
            raise _Refused(f"text in the encoding {encoding!r}")
        return text.encode("latin1")


class _NumberType:
    """As `numpy.dtype`, for numbers alone: arrays of pointers could be filled with places in memory."""

    __slots__ = ()

    def __call__(self, name: Any, *_: Any) -> np.dtype[Any]:
        plain = name.decode("latin1") if isinstance(name, bytes) else name
        if not (isinstance(plain, str) and _NUMBERS.fullmatch(plain)):
            raise _Refused(f"values of the type {name!r}")
        return np.dtype(plain, copy=True)


# what a pickle may ask for, none of it with attributes that a pickle could set; the class is named and never called
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _REBUILD_ARRAY,
    ("numpy._core.multiarray", "_reconstruct"): _REBUILD_ARRAY,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _NumberType(),
    ("_codecs", "encode"): _Encode(),
}


class _ArraysOnly(pickle._Unpickler):  # the one written in C cannot be told to refuse opcodes
    """Without sets, and with keys of text: the hash of nested tuples takes time without end."""

    dispatch: ClassVar[dict[int, Any]] = dict(_LOADERS)

    def find_class(self, module_name: str, global_name: str) -> Any:
        try:
            return _ALLOWED[module_name, global_name]
        except KeyError:
            raise _Refused(f"{module_name}.{global_name}") from None

    def load_reduce(self: Any) -> None:
        function, args = self.stack[-2:]
        if isinstance(function, type):
            raise _Refused(f"a call of {function.__name__}")
        if function is _REBUILD_ARRAY and args[1:2] != ((0,),):
            raise _Refused("an array without its values")  # memory that was never written to
        _LOADERS[pickle.REDUCE[0]](self)

    def load_build(self: Any) -> None:
        """The state of a type of numbers or of an array of them, and of nothing else.

        numpy believes whatever it is told: that bytes are pointers, and that values lie beyond the end.
        """
        target, state = self.stack[-2:]
        if isinstance(target, np.dtype):
            plain = _is_state(state, (int, str | bytes, *[type(None)] * 3, int, int, int))
            plain = plain and state[1] in _ORDERS and state[5:] == (-1, -1, 0)
        else:
            plain = isinstance(target, np.ndarray) and _is_state(state, (int, tuple, np.dtype, int, bytes))
        if not plain:
            raise _Refused(f"a {type(target).__name__} of another kind than numbers")
        _LOADERS[pickle.BUILD[0]](self)

    def load_setitem(self: Any) -> None:
        _check_keys(self.stack[-2:-1])
        _LOADERS[pickle.SETITEM[0]](self)

    def load_setitems(self: Any) -> None:
        _check_keys(self.stack[::2])  # those since the mark
        _LOADERS[pickle.SETITEMS[0]](self)

    def load_dict(self: Any) -> None:
        _check_keys(self.stack[::2])
        _LOADERS[pickle.DICT[0]](self)

    def load_set(self) -> None:
        raise _Refused("a set")

    def load_call(self) -> None:
        raise _Refused("an object of its own")

    dispatch |= {
        pickle.REDUCE[0]: load_reduce,
        pickle.BUILD[0]: load_build,
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
        pickle.DICT[0]: load_dict,
        pickle.EMPTY_SET[0]: load_set,
        pickle.FROZENSET[0]: load_set,
        **dict.fromkeys((opcode[0] for opcode in _OTHER_CALLS), load_call),
    }


def _is_state(state: Any, kinds: tuple[Any, ...]) -> bool:
    return (
        isinstance(state, tuple)
        and len(state) == len(kinds)
        and all(isinstance(value, kind) for value, kind in zip(state, kinds, strict=True))
    )


def _check_keys(keys: list[Any]) -> None:
    if not all(isinstance(key, str | bytes | int) for key in keys):
        raise _Refused("a dictionary of other things than names")
