"""Small trainings on moons, one iteration at a time."""

from typing import Any

from gedikit.config import Execution
from gedikit.data.toy import moons
from gedikit.methods import methods
from gedikit.planning import Asked, plan
from gedikit.profile import DataProfile
from gedikit.training.fit import Setup, prepare

SMALL = {
    "encoder.hidden": (16,),
    "encoder.features": 6,
    "encoder.frequencies": 8,
    "optimiser.iterations": 20,
    "optimiser.batch_size": 30,
}


def prepared(method: str = "gedi", n: int = 80, prior: list[float] | str = "auto", **config: Any) -> Setup:
    sampled = methods[method].density in ("cluster-energy", "contrastive-energy")
    own = {} if not sampled or "sampler.samples" in config else {"sampler.samples": 25}
    if "encoder.name" in config or methods[method].recipe is not None:
        small = {name: value for name, value in SMALL.items() if not name.startswith("encoder")}
    else:
        small = SMALL
    x = moons(n, 0)[0]
    made = plan(DataProfile.of(x), Asked(2, method, prior, config={**small, **own, **config}))
    return prepare(made, x, execution=Execution(device="cpu", log_every=1))
