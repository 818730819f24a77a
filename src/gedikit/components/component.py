"""A component is a frozen dataclass: its fields are its settings, each with a default, a meaning and limits."""

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

from gedikit.errors import UsageError

T = TypeVar("T")
_LISTED = 30  # names, where none is near


def setting(
    default: T,
    meaning: str,
    *,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    choices: tuple[str, ...] = (),
) -> T:
    """Declare a field of a component with what it means and which values it may have."""
    limits = {"above": above, "at_least": at_least, "at_most": at_most, "choices": choices}
    return dataclasses.field(default=default, metadata={"meaning": meaning, **limits})


@dataclass(frozen=True)
class Setting:
    """A setting as it is shown to people."""

    name: str
    kind: str
    default: Any
    meaning: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Component:
    """Base of everything that a registry holds by name."""

    name: ClassVar[str] = ""  # set by the registry
    summary: ClassVar[str] = ""  # one line for `gedikit settings` and `gedikit methods`
    reference: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for field in public_fields(self):
            _check(f"{label(type(self))}.{field.name}", getattr(self, field.name), field)

    def replace(self, **changes: Any) -> Self:
        """A copy with other settings, whose values may be text as typed on a command line."""
        return dataclasses.replace(self, **coerced(type(self), changes))

    @classmethod
    def of(cls, changes: Mapping[str, Any]) -> Self:
        """A component with these settings and defaults for the others."""
        return cls(**coerced(cls, changes))


def public_fields(of: type[Component] | Component) -> "list[dataclasses.Field[Any]]":
    """The fields that are settings; what a component keeps for itself begins with an underscore."""
    return [field for field in dataclasses.fields(of) if not field.name.startswith("_")]


def settings_of(cls: type[Component]) -> list[Setting]:
    """Name, type, default and meaning of every setting."""
    hints = typing.get_type_hints(cls)
    return [
        Setting(
            field.name,
            _kind_in_words(hints[field.name]),
            field.default,
            field.metadata.get("meaning", ""),
            field.metadata.get("choices", ()),
        )
        for field in public_fields(cls)
    ]


def coerced(cls: type[Component], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Values for the fields of `cls`, each as its type; unknown names are refused with the nearest ones."""
    hints = typing.get_type_hints(cls)
    names = [field.name for field in public_fields(cls)]
    for name in changes:
        if name not in names:
            raise UsageError(unknown(f"setting of {label(cls)}", name, names))
    return {name: _coerce(f"{label(cls)}.{name}", value, hints[name]) for name, value in changes.items()}


def label(cls: type[Component]) -> str:
    """What a component, or a table of settings, is called in sentences."""
    return cls.name or cls.__name__.lower()


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The sentence for a name that is not known, with those that it may have been meant to be."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    some = ", ".join(known[:_LISTED]) + (", …" if len(known) > _LISTED else "")
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are: {some or 'none'}"
    return f"there is no {kind} {name!r}; {hint}"


def _check(name: str, value: Any, field: "dataclasses.Field[Any]") -> None:
    limits = field.metadata
    if limits.get("choices") and value not in limits["choices"]:
        raise UsageError(unknown(f"{name}", str(value), limits["choices"]))
    if value is None or isinstance(value, bool | str | tuple):
        return
    if limits.get("above") is not None and not value > limits["above"]:
        what = "positive" if limits["above"] == 0 else f"above {limits['above']:g}"
        raise UsageError(f"{name} must be {what}, not {value!r}")
    low, high = limits.get("at_least"), limits.get("at_most")
    if low is not None and high is not None and not low <= value <= high:
        raise UsageError(f"{name} must lie between {low:g} and {high:g}, not {value!r}")
    if low is not None and not value >= low:
        what = "not be negative" if low == 0 else f"be at least {low:g}"
        raise UsageError(f"{name} must {what}, not {value!r}")
    if high is not None and not value <= high:
        raise UsageError(f"{name} must be at most {high:g}, not {value!r}")


_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def _coerce(name: str, value: Any, kind: Any) -> Any:
    """`value`, or its text, as the type of a setting."""
    try:
        return _as(kind, value)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{name} must be {_kind_in_words(kind)}, not {value!r}") from None


def _as(kind: Any, value: Any) -> Any:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None or (isinstance(value, str) and value.strip().lower() in ("none", "")):
            return None
        return _as(next(k for k in inner if k is not type(None)), value)
    if origin is tuple:
        items = value.strip("()[] ").split(",") if isinstance(value, str) else list(value)
        items = [item for item in items if str(item).strip()]
        kinds = [inner[0]] * len(items) if inner[-1] is Ellipsis else list(inner)
        if len(kinds) != len(items):
            raise ValueError
        return tuple(_as(k, item) for k, item in zip(kinds, items, strict=True))
    if kind is bool:
        return _truth(value)
    if kind is int:
        if isinstance(value, bool) or float(value) != int(float(value)):
            raise ValueError
        return int(float(value))
    if kind is float:
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    if kind is str and not isinstance(value, str):
        raise ValueError
    return kind(value)


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text not in _TRUE + _FALSE:
        raise ValueError
    return text in _TRUE


def _kind_in_words(kind: Any) -> str:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return f"{_kind_in_words(next(k for k in inner if k is not type(None)))} or none"
    if origin is tuple:
        each = {int: "whole numbers", float: "numbers", str: "names"}.get(inner[0], "values")
        return f"a list of {each}" if inner[-1] is Ellipsis else f"{len(inner)} {each}"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a name"}
    return words.get(kind, getattr(kind, "__name__", str(kind)))
