"""Random embeddings for hypothesis to vary: a seed, a shape, a scale."""

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

SEEDS = st.integers(0, 2**32 - 1)


def array(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    return scale * np.random.default_rng(seed).standard_normal(shape)


def views(seed: int, n: int, dims: int, scale: float = 1.0, noise: float = 0.7) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings and those of a noisy view."""
    both = array(seed, 2, n, dims, scale=scale)
    return both[0], both[0] + noise * both[1]


def tensors(*arrays: np.ndarray) -> tuple[Tensor, ...]:
    return tuple(torch.tensor(a) for a in arrays)


def rotation(seed: int, dims: int) -> np.ndarray:
    return np.linalg.qr(array(seed, dims, dims))[0]


def positive(seed: int, *shape: int) -> np.ndarray:
    return np.exp(array(seed, *shape))
