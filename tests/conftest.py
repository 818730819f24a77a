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

import jaxtyping
import numpy as np
import pytest
from hypothesis import settings

from gedikit import GEDI
from gedikit.data.toy import moons

settings.register_profile("gedikit", deadline=None)  # a busy machine passes too
settings.load_profile("gedikit")
torch.set_num_threads(1)
_state = TemporaryDirectory(prefix="gedikit-state-")  # what tests give to --import is not for this user to keep
os.environ["XDG_STATE_HOME"] = _state.name
# shells let what they run in the background ignore Ctrl-C, and children inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Without the check of types: what a user who gives something else is told."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


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
