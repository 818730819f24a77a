"""gedikit: self-supervised clustering and energy-based modelling in one network."""

from typing import TYPE_CHECKING, Any

from gedikit.version import __version__

if TYPE_CHECKING:
    from gedikit.estimator import GEDI as GEDI

__all__ = ["GEDI", "__version__"]


def __getattr__(name: str) -> Any:
    # torch takes a second to import: the command line must not pay for it before it has to
    if name == "GEDI":
        from gedikit.estimator import GEDI

        return GEDI
    raise AttributeError(f"module 'gedikit' has no attribute {name!r}")
