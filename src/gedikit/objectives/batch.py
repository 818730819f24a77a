"""Sums over the whole batch, however many processes hold a part of it.

With `torch.distributed` initialised every process holds some rows. The functions here see all of them and are
differentiable, so a loss written with them has the same value on every process and, after the usual averaging of
gradients over processes (as DistributedDataParallel does), the gradient of one process with all rows.
Tensors have shape (*members, rows, …): leading dimensions are models trained side by side.
"""

from typing import Any, cast

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from gedikit.errors import UsageError


def n_processes() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def n_rows(x: Float[Tensor, "*m n d"]) -> int:
    """Rows of the whole batch."""
    return x.shape[-2] * n_processes()


def row_sum(x: Float[Tensor, "*m n d"]) -> Float[Tensor, "*m d"]:
    """Sum over the rows of the whole batch."""
    return over_processes(x.sum(-2))


def row_mean(x: Float[Tensor, "*m n d"]) -> Float[Tensor, "*m d"]:
    return row_sum(x) / n_rows(x)


def mean(x: Float[Tensor, "*m n"]) -> Float[Tensor, "*m"]:
    """Mean of one number a row over the whole batch."""
    return over_processes(x.mean(-1)) / n_processes()


def row_logsumexp(x: Float[Tensor, "*m n d"]) -> Float[Tensor, "*m d"]:
    """log Σ exp over the rows of the whole batch."""
    local = torch.logsumexp(x, dim=-2)
    return local if n_processes() == 1 else torch.logsumexp(all_rows(local[..., None, :]), dim=-2)


def moment(a: Float[Tensor, "*m n d"], b: Float[Tensor, "*m n e"]) -> Float[Tensor, "*m d e"]:
    """Σ over rows of a bᵀ."""
    local = cast(Tensor, _Square.apply(a)) if b is a else a.mT @ b  # type: ignore[no-untyped-call]
    return over_processes(local)


def over_processes(x: Tensor) -> Tensor:
    """Sum over processes, with a gradient."""
    return x if n_processes() == 1 else cast(Tensor, _Sum.apply(x))  # type: ignore[no-untyped-call]


def all_rows(x: Float[Tensor, "*m n d"]) -> Float[Tensor, "*m N d"]:
    """The rows of all processes in the order of their ranks, with a gradient."""
    if n_processes() == 1:
        return x
    gathered = cast(Tensor, _Gather.apply(x))  # type: ignore[no-untyped-call]
    return torch.cat(gathered.unbind(), dim=-2)


def first_row(x: Float[Tensor, "*m n d"]) -> int:
    """Where this process's rows begin in `all_rows`."""
    return dist.get_rank() * x.shape[-2] if n_processes() > 1 else 0


def check_even(x: Float[Tensor, "*m n d"]) -> None:
    """Refuse processes with different numbers of rows: their means would be weighted wrongly."""
    if n_processes() == 1:
        return
    n = x.shape[-2]
    counts = torch.tensor([n, -n], device=x.device)
    dist.all_reduce(counts, op=dist.ReduceOp.MAX)
    if counts[0] != -counts[1]:
        raise UsageError(
            f"every process must hold the same number of rows, not between {-int(counts[1])} and {int(counts[0])}"
        )


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


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004
        return over_processes(gradient)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004
        x = x.contiguous()
        parts = [torch.empty_like(x) for _ in range(n_processes())]
        dist.all_gather(parts, x)
        return torch.stack(parts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004
        return over_processes(gradient)[dist.get_rank()]
