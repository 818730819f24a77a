"""Whether several processes pay: told once, from the time that they wait for each other."""

import time
import warnings

from gedikit.errors import GediWarning
from gedikit.processes import Traffic, n_processes
from gedikit.training.callbacks import Callback, FitView

_FIRST, _LOOKED_AT = 10, 100  # iterations: those that warm up, and those that are judged
_TOO_MUCH = 0.5  # share of the time


class PaysOff(Callback):
    """Warns where processes on CPUs spend most of an iteration waiting for each other."""

    def __init__(self, traffic: Traffic):
        self.traffic = traffic
        self.began: tuple[int, float, float] | None = None
        self.processes, self.done = n_processes(), False

    def on_step(self, fit: FitView) -> None:
        if self.done or fit.state.weights.is_cuda:  # a GPU waits while the host goes on: nothing to be seen here
            return
        now = time.perf_counter()
        if self.began is None:
            if fit.iteration >= _FIRST:
                self.began = fit.iteration, now, self.traffic.seconds
            return
        iteration, began, waited = self.began
        if fit.iteration - iteration < _LOOKED_AT:
            return
        self.done = True
        share = (self.traffic.seconds - waited) / (now - began)
        if share > _TOO_MUCH:
            warnings.warn(
                GediWarning(
                    f"{self.processes} processes spend {share:.0%} of the time on each other: "
                    "so small a fit is faster with fewer of them, or with one"
                ),
                stacklevel=2,
            )
