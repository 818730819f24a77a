"""Promises under faults: each is counted, and a table of them is printed at the end."""

from collections.abc import Iterator

import pytest
from promises import Promise

_promises: list[Promise] = []


@pytest.fixture
def promise(request: pytest.FixtureRequest) -> Iterator[Promise]:
    made = Promise(request.function.__doc__.splitlines()[0])
    _promises.append(made)
    yield made
    if made.failures:
        raise made.failures[0]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _promises:
        width = max(len(p.what) for p in _promises)
        terminalreporter.write_line(f"\n{'promise':{width}}  tried  held  figure")
        for p in _promises:
            terminalreporter.write_line(f"{p.what:{width}}  {p.tried:5d}  {p.held:4d}  {p.figure}")
