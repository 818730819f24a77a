"""Where a fit computes, and how for as long as it does."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gedikit.errors import UsageError


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Use n threads for a while: small products on many threads spend their time waiting for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(n or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def tuned_convolutions() -> Iterator[None]:
    """Let cuDNN time its algorithms: an iteration's shapes are the same thousands of times."""
    with cudnn_flags(benchmark=True):
        yield


@contextmanager
def cudnn_flags(**flags: bool) -> Iterator[None]:
    before = {name: getattr(torch.backends.cudnn, name) for name in flags}
    for name, value in flags.items():
        setattr(torch.backends.cudnn, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(torch.backends.cudnn, name, value)


def resolve_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise UsageError(f"device {name!r} is not available here; use 'auto' or 'cpu'") from None
    return device
