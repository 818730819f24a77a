"""What one case may take, and what it took: memory beyond what was there before, and processor seconds."""

import contextlib
import resource
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

MOST_MEGABYTES = 1500.0
MOST_SECONDS = 60
_STATUS = Path("/proc/self/status")
_PEAK_RESET = Path("/proc/self/clear_refs")


class TooLong(BaseException):
    """A case that does not end; no reader may catch it."""


@dataclass
class Used:
    """By one case."""

    megabytes: float = 0.0
    seconds: float = 0.0


@contextlib.contextmanager
def limited(megabytes: float = MOST_MEGABYTES, seconds: int = MOST_SECONDS) -> Iterator[Used]:
    """Let no more memory be taken and stop after some time; says how much it was."""
    used = Used()
    before = resource.getrlimit(resource.RLIMIT_AS)
    there, began = _kilobytes("VmSize"), time.process_time()
    resident = _kilobytes("VmRSS")
    _PEAK_RESET.write_text("5")
    resource.setrlimit(resource.RLIMIT_AS, (int(there * 1024 + megabytes * 2**20), before[1]))
    previous = signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)  # of the processor: a busy machine is no fault of a file
    try:
        yield used
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
        resource.setrlimit(resource.RLIMIT_AS, before)
        used.seconds = time.process_time() - began
        used.megabytes = max(0, _kilobytes("VmHWM") - resident) / 1024


def _kilobytes(name: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1])


def _stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise TooLong
