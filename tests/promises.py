"""What a promise is, how often and how long promises are tried, and the table of them."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

KILLS = int(os.environ.get("GEDIKIT_KILLS", "2"))  # of a run, and half as many damaged checkpoints
ITERATIONS = int(os.environ.get("GEDIKIT_ITERATIONS", "400"))  # of the run whose memory is watched


@dataclass
class Trial:
    """One try, or several that only stand or fall together."""

    times: int = 1


@dataclass
class Promise:
    """What is promised, how often that was tried and held, and a figure that goes with it."""

    what: str
    tried: int = 0
    held: int = 0
    figure: str = ""
    largest: float | None = None  # difference between what is promised to be equal
    failures: list[Exception] = field(default_factory=list)

    @contextlib.contextmanager
    def trial(self) -> Iterator[Trial]:
        """One try; a failure is counted, and raised once all were tried."""
        trial = Trial()
        try:
            yield trial
            self.held += trial.times
        except Exception as failure:
            self.failures.append(failure)
        self.tried += trial.times

    def differs(self, difference: float) -> None:
        """Remember the largest difference."""
        self.largest = max(difference, self.largest or 0.0)


def table(promises: Iterable[Promise]) -> Iterator[str]:
    """A line for each promise, however many tests it has."""
    together: dict[str, list[Promise]] = {}
    for promise in promises:
        together.setdefault(promise.what, []).append(promise)
    width = max(map(len, together), default=0)
    yield f"{'promise':{width}}  tried  held  figure"
    for what, own in together.items():
        differences = [promise.largest for promise in own if promise.largest is not None]
        figures = [promise.figure for promise in own if promise.figure]
        figures += [f"largest difference {max(differences):.1e}"] if differences else []
        tried, held = sum(promise.tried for promise in own), sum(promise.held for promise in own)
        yield f"{what:{width}}  {tried:5d}  {held:4d}  {'; '.join(figures)}"
