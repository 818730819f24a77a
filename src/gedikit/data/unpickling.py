"""Pickles of plain arrays, read without running what they contain."""

import codecs
import pickle
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gedikit.errors import DataError

_REBUILD_ARRAY = np.empty(0).__reduce__()[0]  # lives in numpy.core or numpy._core, as the version has it
_LOADERS: dict[int, Any] = pickle._Unpickler.dispatch
# only functions and types written in C: a pickle can set attributes on anything else it is given
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _REBUILD_ARRAY,
    ("numpy._core.multiarray", "_reconstruct"): _REBUILD_ARRAY,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): codecs.encode,
}


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
    """The name of something that a pickle wants to call."""


class _ArraysOnly(pickle._Unpickler):  # the one written in C cannot be told to refuse opcodes
    """Without sets, and with keys of text: the hash of nested tuples takes time without end."""

    dispatch: ClassVar[dict[int, Any]] = dict(_LOADERS)

    def find_class(self, module_name: str, global_name: str) -> Any:
        try:
            return _ALLOWED[module_name, global_name]
        except KeyError:
            raise _Refused(f"{module_name}.{global_name}") from None

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

    dispatch |= {
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
        pickle.DICT[0]: load_dict,
        pickle.EMPTY_SET[0]: load_set,
        pickle.FROZENSET[0]: load_set,
    }


def _check_keys(keys: list[Any]) -> None:
    if not all(isinstance(key, str | bytes | int) for key in keys):
        raise _Refused("a dictionary of other things than names")
