"""What to say when a GPU's memory is too small: the batch that would have fitted."""

import gc
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from gedikit.errors import UsageError
from gedikit.training.negatives import Chains

if TYPE_CHECKING:
    from gedikit.training.fit import Prepared

_TRIALS = (8, 24)
_RESERVE = 0.9


def out_of_memory(ready: "Prepared") -> UsageError:
    size = ready.settings.batch_size
    text = f"the GPU has too little memory for batch_size={size} with {ready.settings.negatives} model samples"
    fits = batch_that_fits(ready)
    if fits is None:
        return UsageError(f"{text}, and for any other: free some, or use device='cpu'")
    return UsageError(f"{text}: batch_size={fits} and negatives={fits} would fit")


def batch_that_fits(ready: "Prepared") -> int | None:
    """From the peaks of two small iterations: what one more row costs."""
    try:
        rules = ready.step.rules
        sizes = _TRIALS if rules is None else tuple(rules.n_variables * size for size in _TRIALS)
        peaks = [_peak(ready, size) for size in sizes]
    except torch.OutOfMemoryError:
        return None
    each = (peaks[1] - peaks[0]) / (sizes[1] - sizes[0])
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(ready.device)
    room = _RESERVE * (free + torch.cuda.memory_allocated(ready.device)) - (peaks[0] - each * sizes[0])
    # an iteration that runs and the graph that is captured from it are in memory at the same time
    return max(1, int(room / max(each, 1) / 2))


def _peak(ready: "Prepared", size: int) -> int:
    gc.collect()
    torch.cuda.empty_cache()
    settings = ready.settings.replace(batch_size=size, negatives=size, acceleration="off")
    chains = ready.step.negatives
    if isinstance(chains, Chains):
        chains = replace(chains, settings=settings)
    step = replace(ready.step, settings=settings, negatives=chains)
    trial = replace(ready, settings=settings, step=step)
    state = trial.new_state()
    torch.cuda.reset_peak_memory_stats(ready.device)
    trial.step(state)
    return torch.cuda.max_memory_allocated(ready.device)
