"""A fault inside a fit, for `--import`: which one is in the environment, so that a resumed run can do without."""

import ctypes
import gc
import json
import multiprocessing
import os
import resource
import signal
import sys
import time
from itertools import count
from pathlib import Path

import psutil
import torch

from gedikit.cli import inference
from gedikit.data import indexing
from gedikit.training import step

FAULT, _, AT = os.environ.get("FAULT", "").partition(":")
STOP = int(os.environ.get("STOP", "-1"))  # an iteration at which the process stops itself, as by SIGSTOP
ROWS = os.environ.get("ROWS", "")  # a file to which the rows of each iteration are added
READ = os.environ.get("READ", "")  # a file to which the names of shards are added that are read from front to back
LEAK = int(os.environ.get("LEAK", "0"))  # tensors of 16 KiB that each iteration keeps
made = step.BatchOutputs
# pictures take most of the time of runs as short as these, and would be what most kills meet; a test that looks at
# a run imports this file too, and its own reports are to stay as they are
if multiprocessing.parent_process() is not None:
    inference.render = lambda data: f"<!doctype html><title>{len(data.history)} measurements</title>"


def at_each_iteration(change):
    """Let `change` see the state and the rows of every batch, and return rows in their place."""

    def outputs(state, rows, x, *rest):
        return made(state, rows, change(state, x), *rest)

    step.BatchOutputs = outputs


def with_a_nan(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[0, 0] = torch.nan
    return x


once = count()

if ROWS:

    def noted(state, rows, *rest):
        with Path(ROWS).open("a") as file:
            file.write(json.dumps([state.iteration, rows.tolist()]) + "\n")
        return made(state, rows, *rest)

    step.BatchOutputs = noted

if READ:
    decoded = indexing.decoded

    def decoded_aloud(shard, *rest):
        with Path(READ).open("a") as file:
            file.write(f"{shard.name}\n")
        return decoded(shard, *rest)

    indexing.decoded = decoded_aloud

if STOP >= 0:

    def stop(state, x):
        if state.iteration == STOP:
            os.kill(os.getpid(), signal.SIGSTOP)
        return x

    at_each_iteration(stop)

if FAULT == "kill":  # one of several processes, once

    def kill(state, x):
        again = os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"
        if state.iteration == int(AT) and os.environ["RANK"] == "1" and not again:
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    at_each_iteration(kill)
elif FAULT == "wait":  # for a signal
    Path(AT).touch()
    time.sleep(600)
elif FAULT == "version":
    sys.modules["gedikit.training.fit"].__version__ = AT  # the function has the name of its module
elif FAULT == "error":

    def fail(state, x):
        if state.iteration == int(AT):
            raise ZeroDivisionError("a bug of one process")
        return x

    at_each_iteration(fail)
elif FAULT == "file-size":
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(AT), int(AT)))
elif FAULT == "clock":
    jumps = count()

    def jumping(clock):
        """A clock that is off by up to two days, now this way, now that."""
        return lambda: clock() + (86_400 if next(jumps) % 2 else -86_400)

    time.time, time.monotonic = jumping(time.time), jumping(time.monotonic)
elif FAULT == "batch":
    at_each_iteration(lambda state, x: with_a_nan(x) if state.iteration == int(AT) and next(once) == 0 else x)
elif FAULT == "every-batch":
    at_each_iteration(lambda state, x: with_a_nan(x) if state.iteration >= int(AT) else x)
elif FAULT == "buffer":

    def poison(state, x):
        if state.iteration == int(AT) and next(once) == 0:
            state.memory["sampler"]["positions"][0] = torch.nan
        return x

    at_each_iteration(poison)
elif FAULT == "memory":
    process, every = psutil.Process(), int(AT)
    gc.freeze()  # what is there before the fit would be looked through every time

    leaked = []

    class MallocInfo(ctypes.Structure):
        """As in malloc.h."""

        _fields_ = [
            (name, ctypes.c_size_t)
            for name in (
                *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
                *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
            )
        ]

    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = MallocInfo

    def allocated():
        """Bytes that were asked of the C library and not given back: without what it keeps for later."""
        info = mallinfo2()
        return info.uordblks + info.hblkhd

    def look(state, x):
        leaked.extend(torch.ones(4096) for _ in range(LEAK))
        if state.iteration % every == 0:
            gc.collect()
            with Path(os.environ["MEMORY"]).open("a") as file:
                sizes = (process.memory_info().rss, allocated(), sys.getallocatedblocks())
                file.write(f"{state.iteration} {' '.join(map(str, sizes))}\n")
        return x

    at_each_iteration(look)
