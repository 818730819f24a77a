"""The first convolution and its activation in one pass over memory.

A 3×3 convolution of one or three channels is nearly no arithmetic and nearly all memory traffic: libraries take
five passes over its output, forwards and backwards, where one each way will do. On a GPU in half precision the
kernels of `stem_kernels` are used; anywhere else the same function is written in plain operations.
"""

import importlib.util

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

SLOPE = 0.2
_HAS_TRITON = importlib.util.find_spec("triton") is not None


def stem(
    x: Float[Tensor, "n h w c"], weight: Float[Tensor, "f c 3 3"], bias: Float[Tensor, " f"]
) -> Float[Tensor, "n f h w"]:
    """Leaky rectifier of a padded 3×3 convolution; x in any precision, the result in that of the weight."""
    if x.is_cuda and weight.dtype == torch.bfloat16 and _HAS_TRITON:
        return torch.ops.gedikit.stem(x, weight, bias)  # type: ignore[no-any-return]
    image = x.to(weight.dtype).permute(0, 3, 1, 2)
    return F.leaky_relu(F.conv2d(image, weight, bias, padding=1), SLOPE)


@torch.library.custom_op("gedikit::stem", mutates_args=())
def _stem(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    from gedikit.encoders import stem_kernels

    return stem_kernels.forward(x.contiguous(), _rows(weight), bias, SLOPE)


@torch.library.custom_op("gedikit::stem_input_gradient", mutates_args=())
def _input_gradient(gradient: Tensor, out: Tensor, weight: Tensor) -> Tensor:
    from gedikit.encoders import stem_kernels

    last = torch.channels_last
    return stem_kernels.input_gradient(
        gradient.contiguous(memory_format=last), out.contiguous(memory_format=last), _rows(weight), SLOPE
    )


def _rows(weight: Float[Tensor, "f c 3 3"]) -> Float[Tensor, "f k"]:
    """One row a filter, in the order in which a patch of an image lies in memory."""
    return weight.permute(0, 2, 3, 1).contiguous().reshape(len(weight), -1)


@_stem.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:  # noqa: ARG001
    n, height, width, _channels = x.shape
    return weight.new_empty((n, height, width, len(weight))).permute(0, 3, 1, 2)


@_input_gradient.register_fake
def _(gradient: Tensor, out: Tensor, weight: Tensor) -> Tensor:  # noqa: ARG001
    n, _filters, height, width = out.shape
    return out.new_empty((n, height, width, weight.shape[1]), dtype=torch.float32)


def _remember(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    x, weight, _bias = inputs
    ctx.save_for_backward(x, weight, output)


def _backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, out = ctx.saved_tensors  # type: ignore[attr-defined]
    for_x = for_weight = for_bias = None
    needed = ctx.needs_input_grad  # type: ignore[attr-defined]
    if needed[0]:
        for_x = torch.ops.gedikit.stem_input_gradient(gradient, out, weight).to(x.dtype)
    if needed[1] or needed[2]:
        before = torch.where(out > 0, gradient, SLOPE * gradient)
        image = x.to(weight.dtype).permute(0, 3, 1, 2)
        _, for_weight, for_bias = torch.ops.aten.convolution_backward(
            before, image, weight, [len(weight)], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [False, True, True]
        )
    return for_x, for_weight, for_bias


_stem.register_autograd(_backward, setup_context=_remember)
