"""Pictures of two kinds, and small trainings on them."""

from typing import Any

import numpy as np

from gedikit.config import Execution
from gedikit.methods import methods
from gedikit.planning import Asked, Plan, plan
from gedikit.profile import DataProfile
from gedikit.training.fit import Setup, prepare

SHAPE = (16, 16, 3)
SMALL = {
    "encoder.width": 8,
    "optimiser.batch_size": 16,
    "sampler.samples": 8,
    "sampler.chains": 64,
    "sampler.steps": 2,
    "execution.log_every": 1,
}
EVERY = Execution(device="cpu", log_every=1)


def pictures(n: int, shape: tuple[int, int, int] = SHAPE, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Of two kinds: bright above or bright below, in any colour."""
    rng = np.random.default_rng(seed)
    half = shape[0] // 2
    images = rng.integers(0, 60, (n, *shape))
    kinds = rng.integers(0, 2, n)
    colour = rng.integers(80, 195, (n, 1, 1, shape[2]))
    for image, kind, light in zip(images, kinds, colour, strict=True):
        image[half * kind : half * kind + half] += light
    return images.astype(np.uint8).reshape(n, -1), kinds


def small(method: str = "gedi", **changes: Any) -> dict[str, Any]:
    """The settings of a small training: of those above, the ones that its components have."""
    sampled = methods[method].density in ("cluster-energy", "contrastive-energy")
    without = ("execution", *([] if sampled else ["sampler"]), *(["encoder"] if "encoder.name" in changes else []))
    kept = {name: value for name, value in SMALL.items() if not name.startswith(without)}
    return kept | changes


def planned(
    x: np.ndarray,
    method: str = "gedi",
    shape: tuple[int, ...] = SHAPE,
    seed: int = 0,
    views: str = "photos",
    config: dict[str, Any] | None = None,
    **given: Any,
) -> Plan:
    """A plan for a small training on pictures, by default as for photographs."""
    asked = Asked(2, method, views=views, seed=seed, config=small(method, **(config or {})), **given)
    return plan(DataProfile.of(x, shape), asked)


def prepared(x: np.ndarray, method: str = "gedi", seed: int = 0, **given: Any) -> Setup:
    return prepare(planned(x, method, seed=seed, **given), x, execution=EVERY)


def agreement(labels: np.ndarray, kinds: np.ndarray) -> float:
    return max(np.mean(labels == kinds), np.mean(labels != kinds))
