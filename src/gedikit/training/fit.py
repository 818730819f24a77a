"""From a plan and an array to a fitted model: prepare, train, keep what is needed afterwards."""

import copy
import dataclasses
import hashlib
import json
import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from gedikit.assignment import Assignment, needs_features
from gedikit.building import build_network, precision
from gedikit.config import Execution
from gedikit.densities.base import GENERATIVE
from gedikit.encoders import calibrate, is_batch_normalised, standardise
from gedikit.fitted import FittedModel, density_quantiles
from gedikit.groups import Rivals
from gedikit.known import Known
from gedikit.modalities import PreparedData
from gedikit.model import EnergyClassifier
from gedikit.objectives import Objective, prior_optimum
from gedikit.objectives.base import Sizes, TrainingData
from gedikit.outlyingness import OutlierModel
from gedikit.planning import AUTO, Plan, check_rows
from gedikit.processes import (
    as_first,
    check_alike,
    check_shares,
    exchanged,
    first_makes,
    is_first,
    meeting,
    n_processes,
    own_share,
)
from gedikit.randomness import SharedGenerator, plain
from gedikit.rows import Rows, StoredRows, looked_at
from gedikit.samplers import SamplerContext, Source
from gedikit.starts import Start, Starts
from gedikit.training.callbacks import Callback, Callbacks, FitView
from gedikit.training.devices import resolve_device, threads, tuned_convolutions
from gedikit.training.evidence import agreement_of_views, evidence_of_start, gain_over_gaussian
from gedikit.training.health import HealthMonitor
from gedikit.training.islands import look_at_islands
from gedikit.training.loop import History, train
from gedikit.training.out_of_memory import out_of_memory
from gedikit.training.paying import PaysOff
from gedikit.training.rows import ROWS_AT_ONCE, of_all_rows
from gedikit.training.rules import Rules
from gedikit.training.state import TrainState
from gedikit.training.step import SAMPLER, TrainStep
from gedikit.version import __version__
from gedikit.views.augmentation import Augmentation
from gedikit.views.base import Views, ViewsContext
from gedikit.views.neighbours import Likeness, NeighbourGraph
from gedikit.views.similarity import SimilarityContext

_KEPT_SAMPLES = 5000
_KEPT_REFERENCE = 512
_STANDARD_ROWS = 256
_HELD_OUT = 0.15  # share of the rows by which a density that may overfit is checked
_HELD_OUT_ROWS = 1000
_RESOLUTION = 32  # weights of rows are whole numbers of 1/32 of their mean, where they are not whole themselves

Checkpoint = tuple[dict[str, Tensor], dict[str, Any]]


@dataclass(frozen=True)
class FitResult:
    """A fitted model, what was measured on the way, and the state the training ended in."""

    fitted: FittedModel
    history: History
    state: TrainState
    likeness: Likeness | None = None  # of rows, where there are rules


def fit(
    plan: Plan,
    x: Rows,
    *,
    execution: Execution | None = None,
    encoder: nn.Module | None = None,
    rules: Rules | None = None,
    starts: Starts | None = None,
    known: Known | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: Checkpoint | None = None,
    history: History | None = None,
) -> FitResult:
    """Compute a plan on the rows of x (finite numbers); goes on from `checkpoint` and `history` if given.

    `encoder` is the module of a user for the encoder "user"; it is not changed, a copy is. `rules` are what the
    objective "constraint" learns from: rows that no example names are not trained on. `known` is what is known of
    single rows; all of them have a weight above 0.
    """
    execution = execution or Execution()
    with meeting(execution.timeout) as traffic:
        if n_processes() > 1:
            check_alike(_about(plan, x))
        ready = prepare(plan, x, execution=execution, encoder=encoder, rules=rules, starts=starts, known=known)
        state = ready.new_state()
        if checkpoint is not None:
            state.restore(*checkpoint)
        _share(state)
        history = history or History()
        monitor = HealthMonitor(x.shape[1], plan.config.optimiser.max_rollbacks)
        view = FitView(plan, state, ready.optima)
        watching = [callback for callback in callbacks if callback.everywhere or is_first()]
        if n_processes() > 1 and is_first():
            watching.append(PaysOff(traffic))
        with threads(ready.threads), tuned_convolutions():
            enough = True
            try:
                train(view, ready.step, monitor, Callbacks(watching), history)
            except torch.OutOfMemoryError:
                enough = False  # what the error holds on to is let go of before anything else is tried
            if not enough:
                del state, monitor, view
                raise out_of_memory(ready)
        return FitResult(_finished(ready, state, encoder), history, state, ready.likeness)


def _about(plan: Plan, x: Rows) -> dict[str, str]:
    """What several processes must have in common."""
    return {
        "gedikit": f"gedikit {__version__}",
        "torch": f"torch {torch.__version__}",
        "data": f"data of {len(x)} rows × {x.shape[1]} columns with digest {fingerprint(x)}",
        "plan": f"a plan with digest {hashlib.sha256(json.dumps(plan.tree()).encode()).hexdigest()[:16]}",
    }


def _share(state: TrainState) -> None:
    """Let all processes begin where the first one does."""
    if n_processes() > 1:
        tensors = state.tensors()
        as_first(list(tensors.values()))
        state.restore(tensors, exchanged(state.meta())[0])


def _finished(ready: "Setup", state: TrainState, encoder: nn.Module | None) -> FittedModel:
    """The fitted model, made by the first process alone and read by the others."""
    if n_processes() == 1:
        return ready.finish(state)
    made: list[FittedModel] = []

    def saved() -> list[NDArray[Any]]:
        made.append(ready.finish(state))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            made[0].save(path)
            return [np.frombuffer(path.read_bytes(), dtype=np.uint8)]

    (content,) = first_makes(saved)
    if made:
        return made[0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        path.write_bytes(content.tobytes())
        fitted = FittedModel.load(path, ready.device, copy.deepcopy(encoder))
    fitted.execution, fitted.training_rows = ready.execution, ready.x
    return fitted


@dataclass(frozen=True)
class Setup:
    """All that a fit needs before its first iteration and, for the fitted model, after its last."""

    plan: Plan
    execution: Execution
    x: Rows
    data: PreparedData
    views: Views
    reference: Float[Tensor, "r d"]
    reference_rows: NDArray[np.int64]  # which rows these are
    held_out: Float[Tensor, "h d"]  # rows that the density was not trained on
    network: EnergyClassifier
    source: Source | None
    step: TrainStep
    optima: dict[str, float]
    starts: Starts
    rules: Rules | None = None
    start: Start | None = None
    likeness: Likeness | None = None

    @property
    def device(self) -> torch.device:
        return self.network.centers.device

    @property
    def threads(self) -> int:
        """Of the CPU while training; 0 leaves torch's own number."""
        if self.device.type != "cpu":
            return 0
        asked = self.execution.threads
        return self.plan.config.data.threads if asked is None else asked

    def weighted(self, plan: Plan) -> "Setup":
        """The same fit with other weights of the losses."""
        assert self.rules is None  # models side by side learn from no rules
        objectives = {
            name: replace(bound, weight=plan.config.objectives[name].weight)
            for name, bound in self.step.objectives.items()
        }
        step = replace(self.step, plan=plan, objectives=objectives, weights=weights_of(plan))
        return replace(self, plan=plan, step=step)

    def new_state(self) -> TrainState:
        state = TrainState.new(
            copy.deepcopy(self.network),
            SharedGenerator.of(self.device, own_share()).manual_seed(self.plan.seed),
            self.plan.config.optimiser,
            self.execution,
        )
        self.step.start(state)
        return state

    def finish(self, state: TrainState) -> FittedModel:
        """What a trained state leaves behind."""
        network, sampler = state.average, self.plan.config.sampler
        network.compute_in(torch.float32)
        if network.batch_normalised:
            self._calibrate(network)
        log_gamma: float | None = 0.0 if network.density.normalised else None
        calibration = torch.Generator(self.device).manual_seed(self.plan.seed)
        measured = network.density.calibrate(network, self.held_out.to(self.device), calibration)
        kept = torch.empty(0, self.x.shape[1], device=self.device)
        step_size = float("nan")
        if self.source is not None and sampler is not None:
            assert isinstance(state.generator, torch.Generator)
            memory = state.memory[SAMPLER]
            own = plain(state.generator)
            kept, log_gamma = self.source.final(network.log_density, memory, _KEPT_SAMPLES, own)
            step_size = sampler.final_step(memory)
        fitted = FittedModel(
            network=network.eval(),
            plan=self.plan,
            execution=self.execution,
            assignment=self._assignment(network),
            scaler=self.data.scaler,
            box=self.data.box.to(self.device),
            bandwidth=self.data.bandwidth,
            buffer=kept,
            step_size=step_size,
            log_normaliser=None if log_gamma is None else log_gamma - self.data.scaler.log_jacobian,
            quantiles=np.empty(0),
            outliers=self._outliers(),
            training_labels=np.empty(0, dtype=np.int64),
            reference=self.reference.to(self.device),
            info={
                "sampler": "exact" if network.density.normalised else "none" if sampler is None else sampler.name,
                "iterations": state.iteration,
                "n_samples": len(self.x),
                "events": state.events,
                "optima": self.optima,
                **({"density": measured} if measured else {}),
                "fingerprint": fingerprint(self.x),
                **({} if self.rules is None else {"values": self.rules.values, "symbols": self.rules.tree()}),
                **({} if self.start is None else {"rivals": Rivals.of(self.start, self.reference_rows).tree()}),
                "versions": {
                    "gedikit": __version__,
                    "torch": torch.__version__,
                    "python": platform.python_version(),
                },
            },
        )
        predictions = fitted.predictions(self.x)
        fitted.training_labels = predictions.labels
        fitted.info["evidence"] = self._evidence(fitted)
        fitted.quantiles = density_quantiles(predictions.log_density)
        if fitted.outliers is None:
            strange = fitted.outlier_score_of(predictions.log_density)
            predictions = dataclasses.replace(predictions, outlier_score=strange)
        fitted.training_rows, fitted.training_predictions = self.x, predictions
        return fitted

    def _calibrate(self, network: EnergyClassifier) -> None:
        """Give batch normalisations the statistics of all rows; an encoder without any sees blocks of them."""
        if is_batch_normalised(network.encoder):
            calibrate(network, self._of_rows(lambda points: points))
            return
        with torch.no_grad():
            features = self._of_rows(network.features)
        calibrate(network.projector, features)

    def _of_rows(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """A function of points, of all rows or of as many as a look at some takes."""
        some = looked_at(self.x, self.plan.seed)
        if some is None:
            return of_all_rows(function, self.views)
        rows = torch.from_numpy(some).split(ROWS_AT_ONCE)
        return torch.cat([function(self.data.rows(block).to(self.device)) for block in rows])

    def _evidence(self, fitted: FittedModel) -> dict[str, float]:
        """What a verdict needs and the fitted model alone could not say."""
        found = {
            name: agreement_of_views(fitted.network, fitted.assignment, self.views, progress, self.plan.seed)
            for name, progress in (("agreement_of_long_walks", 0.0), ("agreement_of_views", 1.0))
        }
        if self.plan.agreement is not None:
            found["start_agreement"] = self.plan.agreement
        if self.start is not None:
            found |= evidence_of_start(self.start, fitted.training_labels)
        if not self.data.image_shape:
            scaling = self.plan.config.data.scaling
            rows, built = self.starts.telling(self.data.all_rows().numpy(), scaling), self.starts.near.get(scaling)
            islands = look_at_islands(rows, fitted.training_labels, self.plan.seed, built)
            fitted.info["concerns"] = [concern.tree() for concern in islands.concerns]
            found |= islands.numbers()
        return found | self._gain(fitted)

    def _gain(self, fitted: FittedModel) -> dict[str, float]:
        """What a normalised density of numbers is worth, by rows it was not trained on where there are any."""
        if not fitted.normalised or self.data.image_shape or not self.plan.models_density:
            return {}
        rows = self.held_out if len(self.held_out) else self.reference
        density = self.plan.config.density
        sigma = None if density is None else density.level(self.data.bandwidth)
        scaled = torch.from_numpy(fitted.log_density(self.data.scaler.inverse(rows.cpu().numpy())))
        log_density = scaled - self.data.scaler.log_jacobian  # in scaled units, as the Gaussian is
        trained = self.data.all_rows()[~self.step.held_out.cpu()]
        return gain_over_gaussian(log_density, rows, trained, sigma or 0.0) if len(trained) > 1 else {}

    def _outliers(self) -> OutlierModel | None:
        """What tells strange rows of many columns; of few, and of images, their log-density does it better."""
        density = self.plan.config.density
        if not self.plan.models_density or density is None or not density.noised:
            return None
        generator = torch.Generator().manual_seed(self.plan.seed)
        one_unit = len(np.unique(self.data.scaler.scale)) == 1
        codes = self.plan.config.data.codes
        return OutlierModel.fit(self.data.all_rows(), generator, one_unit=one_unit, codes=codes)

    def _assignment(self, network: EnergyClassifier) -> Assignment:
        rule = self.plan.config.head.labels
        if not needs_features(rule):
            return Assignment(rule)
        with torch.inference_mode():
            features = self._of_rows(network.features)
        return Assignment.by_k_means(
            features, self.plan.n_clusters, unit_length=self.plan.unit_length, seed=self.plan.seed
        )


def prepare(
    plan: Plan,
    x: Rows,
    *,
    execution: Execution | None = None,
    encoder: nn.Module | None = None,
    rules: Rules | None = None,
    starts: Starts | None = None,
    known: Known | None = None,
) -> Setup:
    """Look at the data and build everything that does not change during training."""
    execution = execution or Execution()
    where = resolve_device(execution.device)
    check_rows(x, plan.n_clusters)
    if rules is not None:
        rules.check(len(x), plan.n_clusters)
    c, seed, prior = plan.config, plan.seed, np.array(plan.prior)
    _check_shares(plan, rules)

    # what is rebuilt on resume draws from its own stream, so that the training's stream is the same either way
    setup = torch.Generator().manual_seed(seed)
    data = c.data.prepare(x, setup)
    augmentation = c.views if isinstance(c.views, Augmentation) else Augmentation()
    alike = SimilarityContext(data.all_rows, data.pixels, data.image_shape, augmentation, where)

    @cache
    def graph() -> NeighbourGraph:
        return _graph_of_first(lambda: c.similarity.graph(alike, setup), setup)

    examples = None if rules is None else rules.bundles.rows
    if known is not None and rules is None:
        examples = known.drawn_from(1 if data.image_shape else _RESOLUTION, seed)
    views = c.views.prepare(
        ViewsContext(
            data.all_rows,
            data.pixels,
            data.image_shape,
            data.bandwidth,
            plan.n_clusters,
            plan.models_density,
            seed,
            setup,
            where,
            graph,
            examples,
        )
    )
    looked_at = starts or Starts(x, seed, c.data.codes, known)

    @cache
    def start() -> Start:
        shares = None if plan.shares == AUTO else plan.prior
        if data.image_shape:
            return looked_at.of_images(data.image_shape, plan.data.border).find(plan.n_clusters, shares)
        return _with_its_number(looked_at, plan, shares)

    @cache
    def partition() -> Int64[np.ndarray, " n"]:
        return first_makes(lambda: [start().of_all(len(x))])[0]

    likeness = None if rules is None else c.similarity.likeness(alike)
    training_data = TrainingData(
        len(x),
        prior,
        seed,
        where,
        graph,
        data.rows,
        rules,
        likeness,
        None if rules is not None else partition,
        known,
        bool(data.image_shape),
    )
    objectives = {name: objective.bind(training_data) for name, objective in c.objectives.items()}

    references = held_out = torch.empty(0, x.shape[1])
    is_held_out = torch.zeros(len(x), dtype=torch.bool)
    if c.density is not None and c.density.n_references:
        order = torch.randperm(len(x), generator=setup)
        if c.density.noised:
            n_held_out = max(1, min(_HELD_OUT_ROWS, round(_HELD_OUT * len(x))))
            is_held_out[order[:n_held_out]] = True
            held_out, order = data.rows(_counted(known, order[:n_held_out], n_held_out, seed)), order[n_held_out:]
        references = data.rows(_counted(known, order, min(len(order), c.density.n_references), seed))
    network = build_network(plan, x.shape[1], data.bandwidth, setup, references, held_out, copy.deepcopy(encoder))
    if c.encoder.standardised and isinstance(network.projector, nn.Sequential):
        some = data.rows(torch.randperm(len(x), generator=setup)[:_STANDARD_ROWS])
        standardise(network.projector, network.features(some))
    some = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:_KEPT_REFERENCE]
    reference = data.rows(some)
    as_first(list(network.state_dict().values()))
    network = network.to(where)
    network.compute_in(precision(execution, where))
    source = _source(plan, data, reference, setup, where)
    log_prior = torch.from_numpy(np.log(prior)).float().to(where)
    step = TrainStep(plan, execution, objectives, views, source, log_prior, is_held_out.to(where), weights_of(plan))
    sizes = Sizes(c.optimiser.batch_size, network.centers.shape[0], log_prior)
    optima = known_optima(plan, objectives, sizes)
    begun = start() if start.cache_info().currsize else None  # an objective asked for it
    return Setup(
        plan,
        execution,
        x,
        data,
        views,
        reference,
        some.numpy(),
        held_out,
        network,
        source,
        step,
        optima,
        looked_at,
        rules,
        begun,
        likeness,
    )


def _check_shares(plan: Plan, rules: Rules | None) -> None:
    """Refuse numbers of rows and of samples that processes cannot divide evenly."""
    c, together = plan.config, 1 if rules is None else rules.bundles.rows.shape[1]
    size, name = c.optimiser.batch_size, "optimiser.batch_size"
    check_shares(size // together, name if together == 1 else f"{name} // {together}", own_share())
    if c.sampler is not None and GENERATIVE in plan.terms:
        check_shares(c.sampler.samples, "sampler.samples", own_share())


def _graph_of_first(build: Callable[[], NeighbourGraph], generator: torch.Generator) -> NeighbourGraph:
    """The graph that the first process builds; all generators are then where its own is."""
    if n_processes() == 1:
        return build()

    def parts() -> list[NDArray[Any]]:
        graph = build()
        w = graph.weights
        return [
            w.data,
            w.indices,
            w.indptr,
            np.array(w.shape),
            graph.rows,
            graph.anchor,
            generator.get_state().numpy(),
        ]

    data, indices, indptr, shape, rows, anchor, state = first_makes(parts)
    generator.set_state(torch.from_numpy(state))
    return NeighbourGraph(sparse.csr_matrix((data, indices, indptr), shape=tuple(shape)), rows, anchor)


def _counted(known: Known | None, rows: Int64[Tensor, " k"], total: int, seed: int) -> Int64[Tensor, " t"]:
    """The first of the rows, `total` of them, or all of them as often as they count."""
    if known is None:
        return rows[:total]
    return torch.from_numpy(known.repeated(rows.numpy(), total, seed))


def _with_its_number(starts: Starts, plan: Plan, shares: tuple[float, ...] | None) -> Start:
    """The start of rows of numbers, also of a resumed fit with the evidence for a number that was looked for."""
    scaling = plan.config.data.scaling
    found = starts.find(plan.n_clusters, scaling, shares)
    if found.number is None and any(decision.what == "n_clusters" for decision in plan.decisions):
        found = replace(found, number=starts.find(None, scaling).number)
    return found


def weights_of(plan: Plan) -> dict[str, float | Tensor]:
    """The weight of every loss by its name."""
    weights: dict[str, float | Tensor] = {name: o.weight for name, o in plan.config.objectives.items()}
    return weights | (dict(plan.config.density.weights) if plan.config.density is not None else {})


def known_optima(plan: Plan, objectives: Mapping[str, Objective], sizes: Sizes) -> dict[str, float]:
    """The smallest value each of the losses can have, and the largest of the mutual information."""
    known = {name: objectives[name].optimum(sizes) for name in plan.terms if name in objectives}
    if plan.trains_posterior:
        known["mutual_information"] = prior_optimum(sizes.log_prior)
    return {name: value for name, value in known.items() if value is not None}


def fingerprint(x: Rows) -> str:
    """Tells whether two arrays are the same data."""
    if isinstance(x, StoredRows):
        return x.fingerprint
    digest = hashlib.sha256(str(x.shape).encode())
    if x.dtype == np.uint8:
        digest.update(np.ascontiguousarray(x).data)
    else:
        digest.update(np.ascontiguousarray(x, dtype=np.float64).tobytes())
    return digest.hexdigest()[:16]


def _source(
    plan: Plan,
    data: PreparedData,
    reference: Float[Tensor, "r d"],
    generator: torch.Generator,
    device: torch.device,
) -> Source | None:
    """Where the second expectation of an energy's gradient is taken."""
    c = plan.config
    if c.sampler is None or GENERATIVE not in plan.terms:
        return None
    sigma = c.views.sigma(data.bandwidth)
    return c.sampler.prepare(
        SamplerContext(
            data.n_rows,
            data.rows,
            reference,
            data.box,
            data.bandwidth,
            sigma,
            bool(data.image_shape),
            generator,
            device,
        )
    )
