"""Two and four processes with a part of the rows each train the model that one with all of them trains."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from process_cases import CASES

from gedikit.densities import densities
from gedikit.objectives import objectives
from gedikit.samplers import samplers
from gedikit.views import views

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each process found, by how many there were."""
    folder = tmp_path_factory.mktemp("processes")
    for world in (1, 2, 4):
        programs = [
            subprocess.Popen([sys.executable, HERE / "process_cases.py", str(rank), str(world), str(folder)])
            for rank in range(world)
        ]
        assert [program.wait(300) for program in programs] == [0] * world
    return {world: [torch.load(folder / f"{world}-{r}.pt") for r in range(world)] for world in (1, 2, 4)}


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("name", CASES)
def test_iterations_are_those_of_one_process(found, name, world):
    alone = found[1][0][name]
    for results in found[world]:
        own = results[name]
        for ours, theirs in zip(own["measured"], alone["measured"], strict=True):
            assert ours == pytest.approx(theirs, rel=1e-8, abs=1e-9)
        for key, tensor in alone["tensors"].items():
            torch.testing.assert_close(
                own["tensors"][key], tensor, rtol=1e-7, atol=1e-8, msg=lambda m, k=key: f"{k}: {m}"
            )


@pytest.mark.parametrize("name", CASES)
def test_processes_do_not_drift_apart(found, name):
    """No bit of what they have alike differs: they decide by it."""
    for world in (2, 4):
        first = found[world][0][name]
        for other in found[world][1:]:
            assert other[name]["measured"] == first["measured"]
            assert all(torch.equal(other[name]["tensors"][key], t) for key, t in first["tensors"].items())


def test_every_component_was_tried(found):
    assert {*objectives} <= {term for case in found[1][0].values() for term in case["terms"]}
    used = {str(value) for case in CASES.values() for value in case.config.values()}
    assert {*samplers} - {"importance"} <= used  # the one for few columns where nothing is said
    assert {*views} - {"walk", "augment"} <= used  # of columns and of pictures where nothing is said
    assert {*densities} - {"cluster-energy"} <= used | {"flow", "contrastive-energy", "multi-noise-energy"}
