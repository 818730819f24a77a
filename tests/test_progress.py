"""What a fit says while it runs, to a pipe and to a terminal."""

import io
import time

import pytest
from rich.console import Console

from gedikit.callbacks import FitView
from gedikit.config import Optimiser
from gedikit.planning import Asked, plan
from gedikit.profile import DataProfile
from gedikit.progress import ProgressLine
from gedikit.training.state import TrainState

PLAN = plan(DataProfile(100, 2), Asked(2))


class State(TrainState):
    """How far a fit is, and nothing else."""

    def __init__(self, iteration: int = 0):
        self.iteration = iteration


def told(seconds: float, done: int, total: int, monkeypatch, *, terminal: bool = False) -> str:
    """The line after `done` iterations in so many seconds."""
    file = io.StringIO()
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with ProgressLine(Console(file=file, force_terminal=terminal, width=120)) as line:
        fit = FitView(PLAN.replaced(optimiser=Optimiser(iterations=total)), State(), {"prior": 1.386})
        line.on_start(fit)
        now[0] += seconds
        fit.state.iteration = done
        line.on_metrics(fit, {"iteration": done, "prior": 1.5, "gradient_norm": 3.0})
    return file.getvalue()


@pytest.mark.parametrize(
    ("seconds", "done", "total", "line"),
    [
        (10, 4000, 5000, "4000/5000  400 it/s  2 s left  prior 1.5/1.39\n"),
        (10, 25, 50, "25/50  2.5 it/s  10 s left  prior 1.5/1.39\n"),
        (60, 25, 100, "25/100  2.4 s/it  3 min left  prior 1.5/1.39\n"),
        (100, 25, 10_000, "25/10000  4.0 s/it  11 h 5 min left  prior 1.5/1.39\n"),
    ],
)
def test_a_pipe_gets_plain_lines_with_a_pace_above_one(seconds, done, total, line, monkeypatch):
    assert told(seconds, done, total, monkeypatch) == line


def test_a_terminal_gets_the_same_pace(monkeypatch):
    assert "2.0 s/it" in told(50, 25, 100, monkeypatch, terminal=True)
