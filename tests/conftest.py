"""Shared fixtures: one small fitted model, and single-threaded torch (small tensors spin on two threads).

Types and shapes are checked while the tests run, unless GEDIKIT_CHECK_TYPES=0, and not on a GPU, where
torch.compile would compile around the checks.
"""

import os
import signal
from tempfile import TemporaryDirectory

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

if os.environ.get("GEDIKIT_CHECK_TYPES", "0" if torch.cuda.is_available() else "1") != "0":
    import checked_types

    checked_types.install()

from collections.abc import Iterator
from pathlib import Path

import jaxtyping
import numpy as np
import pytest
from hypothesis import settings

from forked import Group
from gedikit import GEDI
from gedikit.data.toy import moons
from promises import Promise, table

settings.register_profile("gedikit", deadline=None)  # a busy machine passes too
settings.load_profile("gedikit")
torch.set_num_threads(1)
_promises: list[Promise] = []
_state = TemporaryDirectory(prefix="gedikit-state-")  # what tests give to --import is not for this user to keep
os.environ["XDG_STATE_HOME"] = _state.name
# shells let what they run in the background ignore Ctrl-C, and children inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)


# files that take minutes begin first, so that no worker ends alone: make test gives whole files to workers
LONGEST = (
    "training/test_processes.py",
    "paper/reproduce/test_reproduce.py",
    "training/test_resume.py",
    "test_extending.py",
    "faults/test_several_processes.py",
    "paper/reproduce/test_reproduce_addition.py",
    "faults/test_faults.py",
    "test_estimator.py",
    "training/test_health.py",
    "cli/test_rules_cli.py",
    "cli/test_folder_workflow.py",
    "paper/reproduce/test_reproduce_tasks.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        return next((i for i, name in enumerate(LONGEST) if str(item.path).endswith(f"/{name}")), len(LONGEST))

    items.sort(key=place)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Without the check of types: what a user who gives something else is told."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def promise(request: pytest.FixtureRequest) -> Iterator[Promise]:
    """What the first line of a test's docstring promises: tries are counted, `make faults` prints them."""
    made = Promise(request.function.__doc__.splitlines()[0])
    _promises.append(made)
    yield made
    if made.failures:
        raise made.failures[0]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _promises:
        terminalreporter.write_line("")
        for line in table(_promises):
            terminalreporter.write_line(line)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path)
    yield made
    made.kill()


@pytest.fixture
def folders(tmp_path: Path) -> dict[int, Path]:
    """One for each of two processes to work in, so that one name stands for two files."""
    made = {rank: tmp_path / f"machine-{rank}" for rank in (0, 1)}
    for folder in made.values():
        folder.mkdir()
    return made


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def moons_xy() -> tuple[np.ndarray, np.ndarray]:
    return moons(400, 0)


@pytest.fixture(scope="session")
def fitted_moons(moons_xy) -> GEDI:
    """A short fit that already clusters moons and has a usable density."""
    return GEDI(2, max_iter=500, random_state=0).fit(moons_xy[0])
