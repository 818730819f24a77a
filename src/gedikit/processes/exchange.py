"""What processes add up and what they tell each other; with one process every function here is the identity.

Numbers on the way are tensors, everything else is JSON: nothing is unpickled.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar, cast

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Shaped
from numpy.typing import NDArray
from torch import Tensor

from gedikit.errors import ProcessError, UsageError
from gedikit.processes.group import alone, common_store, current, group_of, is_first, n_processes, name_of, rank
from gedikit.processes.watching import answering, awaited, error_of, heart, in_words

T = TypeVar("T")
_turns = count()
_PIECE = 2**20  # bytes that are sent at a time


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
        with answering(x):
            dist.all_reduce(x, group=group_of(x))


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
        with answering(x, times=n_processes()):
            dist.all_gather(parts, x, group=group_of(x))
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

    def has(self, number: int) -> bool:
        """Whether the thing with this number is here, where processes take things in turns."""
        return number % self.count == self.rank

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


WHOLE = Share()


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


def to_first(content: bytes) -> Iterator[bytes]:
    """On the first process what each one has, in the order of their ranks and piece by piece; on others nothing."""
    for number, size in enumerate(exchanged(len(content))):
        for start in range(0, size, _PIECE):
            own = memoryview(content)[start : start + _PIECE]
            if number == 0:
                if is_first():
                    yield bytes(own)
            elif number == rank():
                sent = torch.frombuffer(bytearray(own), dtype=torch.uint8)
                with answering(sent):
                    dist.send(sent, 0, group=current.group)
            elif is_first():
                piece = torch.empty(min(_PIECE, size - start), dtype=torch.uint8)
                with answering(piece):
                    dist.recv(piece, number, group=current.group)
                yield piece.numpy().tobytes()


def each(act: Callable[[], T]) -> T:
    """What `act` returns here; where it fails on one process, all of them end with what that one says."""
    if n_processes() == 1:
        return act()
    failure: Exception | None = None
    result: list[T] = []
    turn = next(_turns)
    try:
        with heart(turn):
            result.append(act())
    except ProcessError:
        raise
    except Exception as error:
        failure = error
    common_store().set(f"gedikit/done/{turn}/{rank()}", "")
    for number in range(n_processes()):  # some may take much longer than others
        awaited(f"gedikit/done/{turn}/{number}", number, turn)
    for number, said in enumerate(exchanged(None if failure is None else in_words(failure))):
        if said is not None:
            if number == rank() and failure is not None and number == 0:
                raise failure
            raise error_of(said, number)
    return result[0]


def first_says(act: Callable[[], T]) -> T:
    """What the first process makes of `act`, which must be plain values, on all of them, however long it takes."""
    if n_processes() == 1:
        return act()
    turn = next(_turns)
    if is_first():
        try:
            with heart(turn), alone():
                text = json.dumps({"value": act()})
        except Exception as error:
            with suppress(RuntimeError):  # nobody is there to read it
                common_store().set(f"gedikit/said/{turn}", json.dumps({"error": in_words(error)}))
            raise
        common_store().set(f"gedikit/said/{turn}", text)
    else:
        text = awaited(f"gedikit/said/{turn}", 0, turn)
    said = json.loads(text)
    if "error" in said:
        raise error_of(said["error"], 0)
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
                f"{name_of(number)} has built another network than process 0 from the same data and plan: its "
                "libraries or its processor compute something else"
            )
    for tensor in tensors:
        sent = tensor.detach().cpu().contiguous()
        _from_first(sent.reshape(-1).view(torch.uint8))
        tensor.copy_(sent)


def _from_first(x: Tensor) -> None:
    if x.numel():
        with answering(x):
            dist.broadcast(x, 0, group=group_of(x))


def check_alike(about: Mapping[str, str]) -> None:
    """Refuse processes that are about to do something else than the first one: what each has, by subject."""
    first, *others = exchanged(dict(about))
    for number, other in enumerate(others, 1):
        for subject in {**first, **other}:
            own, needed = (said.get(subject, f"no {subject}") for said in (other, first))
            if own != needed:
                raise UsageError(
                    f"{name_of(number)} has {own} and process 0 has {needed}: all processes need the same"
                )
