"""Who does not answer, who has failed, and what is said of it."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import cast

import torch.distributed as dist
from torch import Tensor

from gedikit import errors
from gedikit.errors import GediError, Interrupted, ProcessError
from gedikit.processes.group import common_store, current, name_of, rank

LOOK = 0.02  # seconds between two looks for an answer
_GRACE = 5.0  # seconds in which those who are left say so
_HEARTBEAT = 2.0  # seconds between two signs of life


@contextmanager
def answering(x: Tensor | None = None, times: int = 1) -> Iterator[None]:
    """Say who is missing where processes wait for each other in vain; counts what is sent."""
    began = time.perf_counter()
    try:
        yield
    except RuntimeError as error:  # torch has no class of its own for a peer that is gone or late
        raise missing(error) from error
    traffic = current.traffic
    if traffic is not None and x is not None:
        traffic.calls += 1
        traffic.bytes += times * x.numel() * x.element_size()
        traffic.seconds += time.perf_counter() - began


def missing(error: RuntimeError) -> GediError:
    """Ask all who are left to say so: those who do not are the reason, unless one has left a note."""
    late = "imed out" in str(error) or "imeout" in str(error)
    try:
        store, own = common_store(), dist.get_rank()
        store.set(_key_of_leaving(own), "")
        others = {number for number in range(dist.get_world_size()) if number != own}
        until = time.monotonic() + _GRACE
        while others and time.monotonic() < until:
            failed = [n for n in others if store.check([_key_of_failure(n, current.number)])]
            if failed:
                return error_of(json.loads(store.get(_key_of_failure(failed[0], current.number))), failed[0])
            others -= {n for n in others if store.check([_key_of_leaving(n)])}
            time.sleep(LOOK)
    except RuntimeError:  # the store was of a process that is gone
        others = {0}
    if not others:
        return ProcessError(f"the processes lost each other: {first_line(error)}")
    names = " and ".join(name_of(number) for number in sorted(others))
    why = f"no answer for {current.timeout:g} s: it hangs" if late else "it was killed or has lost its connection"
    are = "are" if len(others) > 1 else "is"
    return ProcessError(f"{names} {are} missing ({why}); all processes end here", missing=others)


def _key_of_leaving(number: int) -> str:
    return f"gedikit/left/{current.number}/{number}"


def _key_of_failure(number: int, in_meeting: int) -> str:
    return f"gedikit/failed/{in_meeting}/{number}"


@contextmanager
def reporting(in_meeting: int) -> Iterator[None]:
    """Leave a note for the others of what this process fails by."""
    try:
        yield
    except ProcessError:
        raise
    except (Exception, KeyboardInterrupt) as error:
        if dist.is_initialized():
            with suppress(RuntimeError):  # nobody is there to read it
                common_store().set(_key_of_failure(dist.get_rank(), in_meeting), json.dumps(in_words(error)))
        raise


@contextmanager
def heart(turn: int) -> Iterator[None]:
    """Signs of life while the others wait for something that takes long."""
    store, done, beats, key = common_store(), threading.Event(), count(1), _heart_of(rank(), turn)

    def beat() -> None:
        while not done.wait(_HEARTBEAT):
            store.set(key, str(next(beats)))

    store.set(key, "0")
    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _heart_of(number: int, turn: int) -> str:
    return f"gedikit/heart/{turn}/{number}"


def awaited(key: str, number: int, turn: int) -> str:
    """What a process leaves under a key, as long as it shows signs of life."""
    last, since = b"", time.monotonic()
    failed, pulse = _key_of_failure(number, current.number), _heart_of(number, turn)
    try:
        store = common_store()
        while not store.check([key]):
            if store.check([failed]):
                raise error_of(json.loads(store.get(failed)), number)
            beat = store.get(pulse) if store.check([pulse]) else b""
            if beat != last:
                last, since = beat, time.monotonic()
            if time.monotonic() - since > current.timeout:
                raise ProcessError(
                    f"{name_of(number)} has not answered for {current.timeout:g} s; all processes end here",
                    missing={number},
                )
            time.sleep(LOOK)
        return cast(bytes, store.get(key)).decode()
    except RuntimeError as error:
        raise ProcessError(
            f"{name_of(0)}, which holds what is said, is gone: {first_line(error)}", missing={0}
        ) from error


def in_words(error: BaseException) -> list[str]:
    """What went wrong as a kind of error and a sentence, for others to raise."""
    if isinstance(error, KeyboardInterrupt):
        return [Interrupted.__name__, "interrupted"]
    text = str(error).strip() or type(error).__name__
    return [
        type(error).__name__,
        text if isinstance(error, GediError) else f"{first_line(error)} ({type(error).__name__})",
    ]


def error_of(said: Sequence[str], number: int) -> GediError:
    kind = getattr(errors, said[0], ProcessError)
    text = said[1] if number == 0 else f"{name_of(number)}: {said[1]}"
    return cast(GediError, kind(text))


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
