"""gedikit: self-supervised clustering and energy-based modelling in one network."""

import importlib
from typing import TYPE_CHECKING, Any

from gedikit.version import __version__

if TYPE_CHECKING:
    from gedikit.components import setting as setting
    from gedikit.densities.base import register_density as register_density
    from gedikit.encoders.base import register_encoder as register_encoder
    from gedikit.estimator import GEDI as GEDI
    from gedikit.methods import register_method as register_method
    from gedikit.modalities.base import register_modality as register_modality
    from gedikit.objectives.base import register_objective as register_objective
    from gedikit.planning import Asked as Asked
    from gedikit.planning import Plan as Plan
    from gedikit.planning import plan as plan
    from gedikit.pretrained import load_pretrained as load_pretrained
    from gedikit.profile import DataProfile as DataProfile
    from gedikit.samplers.base import register_sampler as register_sampler
    from gedikit.views.base import register_views as register_views
    from gedikit.views.similarity import register_similarity as register_similarity

# torch takes a second to import: the command line must not pay for it before it has to
_WHERE = {
    "GEDI": "estimator",
    "Asked": "planning",
    "DataProfile": "profile",
    "Plan": "planning",
    "load_pretrained": "pretrained",
    "plan": "planning",
    "register_density": "densities",
    "register_encoder": "encoders",
    "register_method": "methods",
    "register_modality": "modalities",
    "register_objective": "objectives",
    "register_sampler": "samplers",
    "register_similarity": "views",
    "register_views": "views",
    "setting": "components",
}
__all__ = [*_WHERE, "__version__", "load"]  # noqa: PLE0604


def load(path: str, device: str = "auto", **options: Any) -> "GEDI":
    """A model that `GEDI.save` wrote, or that of a run directory; nothing is unpickled."""
    from pathlib import Path

    from gedikit.estimator import GEDI

    place = Path(path)
    return GEDI.load(place / "model.safetensors" if place.is_dir() else place, device, **options)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'gedikit' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"gedikit.{_WHERE[name]}"), name)
    globals()[name] = found
    return found
