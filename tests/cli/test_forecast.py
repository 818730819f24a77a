"""How long a fit is said to take, and which budget would take less."""

import re
import time
from io import StringIO

import pytest
from rich.console import Console

from gedikit import GEDI, progress
from gedikit.callbacks import Callback
from gedikit.cli.fitting import cheaper_budgets, planned
from gedikit.cli.request import FitRequest
from gedikit.data.toy import moons
from gedikit.progress import Forecast, duration

TINY = {
    **{"encoder.hidden": (8,), "encoder.features": 4, "encoder.frequencies": 4, "execution.log_every": 1},
    **{"sampler.samples": 8, "sampler.bank": 50, "optimiser.batch_size": 8},
}
MANY = 10_000_000  # iterations: hours, however fast the machine is
UNITS = {"s": 1, "min": 60, "h": 3600}


class Clock(Callback):
    """When it was called at each iteration; ends the fit after some."""

    def __init__(self, last: int | None = None):
        self.last, self.times = last, {}

    def on_step(self, fit):
        self.times[fit.iteration] = time.monotonic()
        if fit.iteration == self.last:
            fit.stop("seen enough")


def followed(iterations: int, cheaper: dict[str, float], *, last: int | None = None):
    """What a forecast says in a real fit, and the shortest and longest time an iteration can have taken by it."""
    before, after = Clock(), Clock(last)
    file = StringIO()
    forecast = Forecast(Console(file=file, width=200), cheaper)
    GEDI(2, max_iter=iterations, config=TINY, random_state=0, device="cpu").fit(
        moons(50, 0)[0], callbacks=[before, forecast, after]
    )
    told = progress._FIRST_STEPS + 1  # the first iteration is not counted
    if told not in before.times:
        return file.getvalue(), (0, 0)
    least = (before.times[told] - after.times[1]) / progress._FIRST_STEPS
    most = (after.times[told] - before.times[1]) / progress._FIRST_STEPS
    return file.getvalue(), (least, most)


def seconds(text: str) -> float:
    return sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+) (s|min|h)", text))


def is_between(text: str, least: float, most: float) -> bool:
    """A duration as it is told is rounded."""
    return seconds(duration(least)) <= seconds(text) <= seconds(duration(most))


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """A forecast after a few iterations, however short they are."""
    monkeypatch.setattr(progress, "_FIRST_SECONDS", 0.0)
    monkeypatch.setattr(progress, "_WORTH_TELLING", 0.0)


def test_what_is_left_is_the_pace_so_far_times_the_iterations_that_are_left():
    text, (least, most) = followed(MANY, {}, last=20)
    said = re.fullmatch(r"about ([\dminhs ]+) left\n", text)
    assert said, text
    left = MANY - progress._FIRST_STEPS - 1
    assert is_between(said[1], least * left, most * left)


@pytest.mark.parametrize(
    ("cheaper", "named"),
    [
        ({"quick": 0.3, "default": 0.6}, "quick"),  # both take long: the one that takes least
        ({"quick": 1e-9, "default": 2e-9}, "default"),  # both are short: the one that does most
        ({"quick": 1e-9, "default": 0.6}, "quick"),  # one is short
    ],
)
def test_a_long_fit_names_a_budget_that_takes_less(cheaper, named):
    text, (least, most) = followed(MANY, cheaper, last=20)
    said = re.fullmatch(r"about [\dminhs ]+ left; --budget (\w+) would take about ([\dminhs ]+)\n", text)
    assert said, text
    assert said[1] == named
    assert is_between(said[2], least * MANY * cheaper[named], most * MANY * cheaper[named])


def test_a_short_fit_names_no_budget(monkeypatch):
    monkeypatch.setattr(progress, "_LONG", float("inf"))
    text, _ = followed(30, {"quick": 0.1})
    assert re.fullmatch(r"about [\dminhs ]+ left\n", text)


def test_a_fit_of_a_few_iterations_has_no_forecast():
    assert followed(progress._FIRST_STEPS, {"quick": 0.1})[0] == ""


def test_what_is_nearly_done_is_not_worth_telling(monkeypatch):
    monkeypatch.setattr(progress, "_WORTH_TELLING", float("inf"))
    assert followed(30, {})[0] == ""


@pytest.mark.parametrize(
    ("given", "text"), [(0.4, "0 s"), (119, "119 s"), (121, "2 min"), (7100, "118 min"), (7300, "2 h 2 min")]
)
def test_durations_are_told_in_a_unit_that_suits_them(given, text):
    assert duration(given) == text


def cheaper(**asked) -> dict[str, float]:
    found = planned("moons", FitRequest(**asked))
    return cheaper_budgets(found.config, found.asked)


def testcheaper_budgets_budgets_are_those_of_the_same_request():
    assert cheaper(budget="quick") == {}
    usual, best = cheaper(), cheaper(budget="best")
    assert set(usual) == {"quick"} and set(best) == {"quick", "default"}
    assert 0 < best["quick"] < best["default"] < 1
    assert usual["quick"] == pytest.approx(best["quick"] / best["default"])
    assert cheaper(budget="best", iters=50) == {}, (
        "the iterations that were asked for are the same for every budget"
    )
