"""Losses as pure functions: checked input, full precision, whole-batch statistics."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, cast

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.errors import DataError, UsageError
from gedikit.objectives import batch

P = ParamSpec("P")
_HALF = (torch.float16, torch.bfloat16)


def full_precision(formula: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Compute in at least float32, whatever autocast says and however short the input is."""

    @functools.wraps(formula)
    def computed(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        given = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        if any(t.dtype in _HALF for t in given):
            args = tuple(_full(a) for a in args)  # type: ignore[assignment]
            kwargs = {k: _full(v) for k, v in kwargs.items()}  # type: ignore[assignment]
        kind = given[0].device.type if given else "cpu"
        if torch.is_autocast_enabled(kind):
            with torch.autocast(kind, enabled=False):
                return formula(*args, **kwargs)
        return formula(*args, **kwargs)

    return computed


class Loss(Generic[P]):
    """A loss: a pure function of (*members, rows, …) tensors to one number a member, to be minimised.

    It is computed in at least float32 whatever autocast says. Calling it checks its input and refuses a result that
    is not finite; `formula` does not, for a trainer that watches its numbers itself.
    """

    def __init__(self, formula: Callable[P, Tensor], min_rows: int, pair: bool):
        functools.update_wrapper(self, formula)
        self.formula, self.min_rows, self.pair = full_precision(formula), min_rows, pair
        self._names = tuple(inspect.signature(formula).parameters)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        name = self.formula.__name__
        named = {**dict(zip(self._names, args, strict=False)), **kwargs}
        given = [t for t in map(named.get, self._names) if isinstance(t, Tensor)]
        _check(name, given, self.min_rows, self.pair)
        value = self.formula(*args, **kwargs)
        # on an accelerator looking would stall it; there the trainer's monitor looks
        if value.device.type == "cpu" and not bool(torch.isfinite(value.detach()).all()):
            raise DataError(_why_not_finite(name, given))
        return value


def loss(*, min_rows: int = 1, pair: bool = False) -> Callable[[Callable[P, Tensor]], Loss[P]]:
    """Make a formula a checked `Loss`; `pair`: its first two tensors have the same shape."""
    return lambda formula: Loss(formula, min_rows, pair)


def cholesky(matrix: Float[Tensor, "*m d d"]) -> Float[Tensor, "*m d d"]:
    """L with LLᵀ the matrix; NaN where it has none, so that the loss says so on every process."""
    root, failed = torch.linalg.cholesky_ex(matrix)
    return cast(Tensor, root).masked_fill((failed != 0)[..., None, None], torch.nan)


def times_log(p: Tensor, log_q: Tensor) -> Tensor:
    """p log q, which is 0 where p is, whatever q."""
    return p * torch.where(p == 0, 0.0, log_q)


def _check(name: str, given: list[Tensor], min_rows: int, pair: bool) -> None:
    if not given or given[0].ndim < 2:
        what = tuple(given[0].shape) if given else "something else"
        raise UsageError(f"{name} takes tensors of shape (rows, dimensions), not {what}")
    first = given[0]
    if pair and len(given) > 1 and given[1].shape != first.shape:
        shapes = f"{tuple(first.shape)} and {tuple(given[1].shape)}"
        raise UsageError(f"{name} takes two views of the same shape, not {shapes}")
    batch.check_even(first)
    if batch.n_rows(first) < min_rows:
        raise UsageError(
            f"{name} looks at the whole batch and needs at least {min_rows} rows, not {batch.n_rows(first)}"
        )


def _why_not_finite(name: str, given: list[Tensor]) -> str:
    bad = sum(int((~torch.isfinite(t)).sum()) for t in given)
    total = sum(t.numel() for t in given)
    if bad:
        return f"{name} was given {bad} values of {total} that are not finite: check the outputs of the network"
    return f"{name} is not finite for finite input: its values are too large, or its rows too few or too similar"


def _full(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.dtype in _HALF else value
