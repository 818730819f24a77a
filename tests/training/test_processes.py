"""Two and four processes with a part of the rows each train the model that one with all of them trains."""

import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from process_cases import CASES, FITS, OF_FOUR

from gedikit.densities import densities
from gedikit.objectives import objectives
from gedikit.samplers import samplers
from gedikit.views import views

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")
HERE = Path(__file__).parent


def computed(folder, bits, world):
    """What each of some processes finds."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    words = [[str(part) for part in (rank, world, folder, bits, port)] for rank in range(world)]
    programs = [subprocess.Popen([sys.executable, HERE / "process_cases.py", *own]) for own in words]
    assert [program.wait() for program in programs] == [0] * world
    return [torch.load(folder / f"{bits}-{world}-{r}.pt", weights_only=False) for r in range(world)]


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    """In 64 bits, by how many processes there were."""
    folder = tmp_path_factory.mktemp("exact")
    return {world: computed(folder, 64, world) for world in (1, 2, 4)}


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """In 32 bits."""
    folder = tmp_path_factory.mktemp("usual")
    return {world: computed(folder, 32, world) for world in (1, 2)}


def apart(own, other) -> float:
    """The largest difference of two arrays, relative to their largest number where that is more than 1."""
    own, other = (torch.as_tensor(values).double() for values in (own, other))
    return float((own - other).abs().max() / other.abs().max().clamp_min(1)) if own.numel() else 0.0


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("name", CASES)
def test_iterations_are_those_of_one_process(exact, name, world, promise):
    """2 and 4 processes are 1 process: five iterations in 64 bits with every registered component"""
    alone = exact[1][0]["steps"][name]
    with promise.trial():
        for results in exact[world]:
            own = results["steps"][name]
            for ours, theirs in zip(own["measured"], alone["measured"], strict=True):
                assert ours == pytest.approx(theirs, rel=1e-8, abs=1e-9)
            for key, tensor in alone["tensors"].items():
                torch.testing.assert_close(
                    own["tensors"][key], tensor, rtol=1e-7, atol=1e-8, msg=lambda m, k=key: f"{k}: {m}"
                )
                promise.differs(apart(own["tensors"][key], tensor))


@pytest.mark.parametrize("name", CASES)
def test_processes_do_not_drift_apart(exact, name, promise):
    """No bit of what 2 and 4 processes have alike differs between them: they decide by it"""
    for world in (2, 4):
        first, *others = (results["steps"][name] for results in exact[world])
        with promise.trial():
            for other in others:
                assert other["measured"] == first["measured"]
                assert all(torch.equal(other["tensors"][key], t) for key, t in first["tensors"].items())


@pytest.mark.parametrize(("name", "world"), [*((name, 2) for name in FITS), *((name, 4) for name in OF_FOUR)])
def test_a_whole_fit_is_that_of_one_process(exact, name, world, promise):
    """2 and 4 processes are 1 process: whole fits in 64 bits, with labels, posteriors and densities"""
    alone = exact[1][0]["fits"][name]
    with promise.trial():
        for results in exact[world]:
            own = results["fits"][name]
            assert [row["iteration"] for row in own["measured"]] == [row["iteration"] for row in alone["measured"]]
            assert own["measured"][-1] == pytest.approx(alone["measured"][-1], rel=1e-6, abs=1e-6)
            assert own["weights"].keys() == alone["weights"].keys()
            for key, tensor in alone["weights"].items():
                torch.testing.assert_close(own["weights"][key], tensor, rtol=1e-6, atol=1e-6)
                promise.differs(apart(own["weights"][key], tensor))
            np.testing.assert_array_equal(own["labels"], alone["labels"])
            np.testing.assert_allclose(own["posterior"], alone["posterior"], atol=1e-6)
            np.testing.assert_allclose(own["log_density"], alone["log_density"], rtol=1e-6, atol=1e-6)
            promise.differs(apart(own["posterior"], alone["posterior"]))
            promise.differs(apart(own["log_density"], alone["log_density"]))


@pytest.mark.parametrize("name", FITS)
def test_the_first_iterations_in_32_bits_are_those_of_one_process(usual, name, promise):
    """2 processes are 1 process: losses of the first 100 iterations (pictures 20) in 32 bits

    What is only watched, such as the log-density, has more digits before the point.
    """
    alone, own = (usual[world][0]["fits"][name] for world in (1, 2))
    with promise.trial():
        for ours, theirs in zip(own["measured"], alone["measured"], strict=True):
            for term in {*alone["terms"]} & theirs.keys():
                assert ours[term] == pytest.approx(theirs[term], rel=1e-4, abs=1e-4)
                promise.differs(apart(ours[term], theirs[term]))
            assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-3)


def test_every_process_gets_the_model_that_the_first_was_asked_for(usual):
    first, second = (results["estimator"] for results in usual[2])
    assert second["seed"] == first["seed"]
    np.testing.assert_array_equal(second["labels"], first["labels"])
    np.testing.assert_allclose(second["posterior"], first["posterior"], atol=1e-6)
    assert second["verdict"] == first["verdict"]
    assert (first["calls"], second["calls"]) == (3, 0)  # callbacks are those of the first
    assert first["iterations"] == second["iterations"] == 3  # where it stops all stop


def test_every_component_was_tried(exact):
    assert {*objectives} <= {term for case in exact[1][0]["steps"].values() for term in case["terms"]}
    used = {str(value) for case in CASES.values() for value in case.config.values()}
    assert {*samplers} - {"importance"} <= used  # the one for few columns where nothing is said
    assert {*views} - {"walk", "augment"} <= used  # of columns and of pictures where nothing is said
    of_cases = {case["density"] for case in exact[1][0]["steps"].values()}
    assert {*densities} <= of_cases
