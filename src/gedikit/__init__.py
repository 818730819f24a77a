"""gedikit: self-supervised clustering and energy-based modelling in one network."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gedikit.estimator import GEDI as GEDI

__version__ = "0.1.0"
__all__ = ["GEDI", "__version__"]


def __getattr__(name: str) -> Any:
    # torch takes a second to import: the command line must not pay for it before it has to
    if name == "GEDI":
        from gedikit.estimator import GEDI

        return GEDI
    raise AttributeError(f"module 'gedikit' has no attribute {name!r}")
