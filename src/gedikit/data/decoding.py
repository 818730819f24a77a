"""Many pictures at a time, by threads: decoders leave the interpreter to others while they work."""

import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from PIL import Image

from gedikit.data.pictures import Unreadable

_QUEUE = 256  # pictures handed to the threads at a time: an interruption waits for no more than these
_QUEUE_BYTES = 2**26  # the same where they are in memory
_MOST_THREADS = 8

T = TypeVar("T")
R = TypeVar("R")


def n_threads() -> int:
    return min(_MOST_THREADS, os.cpu_count() or 1)


def each_read(
    items: Iterable[T], read: Callable[[T], R], n_bytes: Callable[[T], int] = lambda _: 0
) -> Iterator[tuple[T, R | Unreadable]]:
    """What `read` makes of each, or why it could not, in their order; `n_bytes` is what one holds in memory."""

    def attempt(item: T) -> R | Unreadable:
        try:
            return read(item)
        except Unreadable as why:
            return why

    with _quiet_pillow(), ThreadPoolExecutor(n_threads()) as threads:
        for some in _queues(items, n_bytes):
            yield from zip(some, threads.map(attempt, some), strict=True)
            del some  # before the next ones are held


def _queues(items: Iterable[T], n_bytes: Callable[[T], int]) -> Iterator[list[T]]:
    queue, held = list[T](), 0
    for item in items:
        queue.append(item)
        held += n_bytes(item)
        if len(queue) == _QUEUE or held >= _QUEUE_BYTES:
            yield queue
            queue, held = [], 0
    if queue:
        yield queue


@contextmanager
def _quiet_pillow() -> Iterator[None]:
    """Pillow warns of large pictures and odd metadata; what matters of it becomes a reason to skip a file."""
    Image.init()  # before there are threads that would all do it
    log = logging.getLogger("PIL")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="PIL")
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            yield
    finally:
        log.setLevel(level)
