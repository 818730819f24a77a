"""Commands that several processes run as one."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from gedikit.cli.output import console
from gedikit.processes import check_alike, is_first, launched
from gedikit.version import __version__


@contextmanager
def together(asked: Mapping[str, str]) -> Iterator[None]:
    """Join the processes that torchrun has started, all of them asked for the same; the first one speaks."""
    with launched():
        check_alike({"gedikit": f"gedikit {__version__}", "torch": f"torch {torch.__version__}", **asked})
        if not is_first():
            console.quiet = True
            warnings.simplefilter("ignore")
        yield
