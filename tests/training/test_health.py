import math

import pytest
import torch

from gedikit import GEDI
from gedikit.building import build_network
from gedikit.callbacks import Callback
from gedikit.config import Execution
from gedikit.data.toy import moons
from gedikit.errors import DivergenceError
from gedikit.planning import Asked, plan
from gedikit.profile import DataProfile
from gedikit.training.health import HealthMonitor
from gedikit.training.state import TrainState

GOOD = {"largest_log_density": 10.0, "gradient_norm": 1.0, "energy_gap": 0.5, "acceptance": 0.6}


@pytest.fixture
def state() -> TrainState:
    made = plan(DataProfile(100, 2), Asked(2))
    generator = torch.Generator().manual_seed(0)
    network = build_network(made, 2, 0.1, generator, torch.empty(0, 2), torch.empty(0, 2))
    return TrainState.new(network, generator, made.config.optimiser, Execution())


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"prior": math.nan}, "prior is nan"),
        ({"energy_gap": 1e6}, "energy gap"),
        ({"largest_log_density": 1e7}, "log-density"),
        ({"gradient_norm": 1e9}, "gradient norm"),
    ],
)
def test_each_sign_of_divergence_is_noticed_and_named(change, word):
    monitor = HealthMonitor(2, 3)
    assert monitor.complaint(GOOD) is None
    assert word in monitor.complaint({**GOOD, **change})


def test_chains_that_never_move_are_noticed_after_a_while():
    monitor = HealthMonitor(2, 3)
    answers = [monitor.complaint({**GOOD, "acceptance": 0.0}) for _ in range(20)]
    assert answers[:-1] == [None] * 19
    assert "accepted" in answers[-1]


def test_rolling_back_restores_weights_and_halves_the_rate(state):
    monitor = HealthMonitor(2, 2)
    monitor.remember(state)
    before = state.network.centers.detach().clone()
    with torch.no_grad():
        state.network.centers.add_(1.0)
    state.iteration = 70
    noise = state.generator.get_state()
    event = monitor.roll_back(state, "it broke")
    assert torch.equal(state.network.centers, before)
    assert (state.iteration, state.rate_scale, state.rollbacks) == (0, 0.5, 1)
    assert torch.equal(state.generator.get_state(), noise), "other noise than the one that led here"
    assert "it broke" in event
    assert "iteration 70" in event
    monitor.roll_back(state, "again")
    with pytest.raises(DivergenceError, match="2 returns to an earlier state"):
        monitor.roll_back(state, "and again")


def test_what_is_not_finite_is_named_before_it_shows_in_a_loss(state):
    state.memory["sampler"] = {"positions": torch.zeros(4, 2), "half": torch.full((9,), 60_000.0).half()}
    assert state.not_finite() == [None], "their sum is no number of 16 bits, and they are sound"
    state.memory["sampler"]["positions"][3, 1] = math.nan
    assert state.not_finite() == ["memory/sampler/positions"]
    state.average_weights[0] = math.inf
    assert state.not_finite() == ["average_weights"]
    assert HealthMonitor(2, 3).complaint(GOOD, "weights") == "weights of the training state is not finite"


def test_the_recipe_as_printed_diverges_and_says_so():
    """L_GEN of the paper's toy recipe runs away; it must end in an error, not in a model."""
    told = []

    class Listener(Callback):
        def on_event(self, text: str) -> None:
            told.append(text)

    model = GEDI(
        2,
        method="gedi-as-printed",
        max_iter=20_000,
        random_state=0,
        config={"optimiser.max_rollbacks": 4},
    )
    with pytest.raises(DivergenceError, match="training diverged at iteration"):
        model.fit(moons(1000, 0)[0], callbacks=[Listener()])
    assert len(told) == 4
    assert all("went back to iteration" in text for text in told)


def test_a_rate_that_is_too_large_is_survived():
    """A learning rate that breaks training is halved until it does not."""
    x, _ = moons(300, 0)
    config = {"optimiser.max_rollbacks": 12, "execution.log_every": 5}
    model = GEDI(2, max_iter=400, learning_rate=1.0, config=config, random_state=0)
    model.fit(x)
    assert all(math.isfinite(v) for row in model.history_ for v in row.values())
