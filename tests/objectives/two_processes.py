"""What each of two processes does with its half of the rows; the test beside it compares with one process."""

import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from objective_cases import CASES, DIMS, DOUBLE, Case
from torch import Tensor

from gedikit import objectives as o
from gedikit.objectives import batch

PROCESSES = 2


def weight() -> Tensor:
    """Of the linear layer that both processes share."""
    generator = torch.Generator().manual_seed(123)
    return torch.randn(DIMS, DIMS, generator=generator, dtype=DOUBLE, requires_grad=True)


def measure(case: Case, drawn: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The loss behind a linear layer, and its gradient for the layer and the objective's own weights."""
    layer = weight()
    own = [layer]
    given = []
    for spec, tensor in zip(case.inputs, drawn, strict=True):
        if spec.kind == "embedding":
            given.append(tensor @ layer)
        elif spec.kind == "weight":
            own.append(tensor.clone().requires_grad_())
            given.append(own[-1])
        else:
            given.append(tensor)
    value = case.loss(*given)
    gradients = torch.autograd.grad(value.sum(), own)
    return value.detach(), torch.cat([g.flatten() for g in gradients])


def part(case: Case, drawn: list[Tensor], rank: int) -> list[Tensor]:
    """This process's rows of what is not shared."""
    return [
        tensor if spec.rows is None else tensor.chunk(PROCESSES, spec.rows)[rank]
        for spec, tensor in zip(case.inputs, drawn, strict=True)
    ]


def whole(case: Case) -> list[Tensor]:
    return case.draw(7)


def members(case: Case) -> list[Tensor]:
    return [torch.stack(t) for t in zip(case.draw(8), case.draw(9), strict=True)]


def sentence(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=PROCESSES,
        timeout=timedelta(seconds=60),
    )
    found: dict[str, Any] = {}
    for name, case in CASES.items():
        for kind, drawn in ((name, whole(case)), (f"{name} members", members(case))):
            value, gradient = measure(case, part(case, drawn, rank))
            dist.all_reduce(gradient)  # DistributedDataParallel's average
            found[kind] = (value, gradient / PROCESSES)
    found.update(_batch(rank))
    found.update(_refusals(rank))
    torch.save(found, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def rows() -> Tensor:
    return torch.randn(6, DIMS, generator=torch.Generator().manual_seed(5), dtype=DOUBLE)


def _batch(rank: int) -> dict[str, Tensor]:
    """Functions of the whole batch, of columns that do not lie one after another in memory."""
    x = rows().chunk(PROCESSES)[rank].T.contiguous().T.requires_grad_()
    total = batch.row_sum(x)
    (first,) = torch.autograd.grad(total.pow(4).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(batch.over_processes(first.pow(2).sum()), x)
    return {
        "all_rows": batch.all_rows(x).detach(),
        "row_sum": total.detach(),
        "row_mean": batch.row_mean(x).detach(),
        "row_logsumexp": batch.row_logsumexp(x).detach(),
        "moment": batch.moment(x, x.square()).detach(),
        "square": batch.moment(x, x).detach(),
        "mean": batch.mean(x[..., 0]).detach(),
        "n_rows": torch.tensor(batch.n_rows(x)),
        "first_row": torch.tensor(batch.first_row(x)),
        "sinkhorn": o.sinkhorn(x.detach(), epsilon=0.5),
        "second": second,
    }


def _refusals(rank: int) -> dict[str, str]:
    uneven = torch.randn(3 + rank, 2)
    nan = torch.full((3, 2), torch.nan) if rank == 0 else torch.randn(3, 2)
    one = torch.randn(1, 2, dtype=DOUBLE)
    return {
        "uneven": sentence(lambda: o.infonce(uneven, uneven)),
        "uneven posteriors": sentence(lambda: o.invariance(uneven.log_softmax(-1), uneven.log_softmax(-1))),
        "no rows here": sentence(lambda: o.vicreg(torch.randn(rank, 2), torch.randn(rank, 2))),
        "not finite": sentence(lambda: o.w_mse(nan, nan)),
        "subspaces not finite": sentence(lambda: o.kscl(nan, nan[:, None])),
        "one row each": sentence(lambda: o.vicreg(one, one)),
        "prototypes": sentence(lambda: _warned(torch.randn(2, 5))),
    }


def _warned(scores: Tensor) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        o.sinkhorn(scores)
