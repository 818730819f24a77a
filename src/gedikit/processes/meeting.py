"""How processes find each other, compute together for a while, and part."""

import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import count

import torch
import torch.distributed as dist

from gedikit.errors import GediError, ProcessError, SpokenFor
from gedikit.processes.exchange import exchanged
from gedikit.processes.group import TIMEOUT, Traffic, common_store, current, n_processes
from gedikit.processes.watching import LOOK, answering, first_line, key_of_leaving, reporting

_LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_TOLD = 1.0  # seconds that others leave the first to say what went wrong: torchrun ends all when one ends
_meetings = count(1)


@contextmanager
def launched() -> Iterator[None]:
    """Join the processes that torchrun has started, each with a GPU of its own where there are any."""
    if (
        not all(name in os.environ for name in _LAUNCHED)
        or os.environ["WORLD_SIZE"] == "1"
        or dist.is_initialized()
    ):
        yield
        return
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    try:
        _meet("cpu:gloo,cuda:nccl" if on_gpu else "gloo")
    except RuntimeError as error:
        raise ProcessError(
            f"the {os.environ['WORLD_SIZE']} processes that were started did not find each other at "
            f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}: {first_line(error)}"
        ) from error
    try:
        with meeting(TIMEOUT):
            yield
    except GediError as error:
        _part()
        if dist.get_rank() == 0:
            raise
        time.sleep(_TOLD)
        raise SpokenFor(error) from error
    dist.destroy_process_group()  # where something failed the others may not be there to agree on it


def _part() -> None:
    """Leave once all others know: what they have to read may be in the memory of this process."""
    with suppress(RuntimeError):
        store, until = common_store(), time.monotonic() + _TOLD
        store.set(key_of_leaving(dist.get_rank()), "")
        everyone = [key_of_leaving(number) for number in range(dist.get_world_size())]
        while dist.get_rank() == 0 and not store.check(everyone) and time.monotonic() < until:
            time.sleep(LOOK)


def _meet(backend: str) -> None:
    """Find the other processes; those of an earlier attempt may have left their addresses in the same store."""
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous  # neither is there where torch was built without processes

    wait = timedelta(seconds=TIMEOUT)
    store, number, world = next(rendezvous("env://", timeout=wait))
    store = PrefixStore(f"gedikit/attempt-{_attempt()}", store)
    dist.init_process_group(backend, store=store, rank=number, world_size=world, timeout=wait)


def _attempt() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


@contextmanager
def meeting(timeout: float) -> Iterator[Traffic]:
    """Compute together for a while: whoever does not answer for `timeout` seconds is named and ends it for all."""
    before = dict(vars(current))
    current.traffic = Traffic()
    if n_processes() == 1:
        yield current.traffic
        return
    current.number = next(_meetings)
    with reporting(current.number):
        try:
            with answering():
                current.group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
            current.timeout = timeout
            current.names = tuple(exchanged(f"pid {os.getpid()} on {platform.node()}"))
            yield current.traffic
        finally:
            vars(current).update(before)


def restarted() -> bool:
    """Whether torchrun has started these processes again after a failure."""
    return _attempt() > 0
