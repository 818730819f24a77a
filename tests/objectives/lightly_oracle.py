"""The losses of lightly, an independent implementation, as an oracle for tests and benchmarks."""

import importlib
import sys
from types import ModuleType

import torch

_MISSING = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_libraries: list[torch.library.Library] = []  # a library's operators vanish with it


def lightly_loss() -> ModuleType:
    """The module lightly.loss. Raises ImportError where lightly is not installed."""
    _import_torchvision()
    return importlib.import_module("lightly.loss")


def _import_torchvision() -> None:
    """lightly imports torchvision, whose compiled part needs the torch it was built with.

    No loss here uses that part, but without it the import stops at operators that nobody declared.
    """
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in [m for m in sys.modules if m.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for schema in _MISSING:
            library.define(schema)
        _libraries.append(library)
        importlib.import_module("torchvision")
