"""Promises under faults: each is counted, and a table of them is printed at the end."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

KILLS = int(os.environ.get("GEDIKIT_KILLS", "2"))  # of a run, and half as many damaged checkpoints
ITERATIONS = int(os.environ.get("GEDIKIT_ITERATIONS", "400"))  # of the run whose memory is watched


@dataclass
class Trial:
    """One try, or several that only stand or fall together."""

    times: int = 1


@dataclass
class Promise:
    """What is promised, how often that was tried and held, and a figure that goes with it."""

    what: str
    tried: int = 0
    held: int = 0
    figure: str = ""
    failures: list[Exception] = field(default_factory=list)

    @contextlib.contextmanager
    def trial(self) -> Iterator[Trial]:
        """One try; a failure is counted, and raised once all were tried."""
        trial = Trial()
        try:
            yield trial
            self.held += trial.times
        except Exception as failure:
            self.failures.append(failure)
        self.tried += trial.times


_promises: list[Promise] = []


@pytest.fixture
def promise(request: pytest.FixtureRequest) -> Iterator[Promise]:
    made = Promise(request.function.__doc__.splitlines()[0])
    _promises.append(made)
    yield made
    assert made.tried, "a promise that nothing tries"
    if made.failures:
        raise made.failures[0]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _promises:
        width = max(len(p.what) for p in _promises)
        terminalreporter.write_line(f"\n{'promise':{width}}  tried  held  figure")
        for p in _promises:
            terminalreporter.write_line(f"{p.what:{width}}  {p.tried:5d}  {p.held:4d}  {p.figure}")
