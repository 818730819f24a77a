"""Times an iteration of ours and of the published loop in one run, and what share of the device that is."""

import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from gedikit import planning
from gedikit.config import Execution
from gedikit.encoders.resnet8 import ResNet8Encoder
from gedikit.model import frozen
from gedikit.paper.published_loop import ImageLoop
from gedikit.paper.recipes import printed
from gedikit.planning import Asked, Plan
from gedikit.profile import DataProfile
from gedikit.training.devices import cudnn_flags, tuned_convolutions
from gedikit.training.fit import Setup, prepare
from gedikit.training.state import TrainState
from gedikit.training.step import SAMPLER, quick_products

_IMAGES = 2048
_CLUSTERS = 10


# how the published loop may be run; the first is what its users get
FLAGS: dict[str, dict[str, bool]] = {
    "as PyTorch comes": {},
    "in full 32 bits, tuned": {"allow_tf32": False, "benchmark": True},
}


@dataclass(frozen=True)
class Timing:
    """Seconds and operations of an iteration."""

    batch_size: int
    published: dict[str, float]  # seconds an iteration, by how the loop is run
    ours: float
    sampling: float  # seconds for all SGLD steps of an iteration
    flop: float  # of an iteration, those that are computed
    sampling_flop: float
    start: float  # seconds until the first captured iteration
    memory: int  # bytes of the device


def bench_plan(batch_size: int, width: int, steps: int, side: int) -> Plan:
    """The paper's recipe for CIFAR-10, at this size."""
    config = {
        "data": {"name": "image"},  # however small
        "encoder": {"width": width},
        "sampler": {"samples": batch_size, "steps": steps},
        "optimiser": {"batch_size": batch_size, "epochs": 0, "iterations": 10**6},
    }
    data = DataProfile(max(_IMAGES, batch_size), 3 * side**2, (side, side, 3))
    return planning.plan(data, Asked(_CLUSTERS, printed("gedi", "cifar10").name, config=config))


def prepared(plan: Plan, device: str) -> Setup:
    """Random images are as slow as real ones."""
    shape = (plan.data.n_rows, plan.data.n_features)
    x = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    return prepare(plan, x, execution=Execution(device=device, log_every=100))


def compare(plan: Plan, device: str, *, repeats: int = 20, blocks: int = 3) -> Timing:
    """Blocks of both loops in turn, so that both see the same disturbances; medians of the blocks."""
    ready = prepared(plan, device)
    state = ready.new_state()
    loop = ImageLoop(copy.deepcopy(ready.network), torch.from_numpy(ready.x).to(ready.device), plan)

    def ours() -> None:
        ready.step(state, measure=(state.iteration + 1) % ready.execution.log_every == 0)

    if ready.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(ready.device)
    with tuned_convolutions():
        began = time.perf_counter()
        for _ in range(4):  # warm up, capture, and once from the graph
            ours()
        synchronise(ready.device)
        start = time.perf_counter() - began
        sampling = timed(sampler(ready, state), max(1, repeats // 2), ready.device)
    memory = torch.cuda.max_memory_allocated(ready.device) if ready.device.type == "cuda" else 0
    flags = FLAGS if ready.device.type == "cuda" else dict(list(FLAGS.items())[:1])
    own: list[float] = []
    published: dict[str, list[float]] = {name: [] for name in flags}
    for _ in range(blocks):
        own.append(timed(ours, repeats, ready.device))
        for name, values in published.items():
            with cudnn_flags(**flags[name]):
                values.append(timed(loop.step, max(1, repeats // 4), ready.device))
    batch_size, steps = loop.batch_size, loop.sampler.steps
    forward = forward_flop(plan) * batch_size
    return Timing(
        batch_size,
        {name: statistics.median(values) for name, values in published.items()},
        statistics.median(own),
        sampling,
        flop=forward * (2 * steps + 9),  # three parts of the batch: forwards, and backwards twice as much
        sampling_flop=forward * 2 * steps,
        start=start,
        memory=memory,
    )


def sampler(ready: Setup, state: TrainState) -> Callable[[], object]:
    """The SGLD steps of an iteration alone, captured like the iteration."""
    source, generator = ready.source, state.generator
    assert source is not None and isinstance(generator, torch.Generator)

    def draw() -> None:
        with frozen(state.network), quick_products():
            source.draw(state.log_density, state.memory[SAMPLER], generator)

    if ready.device.type != "cuda":
        return draw
    for _ in range(2):
        draw()
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        draw()
    return graph.replay


def forward_flop(plan: Plan) -> float:
    """Of one image, two operations a product, those that are computed: a 3×3 convolution that a 2×2 mean follows is
    a 4×4 one with stride 2."""
    encoder = plan.config.encoder
    assert isinstance(encoder, ResNet8Encoder)
    height, across, channels = plan.config.data.image_shape
    pixels, f = height * across, encoder.width
    half, quarter = pixels // 4, pixels // 16
    stem = pixels * 9 * channels * f + half * channels * f
    inner = f * f * (16 * half + 9 * half + 16 * quarter + 4 * 9 * quarter)
    return 2.0 * (stem + inner + 4 * f * f + f * _CLUSTERS)


def matmul_rate(device: torch.device) -> float:
    """FLOP a second of a large product: the ceiling; in half precision on a GPU."""
    on_gpu = device.type == "cuda"
    n, dtype = (8192, torch.bfloat16) if on_gpu else (1024, torch.float32)
    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
    timed(lambda: a @ b, 3, device)
    return 2 * n**3 / timed(lambda: a @ b, 20, device)


def timed(function: Callable[[], object], repeats: int, device: torch.device) -> float:
    """Seconds a call, after one that is not counted."""
    function()
    synchronise(device)
    began = time.perf_counter()
    for _ in range(repeats):
        function()
    synchronise(device)
    return (time.perf_counter() - began) / repeats


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
