"""How processes find each other, compute together for a while, and part."""

import hashlib
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import uuid4

import torch
import torch.distributed as dist

from gedikit.errors import ProcessError, SpokenFor, UsageError
from gedikit.processes.exchange import exchanged
from gedikit.processes.group import TIMEOUT, Traffic, common_store, current, n_processes
from gedikit.processes.watching import LOOK, answering, first_line, reporting

_LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_KNOWN, _SPOKEN = 10.0, 1.0  # seconds for the first to know what went wrong, and to say it
_ENDED = 30.0  # seconds that others wait for their end where the same torchrun has started the first
_meetings = count(1)


@contextmanager
def launched() -> Iterator[None]:
    """Join the processes that torchrun has started, each with a GPU of its own where there are any."""
    if not _are_several() or dist.is_initialized():
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
    except (Exception, KeyboardInterrupt) as error:
        if _is_to_speak(error):
            raise
        raise SpokenFor(error) from error
    dist.destroy_process_group()  # where something failed the others may not be there to agree on it


def refuse_several(what: str) -> None:
    """End all processes that torchrun has started for what one does by itself."""
    if not _are_several():
        return
    n = os.environ["WORLD_SIZE"]
    error = UsageError(f"{what} runs on one process, and {n} were started: start it without torchrun")
    if os.environ["RANK"] == "0":
        raise error
    _may_be_ended()
    _leave_to_speak()
    raise SpokenFor(error)


def _are_several() -> bool:
    return all(name in os.environ for name in _LAUNCHED) and os.environ["WORLD_SIZE"] != "1"


def _is_to_speak(error: BaseException) -> bool:
    """Whether to tell what went wrong: as the first process that is left, or because that one does not know of it.

    That one may hold in its memory what others have to read: it stays until all know. They leave it the time to
    speak, as torchrun ends all processes when one ends.
    """
    own, gone = dist.get_rank(), error.missing if isinstance(error, ProcessError) else set()
    knows = {number: f"gedikit/knows/{number}" for number in range(dist.get_world_size()) if number not in gone}
    first = min(knows)
    with suppress(RuntimeError):  # the store was of a process that is gone
        store = common_store()
        if own == first:
            store.set(knows[own], "")
            threading.Thread(target=_until, args=(lambda: store.check(list(knows.values())), _KNOWN)).start()
        else:
            told = _until(lambda: store.check([knows[first]]), _KNOWN)
            if told:
                _may_be_ended()
            store.set(knows[own], "")
            if not told:
                return not isinstance(error, ProcessError)
            _leave_to_speak()
    return own == first


def _may_be_ended() -> None:
    """Who is told to end after a failure of another has not failed itself: torchrun then lists the other alone."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


def _leave_to_speak() -> None:
    """Stay while the first process speaks: torchrun ends all when one ends."""
    time.sleep(_ENDED if os.environ.get("GROUP_RANK") == "0" else _SPOKEN)


def _until(holds: Callable[[], bool], seconds: float) -> bool:
    """Wait for something, though not for ever; whether it came."""
    until = time.monotonic() + seconds
    with suppress(RuntimeError):  # the store was of a process that is gone
        while not holds():
            if time.monotonic() > until:
                return False
            time.sleep(LOOK)
    return True


def _meet(backend: str) -> None:
    """Find the other processes; those of an earlier attempt may have left their addresses in the same store."""
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous  # neither is there where torch was built without processes

    wait = timedelta(seconds=TIMEOUT)
    store, number, world = next(rendezvous("env://", timeout=wait))
    name, failures = _agreed(store, number, world, _failures_here())
    current.failures = max(failures)
    store = PrefixStore(name, store)
    dist.init_process_group(backend, store=store, rank=number, world_size=world, timeout=wait)


def _agreed(store: Any, number: int, world: int, failures: int) -> tuple[str, list[int]]:
    """A name that only the processes of this attempt have for it, and how many failures each torchrun has counted.

    These numbers differ: each counts those of its own machine. So every process brings a name, the first lists
    those that it finds, and the list holds once all in it have said that they are there.
    """
    mine, until = f"{failures}:{uuid4().hex}", time.monotonic() + TIMEOUT
    store.set(f"gedikit/here/{number}", mine)
    while time.monotonic() < until:
        if number == 0:
            names = [store.get(f"gedikit/here/{other}").decode() for other in range(world)]
            store.set("gedikit/all", " ".join(names))
        listed = store.get("gedikit/all").decode()
        if listed.split()[number : number + 1] == [mine]:
            about = f"gedikit/attempt-{hashlib.sha256(listed.encode()).hexdigest()}"
            store.set(f"{about}/seen/{number}", "")
            if number == 0 and store.check([f"{about}/seen/{other}" for other in range(world)]):
                store.set(f"{about}/all", "")
            if store.check([f"{about}/all"]):
                return about, [int(name.split(":")[0]) for name in listed.split()]
        time.sleep(LOOK)
    raise RuntimeError(f"no answer for {TIMEOUT:g} s")


@contextmanager
def meeting(timeout: float) -> Iterator[Traffic]:
    """Compute together for a while: whoever does not answer for `timeout` seconds is named and ends it for all."""
    before = dict(vars(current))
    current.traffic = Traffic()
    if n_processes() == 1:
        yield current.traffic
        return
    current.number = next(_meetings)
    try:
        with reporting(current.number):
            with answering():
                current.group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
            current.timeout = timeout
            current.names = tuple(exchanged(f"pid {os.getpid()} on {platform.node()}"))
            yield current.traffic
    except BaseException:
        _hang_up()
        raise
    finally:
        vars(current).update(before)


def _hang_up() -> None:
    """Close the connections of a meeting that failed: who waits for this process is to know at once."""
    if dist.is_initialized() and current.group is not None:
        group, current.group = current.group, None
        dist.destroy_process_group(group)


def restarted() -> bool:
    """Whether a torchrun has started these processes again after a failure."""
    return max(_failures_here(), current.failures) > 0


def _failures_here() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
