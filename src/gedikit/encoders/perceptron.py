"""A whole perceptron as one autograd function.

Small layers spend more time in bookkeeping than in arithmetic. One function for all layers writes
nothing down but what its backward pass needs, multiplies thin matrices in the order that is fast for
them, and leaves out the weights' gradients when only the input's is wanted, as sampling does.
Weights may be those of several models, stacked along a leading dimension.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

_aten = torch.ops.aten


class Activation(NamedTuple):
    """An activation, the gradient of its input, and whether that gradient is told from its output."""

    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor], Tensor]
    from_output: bool


ACTIVATIONS: dict[str, Activation] = {
    "relu": Activation(torch.relu_, lambda g, y: _aten.threshold_backward(g, y, 0), True),
    "tanh": Activation(torch.tanh_, _aten.tanh_backward, True),
    "silu": Activation(torch.nn.functional.silu, _aten.silu_backward, False),
    "gelu": Activation(torch.nn.functional.gelu, _aten.gelu_backward, False),
    "softplus": Activation(
        torch.nn.functional.softplus, lambda g, z: _aten.softplus_backward(g, z, 1.0, 20.0), False
    ),
}


class Perceptron(torch.autograd.Function):
    """x, W₁, b₁, …, Wₖ, bₖ ↦ act(… act(x W₁ᵀ + b₁) …) Wₖᵀ + bₖ, with `active_end` an activation after that.

    On a CPU the members of a stack pass through all layers one after the other, which keeps what a layer hands
    to the next in the cache; on an accelerator all pass through a layer at once.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Float[Tensor, "*m n d"], activation: str, active_end: bool, *parameters: Tensor
    ) -> Float[Tensor, "*m n o"]:
        ctx.activation, ctx.active_end = ACTIVATIONS[activation], active_end
        ctx.one_by_one = parameters[0].ndim == 3 and x.device.type == "cpu"
        if not ctx.one_by_one:
            out, kept = _forward(x, ctx.activation, active_end, parameters)
        else:
            passes = [_forward(part, ctx.activation, active_end, own) for part, own in _members(x, parameters)]
            out = torch.stack([o for o, _ in passes])
            kept = [tensor for _, tensors in passes for tensor in tensors]
        ctx.save_for_backward(*parameters[::2], *kept)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "*m n o"]) -> tuple[Tensor | None, ...]:
        into_x, wanted = ctx.needs_input_grad[0], any(ctx.needs_input_grad[3:])
        depth = len(ctx.needs_input_grad[3:]) // 2
        weights, kept = ctx.saved_tensors[:depth], ctx.saved_tensors[depth:]
        act = ctx.activation
        if not ctx.one_by_one:
            to_x, found = _backward(gradient, act, weights, kept, into_x, wanted)
            return to_x, None, None, *found
        share = len(kept) // len(gradient)
        passes = [
            _backward(part, act, own, kept[i * share : (i + 1) * share], into_x, wanted)
            for i, (part, own) in enumerate(_members(gradient, weights))
        ]
        to_x = torch.stack([x for x, _ in passes if x is not None]) if into_x else None
        stacked = [torch.stack(parts) if wanted else None for parts in zip(*(f for _, f in passes), strict=True)]
        return to_x, None, None, *stacked


def _members(x: Tensor, parameters: Sequence[Tensor]) -> Iterator[tuple[Tensor, tuple[Tensor, ...]]]:
    return zip(x, zip(*parameters, strict=True), strict=True)


def _forward(
    x: Tensor, act: Activation, active_end: bool, parameters: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """The output, and the inputs of all layers followed by what the activations' gradients are told from."""
    inputs, kept = [], []
    weights, biases = parameters[::2], parameters[1::2]
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        inputs.append(x)
        x = torch.addmm(bias, x, weight.t()) if weight.ndim == 2 else torch.baddbmm(bias[:, None], x, weight.mT)
        if active_end or i < len(weights) - 1:
            before = x
            x = act.forward(x)
            kept.append(x if act.from_output else before)
    return x, [*inputs, *kept]


def _backward(
    gradient: Tensor,
    act: Activation,
    weights: Sequence[Tensor],
    saved: Sequence[Tensor],
    into_x: bool,
    wanted: bool,
) -> tuple[Tensor | None, list[Tensor | None]]:
    """Gradients of x and of W₁, b₁, …, as far as they are wanted."""
    depth = len(weights)
    inputs, kept = saved[:depth], saved[depth:]
    found: list[Tensor | None] = [None] * (2 * depth)
    for i in reversed(range(depth)):
        if i < len(kept):
            gradient = act.backward(gradient, kept[i])
        n_out, n_in = weights[i].shape[-2:]
        if wanted:
            # the same product, with the thin matrix on the left
            found[2 * i] = (inputs[i].mT @ gradient).mT if n_in < n_out else gradient.mT @ inputs[i]
            found[2 * i + 1] = gradient.sum(-2)
        if i > 0 or into_x:
            # a tall thin right factor is faster as the transpose of a wide one
            gradient = gradient @ (weights[i].mT.contiguous().mT if n_in < n_out else weights[i])
    return gradient if into_x else None, found
