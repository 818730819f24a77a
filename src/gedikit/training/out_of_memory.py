"""What to say when a GPU's memory is too small: the batch that would have fitted."""

import gc
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from gedikit.errors import UsageError

if TYPE_CHECKING:
    from gedikit.training.fit import Setup

_TRIALS = (8, 24)
_RESERVE = 0.9


def out_of_memory(ready: "Setup") -> UsageError:
    """The error for a fit that did not fit, with the batch that would."""
    c = ready.plan.config
    size = c.optimiser.batch_size
    samples = f" with {c.sampler.samples} model samples" if c.sampler is not None else ""
    text = f"the GPU has too little memory for optimiser.batch_size={size}{samples}"
    fits = batch_that_fits(ready)
    if fits is None:
        return UsageError(f"{text}, and for any other: free some, or use device='cpu'")
    also = f" and sampler.samples={fits}" if c.sampler is not None else ""
    return UsageError(f"{text}: optimiser.batch_size={fits}{also} would fit")


def batch_that_fits(ready: "Setup") -> int | None:
    """From the peaks of two small iterations: what one more row costs."""
    try:
        together = 1 if ready.rules is None else ready.rules.bundles.rows.shape[1]
        sizes = tuple(together * size for size in _TRIALS)
        peaks = [_peak(ready, size) for size in sizes]
    except torch.OutOfMemoryError:
        return None
    each = (peaks[1] - peaks[0]) / (sizes[1] - sizes[0])
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(ready.device)
    room = _RESERVE * (free + torch.cuda.memory_allocated(ready.device)) - (peaks[0] - each * sizes[0])
    # an iteration that runs and the graph that is captured from it are in memory at the same time
    return max(1, int(room / max(each, 1) / 2))


def _peak(ready: "Setup", size: int) -> int:
    gc.collect()
    torch.cuda.empty_cache()
    c = ready.plan.config
    sampler = None if c.sampler is None else replace(c.sampler, samples=size)
    plan = ready.plan.replaced(optimiser=replace(c.optimiser, batch_size=size), sampler=sampler)
    source = ready.source
    if source is not None and sampler is not None:
        source = replace(source, sampler=sampler)  # type: ignore[type-var]
    execution = replace(ready.execution, compile=False)
    step = replace(ready.step, plan=plan, source=source, execution=execution)
    trial = replace(ready, plan=plan, source=source, step=step, execution=execution)
    state = trial.new_state()
    torch.cuda.reset_peak_memory_stats(ready.device)
    trial.step(state)
    return torch.cuda.max_memory_allocated(ready.device)
