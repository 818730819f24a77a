"""Random inputs in float64, the same for the same seed."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


class Draws:
    def __init__(self, seed: int):
        self._generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=self._generator)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, dtype=torch.float64, generator=self._generator)

    def log_distributions(self, *shape: int) -> Float[Tensor, "*m k"]:
        """Logarithms of distributions over the last dimension, from nearly uniform to nearly certain."""
        sharpness = torch.exp(3 * self.uniform(*shape[:-1], 1) - 1)
        return torch.log_softmax(sharpness * self.normal(*shape), dim=-1)

    def permutation(self, n: int) -> Int[Tensor, " n"]:
        return torch.randperm(n, generator=self._generator)
