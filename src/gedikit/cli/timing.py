"""`gedikit bench`: a table of times."""

import torch
from rich.console import Console

from gedikit.cli.listing import plain_table
from gedikit.paper.timing import Timing, bench_plan, compare, matmul_rate
from gedikit.training.devices import resolve_device

_GPU_BATCHES, _CPU_BATCHES = [64, 256], [16]


def bench(batches: list[int] | None, width: int | None, steps: int | None, side: int, device: str) -> None:
    where = resolve_device(device)
    on_gpu = where.type == "cuda"
    console = Console(soft_wrap=True, highlight=False)
    name = torch.cuda.get_device_name(where) if on_gpu else f"CPU, {torch.get_num_threads()} thread(s)"
    ceiling = matmul_rate(where)
    kind = "bfloat16" if on_gpu else "float32"
    console.print(f"{name}, torch {torch.__version__}; a large {kind} product: {ceiling / 1e12:.3g} TFLOP/s")
    width, steps = width or (128 if on_gpu else 32), steps or (20 if on_gpu else 5)
    console.print(f"ResNet-8 of width {width}, {side} × {side} × 3 pixels, {steps} SGLD steps, method gedi")
    for size in batches or (_GPU_BATCHES if on_gpu else _CPU_BATCHES):
        plan = bench_plan(size, width, steps, side)
        _show(console, compare(plan, str(where), repeats=20 if on_gpu else 3), steps, ceiling)


def _show(console: Console, timing: Timing, steps: int, ceiling: float) -> None:
    table = plain_table(f"batch {timing.batch_size}", "ms/iteration", "images/s", "gedikit is faster by")
    for name, seconds in timing.published.items():
        rate = timing.batch_size / seconds
        table.add_row(
            f"published loop {name}", f"{1e3 * seconds:.2f}", f"{rate:,.0f}", f"{seconds / timing.ours:.1f} ×"
        )
    table.add_row("gedikit", f"{1e3 * timing.ours:.2f}", f"{timing.batch_size / timing.ours:,.0f}", "")
    console.print(table)
    rate, chain = timing.flop / timing.ours, timing.sampling_flop / timing.sampling
    console.print(
        f"  {rate / 1e12:.3g} TFLOP/s of products that are computed, {rate / ceiling:.0%} of the product's rate; "
        f"sampling {1e3 * timing.sampling / steps:.3g} ms/step, {chain / 1e12:.3g} TFLOP/s, {chain / ceiling:.0%}"
    )
    memory = f", {timing.memory / 2**30:.2f} GiB of its memory" if timing.memory else ""
    console.print(f"  ready after {timing.start:.1f} s{memory}\n")
