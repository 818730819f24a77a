"""One GEDI run of each data set as a whole model, for `gedikit.load_pretrained`."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from gedikit.fitted import density_quantiles
from gedikit.paper.reproduce.image_measures import Opened, chains
from gedikit.samplers import Sampler
from gedikit.storage import read_tensors, write_tensors
from gedikit.version import __version__

_CHAINS = 100
_STEPS, _FEW_STEPS = 500, 3
_ROWS = 10_000  # training images that quantiles of the log-density are taken from
_HALVED = ("network.", "buffer", "reference")


def write_weights(run: Opened, folder: Path) -> Path:
    """The model with weights of 16 bits and samples of its own in place of training images."""
    fitted, sampler = run.fitted, run.sampler
    samples = fitted.to_scaled(_samples(run, sampler))
    some = np.sort(np.random.default_rng(0).permutation(len(run.train.x))[:_ROWS])
    whole = replace(
        fitted,
        buffer=samples,
        reference=samples.clone(),
        step_size=sampler.final_step({}),
        quantiles=density_quantiles(fitted.log_density(run.train.x[some])),
        info={
            **fitted.info,
            "iterations": fitted.plan.config.optimiser.iterations,
            "sampler": sampler.name,
            "optima": {},
            "versions": {"gedikit": __version__, "torch": torch.__version__},
        },
    )
    path = folder / f"{run.asked.data}.safetensors"
    whole.save(path)
    tensors, meta = read_tensors(path, "model")
    halved = {
        name: tensor.to(torch.bfloat16) if name.startswith(_HALVED) and tensor.ndim > 1 else tensor
        for name, tensor in tensors.items()
    }
    write_tensors(
        path, halved, {key: value for key, value in meta.items() if key not in ("kind", "format")}, "model"
    )
    return path


def _samples(run: Opened, sampler: Sampler) -> np.ndarray:
    return chains(run.fitted, sampler, _CHAINS, _FEW_STEPS if run.asked.small else _STEPS, seed=1)
