"""A mixture of Gaussians and kernels: exact at every noise level, sampled exactly, weighted by held-out rows.

Convolved with noise N(0, σ²) a Gaussian stays a Gaussian, so the mixture q gives q_σ for any σ. Several mixtures,
coarser and finer, and a kernel density are fitted; the weights of all of them together are those that held-out rows
find most probable (stacking; Smyth & Wolpert, 1999).
"""

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch import Tensor, nn

_FULL_SIZES = (1, 2, 4, 8, 16, 32)  # Gaussians with axes of their own
_DIAGONAL_SIZES = (8, 32, 64)
_ROWS_A_PARAMETER = 4  # rows for each centre coordinate of a mixture
_ROWS_A_DIAGONAL = 12  # rows for each Gaussian along the columns
_MOST_FULL_FEATURES = 60  # with more, one Gaussian has axes of its own, the few along which the data is widest
_MOST_AXES = 50
_MOST_WORK = 4e9  # multiplications of one fit
_EM_STEPS = 50
_MOST_KERNELS = 2000
_STACKING_STEPS = 200
_LEAST_WEIGHT = 1e-3
_LOG_2PI = math.log(2 * math.pi)


class NoisedMixture(nn.Module):
    """q_σ(x) = Σ_m w_m N(x; μ_m, Σ_m + σ²I): Gaussians along their own axes, along the columns, and equal kernels.

    Σ of the first kind is given by some orthogonal axes, the variances along them and one variance for all other
    directions. Kernels are rows of the data with one width.
    """

    means: Tensor
    axes: Tensor
    variances: Tensor
    rest: Tensor
    log_weights: Tensor
    column_means: Tensor
    column_variances: Tensor
    column_log_weights: Tensor
    kernels: Tensor
    kernel_width: Tensor
    kernel_log_weight: Tensor

    def __init__(self, parts: dict[str, Float[Tensor, "..."]]):
        super().__init__()
        for name, value in parts.items():
            self.register_buffer(name, value)

    @property
    def n_features(self) -> int:
        return self.means.shape[1]

    def log_density(self, x: Float[Tensor, "n d"], sigma: Float[Tensor, "n 1"]) -> Float[Tensor, " n"]:
        """log q_σ(x), each row at its own level."""
        kinds = [
            self._along_axes(x, sigma) + self.log_weights,
            self._along_columns(x, sigma) + self.column_log_weights,
            (self._of_kernels(x, sigma) + self.kernel_log_weight)[:, None],
        ]
        return torch.logsumexp(torch.cat(kinds, 1), 1) - 0.5 * self.n_features * _LOG_2PI

    def _along_axes(self, x: Tensor, sigma: Tensor) -> Float[Tensor, "n m"]:
        m, d, r = self.axes.shape
        if m == 0:
            return x.new_empty(len(x), 0)
        flat = self.axes.transpose(0, 1).reshape(d, m * r)
        center = torch.einsum("md,mdr->mr", self.means, self.axes)
        along = (x @ flat).reshape(len(x), m, r) - center
        variance = self.variances + sigma[:, :, None] ** 2
        quadratic = (along**2 / variance + variance.log()).sum(-1)
        if r < d:
            other = self.rest + sigma**2
            left = torch.cdist(x, self.means).square() - along.square().sum(-1)
            quadratic = quadratic + left.clamp_min(0) / other + (d - r) * other.log()
        return -0.5 * quadratic

    def _along_columns(self, x: Tensor, sigma: Tensor) -> Float[Tensor, "n m"]:
        if len(self.column_means) == 0:
            return x.new_empty(len(x), 0)
        if not bool((sigma == sigma[:1]).all()):
            variance = self.column_variances + sigma[:, :, None] ** 2
            return -0.5 * ((x[:, None] - self.column_means).square() / variance + variance.log()).sum(-1)
        # one level for all rows: three products instead of a difference for every row, Gaussian and column
        variance = self.column_variances.double() + sigma[0].double() ** 2
        means, points = self.column_means.double(), x.double()
        squared = points.square() @ (1 / variance).T - 2 * points @ (means / variance).T
        return (-0.5 * (squared + (means.square() / variance + variance.log()).sum(-1))).to(x.dtype)

    def _of_kernels(self, x: Tensor, sigma: Tensor) -> Float[Tensor, " n"]:
        if len(self.kernels) == 0:
            return x.new_full((len(x),), -math.inf)
        variance = self.kernel_width**2 + sigma**2
        squared = x.square().sum(1, keepdim=True) - 2 * x @ self.kernels.T + self.kernels.square().sum(1)
        return (
            torch.logsumexp(-0.5 * squared.clamp_min(0) / variance, 1)
            - math.log(len(self.kernels))
            - 0.5 * self.n_features * variance[:, 0].log()
        )

    def sample(self, n: int, generator: torch.Generator) -> Float[Tensor, "n d"]:
        """n exact samples without noise, those of a kind one after the other in random order."""
        shares = torch.cat([self.log_weights, self.column_log_weights, self.kernel_log_weight[None]]).exp()
        drawn = torch.multinomial(shares, n, replacement=True, generator=generator)
        n_axes, n_columns = len(self.log_weights), len(self.column_log_weights)
        noise = torch.randn(n, self.n_features, generator=generator, device=drawn.device)
        kernel = torch.randint(max(1, len(self.kernels)), (n,), generator=generator, device=drawn.device)
        x = torch.empty_like(noise)
        own = drawn < n_axes
        if n_axes:
            x[own] = self._around(drawn[own], noise[own])
        columns = ~own & (drawn < n_axes + n_columns)
        if n_columns:
            place = drawn[columns] - n_axes
            x[columns] = self.column_means[place] + self.column_variances[place].sqrt() * noise[columns]
        of_kernels = drawn == n_axes + n_columns
        if len(self.kernels):
            x[of_kernels] = self.kernels[kernel[of_kernels]] + self.kernel_width * noise[of_kernels]
        return x

    def _around(self, which: Tensor, noise: Tensor) -> Tensor:
        axes = self.axes[which]
        along = torch.einsum("nd,ndr->nr", noise, axes)
        spread = torch.einsum("nr,ndr->nd", along * self.variances[which].sqrt(), axes)
        if axes.shape[2] < axes.shape[1]:
            spread = spread + self.rest[which, None].sqrt() * (noise - torch.einsum("nr,ndr->nd", along, axes))
        return self.means[which] + spread


def blank_mixture(n_features: int) -> NoisedMixture:
    """The shape of one, for a saved mixture to be read into."""
    return NoisedMixture(
        {
            "means": torch.empty(0, n_features),
            "axes": torch.empty(0, n_features, 0),
            "variances": torch.empty(0, 0),
            "rest": torch.empty(0),
            "log_weights": torch.empty(0),
            "column_means": torch.empty(0, n_features),
            "column_variances": torch.empty(0, n_features),
            "column_log_weights": torch.empty(0),
            "kernels": torch.empty(0, n_features),
            "kernel_width": torch.tensor(1.0),
            "kernel_log_weight": torch.tensor(-math.inf),
        }
    )


@dataclass(frozen=True)
class _Part:
    """One mixture that may become a part of the whole: means, axes, variances and weights of its Gaussians."""

    parts: dict[str, Tensor]

    def alone(self, n_features: int) -> NoisedMixture:
        mixture = blank_mixture(n_features)
        for name, value in self.parts.items():
            mixture.register_buffer(name, value)
        return mixture


def fit_mixture(
    rows: Float[Tensor, "n d"],
    held_out: Float[Tensor, "h d"],
    sigma: float,
    width: float,
    generator: torch.Generator,
) -> NoisedMixture:
    """Mixtures of `rows`, weighted by how probable they make `held_out` at the noise level `sigma`.

    `width` is that of the kernels.
    """
    seed = int(torch.randint(2**31 - 1, (), generator=generator))
    candidates = _gaussians(rows, sigma, seed)
    chosen = torch.randperm(len(rows), generator=generator)[:_MOST_KERNELS]
    candidates.append(
        _Part(
            {
                "kernels": rows[chosen].contiguous(),
                "kernel_width": torch.tensor(width),
                "kernel_log_weight": torch.tensor(0.0),
            }
        )
    )
    noised = held_out + sigma * torch.randn(held_out.shape, generator=generator)
    return _weighted(candidates, noised, sigma)


def _weighted(parts: list[_Part], held_out: Float[Tensor, "h d"], sigma: float) -> NoisedMixture:
    """The parts as one mixture, by how probable they make the rows at a noise level."""
    d, level = held_out.shape[1], torch.full((len(held_out), 1), sigma)
    by_part = [part.alone(d).log_density(held_out, level).double().numpy() for part in parts]
    return _stacked(parts, _stacking_weights(np.stack(by_part, 1)), d)


def _gaussians(rows: Float[Tensor, "n d"], sigma: float, seed: int) -> list[_Part]:
    x, (n, d) = rows.double().numpy(), rows.shape
    regularised = 1e-4 + sigma**2 / 4  # finer structure than the smallest noise level is not resolved anyway
    parts = []
    if d > _MOST_FULL_FEATURES and n > 2:
        parts.append(_widest(x, regularised))
    for kind, sizes in (("full", _FULL_SIZES), ("diag", _DIAGONAL_SIZES)):
        for size in sizes:
            if _affordable(kind, size, n, d):
                found = GaussianMixture(
                    size, covariance_type=kind, reg_covar=regularised, random_state=seed, max_iter=_EM_STEPS
                )
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", ConvergenceWarning)  # nearly fitted serves too
                        found.fit(x)
                except ValueError:  # a Gaussian of copies of one row; smaller mixtures and kernels are left
                    continue
                parts.append(_own_axes(found) if kind == "full" else _own_columns(found))
    if not parts:  # too few rows for anything else
        parts.append(_columns(x.mean(0)[None], x.var(0)[None] + regularised, np.ones(1)))
    return parts


def _affordable(kind: str, size: int, n: int, d: int) -> bool:
    """Whether there are enough rows for a mixture of this size, and its fit is short."""
    if kind == "diag":
        return size * _ROWS_A_DIAGONAL <= n
    work = n * size * d**2 * _EM_STEPS
    return d <= _MOST_FULL_FEATURES and (size == 1 or (size * d * _ROWS_A_PARAMETER <= n and work <= _MOST_WORK))


def _own_axes(found: GaussianMixture) -> _Part:
    variances, axes = np.linalg.eigh(found.covariances_)
    return _part(found.means_, axes, variances, np.ones(len(found.means_)), found.weights_)


def _widest(x: NDArray[np.float64], least: float) -> _Part:
    """One Gaussian with the axes along which the rows vary most (probabilistic PCA; Tipping & Bishop, 1999)."""
    rank = max(1, min(_MOST_AXES, x.shape[1] - 1, len(x) // 2))
    found = PCA(rank, random_state=0).fit(x)
    rest = np.array([max(float(found.noise_variance_), least)])
    variances = np.maximum(found.explained_variance_, least)
    return _part(found.mean_[None], found.components_.T[None], variances[None], rest, np.ones(1))


def _part(
    means: NDArray[Any], axes: NDArray[Any], variances: NDArray[Any], rest: NDArray[Any], weights: NDArray[Any]
) -> _Part:
    named = {"means": means, "axes": axes, "variances": variances, "rest": rest, "log_weights": np.log(weights)}
    return _Part({name: torch.as_tensor(value, dtype=torch.float32) for name, value in named.items()})


def _own_columns(found: GaussianMixture) -> _Part:
    return _columns(found.means_, found.covariances_, found.weights_)


def _columns(means: NDArray[Any], variances: NDArray[Any], weights: NDArray[Any]) -> _Part:
    named = {"column_means": means, "column_variances": variances, "column_log_weights": np.log(weights)}
    return _Part({name: torch.as_tensor(value, dtype=torch.float32) for name, value in named.items()})


def _stacking_weights(log_densities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of the columns, by EM, that make the rows most probable; tiny ones are set to zero."""
    weights = np.full(log_densities.shape[1], 1 / log_densities.shape[1])
    relative = np.exp(log_densities - log_densities.max(1, keepdims=True))
    for _ in range(_STACKING_STEPS):
        joint = relative * weights
        weights = (joint / joint.sum(1, keepdims=True)).mean(0)
    weights[weights < _LEAST_WEIGHT] = 0
    normalised: NDArray[np.float64] = weights / weights.sum()
    return normalised


def _stacked(candidates: list[_Part], weights: NDArray[np.float64], n_features: int) -> NoisedMixture:
    """One mixture of all candidates with weight."""
    kept = [(part.parts, math.log(weight)) for part, weight in zip(candidates, weights, strict=True) if weight > 0]
    whole = dict(blank_mixture(n_features).named_buffers())
    for names, logs in (
        (("means", "axes", "variances", "rest", "log_weights"), "log_weights"),
        (("column_means", "column_variances", "column_log_weights"), "column_log_weights"),
    ):
        having = [(parts, log) for parts, log in kept if names[0] in parts]
        if having:
            for name in names:
                whole[name] = torch.cat([parts[name] + (log if name == logs else 0) for parts, log in having])
    for parts, log in kept:
        if "kernels" in parts:
            whole |= parts | {"kernel_log_weight": parts["kernel_log_weight"] + log}
    return NoisedMixture(whole)
