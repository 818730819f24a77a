"""What a training on images keeps between iterations: chains, memories of terms, all of it in a file."""

import numpy as np
import pytest
import torch
from image_cases import pictures, planned, prepared

from gedikit.errors import UsageError
from gedikit.planning import Asked, plan
from gedikit.profile import DataProfile
from gedikit.samplers import Box, ReplayBuffer
from gedikit.storage import read_tensors, write_tensors
from gedikit.training.fit import prepare

CHAINS = "memory/sampler/positions"


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sampler.storage": "uint8"},
        {"sampler.name": "mala"},
        {"views.walks": True, "objectives.pseudo-labels.share": 0.7},
    ],
)
def test_stopped_and_restored_goes_on_bit_for_bit(tmp_path, changes):
    config = {"optimiser.iterations": 10, **changes}
    ready = prepared(pictures(70)[0], config=config)
    whole = ready.new_state()
    losses = []
    for i in range(10):
        losses += ready.step(whole, measure=True)
        if i == 5:
            write_tensors(tmp_path / "state.safetensors", whole.tensors(), whole.meta(), "checkpoint")
    again = prepared(pictures(70)[0], config=config)
    state = again.new_state()
    state.restore(*read_tensors(tmp_path / "state.safetensors", "checkpoint"))
    assert state.iteration == 6
    repeated = [row for _ in range(4) for row in again.step(state, measure=True)]
    assert repeated == losses[6:]
    wanted, found = whole.tensors(), state.tensors()
    assert wanted.keys() == found.keys() >= {"weights", "average_weights", CHAINS, "generator"}
    assert ("memory/sampler/step" in wanted) == (changes.get("sampler.name") == "mala")
    for name, tensor in wanted.items():
        assert torch.equal(tensor, found[name]), name
    one, other = (
        r.views(r.views.batch(16, 6, 0, s.generator), 0, s.generator) for r, s in ((ready, whole), (again, state))
    )
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(("dtype", "most"), [("float32", 0.0), ("bfloat16", 2**-9), ("uint8", 1 / 255)])
def test_chains_come_back_within_the_rounding_of_what_they_wait_in(dtype, most):
    x = torch.rand(40, 12, generator=torch.Generator().manual_seed(0)) * 2 - 1
    x[0, :2] = torch.tensor([-1.0, 1.0])
    buffer = ReplayBuffer(ReplayBuffer.pack(x, getattr(torch, dtype)))
    box = Box(torch.full((12,), -1.0), torch.full((12,), 1.0))
    slots, drawn = buffer.draw(30, restart=0.0, start=box.uniform, generator=torch.Generator().manual_seed(1))
    assert drawn.dtype == torch.float32
    assert (drawn - x[slots]).abs().max() <= most * (1 + 1e-4)
    assert torch.equal(buffer.first(40)[0, :2], x[0, :2]), "the walls are kept"
    moved = -x[:3]
    buffer.write(torch.tensor([7, 0, 9]), buffer.packed(moved))
    assert (buffer.first(40)[[7, 0, 9]] - moved).abs().max() <= most * (1 + 1e-4)
    assert buffer.positions.dtype == getattr(torch, dtype)
    if most:
        assert (drawn - x[slots]).abs().max() > most / 8, "it was rounded"


def test_bytes_keep_their_256_levels_for_ever():
    levels = torch.arange(256, dtype=torch.float32)[None] / 127.5 - 1
    buffer = ReplayBuffer(ReplayBuffer.pack(levels, torch.uint8))
    assert buffer.positions[0].tolist() == list(range(256))
    for _ in range(3):
        buffer.write(torch.tensor([0]), buffer.packed(buffer.first(1)))
    assert buffer.positions[0].tolist() == list(range(256))
    assert torch.equal(buffer.first(1), levels)


def test_chains_outside_the_pixels_wait_at_the_wall():
    buffer = ReplayBuffer(ReplayBuffer.pack(torch.tensor([[-7.0, 1.2, 0.0]]), torch.uint8))
    assert buffer.positions.tolist() == [[0, 255, 128]]


@pytest.mark.parametrize("dtype", ["bfloat16", "uint8"])
def test_training_runs_on_small_chains_and_stays_near(dtype):
    x, _ = pictures(40)
    generative, first = [], []
    for name in ("float32", dtype):
        ready = prepared(x, config={"sampler.storage": name})
        state = ready.new_state()
        chains = state.memory["sampler"]["positions"]
        assert chains.dtype == getattr(torch, name)
        first.append(ReplayBuffer(chains).first(64))
        generative.append([ready.step(state, measure=True)[0]["generative"] for _ in range(3)])
        assert state.memory["sampler"]["positions"] is chains
        assert not torch.equal(ReplayBuffer(chains).first(64), first[-1]), "chains are written back"
    assert (first[0] - first[1]).abs().max() < 2 / 255
    assert generative[1] == pytest.approx(generative[0], rel=0.05, abs=0.05)


def test_what_chains_cannot_wait_in_is_refused():
    x, _ = pictures(40)
    with pytest.raises(UsageError, match=r"storage 'float16'; did you mean 'bfloat16' or 'float32'"):
        planned(x, config={"sampler.storage": "float16"})
    rows = np.random.default_rng(0).normal(size=(30, 4))
    config = {"sampler.storage": "uint8", "sampler.chains": 20}
    asked = plan(DataProfile.of(rows), Asked(2, config=config))
    with pytest.raises(UsageError, match=r"sampler\.storage 'uint8' is for pixels"):
        prepare(asked, rows)


def test_memories_of_objectives_stay_where_a_captured_graph_reads_them(tmp_path):
    ready = prepared(pictures(60)[0], "swav", config={"objectives.swav.queue": 40})
    state = ready.new_state()
    memory = dict(state.memory["swav"])
    assert memory.keys() == {"queue", "view_queue"}
    seen = []
    for _ in range(4):
        ready.step(state)
        assert all(state.memory["swav"][name] is tensor for name, tensor in memory.items())
        seen.append(memory["queue"].clone())
    assert seen[0][:16].any() and not seen[0][16:].any(), "16 rows come in at a time"
    assert torch.equal(seen[1][16:32], seen[0][:16]), "and push the others on"
    assert torch.equal(seen[3][32:], seen[1][:8])

    path = tmp_path / "state.safetensors"
    write_tensors(path, state.tensors(), state.meta(), "checkpoint")
    ready.step(state)
    named = {name: tensor.data_ptr() for name, tensor in state.tensors().items() if name != "generator"}
    state.restore(*read_tensors(path, "checkpoint"))
    assert torch.equal(memory["queue"], seen[3])
    assert all(state.memory["swav"][name] is tensor for name, tensor in memory.items())
    assert named == {name: tensor.data_ptr() for name, tensor in state.tensors().items() if name != "generator"}


def test_in_place_copies_what_was_rebound_into_what_was_there():
    ready = prepared(pictures(40)[0], "gedi", config={"sampler.name": "mala"})
    state = ready.new_state()
    kept = torch.zeros(3)
    state.memory["something"] = {"kept": kept}
    step = state.memory["sampler"]["step"]
    with state.in_place():
        state.memory["something"] = {"kept": torch.ones(3)}
        state.memory["sampler"] = {**state.memory["sampler"], "step": step * 2}
    assert state.memory["something"]["kept"] is kept
    assert kept.tolist() == [1, 1, 1]
    assert state.memory["sampler"]["step"] is step
    before = float(step)
    ready.step(state)
    assert state.memory["sampler"]["step"] is step
    assert float(step) != before, "the size of a step was adapted where it lies"
