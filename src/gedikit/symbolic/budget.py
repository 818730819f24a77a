"""How much grounding and compiling may take, and the libraries they need."""

import importlib
import time
from typing import Any

from gedikit.errors import UsageError


def needs(module: str, library: str) -> Any:
    """A module of the extra `gedikit[symbolic]`."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise UsageError(
            f"a constraint stated as a program needs the {library} library: pip install 'gedikit[symbolic]'"
        ) from None


class Budget:
    """Seconds and nodes; who spends them is told when they are gone."""

    def __init__(self, seconds: float, nodes: int):
        self.seconds, self.nodes = seconds, nodes
        self.began = time.monotonic()
        self.doing = "grounding the program"

    def check(self, nodes: int) -> None:
        """Before one more step, with that many nodes in memory."""
        passed = time.monotonic() - self.began
        if passed > self.seconds or nodes > self.nodes:
            raise UsageError(
                f"{self.doing} stopped after {passed:.1f} s at {nodes} nodes, beyond max_seconds={self.seconds:g}"
                f" or max_nodes={self.nodes}: raise them, or write rules that pass intermediate results on"
                " (a carry rather than whole numbers)"
            )
