"""Triton kernels of `stem`: imported only where they run."""

import torch
import triton
import triton.language as tl
from torch import Tensor

# found by timing 32×32 images with 128 filters on an H200
FORWARD = {"BLOCK_P": 128, "num_warps": 4}
TAPS = {"BLOCK_P": 128, "BLOCK_F": 128, "num_warps": 8}
FOLD = {"BLOCK": 256, "num_warps": 8}


@triton.jit
def _forward(
    x, weight, bias, out, n_pixels, slope,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, F: tl.constexpr,
    K: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """out[p, f] = leaky(Σ_k patch[p, k] weight[f, k] + bias[f])."""
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    f = tl.program_id(1) * BLOCK_F + tl.arange(0, BLOCK_F)
    k = tl.arange(0, K)
    row, column = (p // W) % H, p % W
    tap = k // C
    down, right = tap // 3 - 1, tap % 3 - 1
    y = row[:, None] + down[None, :]
    z = column[:, None] + right[None, :]
    inside = (y >= 0) & (y < H) & (z >= 0) & (z < W) & (k < 9 * C)[None, :] & (p < n_pixels)[:, None]
    offset = (p[:, None] + (down * W + right)[None, :]) * C + (k % C)[None, :]
    patch = tl.load(x + offset, mask=inside, other=0.0).to(out.dtype.element_ty)
    kernel = tl.load(weight + f[None, :] * (9 * C) + k[:, None], mask=(k < 9 * C)[:, None], other=0.0)
    value = tl.dot(patch, kernel) + tl.load(bias + f).to(tl.float32)[None, :]
    value = tl.where(value > 0, value, slope * value)
    tl.store(
        out + p[:, None].to(tl.int64) * F + f[None, :], value.to(out.dtype.element_ty), mask=(p < n_pixels)[:, None]
    )


@triton.jit
def _taps(
    gradient, out, weight, taps, n_pixels, slope,
    C: tl.constexpr, F: tl.constexpr, K: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """taps[p, k] = Σ_f gradient[p, f] leaky′(out[p, f]) weight[f, k]."""
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    k = tl.arange(0, K)
    total = tl.zeros((BLOCK_P, K), dtype=tl.float32)
    for start in range(0, F, BLOCK_F):
        f = start + tl.arange(0, BLOCK_F)
        at = p[:, None].to(tl.int64) * F + f[None, :]
        there = (p < n_pixels)[:, None]
        g = tl.load(gradient + at, mask=there, other=0.0).to(tl.float32)
        o = tl.load(out + at, mask=there, other=0.0).to(tl.float32)
        g = tl.where(o > 0, g, slope * g).to(out.dtype.element_ty)
        kernel = tl.load(weight + f[:, None] * (9 * C) + k[None, :], mask=(k < 9 * C)[None, :], other=0.0)
        total = tl.dot(g, kernel, total)
    tl.store(taps + p[:, None] * K + k[None, :], total.to(out.dtype.element_ty), mask=(p < n_pixels)[:, None])


@triton.jit
def _fold(
    taps, x_gradient, n_values,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """x_gradient[p, c] = Σ over the nine pixels that saw pixel p of what they ask of it."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    p, c = at // C, at % C
    row, column = (p // W) % H, p % W
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for tap in tl.static_range(9):
        down, right = tap // 3 - 1, tap % 3 - 1
        y, z = row - down, column - right
        inside = (y >= 0) & (y < H) & (z >= 0) & (z < W) & (at < n_values)
        asked = tl.load(taps + (p - down * W - right) * K + tap * C + c, mask=inside, other=0.0)
        total += asked.to(tl.float32)
    tl.store(x_gradient + at, total, mask=at < n_values)


def forward(x: Tensor, weight: Tensor, bias: Tensor, slope: float) -> Tensor:
    """x (n, h, w, c) contiguous, weight (f, 9c) → (n, f, h, w) with channels last."""
    n, height, width, channels = x.shape
    filters = len(weight)
    out = weight.new_empty((n, height, width, filters))
    n_pixels = n * height * width
    block = min(filters, 128)
    grid = (triton.cdiv(n_pixels, FORWARD["BLOCK_P"]), filters // block)
    _forward[grid](
        x, weight, bias, out, n_pixels, slope,
        H=height, W=width, C=channels, F=filters, K=_padded(channels), BLOCK_F=block, **FORWARD,
    )  # fmt: skip
    return out.permute(0, 3, 1, 2)


def input_gradient(gradient: Tensor, out: Tensor, weight: Tensor, slope: float) -> Tensor:
    """What `forward` gave and the gradient for it, both with channels last → gradient (n, h, w, c) in 32 bits."""
    n, filters, height, width = out.shape
    channels = weight.shape[1] // 9
    n_pixels, size = n * height * width, _padded(channels)
    taps = out.new_empty((n_pixels, size))
    config = {**TAPS, "BLOCK_F": min(filters, TAPS["BLOCK_F"])}
    _taps[(triton.cdiv(n_pixels, TAPS["BLOCK_P"]),)](
        gradient, out, weight, taps, n_pixels, slope, C=channels, F=filters, K=size, **config
    )
    x_gradient = torch.empty((n, height, width, channels), dtype=torch.float32, device=out.device)
    _fold[(triton.cdiv(x_gradient.numel(), FOLD["BLOCK"]),)](
        taps, x_gradient, x_gradient.numel(), H=height, W=width, C=channels, K=size, **FOLD
    )
    return x_gradient


def _padded(channels: int) -> int:
    """Products of a matrix unit are sums of at least 16."""
    return max(16, triton.next_power_of_2(9 * channels))
