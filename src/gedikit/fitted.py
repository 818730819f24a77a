"""A trained network with all it takes to use it: scaling, domain, chains, and how typical is typical."""

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from gedikit import legacy
from gedikit.assignment import Assignment
from gedikit.building import build_network, precision
from gedikit.components import as_tree
from gedikit.config import Execution
from gedikit.errors import DataError, UsageError
from gedikit.modalities import Scaler
from gedikit.model import EnergyClassifier, frozen
from gedikit.outlyingness import OutlierModel
from gedikit.planning import Plan
from gedikit.rows import Rows
from gedikit.samplers import Box, SampleInfo
from gedikit.storage import damaged, read_tensors, write_tensors

_BLOCK = 1024
_QUANTILES = 1001
_CANDIDATES = 20
STARTS = ("buffer", "noise")


@dataclass(frozen=True)
class Predictions:
    """What a model says about rows, from one pass."""

    labels: NDArray[np.int64]
    log_p: NDArray[np.float64]  # of the label
    second_log_p: NDArray[np.float64]  # of the second most probable cluster; that of the label if there is one only
    log_density: NDArray[np.float64]
    outlier_score: NDArray[np.float64]  # share of the training rows that are less strange

    def of(self, rows: slice | NDArray[np.int64]) -> "Predictions":
        """The same of some of the rows."""
        return Predictions(*(getattr(self, field.name)[rows] for field in fields(self)))

    @property
    def confidence(self) -> NDArray[np.float64]:
        return np.exp(self.log_p)


@dataclass
class FittedModel:
    """What a fit leaves behind. Arrays go in and come out in the units of the data."""

    network: EnergyClassifier
    plan: Plan
    execution: Execution
    assignment: Assignment
    scaler: Scaler
    box: Box
    bandwidth: float
    buffer: Float[Tensor, "b d"]
    step_size: float
    log_normaliser: float | None  # log Γ in the units of the data, where it is known
    quantiles: NDArray[np.float64]  # of the training data's log-density
    outliers: OutlierModel | None  # how strange rows are; None: by their log-density
    training_labels: NDArray[np.int64]
    reference: Float[Tensor, "r d"]  # some training rows, scaled: for diagnosis without the data
    info: dict[str, Any]
    # of the process that trained the model; not saved
    training_rows: Rows | None = None
    training_predictions: Predictions | None = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy, such as a pickle, has what a saved model has."""
        return self.__dict__ | {"training_rows": None, "training_predictions": None}

    @property
    def method(self) -> str:
        return self.plan.method

    @property
    def prior(self) -> NDArray[np.float64]:
        return np.array(self.plan.prior)

    @property
    def n_clusters(self) -> int:
        return self.plan.n_clusters

    @property
    def n_features(self) -> int:
        return len(self.scaler.mean)

    @property
    def device(self) -> torch.device:
        return self.box.low.device

    @property
    def models_density(self) -> bool:
        return self.plan.models_density

    def bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The lowest and the highest corner of the domain, in the units of the data."""
        corners = torch.stack([self.box.low, self.box.high]).cpu().numpy()
        low, high = self.scaler.inverse(corners)
        return low, high

    def blocks(self, x: Rows) -> Iterator[tuple[int, Tensor]]:
        """(number of rows, scaled rows padded to one fixed number), in memory that does not grow with the data.

        All passes have the same shape, so what comes out for a row does not depend on the rows beside it.
        """
        for start in range(0, len(x), _BLOCK):
            z = self.to_scaled(x[start : start + _BLOCK])
            yield len(z), nn.functional.pad(z, (0, 0, 0, _BLOCK - len(z)))

    @property
    def normalised(self) -> bool:
        """Whether log-densities are log-likelihoods in nats, in the units of the data."""
        return self.log_normaliser is not None

    def evaluate(self, x: Rows) -> Iterator[tuple[Tensor, Tensor]]:
        """(scores of the clusters, log-density), block by block."""
        for n, z in self.blocks(x):
            with torch.inference_mode():
                scores, density = self._scores_and_density(z)
                density = self._confined(density, z).double() - (self.log_normaliser or 0.0)
            yield scores[:n], density[:n]

    def evaluate_with_gradients(self, x: Rows) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The same with ∂ log p/∂x in scaled units, from one pass there and back."""
        for n, block in self.blocks(x):
            with torch.enable_grad():
                z = block.detach().requires_grad_()
                scores, density = self._scores_and_density(z)
                (gradient,) = torch.autograd.grad(density.sum(), z)
            with torch.no_grad():
                density = self._confined(density, block).double() - (self.log_normaliser or 0.0)
            yield scores[:n].detach(), density[:n].detach(), gradient[:n]

    def _scores_and_density(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Both from one pass through the encoder."""
        features = self.network.features(z)
        embedding = self.network.project(features)
        scores = self.assignment.scores(self.network, features, embedding)
        return scores, self.network.density.log_density(self.network, z, embedding)

    def predictions(self, x: Rows) -> Predictions:
        """Labels, their probabilities and log-densities of rows."""
        parts = []
        for scores, density in self.evaluate(x):
            best = scores.double().log_softmax(-1).topk(min(2, scores.shape[-1]), dim=-1).values
            parts.append((scores.argmax(-1), best[:, 0], best[:, -1], density))
        if not parts:
            return Predictions(np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty(0), np.empty(0))
        labels, first, second, log_density = (
            torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True)
        )
        if self.outliers is not None:
            strange = self.outlier_score(x[:])
        else:  # before the training rows were looked at, there is nothing to compare with
            strange = self.outlier_score_of(log_density) if len(self.quantiles) else np.zeros(len(x))
        return Predictions(labels.astype(np.int64), first, second, log_density, strange)

    def log_density(self, x: Rows) -> NDArray[np.float64]:
        """log p(x), or unless `normalised` log p(x) + log Γ; see `_confined` for points outside the domain."""
        return self._collect(x, lambda _, density: density)

    def posterior(self, x: NDArray[Any]) -> NDArray[np.float64]:
        probabilities = self._collect(x, lambda logits, _: torch.softmax(logits.double(), dim=-1))
        return probabilities.reshape(len(x), self.n_clusters)

    def within_kinds(self, p: NDArray[np.float64], kinds: str | Iterable[str | None]) -> NDArray[np.float64]:
        """p(y|x, kind) from p(y|x): `kinds` is the kind of symbols of all rows, or of each, None if unknown."""
        symbols = self.info.get("symbols", {})
        named = [kinds] * len(p) if isinstance(kinds, str) else list(kinds)
        if len(named) != len(p):
            raise DataError(f"there are {len(named)} kinds of {len(p)} rows")
        unknown = [kind for kind in named if kind is not None and kind not in symbols]
        if unknown:
            has = ", ".join(symbols) or "none: it was not fitted to examples"
            raise UsageError(f"there is no kind of symbols {unknown[0]!r}; the model has {has}")
        sizes = [len(values) for values in symbols.values()]
        own = {kind: np.repeat([kind == name for name in symbols], sizes) for kind in symbols}
        allowed = np.stack([own.get(str(kind), np.ones(self.n_clusters, dtype=bool)) for kind in named])
        p = np.where(allowed, p.clip(1e-300), 0.0)
        within: NDArray[np.float64] = p / p.sum(1, keepdims=True)
        return within

    def labels(self, x: Rows) -> NDArray[np.int64]:
        return self._collect(x, lambda logits, _: logits.argmax(-1)).astype(np.int64)

    def features(self, x: NDArray[Any]) -> NDArray[np.float32]:
        with torch.inference_mode():
            parts = [self.network.features(z)[:n].cpu().numpy() for n, z in self.blocks(x)]
        return np.concatenate(parts)

    def outlier_score(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Share of the training data that is less strange: near 0 is typical, near 1 stranger than all."""
        if self.outliers is None:
            return self.outlier_score_of(self.log_density(x))
        return self.outliers.share(self.outliers.strangeness(self.to_scaled(x)))

    def outlier_score_of(self, log_density: NDArray[np.float64]) -> NDArray[np.float64]:
        """The same where log-densities alone say how strange rows are."""
        more_typical: NDArray[np.float64] = 1 - np.interp(
            log_density, self.quantiles, np.linspace(0, 1, len(self.quantiles)), left=0, right=1
        )
        return more_typical

    def to_scaled(self, x: NDArray[Any]) -> Tensor:
        if x.dtype == np.uint8:  # bytes travel, and are scaled where they arrive
            mean, scale = (
                torch.from_numpy(v).float().to(self.device) for v in (self.scaler.mean, self.scaler.scale)
            )
            return (torch.from_numpy(np.ascontiguousarray(x)).to(self.device).float() - mean) / scale
        return torch.from_numpy(self.scaler.transform(x)).to(self.device)

    def _confined(self, density: Tensor, z: Tensor) -> Tensor:
        """Beyond Ω an energy was never told anything: fall off as a Gaussian from the nearest wall."""
        if self.network.density.normalised:
            return density
        nearest = self.box.clip(z)
        outside = (z - nearest).square().sum(-1)
        if not bool((outside > 0).any()):
            return density
        at_wall = self.network.log_density(nearest)
        return torch.where(outside > 0, at_wall - 0.5 * outside / self.bandwidth**2, density)

    def _collect(self, x: Rows, pick: Callable[[Tensor, Tensor], Tensor]) -> NDArray[np.float64]:
        parts = [pick(logits, density).cpu().numpy() for logits, density in self.evaluate(x)]
        return np.concatenate(parts).astype(np.float64) if parts else np.empty(0)

    def sample(
        self,
        n: int,
        *,
        steps: int | None = None,
        start: str = "buffer",
        cluster: int | None = None,
        seed: int = 0,
    ) -> tuple[NDArray[np.float64], SampleInfo]:
        """n new points by Langevin dynamics under p(x), or under p(x|y) ∝ exp of one logit.

        start: "buffer" continues the chains of the training (they are samples of the model already);
        "noise" begins where they began: uniformly in the domain, or (images) with the data's mean and covariance.
        """
        if not self.models_density:
            raise UsageError(f"the model was trained with {self.method!r}, which learns no density to sample from")
        if n < 1:
            raise UsageError(f"the number of samples must be at least 1, not {n}")
        if steps is not None and steps < 0:
            raise UsageError(f"the number of steps must not be negative, not {steps}")
        if start not in STARTS:
            raise UsageError(f"start must be one of {', '.join(STARTS)}, not {start!r}")
        if cluster is not None and not 0 <= cluster < self.n_clusters:
            raise UsageError(f"cluster must lie between 0 and {self.n_clusters - 1}, not {cluster}")
        steps = self._default_steps(start) if steps is None else steps
        generator = torch.Generator(self.device).manual_seed(seed)
        parts, infos = [], []
        block = self.plan.config.data.chains_at_once
        for count in [block] * (n // block) + [n % block]:
            if count:
                z, info = self._sample_block(count, steps, start, cluster, generator)
                parts.append(self.scaler.inverse(z.cpu().numpy()))
                infos.append(info)
        return np.concatenate(parts), infos[-1]

    def _default_steps(self, start: str) -> int:
        c = self.plan.config
        return c.data.sampling_steps(start, getattr(c.sampler, "steps", 0))

    def _sample_block(
        self, n: int, steps: int, start: str, cluster: int | None, generator: torch.Generator
    ) -> tuple[Tensor, SampleInfo]:
        sampler = self.plan.config.sampler
        if sampler is None:
            return self._exact_block(n, cluster, generator), SampleInfo(1.0, 0.0, 1.0)

        def log_density(z: Tensor) -> Tensor:
            if cluster is None:
                return self.network.log_density(z)
            scores, density = self._scores_and_density(z)
            # chains at temperature T leave exp(f/T) invariant: p(y|x) joins it as it is
            return density + sampler.temperature * scores.log_softmax(-1)[:, cluster]

        if start == "noise":
            z = sampler.initialisation(self.reference, self.box)(n, generator)
        else:
            z = self.buffer[self._chosen(n, cluster, generator)]
        with self._moving():
            return sampler.sample(
                log_density, z, steps=steps, step_size=self.step_size, box=self.box, generator=generator
            )

    @contextmanager
    def _moving(self) -> Iterator[None]:
        """Chains run in the precision they were trained in."""
        self.network.compute_in(precision(self.execution, self.device))
        try:
            with frozen(self.network):
                yield
        finally:
            self.network.compute_in(torch.float32)

    def _chosen(self, n: int, cluster: int | None, generator: torch.Generator) -> Tensor:
        """Rows of the buffer to start from, each once before any twice; by p(y|x) for a cluster."""
        if cluster is None:
            rounds = -(-n // len(self.buffer))
            order = [
                torch.randperm(len(self.buffer), generator=generator, device=self.device) for _ in range(rounds)
            ]
            return torch.cat(order)[:n]
        return self._by_posterior(self.buffer, n, cluster, generator)

    def _by_posterior(self, x: Tensor, n: int, cluster: int, generator: torch.Generator) -> Tensor:
        with torch.inference_mode():
            scores = [self.assignment.of_points(self.network, block) for block in x.split(_BLOCK)]
            weights = torch.cat(scores).softmax(-1)[:, cluster].clamp(min=1e-12)
        return torch.multinomial(weights, n, replacement=True, generator=generator)

    def _exact_block(self, n: int, cluster: int | None, generator: torch.Generator) -> Tensor:
        """Samples of a normalised density; for one cluster, unless it knows better, weighted by p(y|x)."""
        density = self.network.density
        if cluster is None or density.samples_clusters:
            return density.draw(self.network, n, cluster, generator)
        candidates = density.draw(self.network, _CANDIDATES * n, None, generator)
        return candidates[self._by_posterior(candidates, n, cluster, generator)]

    def save(self, path: Path) -> None:
        tensors = {f"network.{k}": v for k, v in self.network.state_dict().items()}
        tensors |= {f"assignment.{k}": v for k, v in self.assignment.tensors().items()}
        tensors |= {"box.low": self.box.low, "box.high": self.box.high}
        tensors |= {"buffer": self.buffer, "reference": self.reference}
        if self.outliers is not None:
            tensors |= {f"outliers.{k}": v for k, v in self.outliers.tensors().items()}
        tensors |= {
            name: torch.from_numpy(np.ascontiguousarray(value))
            for name, value in (
                ("scaler.mean", self.scaler.mean),
                ("scaler.scale", self.scaler.scale),
                ("quantiles", self.quantiles),
                ("training_labels", self.training_labels),
            )
        }
        meta = {
            "plan": self.plan.tree(),
            "execution": as_tree(self.execution),
            "assignment": {"rule": self.assignment.rule, "spread": self.assignment.spread},
            "bandwidth": self.bandwidth,
            "step_size": None if np.isnan(self.step_size) else self.step_size,
            "log_normaliser": self.log_normaliser,
            "info": self.info,
        }
        write_tensors(path, tensors, meta, "model")

    @classmethod
    def load(
        cls, path: Path, device: torch.device | str = "cpu", encoder: nn.Module | None = None
    ) -> "FittedModel":
        """What `save` wrote; a model with an encoder that a user gave needs a module of that kind again."""
        tensors, meta = read_tensors(path, "model")
        with damaged(path):
            if meta["format"] < legacy.FIRST_WITH_PLANS:
                tensors, meta = legacy.model(tensors, meta)
            plan = Plan.from_tree(meta["plan"])
            bandwidth = float(meta["bandwidth"])
            weights = _under("network.", tensors)
        if plan.config.encoder.needs_module and encoder is None:
            raise UsageError(
                f"{path} was trained with an encoder of your own: give one of the same kind as encoder="
            )
        with damaged(path):
            n_features = len(tensors["scaler.mean"])
            no_rows = torch.zeros(0, n_features)
            network = build_network(
                plan, n_features, bandwidth, torch.Generator(), no_rows, no_rows, copy.deepcopy(encoder)
            )
            load_weights(network, weights)
            rule, spread = meta["assignment"]["rule"], meta["assignment"]["spread"]
            placed = {name: tensor.to(device) for name, tensor in _under("assignment.", tensors).items()}
            step_size = float("nan") if meta["step_size"] is None else float(meta["step_size"])
            return cls(
                network.to(device).requires_grad_(False).eval(),
                plan,
                Execution.of(meta["execution"]),
                Assignment.from_tensors(rule, spread, placed),
                Scaler(tensors["scaler.mean"].numpy(), tensors["scaler.scale"].numpy()),
                Box(tensors["box.low"], tensors["box.high"]).to(device),
                bandwidth,
                tensors["buffer"].to(device),
                step_size,
                meta["log_normaliser"],
                tensors["quantiles"].numpy(),
                OutlierModel.from_tensors(strange) if (strange := _under("outliers.", tensors)) else None,
                tensors["training_labels"].numpy(),
                tensors["reference"].to(device),
                dict(meta["info"]),
            )


def load_weights(network: nn.Module, weights: dict[str, Tensor]) -> None:
    """As `load_state_dict`, with buffers that have as many rows as were saved."""
    for name, buffer in list(network.named_buffers()):
        if name in weights and weights[name].shape != buffer.shape:
            owner, _, leaf = name.rpartition(".")
            network.get_submodule(owner).register_buffer(leaf, torch.empty_like(weights[name]))
    network.load_state_dict(weights)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def density_quantiles(log_density: NDArray[np.float64]) -> NDArray[np.float64]:
    """The training data's log-densities, thinned to a fixed number of quantiles."""
    return np.quantile(log_density, np.linspace(0, 1, _QUANTILES))
