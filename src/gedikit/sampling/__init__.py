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

__all__ = [
    "Box",
    "ChainState",
    "LogDensity",
    "ProposalBank",
    "Proposals",
    "ReplayBuffer",
    "SampleInfo",
    "adapt_step",
    "init_chains",
    "mala_step",
    "run_mala",
    "run_sgld",
    "sgld_step",
    "temperature",
]
