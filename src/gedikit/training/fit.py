"""From an array to a fitted model: prepare, train, keep what is needed afterwards."""

import copy
import hashlib
import platform
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from gedikit import networks, objectives, sampling
from gedikit.assignment import Assignment
from gedikit.building import build_model, precision
from gedikit.data.image_views import batches_per_epoch
from gedikit.errors import UsageError
from gedikit.fitted import FittedModel, density_quantiles
from gedikit.methods import Method
from gedikit.model import EnergyClassifier
from gedikit.sampling import Box, ProposalBank, Proposals, ReplayBuffer
from gedikit.settings import Settings
from gedikit.training.checks import check_batch, check_prior, check_rows, check_rules
from gedikit.training.devices import resolve_device, threads, tuned_convolutions
from gedikit.training.health import HealthMonitor
from gedikit.training.inputs import Inputs, look_at
from gedikit.training.loop import History, Observer, train
from gedikit.training.memory import out_of_memory
from gedikit.training.negatives import Chains, Negatives, WeightedProposals
from gedikit.training.reading import reading_of_clusters, reading_of_rules
from gedikit.training.rules import Rules
from gedikit.training.state import TrainState
from gedikit.training.step import TrainStep
from gedikit.training.terms import TERMS, Sizes, of_all_rows, weight_of
from gedikit.version import __version__

# beyond this, uniform and Gaussian proposals miss what the model can put mass on: use chains
MAX_IMPORTANCE_FEATURES = 3
_MAX_CENTERS = 2000
_KEPT_SAMPLES = 5000
_KEPT_REFERENCE = 512
_STANDARD_ROWS = 256

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "uint8": torch.uint8}

Checkpoint = tuple[dict[str, Tensor], dict[str, Any]]


def fit(
    x: NDArray[Any],
    method: Method,
    settings: Settings,
    *,
    n_clusters: int,
    prior: NDArray[Any] | None = None,
    seed: int = 0,
    device: str = "auto",
    encoder: nn.Module | None = None,
    rules: Rules | None = None,
    observer: Observer | None = None,
    checkpoint: Checkpoint | None = None,
    history: History | None = None,
) -> tuple[FittedModel, History, TrainState]:
    """Train `method` on the rows of x (finite numbers); goes on from `checkpoint` and `history` if given.

    `encoder` is a module to train instead of the one that the settings name; it is not changed, a copy is. `rules`
    are what a method with the term "constraint" learns from: rows that no example names are not trained on.
    """
    ready = prepare(
        x,
        method,
        settings,
        n_clusters=n_clusters,
        prior=prior,
        seed=seed,
        device=device,
        encoder=encoder,
        rules=rules,
    )
    state = ready.new_state()
    if checkpoint is not None:
        state.restore(*checkpoint)
    history = history or History()
    monitor = HealthMonitor(x.shape[1], settings.max_rollbacks)
    with threads(ready.settings.threads if ready.device.type == "cpu" else 0), tuned_convolutions():
        enough = True
        try:
            train(state, ready.step, monitor, observer or Observer(), history, ready.optima)
        except torch.OutOfMemoryError:
            enough = False  # what the error holds on to is let go of before anything else is tried
        if not enough:
            del state, monitor
            raise out_of_memory(ready)
    return ready.finish(state), history, state


@dataclass(frozen=True)
class Prepared:
    """All that a fit needs before its first iteration and, for the fitted model, after its last."""

    x: NDArray[Any]
    asked: Settings
    settings: Settings
    method: Method
    seed: int
    prior: NDArray[np.float64]
    inputs: Inputs
    reference: Float[Tensor, "r d"]
    network: EnergyClassifier
    negatives: Negatives | None
    chains: Float[Tensor, "b d"] | None
    step: TrainStep
    optima: dict[str, float]

    @property
    def device(self) -> torch.device:
        return self.network.centers.device

    @property
    def bandwidth(self) -> float:
        return self.inputs.bandwidth

    @property
    def box(self) -> Box:
        return self.inputs.box.to(self.device)

    def weighted(self, settings: Settings) -> "Prepared":
        """The same fit with other weights of the terms."""
        assert self.step.rules is None  # models side by side learn from no rules
        resolved = resolve(settings, *self.x.shape)
        step = replace(self.step, settings=resolved, weights=_weights(self.method, resolved))
        return replace(self, asked=settings, settings=resolved, step=step)

    def new_state(self) -> TrainState:
        state = TrainState.new(
            copy.deepcopy(self.network),
            None if self.chains is None else ReplayBuffer(self.chains.clone(), DTYPES[self.settings.buffer_dtype]),
            torch.tensor(self.settings.step_size * self.bandwidth, device=self.device),
            torch.Generator(self.device).manual_seed(self.seed),
            self.settings,
        )
        self.step.start(state)
        return state

    def finish(self, state: TrainState) -> FittedModel:
        """What a trained state leaves behind."""
        network = state.average
        network.compute_in(torch.float32)
        if network.batch_normalised:
            networks.calibrate(network, self.inputs.views.points(0, len(self.x)))
        log_gamma: float | None = 0.0 if network.density.normalised else None
        kept = torch.empty(0, self.x.shape[1], device=self.device)
        if self.negatives is not None:
            kept, log_gamma = self.negatives.final(state, _KEPT_SAMPLES)
        fitted = FittedModel(
            network=network.eval(),
            settings=self.asked,
            method=self.method.name,
            assignment=self._assignment(network),
            scaler=self.inputs.scaler,
            box=self.box,
            prior=self.prior,
            bandwidth=self.bandwidth,
            buffer=kept,
            step_size=float(state.chain_step),
            log_normaliser=None if log_gamma is None else log_gamma - self.inputs.scaler.log_jacobian,
            quantiles=np.empty(0),
            training_labels=np.empty(0, dtype=np.int64),
            reference=self.reference.to(self.device),
            info={
                "seed": self.seed,
                "brought": isinstance(network.encoder, networks.Brought),
                "sampler": "exact" if network.density.normalised else self.settings.sampler,
                "iterations": state.iteration,
                "n_samples": len(self.x),
                "events": state.events,
                "optima": self.optima,
                "fingerprint": fingerprint(self.x),
                **({} if self.step.rules is None else {"values": self.step.rules.values}),
                "versions": {
                    "gedikit": __version__,
                    "torch": torch.__version__,
                    "python": platform.python_version(),
                },
            },
        )
        blocks = [(scores.argmax(-1).cpu(), density.cpu()) for scores, density in fitted.evaluate(self.x)]
        labels, densities = zip(*blocks, strict=True)
        fitted.training_labels = torch.cat(labels).numpy()
        fitted.quantiles = density_quantiles(torch.cat(densities).double().numpy())
        return fitted

    def _assignment(self, network: EnergyClassifier) -> Assignment:
        rule = self.method.labels_by(self.settings)
        if rule != "k-means":
            return Assignment(rule)
        with torch.inference_mode():
            features = of_all_rows(network.features, self.inputs.views)
        return Assignment.by_k_means(features, len(self.prior), unit_length=self.method.unit_length, seed=self.seed)


def prepare(
    x: NDArray[Any],
    method: Method,
    settings: Settings,
    *,
    n_clusters: int,
    prior: NDArray[Any] | None = None,
    seed: int = 0,
    device: str = "auto",
    encoder: nn.Module | None = None,
    rules: Rules | None = None,
) -> Prepared:
    """Look at the data and build everything that does not change during training."""
    where = resolve_device(device)
    method = method.starting_from_clusters(settings.spectral_start)
    check_rows(x, n_clusters)
    check_rules(method, rules, len(x), n_clusters)
    if rules is not None:
        prior = rules.prior() if prior is None else prior
        settings = settings.replace(batch_size=rules.whole(settings.batch_size))
    class_prior = check_prior(prior, n_clusters)
    asked, settings = settings, resolve(settings, len(x) if rules is None else rules.examples.size, x.shape[1])
    check_batch(method, settings)

    # what is rebuilt on resume draws from its own stream, so that the training's stream is the same either way
    setup = torch.Generator().manual_seed(seed)
    together = None if rules is None else rules.examples
    inputs = look_at(x, method, settings, n_clusters, seed, setup, where, together)
    reading = None
    if rules is not None and "reading" in method.terms:
        reading = reading_of_rules(inputs.nearest, rules, len(x), seed, where)
    elif inputs.graph is not None and "reading" in method.terms:
        reading = reading_of_clusters(inputs.graph, class_prior, seed, where)
    references = None
    if method.generative == "contrastive-energy":
        references = inputs.rows(torch.randperm(len(x), generator=setup)[: settings.references])
    network = build_model(
        method, settings, x.shape[1], n_clusters, inputs.bandwidth, setup, references, copy.deepcopy(encoder)
    )
    if isinstance(network.projector, nn.Sequential):
        some = inputs.rows(torch.randperm(len(x), generator=setup)[:_STANDARD_ROWS])
        networks.standardise(network.projector, network.features(some))
    some = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:_KEPT_REFERENCE]
    reference = inputs.rows(some)
    network = network.to(where)
    network.compute_in(precision(settings, where))
    negatives, chains = _negatives(method, settings, inputs, reference, len(x), setup, where)
    log_prior = torch.from_numpy(np.log(class_prior)).float().to(where)
    step = TrainStep(
        settings, method, inputs.views, negatives, log_prior, _weights(method, settings), rules, reading
    )
    sizes = Sizes(settings.batch_size, network.centers.shape[0], log_prior, rules)
    return Prepared(
        x,
        asked,
        settings,
        method,
        seed,
        class_prior,
        inputs,
        reference,
        network,
        negatives,
        chains,
        step,
        known_optima(method, settings, sizes),
    )


def _weights(method: Method, settings: Settings) -> dict[str, float | Tensor]:
    return {name: weight_of(name, settings) for name in (*method.terms, "energy_l2")}


def known_optima(method: Method, settings: Settings, sizes: Sizes) -> dict[str, float]:
    """The smallest value each of the method's terms can have, and the largest of the mutual information."""
    known = {name: TERMS[name].optimum(settings, sizes) for name in method.terms if name in TERMS}
    if method.labels == "posterior":
        known["mutual_information"] = objectives.prior_optimum(sizes.log_prior)
    return {name: value for name, value in known.items() if value is not None}


def fingerprint(x: NDArray[Any]) -> str:
    """Tells whether two arrays are the same data."""
    digest = hashlib.sha256(str(x.shape).encode())
    if x.dtype == np.uint8:
        digest.update(np.ascontiguousarray(x).data)
    else:
        digest.update(np.ascontiguousarray(x, dtype=np.float64).tobytes())
    return digest.hexdigest()[:16]


def resolve(settings: Settings, n_rows: int, n_features: int) -> Settings:
    """What "auto" means for so many features, how large batches can be, and how many iterations the epochs are."""
    settings = settings.replace(batch_size=min(settings.batch_size, n_rows))
    if settings.sampler == "auto":
        few = n_features <= MAX_IMPORTANCE_FEATURES
        settings = settings.replace(sampler="importance" if few else "mala")
    if settings.epochs:
        iterations = settings.epochs * batches_per_epoch(n_rows, settings.batch_size)
        settings = settings.replace(iterations=iterations)
    return settings


def _negatives(
    method: Method,
    settings: Settings,
    inputs: Inputs,
    reference: Float[Tensor, "r d"],
    n_rows: int,
    generator: torch.Generator,
    device: torch.device,
) -> tuple[Negatives | None, Float[Tensor, "b d"] | None]:
    """Where the second expectation of an energy's gradient is taken, and the chains it starts with."""
    box = inputs.box
    if not method.models_density or method.generative == "flow":
        return None, None
    if settings.sampler == "importance":
        centers = inputs.rows(torch.randperm(n_rows, generator=generator)[:_MAX_CENTERS])
        widths = (inputs.bandwidth, 3 * inputs.bandwidth)
        bank = ProposalBank.build(Proposals(centers, widths, box), settings.bank, generator)
        moved = ProposalBank(bank.points.to(device), bank.log_q.to(device))
        proposals = Proposals(centers.to(device), widths, box.to(device))
        return WeightedProposals(proposals, moved, settings.negatives), None
    if settings.buffer_dtype == "uint8" and not settings.image_shape:
        raise UsageError("buffer_dtype 'uint8' is for the pixels of images: it would cut other chains off at ±1")
    if settings.buffer_start == "data":
        rows = torch.randint(n_rows, (settings.buffer,), generator=generator)
        noise = torch.randn(settings.buffer, len(box.low), generator=generator)
        chains = box.reflect(inputs.rows(rows) + inputs.sigma * noise)
    else:
        chains = sampling.start(settings.buffer_start, reference, box)(settings.buffer, generator)
    placed = box.to(device)
    start = sampling.start(settings.buffer_start, reference.to(device), placed)
    return Chains(settings, placed, start), chains.to(device)
