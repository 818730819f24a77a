"""Time a training iteration against the published loop, same arithmetic, in one run on one core."""

import copy
import time

import torch

from gedikit.building import build_model
from gedikit.data.toy import moons
from gedikit.data.views import NoiseViews
from gedikit.methods import get_method
from gedikit.sampling import Box, ReplayBuffer
from gedikit.training.negatives import Chains
from gedikit.training.state import TrainState
from gedikit.training.step import TrainStep
from gedikit.training.terms import weight_of
from published_loop import PublishedLoop

ROUNDS, BLOCK = 12, 50


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    method = get_method("gedi-as-printed")
    settings = method.settings()
    data = torch.tensor(moons(1000, 0)[0], dtype=torch.float32)
    network = build_model(method, settings, 2, 2, 1.0, torch.Generator().manual_seed(0))
    published = PublishedLoop(copy.deepcopy(network), data)

    box = Box(torch.full((2,), -1.0), torch.full((2,), 1.0))
    generator = torch.Generator().manual_seed(0)
    buffer = ReplayBuffer(box.uniform(settings.buffer, generator))
    state = TrainState.new(network, buffer, torch.tensor(1.0), generator, settings)
    views, chains = NoiseViews(data, settings.noise), Chains(settings, box, box.uniform)
    weights: dict[str, float | torch.Tensor] = {name: weight_of(name, settings) for name in method.terms}
    step = TrainStep(settings, method, views, chains, torch.full((2,), 0.5).log(), weights)

    def ours() -> None:
        step(state, measure=state.iteration % settings.log_every == 0)

    seconds: dict[str, list[float]] = {"published": [], "gedikit": []}
    for _ in range(ROUNDS):  # alternating blocks: both see the same disturbances
        for name, one in (("published", published.step), ("gedikit", ours)):
            began = time.perf_counter()
            for _ in range(BLOCK):
                one()
            seconds[name].append((time.perf_counter() - began) / BLOCK)
    best = {name: min(values) for name, values in seconds.items()}
    ratios = sorted(p / g for p, g in zip(seconds["published"], seconds["gedikit"], strict=True))
    median = ratios[len(ratios) // 2]
    print(f"{median:.1f} x faster per training iteration than the published loop (median of {ROUNDS} blocks)")
    print(
        f"published {1e3 * best['published']:.2f} ms, gedikit {1e3 * best['gedikit']:.2f} ms (best block, one core)"
    )


if __name__ == "__main__":
    main()
