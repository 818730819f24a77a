"""A warning where processes wait for each other most of the time."""

from types import SimpleNamespace

import pytest
import torch

from gedikit.errors import GediWarning
from gedikit.processes import Traffic
from gedikit.training import paying


def follow(monkeypatch, waited: float) -> None:
    """A fit whose iterations take a second each, of which some is spent on others."""
    clock, traffic = SimpleNamespace(now=0.0), Traffic()
    monkeypatch.setattr(paying.time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(paying, "n_processes", lambda: 2)
    callback = paying.PaysOff(traffic)
    for iteration in range(1, 300):
        clock.now += 1
        traffic.seconds += 10.0 if iteration < 10 else waited  # the first iterations do not count
        callback.on_step(SimpleNamespace(iteration=iteration, state=SimpleNamespace(weights=torch.ones(1))))


@pytest.mark.usefixtures("unchecked")
def test_it_is_said_once_where_it_does_not_pay(monkeypatch):
    with pytest.warns(GediWarning, match="2 processes spend 60% of the time on each other") as said:
        follow(monkeypatch, 0.6)
    assert len(said) == 1


@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("unchecked")
def test_nothing_is_said_where_it_pays(monkeypatch):
    follow(monkeypatch, 0.4)
