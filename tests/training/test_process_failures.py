"""Fits from Python on two processes that fail: all say the same, and the next fit is not held up by it."""

import os
import subprocess
import sys

import pytest
import torch.distributed as dist

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")

PROGRAM = """
import sys
from datetime import timedelta
import torch.distributed as dist
from gedikit import GEDI
from gedikit.data.toy import moons
from gedikit.errors import GediError

dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=int(sys.argv[2]), world_size=2,
                        timeout=timedelta(seconds=50))
X = moons(80, 0)[0]
for settings in ({"optimiser.nonsense": 1}, {"optimiser.batch_size": 33}, {"optimiser.batch_size": 32}):
    config = {"execution.timeout": 40, **settings}
    try:
        model = GEDI(2, method="gedi-no-gen", max_iter=3, config=config, random_state=0).fit(X)
        print("fitted", len(model.labels_), flush=True)
    except GediError as error:
        print(type(error).__name__, error, flush=True)
dist.destroy_process_group()
"""


def test_a_fit_that_failed_is_told_to_all_and_does_not_fail_the_next(tmp_path):
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "store")]
    both = [subprocess.Popen([*command, rank], env=env, stdout=subprocess.PIPE, text=True) for rank in "01"]
    said = [process.communicate(timeout=120)[0].splitlines() for process in both]
    for lines in said:
        unknown, uneven, fitted = lines
        assert unknown.startswith("UsageError")
        assert "nonsense" in unknown
        assert "batch_size=33 cannot be divided among 2 processes" in uneven
        assert fitted == "fitted 80"
