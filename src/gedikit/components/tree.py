"""Settings as a tree of plain values: sections, in them names, in them values; as TOML and JSON hold it."""

from collections.abc import Mapping, Sequence
from typing import Any

from gedikit.components.component import Component, public_fields
from gedikit.errors import UsageError

Tree = dict[str, Any]
_NAMED = "name"  # which component a section is about


def expand(changes: Mapping[str, Any]) -> Tree:
    """Dotted names as nested tables: {"sampler.steps": 3} is {"sampler": {"steps": 3}}."""
    tree: Tree = {}
    for key, value in changes.items():
        *path, last = str(key).split(".")
        at = tree
        for part in path:
            at = at.setdefault(part, {})
            if not isinstance(at, dict):
                raise UsageError(f"{key!r} and {part!r} cannot both be set")
        if isinstance(value, Mapping):
            inner = expand(value)
            at[last] = merge(at[last], inner) if isinstance(at.get(last), dict) else inner
        else:
            at[last] = value
    return tree


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Tree:
    """`base` with `changes` on top; where another component is named, the settings of the former go with it."""
    merged: Tree = {}
    for key in [*base, *(key for key in changes if key not in base)]:
        old, new = base.get(key), changes.get(key)
        if key not in changes:
            merged[key] = old
        elif isinstance(new, Mapping):
            other = _NAMED in new and isinstance(old, Mapping) and new[_NAMED] != old.get(_NAMED)
            merged[key] = merge(old if isinstance(old, Mapping) and not other else {}, new)
        else:
            merged[key] = new
    return merged


def as_tree(component: Component | None) -> Tree:
    """A component by its name and the values of its settings."""
    if component is None:
        return {_NAMED: "none"}
    named: Tree = {_NAMED: component.name} if component.name else {}
    values = {f.name: getattr(component, f.name) for f in public_fields(component)}
    return named | {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def parse_assignments(pairs: Sequence[str]) -> dict[str, str]:
    """["key=value", …] as typed on a command line."""
    parsed = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--set takes key=value, not {pair!r}")
        parsed[name.strip()] = value.strip()
    return parsed
