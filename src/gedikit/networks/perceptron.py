"""A whole perceptron as one autograd function.

Small layers spend more time in bookkeeping than in arithmetic. One function for all layers writes
nothing down but what its backward pass needs, multiplies thin matrices in the order that is fast for
them, and leaves out the weights' gradients when only the input's is wanted, as sampling does.
"""

from collections.abc import Callable
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
    """x, W₁, b₁, …, Wₖ, bₖ ↦ act(… act(x W₁ᵀ + b₁) …) Wₖᵀ + bₖ, with `active_end` an activation after that."""

    @staticmethod
    def forward(
        ctx: Any, x: Float[Tensor, "n d"], activation: str, active_end: bool, *parameters: Tensor
    ) -> Float[Tensor, "n o"]:
        act = ACTIVATIONS[activation]
        inputs, kept = [], []
        weights, biases = parameters[::2], parameters[1::2]
        for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            inputs.append(x)
            x = torch.addmm(bias, x, weight.t())
            if active_end or i < len(weights) - 1:
                before = x
                x = act.forward(x)
                kept.append(x if act.from_output else before)
        ctx.save_for_backward(*inputs, *kept, *weights)
        ctx.activation, ctx.depth = act, len(weights)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "n o"]) -> tuple[Tensor | None, ...]:
        depth, act = ctx.depth, ctx.activation
        saved = ctx.saved_tensors
        inputs, kept, weights = saved[:depth], saved[depth:-depth], saved[-depth:]
        wanted = ctx.needs_input_grad[3:]
        found: list[Tensor | None] = [None] * (2 * depth)
        for i in reversed(range(depth)):
            if i < len(kept):
                gradient = act.backward(gradient, kept[i])
            n_out, n_in = weights[i].shape
            if wanted[2 * i]:
                # the same product, with the thin matrix on the left
                found[2 * i] = (inputs[i].t() @ gradient).t() if n_in < n_out else gradient.t() @ inputs[i]
                found[2 * i + 1] = gradient.sum(0)
            if i > 0 or ctx.needs_input_grad[0]:
                # a tall thin right factor is faster as the transpose of a wide one
                gradient = gradient @ (weights[i].t().contiguous().t() if n_in < n_out else weights[i])
        return gradient if ctx.needs_input_grad[0] else None, None, None, *found
