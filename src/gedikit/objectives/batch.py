"""Sums over the whole batch, however many processes hold a part of it.

With `torch.distributed` initialised every process holds some rows. The functions here see all of them and are
differentiable, so a loss written with them has the same value on every process and, after the usual averaging of
gradients over processes (as DistributedDataParallel does), the gradient of one process with all rows.
Tensors have shape (*members, rows, …): leading dimensions are models trained side by side.
"""

from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.errors import UsageError
from gedikit.processes import gathered, n_processes, over_processes, rank

__all__ = [
    "all_rows",
    "check_even",
    "count_rows",
    "first_row",
    "mean",
    "moment",
    "n_processes",
    "n_rows",
    "over_processes",
    "row_logsumexp",
    "row_mean",
    "row_sum",
]


def n_rows(x: Float[Tensor, "*m n d"]) -> int:
    """Rows of the whole batch, of which every process holds as many."""
    return x.shape[-2] * n_processes()


def count_rows(x: Float[Tensor, "*m n d"]) -> int:
    """Rows of the whole batch, of which processes need not hold equally many."""
    return int(gathered(torch.tensor([x.shape[-2]], device=x.device)).sum())


def row_sum(x: Float[Tensor, "*m n d"]) -> Float[Tensor, "*m d"]:
    """Sum over the rows of the whole batch."""
    return over_processes(x.sum(-2))


def row_mean(x: Float[Tensor, "*m n d"]) -> Float[Tensor, "*m d"]:
    return row_sum(x) / n_rows(x)


def mean(x: Float[Tensor, "*m n"], whole: int | None = None) -> Float[Tensor, "*m"]:
    """Mean of one number a row over the whole batch, of `whole` rows where processes do not hold equally many."""
    if n_processes() == 1:
        return x.mean(-1)
    if whole is None:
        return over_processes(x.mean(-1)) / n_processes()
    return over_processes(x.sum(-1)) / whole


def row_logsumexp(x: Float[Tensor, "*m n d"]) -> Float[Tensor, "*m d"]:
    """log Σ exp over the rows of the whole batch."""
    local = torch.logsumexp(x, dim=-2)
    return local if n_processes() == 1 else torch.logsumexp(all_rows(local[..., None, :]), dim=-2)


def moment(a: Float[Tensor, "*m n d"], b: Float[Tensor, "*m n e"]) -> Float[Tensor, "*m d e"]:
    """Σ over rows of a bᵀ."""
    local = cast(Tensor, _Square.apply(a)) if b is a else a.mT @ b  # type: ignore[no-untyped-call]
    return over_processes(local)


def all_rows(x: Float[Tensor, "*m n d"]) -> Float[Tensor, "*m N d"]:
    """The rows of all processes in the order of their ranks, with a gradient."""
    if n_processes() == 1:
        return x
    return torch.cat(gathered(x).unbind(), dim=-2)


def first_row(x: Float[Tensor, "*m n d"]) -> int:
    """Where this process's rows begin in `all_rows`."""
    return rank() * x.shape[-2]


def check_even(x: Float[Tensor, "*m n d"]) -> None:
    """Refuse processes with different numbers of rows: their means would be weighted wrongly."""
    if n_processes() == 1:
        return
    n = x.shape[-2]
    counts = gathered(torch.tensor([n], device=x.device))
    low, high = int(counts.min()), int(counts.max())
    if low != high:
        raise UsageError(f"every process must hold the same number of rows, not between {low} and {high}")


class _Square(torch.autograd.Function):
    """aᵀa, whose gradient takes one product where two factors that are not known to be the same take two."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        ctx.save_for_backward(a)
        return a.mT @ a

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (a,) = ctx.saved_tensors
        return cast(Tensor, a @ (gradient + gradient.mT))
