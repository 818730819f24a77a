"""How strange a row is, by how far its neighbours are, and which columns make it so.

The distance to the k-th neighbour is the noise level at which k rows are seen from where a row is: few see rows
that have no neighbours, more see rows that have only each other. Outliers among the training rows must not make
each other ordinary, nor any row itself: rows that are far from the bulk by the larger number are no neighbours of
any, and copies of a row are none of its own. Columns with heavy tails are bent before (asinh). The logarithm of
each distance is measured by how much typical rows differ, from the median to the lower quartile, and the larger of
the two is taken: a row is strange if it has no near neighbours, or if it and they are far from all others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from gedikit.errors import DataError

NEIGHBOURS = (3, 20)
_FAR_OUT = 4.0  # times as far above the median of the log-distance as that is above the lower quartile
_MOST_FAR_OUT = 0.1  # of the rows; more are no outliers
_ROWS, _WIDE = 5000, 100  # typical rows that are kept; fewer of more columns than this
_ROWS_IF_WIDE = 2000
_LOOKED_AT = 10_000  # training rows that distances are measured by
_SAME = 1e-10  # squared distance, relative to their length, below which two rows are copies
_NEAREST = 1e-3  # deviations; nearer than this is as near as can be
_BLOCK = 512
_QUANTILES = 1001
_PATH = 16  # points of the integral that reasons are


@dataclass(frozen=True)
class OutlierModel:
    """Typical training rows: how far they are tells how strange a row is. Takes rows scaled as for the network."""

    bent: Float[Tensor, " d"]  # 1 for columns that are bent
    shift: Float[Tensor, " d"]
    scale: Float[Tensor, " d"]
    rows: Float[Tensor, "r d"]  # typical ones
    middle: Float[Tensor, " 2"]
    width: Float[Tensor, " 2"]
    quantiles: Float[Tensor, " q"]  # of the training rows' strangeness

    @classmethod
    def fit(
        cls,
        rows: Float[Tensor, "n d"],
        generator: torch.Generator,
        *,
        one_unit: bool = False,
        codes: Sequence[int] = (),
    ) -> "OutlierModel":
        """From scaled training rows on the host. Codes of categories and gaps are not bent, nor with `one_unit`,
        as of pixels, any column."""
        rows = rows.double()
        bent = torch.zeros(rows.shape[1], dtype=torch.float64) if one_unit else _heavy(rows)
        bent[list(codes)] = 0
        shape = torch.where(bent > 0, torch.asinh(rows), rows)
        shift, deviation = shape.mean(0), shape.std(0, correction=0)
        scale = torch.where((deviation > 0) & (bent > 0), deviation, 1.0)
        shape = (shape - shift) / scale
        order = torch.randperm(len(rows), generator=generator)
        looked_at = shape[order[:_LOOKED_AT]]
        most = _ROWS if rows.shape[1] <= _WIDE else _ROWS_IF_WIDE
        kept = looked_at[~_far_out(looked_at, most)][:most]
        distances = _log_distances(kept, looked_at)
        middle, width = _spread(distances)
        strange = ((distances - middle) / width).amax(1)
        quantiles = strange.quantile(torch.linspace(0, 1, _QUANTILES, dtype=torch.float64))
        return cls(bent, shift, scale, kept, middle, width, quantiles)

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
        """What each column adds to the strangeness of scaled rows, on the way from the typical rows beside them.

        Integrated gradients (Sundararajan et al., 2017) from the mean of the nearest rows; the columns sum to how
        much stranger the row is than that.
        """
        found = []
        for block in x.cpu().double().split(_BLOCK):
            end = self._shaped(block)
            start = self.rows[_nearest(self.rows, end).indices].mean(1)
            total = torch.zeros_like(end)
            for step in range(_PATH):
                here = (start + (step + 0.5) / _PATH * (end - start)).requires_grad_()
                with torch.enable_grad():
                    (slope,) = torch.autograd.grad(self._strangeness(here).sum(), here)
                total += slope / _PATH
            found.append(total * (end - start))
        return torch.cat(found).numpy()

    def _shaped(self, x: Tensor) -> Tensor:
        if not bool(torch.isfinite(x).all()):
            raise DataError("rows with values that are not finite have no outlier score")
        return (torch.where(self.bent > 0, torch.asinh(x), x) - self.shift) / self.scale

    def _strangeness(self, shaped: Tensor) -> Tensor:
        return ((_log_distances(self.rows, shaped) - self.middle) / self.width).amax(1)

    def tensors(self) -> dict[str, Tensor]:
        own = ("bent", "shift", "scale", "rows", "middle", "width", "quantiles")
        return {name: getattr(self, name) for name in own}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> "OutlierModel":
        return cls(**tensors)


def _heavy(rows: Float[Tensor, "n d"]) -> Float[Tensor, " d"]:
    """1 for columns that a Gaussian finds more probable after asinh, its Jacobian counted."""
    plain, bent = rows.std(0, correction=0), torch.asinh(rows).std(0, correction=0)
    gain = plain.clamp_min(1e-9).log() - bent.clamp_min(1e-9).log() - 0.5 * torch.log1p(rows**2).mean(0)
    return (gain > 0).double()


def _far_out(rows: Float[Tensor, "n d"], most: int) -> Tensor:
    """Rows that are much farther from others than the bulk is; `most` of them are looked for as neighbours."""
    far = _log_distances(rows[:most], rows)[:, -1:]
    middle, width = _spread(far)
    return ((far > middle + _FAR_OUT * width) & (far > far.quantile(1 - _MOST_FAR_OUT)))[:, 0]


def _spread(values: Float[Tensor, "n k"]) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
    """The median of each column, and how far the lower quartile is below it."""
    lower, middle = values.quantile(torch.tensor([0.25, 0.5], dtype=torch.float64), 0)
    return middle, torch.where(middle > lower, middle - lower, 1.0)


def _log_distances(rows: Float[Tensor, "r d"], x: Float[Tensor, "n d"]) -> Float[Tensor, "n 2"]:
    """log of the distances to the neighbours that count."""
    found = []
    for block in x.split(_BLOCK):
        nearest = _nearest(rows, block).values
        counted = [min(k, nearest.shape[1]) - 1 for k in NEIGHBOURS]
        found.append(0.5 * (nearest[:, counted].clamp_min(0) + _NEAREST**2).log())
    return torch.cat(found) if found else x.new_empty(0, len(NEIGHBOURS))


def _nearest(rows: Float[Tensor, "r d"], x: Float[Tensor, "n d"]) -> torch.return_types.topk:
    """Squared distances of the nearest rows that are no copies of x, and which these are."""
    own = x.square().sum(1, keepdim=True)
    squared = own - 2 * x @ rows.T + rows.square().sum(1)
    copies = squared.detach() <= _SAME * (1 + own.detach())
    far = 4 * float(squared.detach().max()) if bool(copies.any()) else math.inf
    return squared.masked_fill(copies, far).topk(min(max(NEIGHBOURS), len(rows)), largest=False)
