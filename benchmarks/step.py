"""Time a training iteration against the published loop, same arithmetic, in one run on one core."""

import copy
import time

import torch

from gedikit.config import Execution
from gedikit.data.toy import moons
from gedikit.paper.published_loop import VectorLoop
from gedikit.paper.recipes import printed
from gedikit.planning import Asked, plan
from gedikit.profile import DataProfile
from gedikit.training.fit import prepare

ROUNDS, BLOCK = 12, 50


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, _ = moons(1000, 0)
    made = plan(DataProfile.of(x), Asked(2, printed("gedi").name))
    ready = prepare(made, x, execution=Execution(device="cpu"))
    state = ready.new_state()
    published = VectorLoop(copy.deepcopy(ready.network), torch.tensor(x, dtype=torch.float32), made)

    def ours() -> None:
        ready.step(state, measure=state.iteration % ready.execution.log_every == 0)

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
