"""Moving points under a log-density. Knows nothing of objectives, data sets or training."""

from gedikit.sampling.domain import Box
from gedikit.sampling.langevin import (
    ChainState,
    LogDensity,
    SampleInfo,
    adapt_step,
    init_chains,
    mala_step,
    run_mala,
    run_sgld,
    sgld_step,
    temperature,
)
from gedikit.sampling.proposals import ProposalBank, Proposals
from gedikit.sampling.replay import ReplayBuffer
from gedikit.sampling.starts import Gaussian, Start, start

__all__ = [
    "Box",
    "ChainState",
    "Gaussian",
    "LogDensity",
    "ProposalBank",
    "Proposals",
    "ReplayBuffer",
    "SampleInfo",
    "Start",
    "adapt_step",
    "init_chains",
    "mala_step",
    "run_mala",
    "run_sgld",
    "sgld_step",
    "start",
    "temperature",
]
