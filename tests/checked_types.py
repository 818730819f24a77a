"""Every function of the package checks the types and shapes it is given and returns, as annotated.

What annotations forbid is refused: by the function itself, in a sentence that tests can read, or else by the check.
"""

import functools
import inspect
import sys
import typing
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from typing import Annotated, Any, Self

import jaxtyping
from beartype import BeartypeConf, FrozenDict, beartype
from beartype.vale import Is
from jaxtyping import TypeCheckError

PLAIN = (
    "gedikit.encoders.stem_kernels",  # a language of its own
    "gedikit.views.warp",  # torch.compile cannot see through the check of a named tuple's methods
)
FREE = {
    "gedikit.estimator.GEDI.__init__",  # of scikit-learn's estimators: anything goes in, `fit` complains
}
_strict = jaxtyping.jaxtyped


def install() -> None:
    """For everything that is imported from here on."""
    jaxtyping.install_import_hook("gedikit", f"{__name__}.checked")
    jaxtyping.jaxtyped = _jaxtyped  # what the hook decorates with
    sys.meta_path.insert(0, _Plain)


class _Plain:
    """Finds modules that are imported as they are."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG004
        return PathFinder.find_spec(name, path) if name in PLAIN else None


def _jaxtyped(*, typechecker: Callable[..., Any]) -> Callable[..., Any]:
    def decorate(thing: Any) -> Any:
        if f"{thing.__module__}.{thing.__qualname__}" in FREE:
            return thing
        if not inspect.isclass(thing):
            return _refusing(thing, _strict(thing, typechecker=typechecker))
        plain = thing.__init__
        _strict(thing, typechecker=typechecker)
        if thing.__init__ is not plain:  # of a dataclass
            thing.__init__ = _refusing(plain, thing.__init__)
        return thing

    return decorate


def _refusing(plain: Callable[..., Any], strict: Callable[..., Any]) -> Callable[..., Any]:
    """`strict`, unless `plain` itself refuses what it is given."""
    names = (f"{plain.__module__}.{plain.__qualname__}", plain.__name__)  # the latter in older versions
    about = [f"the parameters of {name}." for name in names]

    @functools.wraps(plain)
    def called(*args: Any, **kwargs: Any) -> Any:
        if jaxtyping.config.jaxtyping_disable:
            return plain(*args, **kwargs)
        try:
            return strict(*args, **kwargs)
        except TypeCheckError as error:
            if any(text in str(error) for text in about):
                plain(*args, **kwargs)
            raise

    return called


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    protocols = {p for hint in function.__annotations__.values() for p in _protocols(hint)}
    return beartype(function, conf=_conf(frozenset(protocols)))


@cache
def _conf(protocols: frozenset[type]) -> BeartypeConf:
    """As mypy has it, a whole number is a number; what Self is, is known to a class alone."""
    others = {Self: object, **{p: _like(p) for p in protocols}}
    return BeartypeConf(is_pep484_tower=True, hint_overrides=FrozenDict(others))


def _protocols(hint: object) -> Iterator[type]:
    if isinstance(hint, type) and getattr(hint, "_is_protocol", False):
        yield hint
    for part in typing.get_args(hint):
        yield from _protocols(part)


@cache
def _like(protocol: type) -> object:
    """Anything with the members of the protocol; they are not computed for that, as isinstance would do."""
    members = [name for name in vars(protocol) if not name.startswith("_") or name in ("__call__", "__len__")]
    return Annotated[object, Is[lambda thing: all(_has(thing, name) for name in members)]]


def _has(thing: object, name: str) -> bool:
    return inspect.getattr_static(thing, name, None) is not None
