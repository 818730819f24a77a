"""Times an iteration of ours and of the published loop in one run, and what share of the device that is."""

import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from gedikit.bench.published import PublishedLoop
from gedikit.data.augment import PRESETS
from gedikit.methods import get_method
from gedikit.recipes import PRINTED_IMAGES
from gedikit.settings import Settings
from gedikit.training.devices import cudnn_flags, tuned_convolutions
from gedikit.training.fit import Prepared, prepare
from gedikit.training.state import TrainState

_IMAGES = 2048
_CLUSTERS = 10


# how the published loop may be run; the first is what its users get
FLAGS: dict[str, dict[str, bool]] = {
    "as PyTorch comes": {},
    "in full 32 bits, tuned": {"allow_tf32": False, "benchmark": True},
}


@dataclass(frozen=True)
class Timing:
    batch_size: int
    published: dict[str, float]  # seconds an iteration, by how the loop is run
    ours: float
    sampling: float  # seconds for all SGLD steps of an iteration
    flop: float  # of an iteration, for the network as it is defined
    sampling_flop: float
    start: float  # seconds until the first captured iteration
    memory: float  # bytes of the device


def bench_settings(batch_size: int, width: int, steps: int, side: int) -> Settings:
    """The paper's recipe for CIFAR-10, at this size."""
    changes = {"batch_size": batch_size, "negatives": batch_size, "width": width, "steps": steps}
    return get_method("gedi").settings(
        PRINTED_IMAGES["cifar10"], image_shape=(side, side, 3), epochs=0, iterations=10**6, log_every=100, **changes
    )


def prepared(settings: Settings, device: str) -> Prepared:
    """Random images are as slow as real ones."""
    shape = (max(_IMAGES, settings.batch_size), int(np.prod(settings.image_shape)))
    x = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    return prepare(x, get_method("gedi"), settings, n_clusters=_CLUSTERS, device=device)


def compare(settings: Settings, device: str, *, repeats: int = 20, blocks: int = 3) -> Timing:
    """Blocks of both loops in turn, so that both see the same disturbances; medians of the blocks."""
    ready = prepared(settings, device)
    state = ready.new_state()
    pixels = torch.from_numpy(ready.x).to(ready.device)
    loop = PublishedLoop(copy.deepcopy(ready.network), pixels, PRESETS[settings.augmentation], settings)

    def ours() -> None:
        ready.step(state, measure=(state.iteration + 1) % settings.log_every == 0)

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
    forward = forward_flop(settings) * settings.batch_size
    return Timing(
        settings.batch_size,
        {name: statistics.median(values) for name, values in published.items()},
        statistics.median(own),
        sampling,
        flop=forward * (2 * settings.steps + 9),  # three parts of the batch: forwards, and backwards twice as much
        sampling_flop=forward * 2 * settings.steps,
        start=start,
        memory=memory,
    )


def sampler(ready: Prepared, state: TrainState) -> Callable[[], object]:
    """The SGLD steps of an iteration alone, captured like the iteration."""
    assert ready.negatives is not None
    draw = ready.negatives.draw
    if ready.device.type != "cuda":
        return lambda: draw(state)
    for _ in range(2):
        draw(state)
    graph = torch.cuda.CUDAGraph()
    assert isinstance(state.generator, torch.Generator)
    graph.register_generator_state(state.generator)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        draw(state)
    return graph.replay


def forward_flop(settings: Settings) -> float:
    """Of one image through the network as it is defined: two operations a product."""
    height, across, channels = settings.image_shape
    pixels, f = height * across, settings.width
    stem = pixels * 9 * channels * f + pixels // 4 * channels * f
    inner = 9 * f * f * (pixels + 2 * pixels // 4 + 4 * pixels // 16)
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
