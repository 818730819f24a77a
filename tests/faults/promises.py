"""What a promise under faults is, and how often and how long promises are tried."""

import contextlib
import os
from collections.abc import Iterator
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
