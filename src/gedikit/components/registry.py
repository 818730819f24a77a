"""Components of one kind by name, from this package and from others.

A package adds its own by an entry point of the group `gedikit.components` that names a module; importing the module
registers what it defines. A script registers by being run, and `gedikit fit --import FILE` runs one.
"""

import dataclasses
import importlib
import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from gedikit.components.component import Component, unknown
from gedikit.errors import UsageError

ENTRY_POINTS = "gedikit.components"
_OWN = ("gedikit.paper.recipes",)  # what this package registers by the same door
C = TypeVar("C", bound=Component)
S = TypeVar("S", bound=Component)


class Registry(Generic[C]):
    """Names and classes of one kind of component."""

    def __init__(self, kind: str, base: type[C]):
        self.kind, self.base = kind, base
        self._classes: dict[str, type[C]] = {}
        KINDS[kind] = self

    def register(self, name: str) -> Callable[[type[S]], type[S]]:
        """Decorator of a frozen dataclass that makes it known by `name`."""

        def add(cls: type[S]) -> type[S]:
            given: object = cls
            if not (isinstance(given, type) and issubclass(given, self.base)):
                raise UsageError(f"{self.kind} {name!r} must be a subclass of {self.base.__name__}")
            params = getattr(cls, "__dataclass_params__", None)
            if "__dataclass_fields__" not in vars(cls) or params is None or not params.frozen:
                raise UsageError(f"{self.kind} {name!r} must be a frozen dataclass: its fields are its settings")
            # names are joined by + and are parts of dotted keys
            if not re.fullmatch(r"\w[\w-]*", name) or name == "none":
                raise UsageError(f"{self.kind} {name!r}: a name has letters, digits, - and _, and is not 'none'")
            known = self._classes.get(name)
            if known is not None and _origin(known) != _origin(cls):
                raise UsageError(f"the {self.kind} {name!r} is there already, of the module {known.__module__!r}")
            if "name" in {f.name for f in dataclasses.fields(cls)}:
                raise UsageError(f"{self.kind} {name!r} has a setting 'name', which is what tells components apart")
            missing = [f.name for f in dataclasses.fields(cls) if not _has_default(f)]
            if missing:
                raise UsageError(f"{self.kind} {name!r} needs a default for its setting {missing[0]!r}")
            cls.name = name
            self._classes[name] = given
            return cls

        return add

    def get(self, name: str, needed_from: str | None = None) -> type[C]:
        """The class of this name; unknown names raise and suggest near ones.

        `needed_from` names the module that defined it when a model was saved.
        """
        if name not in self._classes:
            load_plugins()
        if name not in self._classes:
            if needed_from is not None and not needed_from.startswith("gedikit."):
                raise UsageError(_missing(f"{self.kind} {name!r}", needed_from))
            raise UsageError(unknown(self.kind, name, self._classes))
        return self._classes[name]

    def __contains__(self, name: object) -> bool:
        """Whether a component of this name is registered; plugins are not looked for."""
        return name in self._classes

    def __iter__(self) -> Iterator[str]:
        load_plugins()
        return iter(self._classes)

    def items(self) -> Iterator[tuple[str, type[C]]]:
        return iter([(name, self._classes[name]) for name in self])


KINDS: dict[str, Registry[Any]] = {}
_loaded: set[str] = set()


def load_plugins() -> None:
    """Import the modules that installed packages name as theirs, once."""
    for module in _OWN:
        importlib.import_module(module)
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        if point.value in _loaded:
            continue
        try:
            point.load()
        except Exception as error:
            raise UsageError(f"the components of {point.name!r} ({point.value}) do not import: {error}") from error
        _loaded.add(point.value)


def import_plugin(what: str) -> None:
    """Import a module by its name, or run a Python file, for the components it registers."""
    path = Path(what)
    try:
        if path.suffix == ".py":
            _run_file(path)
        else:
            importlib.import_module(what)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{what} could not be imported: {type(error).__name__}: {error}") from error


def _run_file(path: Path) -> None:
    """As `import` would, were the file's directory where Python looks for modules; modules beside it are found."""
    if not path.is_file():
        raise UsageError(f"there is no file {path} to import components from")
    place, name = path.resolve(), path.stem
    known = getattr(sys.modules.get(name), "__file__", None)
    if name in sys.modules and (known is None or Path(known).resolve() != place):
        raise UsageError(f"{path} has the name of the module {name!r}, which is in use: give the file another one")
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(place.parent) not in sys.path:
        sys.path.append(str(place.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def _missing(what: str, module: str) -> str:
    """What a saved model, or a run, says when nobody has registered a component of it."""
    where = "the script it was trained by" if module == "__main__" else f"the module {module!r}"
    that = "that script" if module == "__main__" else "that module"
    return (
        f"this needs the {what} of {where}: import {that} first (on the command line: --import FILE_OR_MODULE), "
        "or install the package it belongs to"
    )


def _origin(cls: type) -> tuple[str, str]:
    """A class is the same after its file was run again."""
    return cls.__module__, cls.__qualname__


def _has_default(field: "dataclasses.Field[Any]") -> bool:
    missing = dataclasses.MISSING
    return field.default is not missing or field.default_factory is not missing
