"""What a rule costs in a training iteration on 28 × 28 images: the same method with and without the term."""

import time
from dataclasses import replace

import numpy as np
import torch

from gedikit.config import Execution
from gedikit.objectives.base import Stage
from gedikit.paper.recipes import working
from gedikit.planning import Asked, plan
from gedikit.profile import DataProfile
from gedikit.symbolic import Constraint
from gedikit.training.devices import resolve_device, tuned_convolutions
from gedikit.training.fit import Setup, prepare
from gedikit.training.rules import Rules
from gedikit.training.state import TrainState

BATCH, ROUNDS = 60, 15
TERMS = ("generative", "invariance", "prior")


def ready(terms: tuple[str, ...], device: str, per_round: int) -> tuple[Setup, TrainState]:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (300, 784), dtype=np.uint8)
    addition = Constraint(lambda a, b, c: a + b == c, domains=(10, 10, 10))
    rules = Rules.of(addition, np.arange(300).reshape(100, 3))
    config = {
        "views.walks": False,
        "objectives.pseudo-labels.share": 0,
        "sampler.samples": BATCH,
        "optimiser.batch_size": BATCH,
        "optimiser.iterations": 10**6,
    }
    asked = Asked(
        10,
        "bound+constraint+cluster-energy",
        config=config,
        examples=rules.profile(),
        **working("mnist", small=device == "cpu"),
    )
    made = replace(plan(DataProfile.of(images, (28, 28, 1)), asked), stages=(Stage(1, terms),))
    prepared = prepare(made, images, execution=Execution(device=device, log_every=10**6), rules=rules)
    state = prepared.new_state()
    for _ in range(2 * per_round):  # renaming looks at iteration 0 only; what is compiled and captured is
        prepared.step(state)
    return prepared, state


def milliseconds(prepared: Setup, state: TrainState, device: str, count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        prepared.step(state)
    if device == "cuda":
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - began) / count


def main() -> None:
    device = resolve_device("auto").type
    count = 50 if device == "cuda" else 2
    with tuned_convolutions():
        kinds = {"without": TERMS, "with": (*TERMS, "constraint")}
        pairs = {name: ready(terms, device, count) for name, terms in kinds.items()}
        times: dict[str, list[float]] = {name: [] for name in pairs}
        for _ in range(ROUNDS):
            for name, (prepared, state) in pairs.items():
                times[name].append(milliseconds(prepared, state, device, count))
    without, with_rule = (float(np.median(times[name])) for name in ("without", "with"))
    print(f"{device}, batch {BATCH}: {without:.3f} ms an iteration, {with_rule:.3f} ms with the rule a + b = c,")
    print(f"{100 * (with_rule / without - 1):+.1f} %")


if __name__ == "__main__":
    main()
