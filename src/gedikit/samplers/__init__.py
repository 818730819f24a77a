"""Samplers, one a file: how points move under a log-density. They know nothing of objectives or training."""

from gedikit.samplers.base import Sampler, SamplerContext, Samples, Source, register_sampler, samplers
from gedikit.samplers.chains import ChainSampler
from gedikit.samplers.domain import Box
from gedikit.samplers.importance import Importance
from gedikit.samplers.initialisation import Gaussian, Start, start
from gedikit.samplers.langevin import ChainState, LogDensity, SampleInfo, init_chains
from gedikit.samplers.mala import MALA, adapt_step, mala_step, run_mala
from gedikit.samplers.proposals import ProposalBank, Proposals
from gedikit.samplers.replay import ReplayBuffer
from gedikit.samplers.sgld import SGLD, sgld_step, temperature

__all__ = [
    "MALA",
    "SGLD",
    "Box",
    "ChainSampler",
    "ChainState",
    "Gaussian",
    "Importance",
    "LogDensity",
    "ProposalBank",
    "Proposals",
    "ReplayBuffer",
    "SampleInfo",
    "Sampler",
    "SamplerContext",
    "Samples",
    "Source",
    "Start",
    "adapt_step",
    "init_chains",
    "mala_step",
    "register_sampler",
    "run_mala",
    "samplers",
    "sgld_step",
    "start",
    "temperature",
]
