"""What an iteration costs one of several processes: seconds of the clock and of the processor, and bytes sent.

torchrun --nproc-per-node 2 benchmarks/processes.py [pictures|rows]
"""

import json
import os
import sys
import time

import torch

from gedikit.config import Execution
from gedikit.data.toy import moons
from gedikit.paper.timing import bench_plan, prepared
from gedikit.planning import Asked, plan
from gedikit.processes import exchanged, is_first, launched, meeting, n_processes
from gedikit.profile import DataProfile
from gedikit.training.fit import Setup, prepare

WARM_UP = 3


def setup(kind: str) -> tuple[Setup, int]:
    """A fit, and how many iterations of it are timed."""
    if kind == "pictures":
        batch, width, chain_steps, side = 64, 32, 5, 32  # what the plan takes for a few pictures
        return prepared(bench_plan(batch, width, chain_steps, side), "cpu"), 12
    x = moons(1000, 0)[0]
    return prepare(plan(DataProfile.of(x), Asked(2)), x, execution=Execution(device="cpu")), 200


def main() -> None:
    kind = sys.argv[1] if len(sys.argv) > 1 else "pictures"
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    with launched(), meeting(600) as traffic:
        ready, repeats = setup(kind)
        state = ready.new_state()
        for _ in range(WARM_UP):
            ready.step(state)
        exchanged(None)
        before = time.perf_counter(), time.process_time(), traffic.seconds, traffic.bytes, traffic.calls
        for _ in range(repeats):
            ready.step(state)
        after = time.perf_counter(), time.process_time(), traffic.seconds, traffic.bytes, traffic.calls
        each = [(b - a) / repeats for a, b in zip(before, after, strict=True)]
        names = ("seconds", "processor_seconds", "seconds_in_communication", "bytes", "calls")
        rows = exchanged(dict(zip(names, each, strict=True)))
        if is_first():
            weights = state.weights.numel()
            sys.stdout.write(
                json.dumps({"kind": kind, "processes": n_processes(), "weights": weights, "each": rows}) + "\n"
            )


if __name__ == "__main__":
    main()
