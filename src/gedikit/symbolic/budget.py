"""How much grounding and compiling may take, and the libraries they need."""

import ctypes
import importlib
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from gedikit.errors import UsageError

MAX_SECONDS, MAX_NODES = 60.0, 4_000_000  # nodes of a diagram: about 150 bytes each
MAX_BYTES = 2**31  # that the process may grow by meanwhile; terms of ProbLog are not counted as nodes
STACK = 512 * 2**20  # bytes, of which only those that are needed are taken
DEPTH = 10_000  # calls within calls, as ProbLog sets it
_GRACE = 2.0  # seconds
_STATM = Path("/proc/self/statm")
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


class _Spent(BaseException):
    """Ends work that does not ask whether it may go on; libraries that catch every Exception let it pass."""


class Budget:
    """Seconds, nodes and memory; who spends them is told when they are gone."""

    def __init__(self, seconds: float, nodes: int):
        self.seconds, self.nodes = seconds, nodes
        self.began, self.resident = time.monotonic(), _resident()
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
        """What `work` returns, done on a stack large enough for libraries that recur deeply.

        Work that never checks is ended from outside, at its next step in Python.
        """
        results: list[T] = []
        errors: list[BaseException] = []
        again = 0.0

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
                if self._is_spent() and time.monotonic() > again:
                    _end(worker)
                    again = time.monotonic() + _GRACE  # if a library caught even that
        except BaseException:
            self.seconds = -1.0  # interrupted: the next check ends the work
            _end(worker)
            raise
        if not results and isinstance(errors[0] if errors else _Spent(), _Spent | MemoryError):
            passed, grown = time.monotonic() - self.began, max(_resident() - self.resident, 0) / 1e6
            raise UsageError(
                f"{self.doing} stopped after {passed:.1f} s, {grown:.0f} MB larger than before: it takes more than"
                f" max_seconds={self.seconds:g} or the memory there is for it; write rules with smaller terms"
            ) from None
        if errors:
            raise errors[0]
        return results[0]

    def _is_spent(self) -> bool:
        """A little later than `check` would say so, whose sentence knows more."""
        late = time.monotonic() - self.began > self.seconds + _GRACE
        return late or _resident() - self.resident > MAX_BYTES


def _end(worker: threading.Thread) -> None:
    if worker.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(worker.ident), ctypes.py_object(_Spent))


def _resident() -> int:
    """Bytes of memory that this process has now; 0 where the system does not tell."""
    try:
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return 0
