"""k steps, SIGKILL, resume: the rest must be bit for bit what it would have been."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from gedikit.config import Execution
from gedikit.data.toy import moons
from gedikit.planning import Asked, plan
from gedikit.profile import DataProfile
from gedikit.storage import read_tensors, write_tensors
from gedikit.training import Callback, fit

SETTINGS = ["--set", "execution.checkpoint_every=50", "--set", "execution.log_every=10"]
ENV = {**os.environ, "OMP_NUM_THREADS": "1"}


def command(out: Path, *extra: str) -> list[str]:
    return [sys.executable, "-c", "from gedikit.cli import main; main()", "fit", *extra, "--out", str(out)]


def model(run: Path) -> dict[str, torch.Tensor]:
    return read_tensors(run / "model.safetensors", "model")[0]


def wait_for(path: Path, pattern: str, process: subprocess.Popen) -> None:
    while not list(path.glob(pattern)):
        assert process.poll() is None, process.stderr.read().decode()
        time.sleep(0.01)


@pytest.mark.parametrize("sampler", ["importance", "mala"])
def test_killed_and_resumed_equals_uninterrupted(tmp_path, sampler):
    ask = ["moons", "--iters", "300", "--set", f"sampler.name={sampler}", "--set", "sampler.samples=100", *SETTINGS]
    subprocess.run(command(tmp_path / "whole", *ask), check=True, env=ENV, capture_output=True)
    process = subprocess.Popen(command(tmp_path / "cut", *ask), env=ENV, stderr=subprocess.PIPE)
    wait_for(tmp_path / "cut" / "checkpoints", "step-000000100.safetensors", process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "cut" / "model.safetensors").exists()
    done = subprocess.run(command(tmp_path / "cut", "--resume"), env=ENV, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"at iteration \d+ of 300", done.stderr)
    whole, cut = model(tmp_path / "whole"), model(tmp_path / "cut")
    assert whole.keys() == cut.keys()
    for name, tensor in whole.items():
        assert torch.equal(tensor, cut[name]), name
    assert (tmp_path / "whole" / "metrics.jsonl").read_text() == (tmp_path / "cut" / "metrics.jsonl").read_text()


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("swav", {"objectives.swav.queue": 100}),
        ("corinfomax", {}),
        ("deepcluster", {"objectives.deepcluster.every": 7}),
        ("sela", {"objectives.sela.every": 7}),
        ("protocpc", {}),
        ("gedi", {"sampler.name": "mala", "sampler.chains": 50, "objectives.pseudo-labels.share": 0.7}),
        ("gedi-no-gen", {"optimiser.clip": 0.7}),
    ],
)
def test_what_a_component_remembers_survives_a_checkpoint(tmp_path, name, changes):
    x = moons(150, 0)[0]
    config = {"optimiser.iterations": 30, "optimiser.batch_size": 64, **changes}
    asked = plan(DataProfile.of(x), Asked(2, name, config=config))
    execution = Execution(device="cpu", log_every=5)
    taken = {}

    class Keeper(Callback):
        def on_checkpoint(self, fit):
            if fit.iteration == 15:
                path = tmp_path / "state.safetensors"
                write_tensors(path, fit.state.tensors(), fit.state.meta(), "checkpoint")
                taken["checkpoint"] = read_tensors(path, "checkpoint")
            return False

    whole = fit(asked, x, execution=execution, callbacks=[Keeper()])
    resumed = fit(asked, x, execution=execution, checkpoint=taken["checkpoint"])
    assert [row["iteration"] for row in resumed.history.rows] == [20, 25, 30]
    assert resumed.history.rows == whole.history.rows[3:]
    for key, tensor in whole.fitted.network.state_dict().items():
        assert torch.equal(tensor, resumed.fitted.network.state_dict()[key]), key


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_a_checkpoint_and_a_clear_word(tmp_path, number):
    ask = ["moons", "--iters", "100000", *SETTINGS]
    process = subprocess.Popen(command(tmp_path / "run", *ask), env=ENV, stderr=subprocess.PIPE)
    wait_for(tmp_path / "run" / "checkpoints", "step-*.safetensors", process)
    process.send_signal(number)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert b"Traceback" not in errors
    assert b"--resume" in errors
    newest = sorted((tmp_path / "run" / "checkpoints").glob("step-*"))[-1]
    _, meta = read_tensors(newest, "checkpoint")
    assert f"stopped at iteration {meta['iteration']} ".encode() in errors
