"""How much grounding and compiling may take, and the libraries they need."""

import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from gedikit.errors import UsageError

MAX_SECONDS, MAX_NODES = 60.0, 4_000_000  # nodes of a diagram: about 150 bytes each
STACK = 512 * 2**20  # bytes, of which only those that are needed are taken
DEPTH = 10_000  # calls within calls, as ProbLog sets it
T = TypeVar("T")


def needs(module: str, library: str) -> Any:
    """A module of the extra `gedikit[symbolic]`."""
    try:
        with _depth(sys.getrecursionlimit()):  # which ProbLog changes for the whole process
            return importlib.import_module(module)
    except ImportError:
        raise UsageError(
            f"a constraint stated as a program needs the {library} library: pip install 'gedikit[symbolic]'"
        ) from None


@contextmanager
def _depth(limit: int) -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@contextmanager
def deep() -> Iterator[None]:
    """Let functions call themselves as deeply as ProbLog needs, while it works."""
    with _depth(max(DEPTH, sys.getrecursionlimit())):
        yield


class Budget:
    """Seconds and nodes; who spends them is told when they are gone."""

    def __init__(self, seconds: float, nodes: int):
        self.seconds, self.nodes = seconds, nodes
        self.began = time.monotonic()
        self.doing = "grounding the program"
        self.outlook: Callable[[], str] = str  # what is known of the size that it would have

    def check(self, nodes: int) -> None:
        """Before one more step, with that many nodes in memory."""
        passed = time.monotonic() - self.began
        if passed > self.seconds or nodes > self.nodes:
            raise UsageError(
                f"{self.doing} stopped after {passed:.1f} s at {nodes} nodes, beyond max_seconds={self.seconds:g}"
                f" or max_nodes={self.nodes}{self.outlook()}: raise them, or write rules that pass intermediate"
                " results on (a carry rather than whole numbers), that meet variables which depend on each other"
                " one soon after the other, or that are several constraints with fewer variables"
            )

    def spend_on(self, work: Callable[[], T]) -> T:
        """What `work` returns, done on a stack large enough for libraries that recur deeply in C."""
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(work())
            except BaseException as error:
                errors.append(error)

        worker = threading.Thread(target=run, daemon=True)
        before = threading.stack_size(STACK)
        try:
            try:
                worker.start()
            finally:
                threading.stack_size(before)
            while worker.is_alive():  # an interrupt just before a wait is seen after it: none may be long
                worker.join(0.1)
        except BaseException:
            self.seconds = -1.0  # interrupted: the next check ends the work
            raise
        if errors:
            raise errors[0]
        return results[0]
