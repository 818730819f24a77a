"""Several processes that compute one fit: what they add up, what they tell each other, and who is missing.

All is of the default group of `torch.distributed`; with one process every function here is the identity. Numbers on
the way are tensors, everything else is JSON: nothing is unpickled.
"""

import hashlib
import json
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any, TypeVar, cast
from uuid import uuid4

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Shaped
from numpy.typing import NDArray
from torch import Tensor

from gedikit import errors
from gedikit.errors import GediError, ProcessError, SpokenFor, UsageError

TIMEOUT = 600.0  # seconds
_LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_GRACE = 5.0  # seconds in which those who are left say so
_HEARTBEAT, _LOOK = 2.0, 0.02  # seconds between two signs of life, and between two looks for an answer
_TOLD = 1.0  # seconds that others leave the first to say what went wrong: torchrun ends all when one ends
_ENDED = 30.0  # seconds that they wait for that where the same torchrun has started the first

T = TypeVar("T")


@dataclass
class Traffic:
    """What was sent, and the time that went by in sending it and in waiting for others."""

    calls: int = 0
    bytes: int = 0
    seconds: float = 0.0


@dataclass
class _Meeting:
    """What processes that compute together know of each other."""

    group: Any = None  # for tensors on the host
    timeout: float = TIMEOUT
    names: tuple[str, ...] = ()
    alone: bool = False
    traffic: Traffic | None = None
    number: int = 0  # what went wrong in an earlier one is over
    failures: int = 0  # after which processes were started again


_meeting = _Meeting()
_meetings, _turns = count(1), count()


def n_processes() -> int:
    """How many processes hold a part of the batch."""
    if _meeting.alone or not (dist.is_available() and dist.is_initialized()):
        return 1
    return dist.get_world_size()


def rank() -> int:
    """Which of them this is, from 0 on."""
    return dist.get_rank() if n_processes() > 1 else 0


def is_first() -> bool:
    """Whether this is the process that writes and speaks for all, also while it computes alone."""
    return not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0


@contextmanager
def alone() -> Iterator[None]:
    """For a while, compute as if there were no other processes."""
    before, _meeting.alone = _meeting.alone, True
    try:
        yield
    finally:
        _meeting.alone = before


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
            f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}: {_first_line(error)}"
        ) from error
    try:
        with meeting(TIMEOUT):
            yield
    except GediError as error:
        if dist.get_rank() == 0:
            _part()
            raise
        _may_be_ended()
        _part()
        time.sleep(_ENDED if os.environ.get("GROUP_RANK") == "0" else _TOLD)
        raise SpokenFor(error) from error
    dist.destroy_process_group()  # where something failed the others may not be there to agree on it


def _may_be_ended() -> None:
    """Who is told to end after a failure of another has not failed itself: torchrun then lists the other alone."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


def _part() -> None:
    """Leave once all others know: what they have to read may be in the memory of this process."""
    with suppress(RuntimeError):
        store, until = _store(), time.monotonic() + _TOLD
        store.set(_left(dist.get_rank()), "")
        everyone = [_left(number) for number in range(dist.get_world_size())]
        while dist.get_rank() == 0 and not store.check(everyone) and time.monotonic() < until:
            time.sleep(_LOOK)


def _meet(backend: str) -> None:
    """Find the other processes; those of an earlier attempt may have left their addresses in the same store."""
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous  # neither is there where torch was built without processes

    wait = timedelta(seconds=TIMEOUT)
    store, number, world = next(rendezvous("env://", timeout=wait))
    name, failures = _agreed(store, number, world, _failures_here())
    _meeting.failures = max(failures)
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
        time.sleep(_LOOK)
    raise RuntimeError(f"no answer for {TIMEOUT:g} s")


@contextmanager
def meeting(timeout: float) -> Iterator[Traffic]:
    """Compute together for a while: whoever does not answer for `timeout` seconds is named and ends it for all."""
    before = dict(vars(_meeting))
    _meeting.traffic = Traffic()
    if n_processes() == 1:
        yield _meeting.traffic
        return
    _meeting.number = next(_meetings)
    with _reporting(_meeting.number):
        try:
            with _answering():
                _meeting.group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
            _meeting.timeout = timeout
            _meeting.names = tuple(exchanged(f"pid {os.getpid()} on {platform.node()}"))
            yield _meeting.traffic
        finally:
            vars(_meeting).update(before)


def restarted() -> bool:
    """Whether a torchrun has started these processes again after a failure."""
    return max(_failures_here(), _meeting.failures) > 0


def _failures_here() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


# sums and rows of all, with and without a gradient


def over_processes(x: Tensor) -> Tensor:
    """Sum over processes, with a gradient."""
    return x if n_processes() == 1 else cast(Tensor, _Sum.apply(x))  # type: ignore[no-untyped-call]


def gathered(x: Tensor) -> Tensor:
    """The tensors of all processes along a new first dimension, with a gradient."""
    return x[None] if n_processes() == 1 else cast(Tensor, _Gather.apply(x))  # type: ignore[no-untyped-call]


def add_up(x: Tensor) -> None:
    """Replace a tensor by its sum over processes."""
    if n_processes() > 1:
        with _answering(x):
            dist.all_reduce(x, group=_group_of(x))


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004
        total = x.clone(memory_format=torch.contiguous_format)
        add_up(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004
        return over_processes(gradient)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004
        x = x.contiguous()
        parts = [torch.empty_like(x) for _ in range(n_processes())]
        with _answering(x, times=n_processes()):
            dist.all_gather(parts, x, group=_group_of(x))
        return torch.stack(parts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004
        return over_processes(gradient)[dist.get_rank()]


@dataclass(frozen=True)
class Share:
    """Which part of what all processes work on is that of this one: the `rank`-th of `count` parts."""

    rank: int = 0
    count: int = 1

    def size(self, n: int) -> int:
        """How many of n things that can be divided evenly are here."""
        return n // self.count

    def part(self, n: int) -> slice:
        """Which of n things are here; parts differ by one where they cannot be equal."""
        return slice(n * self.rank // self.count, n * (self.rank + 1) // self.count)

    def all_rows(self, x: Shaped[Tensor, "*s"], dim: int) -> Shaped[Tensor, "*t"]:
        """The rows of all processes along a dimension, without a gradient."""
        if self.count == 1:
            return x
        with torch.no_grad():
            return torch.cat(gathered(x).unbind(), dim=dim)

    def mean(self, x: Tensor) -> Tensor:
        """The mean over processes, without a gradient."""
        if self.count == 1:
            return x
        total = x.clone()
        add_up(total)
        return total / self.count


def own_share() -> Share:
    return Share(rank(), n_processes())


def check_shares(n: int, name: str, share: Share) -> None:
    """Refuse a number of rows that processes cannot divide evenly."""
    if n % share.count:
        low, high = n - n % share.count, n + share.count - n % share.count
        near = f"{high}" if low == 0 else f"{low} or {high}"
        raise UsageError(f"{name}={n} cannot be divided among {share.count} processes: take {near}")


# what processes tell each other


def exchanged(value: Any) -> list[Any]:
    """What every process says, in the order of their ranks."""
    if n_processes() == 1:
        return [value]
    said = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    sizes = gathered(torch.tensor([len(said)]))[:, 0].tolist()
    padded = torch.zeros(max(sizes), dtype=torch.uint8)
    padded[: len(said)] = said
    return [json.loads(part[:n].numpy().tobytes()) for part, n in zip(gathered(padded), sizes, strict=True)]


def each(act: Callable[[], T]) -> T:
    """What `act` returns here; where it fails on one process, all of them end with what that one says."""
    if n_processes() == 1:
        return act()
    failure: Exception | None = None
    result: list[T] = []
    turn = next(_turns)
    try:
        with _heart(turn):
            result.append(act())
    except ProcessError:
        raise
    except Exception as error:
        failure = error
    _store().set(f"gedikit/done/{turn}/{rank()}", "")
    for number in range(n_processes()):  # some may take much longer than others
        _awaited(f"gedikit/done/{turn}/{number}", number, turn)
    for number, said in enumerate(exchanged(None if failure is None else _in_words(failure))):
        if said is not None:
            if number == rank() and failure is not None and number == 0:
                raise failure
            raise _error(said, number)
    return result[0]


def first_says(act: Callable[[], T]) -> T:
    """What the first process makes of `act`, which must be plain values, on all of them, however long it takes."""
    if n_processes() == 1:
        return act()
    turn = next(_turns)
    if is_first():
        try:
            with _heart(turn), alone():
                text = json.dumps({"value": act()})
        except Exception as error:
            with suppress(RuntimeError):  # nobody is there to read it
                _store().set(f"gedikit/said/{turn}", json.dumps({"error": _in_words(error)}))
            raise
        _store().set(f"gedikit/said/{turn}", text)
    else:
        text = _awaited(f"gedikit/said/{turn}", 0, turn)
    said = json.loads(text)
    if "error" in said:
        raise _error(said["error"], 0)
    return cast(T, said["value"])


def first_makes(act: Callable[[], Sequence[NDArray[Any]]]) -> list[NDArray[Any]]:
    """Arrays that the first process makes, on all of them."""
    made: list[NDArray[Any]] = []

    def number() -> int:
        made.extend(act())
        return len(made)

    n = first_says(number)
    return [first_has(made[i] if made else None) for i in range(n)]


def first_has(array: NDArray[Any] | None) -> NDArray[Any]:
    """The array that the first process has, on all of them."""
    if n_processes() == 1:
        assert array is not None
        return array
    said = None if array is None else [array.dtype.str, list(array.shape)]
    kind, shape = exchanged(said)[0]
    mine = array if is_first() else None
    found = np.empty(shape, np.dtype(kind)) if mine is None else np.require(mine, requirements=["C", "W"])
    _from_first(torch.from_numpy(found.reshape(-1).view(np.uint8)))
    return found


@torch.no_grad()
def as_first(tensors: Sequence[Tensor]) -> None:
    """Overwrite tensors with those of the first process, which have the same shapes."""
    if n_processes() == 1:
        return
    shapes = exchanged([[str(t.dtype), list(t.shape)] for t in tensors])
    for number, other in enumerate(shapes):
        if other != shapes[0]:
            raise UsageError(
                f"{_name(number)} has built another network than process 0 from the same data and plan: its "
                "libraries or its processor compute something else"
            )
    for tensor in tensors:
        sent = tensor.detach().cpu().contiguous()
        _from_first(sent.reshape(-1).view(torch.uint8))
        tensor.copy_(sent)


def _from_first(x: Tensor) -> None:
    if x.numel():
        with _answering(x):
            dist.broadcast(x, 0, group=_group_of(x))


def check_alike(about: dict[str, str]) -> None:
    """Refuse processes that are about to compute something else than the first one."""
    said = exchanged(about)
    for number, other in enumerate(said):
        different = [name for name, value in said[0].items() if other.get(name) != value]
        if different:
            name = different[0]
            raise UsageError(
                f"{_name(number)} has {name} {other.get(name)} and process 0 has {said[0][name]}: "
                "all processes need the same"
            )


# who does not answer


@contextmanager
def _answering(x: Tensor | None = None, times: int = 1) -> Iterator[None]:
    """Say who is missing where processes wait for each other in vain; counts what is sent."""
    began = time.perf_counter()
    try:
        yield
    except RuntimeError as error:  # torch has no class of its own for a peer that is gone or late
        raise _missing(error) from error
    traffic = _meeting.traffic
    if traffic is not None and x is not None:
        traffic.calls += 1
        traffic.bytes += times * x.numel() * x.element_size()
        traffic.seconds += time.perf_counter() - began


def _missing(error: RuntimeError) -> ProcessError:
    """Ask all who are left to say so: those who do not are the reason."""
    late = "imed out" in str(error) or "imeout" in str(error)
    try:
        store, here = _store(), dist.get_rank()
        store.set(_left(here), "")
        others = {number for number in range(dist.get_world_size()) if number != here}
        until = time.monotonic() + _GRACE
        while others and time.monotonic() < until:
            failed = [n for n in others if store.check([_failed(n, _meeting.number)])]
            if failed:
                said = json.loads(store.get(_failed(failed[0], _meeting.number)))
                return ProcessError(f"{_name(failed[0])} failed: {said[1]}")
            others -= {n for n in others if store.check([_left(n)])}
            time.sleep(_LOOK)
    except RuntimeError:  # the store was of a process that is gone
        others = {0}
    if not others:
        return ProcessError(f"the processes lost each other: {_first_line(error)}")
    names = " and ".join(_name(number) for number in sorted(others))
    why = f"no answer for {_meeting.timeout:g} s: it hangs" if late else "it was killed or has lost its connection"
    return ProcessError(f"{names} {'are' if len(others) > 1 else 'is'} missing ({why}); all processes end here")


def _left(number: int) -> str:
    return f"gedikit/left/{_meeting.number}/{number}"


def _failed(number: int, in_meeting: int) -> str:
    return f"gedikit/failed/{in_meeting}/{number}"


@contextmanager
def _reporting(in_meeting: int) -> Iterator[None]:
    """Leave a note for the others of what this process fails by."""
    try:
        yield
    except ProcessError:
        raise
    except Exception as error:
        if dist.is_initialized():
            with suppress(RuntimeError):  # nobody is there to read it
                _store().set(_failed(dist.get_rank(), in_meeting), json.dumps(_in_words(error)))
        raise


@contextmanager
def _heart(turn: int) -> Iterator[None]:
    """Signs of life while the others wait for something that takes long."""
    store, done, beats, key = _store(), threading.Event(), count(1), _heart_of(rank(), turn)

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


def _awaited(key: str, number: int, turn: int) -> str:
    """What a process leaves under a key, as long as it shows signs of life."""
    last, since = b"", time.monotonic()
    failed, heart = _failed(number, _meeting.number), _heart_of(number, turn)
    try:
        store = _store()
        while not store.check([key]):
            if store.check([failed]):
                raise _error(json.loads(store.get(failed)), number)
            beat = store.get(heart) if store.check([heart]) else b""
            if beat != last:
                last, since = beat, time.monotonic()
            if time.monotonic() - since > _meeting.timeout:
                raise ProcessError(
                    f"{_name(number)} has not answered for {_meeting.timeout:g} s; all processes end here"
                )
            time.sleep(_LOOK)
        return cast(bytes, store.get(key)).decode()
    except RuntimeError as error:
        raise ProcessError(f"process 0, which holds what is said, is gone: {_first_line(error)}") from error


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()


def _group_of(x: Tensor) -> Any:
    return _meeting.group if x.device.type == "cpu" else None


def _name(number: int) -> str:
    about = f" ({_meeting.names[number]})" if number < len(_meeting.names) else ""
    return f"process {number}{about}"


def _in_words(error: Exception) -> list[str]:
    text = str(error).strip() or type(error).__name__
    return [
        type(error).__name__,
        text if isinstance(error, GediError) else f"{_first_line(error)} ({type(error).__name__})",
    ]


def _error(said: Sequence[str], number: int) -> GediError:
    kind = getattr(errors, said[0], ProcessError)
    text = said[1] if number == 0 else f"{_name(number)}: {said[1]}"
    return cast(GediError, kind(text))


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
