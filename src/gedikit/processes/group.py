"""Which processes there are, and what they know of each other."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import Tensor

TIMEOUT = 600.0  # seconds


@dataclass
class Traffic:
    """What was sent, and the time that went by in sending it and in waiting for others."""

    calls: int = 0
    bytes: int = 0
    seconds: float = 0.0


@dataclass
class Meeting:
    """What processes that compute together know of each other."""

    group: Any = None  # for tensors on the host
    timeout: float = TIMEOUT
    names: tuple[str, ...] = ()
    alone: bool = False
    traffic: Traffic | None = None
    number: int = 0  # what went wrong in an earlier one is over
    failures: int = 0  # after which processes were started again


current = Meeting()


def n_processes() -> int:
    """How many processes hold a part of the batch."""
    if current.alone or not (dist.is_available() and dist.is_initialized()):
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
    before, current.alone = current.alone, True
    try:
        yield
    finally:
        current.alone = before


def common_store() -> Any:
    return dist.distributed_c10d._get_default_store()


def group_of(x: Tensor) -> Any:
    return current.group if x.device.type == "cpu" else None


def name_of(number: int) -> str:
    about = f" ({current.names[number]})" if number < len(current.names) else ""
    return f"process {number}{about}"
