"""How strange a row is, by its density at two noise levels, and which columns make it so.

p_σ is the distribution of the data blurred by Gaussian noise of deviation σ. A small level sees rows that have no
neighbours, a large one rows far from the bulk. Outliers among the training rows must not make each other ordinary,
nor any row itself: at the large level the density is that of a few Gaussians, fitted again without the strangest
rows, at the small level the sum of kernels over the rows that are left, without copies of the row in question.
Columns with heavy tails are bent before (asinh). Each level is measured by how much its typical rows differ, from
the median to the lower quartile of −log p, and the two are added.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from gedikit.densities.mixture import NoisedMixture, blank_mixture, fit_coarse_mixture
from gedikit.errors import DataError

LOCAL, GLOBAL = 0.5, 1.2  # noise levels, in deviations of a column
_ROWS, _WIDE = 5000, 100  # typical rows that are kept; fewer of more columns than this
_ROWS_IF_WIDE = 2000
_LOOKED_AT = 10_000  # training rows that the levels are measured by
_TRIMMED = 0.1
_SAME = 1e-10  # squared distance, relative to their length, below which two rows are copies
_BLOCK = 512
_QUANTILES = 1001
_PATH = 16  # points of the integral that reasons are
_FARTHEST = 1e9


@dataclass(frozen=True)
class OutlierModel:
    """The training rows at two levels of blur; takes scaled rows, as the network does."""

    bent: Float[Tensor, " d"]  # 1 for columns that are bent
    shift: Float[Tensor, " d"]
    scale: Float[Tensor, " d"]
    rows: Float[Tensor, "r d"]  # typical ones
    mixture: NoisedMixture
    middle: Float[Tensor, " 2"]
    width: Float[Tensor, " 2"]
    quantiles: Float[Tensor, " q"]  # of the training rows' strangeness

    @classmethod
    def fit(
        cls, rows: Float[Tensor, "n d"], generator: torch.Generator, *, one_unit: bool = False
    ) -> "OutlierModel":
        """From scaled training rows on the host. With `one_unit`, as for pixels, no column is bent."""
        rows = rows.double()
        bent = torch.zeros(rows.shape[1], dtype=torch.float64) if one_unit else _heavy(rows)
        shape = torch.where(bent > 0, torch.asinh(rows), rows)
        shift, deviation = shape.mean(0), shape.std(0, correction=0)
        scale = torch.where((deviation > 0) & (bent > 0), deviation, 1.0)
        shape = (shape - shift) / scale
        order = torch.randperm(len(rows), generator=generator)
        looked_at = shape[order[:_LOOKED_AT]]
        far = _global(fit_coarse_mixture(looked_at[:_ROWS].float(), generator), looked_at)
        typical = looked_at[far <= far.quantile(1 - _TRIMMED)]
        kept = typical[: _ROWS if rows.shape[1] <= _WIDE else _ROWS_IF_WIDE]
        mixture = fit_coarse_mixture(kept.float(), generator)
        levels = torch.stack([_local(kept, looked_at), _global(mixture, looked_at)], 1)
        lower, middle = levels.quantile(torch.tensor([0.25, 0.5], dtype=torch.float64), 0)
        width = torch.where(middle > lower, middle - lower, 1.0)
        strange = ((levels - middle) / width).sum(1)
        quantiles = strange.quantile(torch.linspace(0, 1, _QUANTILES, dtype=torch.float64))
        return cls(bent, shift, scale, kept, mixture, middle, width, quantiles)

    def strangeness(self, x: Float[Tensor, "n d"]) -> NDArray[np.float64]:
        """One number a scaled row: 0 and below is ordinary, larger is stranger."""
        with torch.inference_mode():
            parts = [self._strangeness(self._shaped(block)) for block in x.cpu().double().split(_BLOCK)]
        return torch.cat(parts).numpy() if parts else np.empty(0)

    def share(self, strangeness: NDArray[np.float64]) -> NDArray[np.float64]:
        """Share of the training rows that are less strange; beyond the strangest it still grows, towards 1."""
        known = self.quantiles.numpy()
        below = np.interp(strangeness, known, np.linspace(0, 1, len(known)) * (1 - 1 / len(known)))
        spread = max(float(known[-1] - known[len(known) // 2]), 1e-12)
        beyond = np.maximum(strangeness - known[-1], 0) / spread
        return np.asarray(np.where(beyond > 0, 1 - 1 / (len(known) * (1 + beyond)), below))

    def reasons(self, x: Float[Tensor, "n d"]) -> NDArray[np.float64]:
        """What each column adds to the strangeness of scaled rows, on the way from an ordinary row beside them.

        Integrated gradients (Sundararajan et al., 2017) from what the row is most likely a blurred version of, by
        the Gaussians of the large level; the columns sum to how much stranger the row is than that.
        """
        found = []
        for block in x.cpu().double().split(_BLOCK):
            end = self._shaped(block)
            start = end + GLOBAL**2 * _gradient(lambda z: -_global(self.mixture, z), end)
            total = torch.zeros_like(end)
            for step in range(_PATH):
                here = start + (step + 0.5) / _PATH * (end - start)
                total += _gradient(self._strangeness, here) / _PATH
            found.append(total * (end - start))
        return torch.cat(found).numpy()

    def _shaped(self, x: Tensor) -> Tensor:
        if not bool(torch.isfinite(x).all()):
            raise DataError("rows with values that are not finite have no outlier score")
        return (torch.where(self.bent > 0, torch.asinh(x), x) - self.shift) / self.scale

    def _strangeness(self, shaped: Tensor) -> Tensor:
        levels = torch.stack([_local(self.rows, shaped), _global(self.mixture, shaped)], 1)
        return ((levels - self.middle) / self.width).sum(1)

    def tensors(self) -> dict[str, Tensor]:
        own = ("bent", "shift", "scale", "rows", "middle", "width", "quantiles")
        return {name: getattr(self, name) for name in own} | {
            f"mixture.{name}": tensor for name, tensor in self.mixture.state_dict().items()
        }

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> "OutlierModel":
        mixture = blank_mixture(tensors["rows"].shape[1])
        for name in dict(mixture.named_buffers()):
            mixture.register_buffer(name, tensors[f"mixture.{name}"])
        own = {name: tensor for name, tensor in tensors.items() if not name.startswith("mixture.")}
        return cls(**own, mixture=mixture)


def _heavy(rows: Float[Tensor, "n d"]) -> Float[Tensor, " d"]:
    """1 for columns that a Gaussian finds more probable after asinh, its Jacobian counted."""
    plain, bent = rows.std(0, correction=0), torch.asinh(rows).std(0, correction=0)
    gain = plain.clamp_min(1e-9).log() - bent.clamp_min(1e-9).log() - 0.5 * torch.log1p(rows**2).mean(0)
    return (gain > 0).double()


def _local(rows: Float[Tensor, "r d"], x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    """−log of the kernel sum over the rows that are no copies of x, up to a constant."""
    found = []
    length = rows.square().sum(1)
    for block in x.split(_BLOCK):
        own = block.square().sum(1, keepdim=True)
        squared = own - 2 * block @ rows.T + length
        copies = squared <= _SAME * (1 + own)
        exponent = (-0.5 * squared.clamp_min(0) / LOCAL**2).masked_fill(copies, -math.inf)
        found.append(-torch.logsumexp(exponent, 1).clamp_min(-_FARTHEST))
    return torch.cat(found) if found else x.new_empty(0)


def _global(mixture: NoisedMixture, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    level = x.new_full((len(x), 1), GLOBAL)
    return -mixture.log_density(x, level).clamp_min(-_FARTHEST)


def _gradient(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(f(x).sum(), x)
    return gradient
