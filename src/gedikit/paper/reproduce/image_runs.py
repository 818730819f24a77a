"""Fits of the paper's images: what is planned, what is stored of each, and how the rest is computed in parts.

A stored run is a folder of small files: `plan.json`, `metrics.jsonl` (the first iterations, then a thinned course),
`test.json` (how it ended, and its figures on the test set) and, unless it diverged, `weights.safetensors`.
"""

import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from gedikit.assignment import Assignment
from gedikit.building import build_network
from gedikit.config import Execution
from gedikit.data import sources
from gedikit.data.official import OFFICIAL
from gedikit.diagnosis import diagnose
from gedikit.errors import DivergenceError, Interrupted, StorageError, UsageError
from gedikit.estimator import plan_rows
from gedikit.evaluation import clustering_metrics
from gedikit.fitted import FittedModel, load_weights
from gedikit.locks import DirectoryLock
from gedikit.methods import methods
from gedikit.model import EnergyClassifier
from gedikit.paper import recipes
from gedikit.paper.reproduce.paper import NAMES
from gedikit.planning import Asked, Plan, plan
from gedikit.profile import DataProfile
from gedikit.runs import Run, RunConfig, RunRecorder
from gedikit.storage import write_atomically, write_text
from gedikit.training.callbacks import Callback, FitView, Metrics
from gedikit.training.devices import resolve_device
from gedikit.training.fit import fingerprint, fit

FIRST = 50  # iterations of which every loss is kept: what another state of the code is compared by
_KEPT_EVERY = 200
_REFERENCE = 512
_SHAPES = {name: (28, 28, 1) if "mnist" in name else (32, 32, 3) for name in OFFICIAL}
_FITTED = ("method", "n_clusters", "prior", "seed", "labels", "unit_length", "stages", "config")


@dataclass(frozen=True)
class ImageFit:
    """One fit of a table of images; `small` is for trials on a CPU."""

    data: str
    method: str  # of the paper's tables, or with -as-printed
    seed: int
    epochs: int
    small: bool = False

    @property
    def name(self) -> str:
        return f"{self.data}-{self.method}-{self.seed}"

    @property
    def printed(self) -> bool:
        return self.method.endswith(recipes.PRINTED)

    @property
    def asked(self) -> Asked:
        method = self.method.removesuffix(recipes.PRINTED)
        n_clusters = OFFICIAL[self.data].n_classes
        return recipes.on_images(
            self.data, method, n_clusters, self.seed, self.epochs, small=self.small, printed=self.printed
        )

    def plan(self, data: DataProfile | None = None) -> Plan:
        """What is fitted to images of this profile, by default as many as the official set has."""
        shape = _SHAPES[self.data]
        return plan(
            data or DataProfile(OFFICIAL[self.data].counts["train"], int(np.prod(shape)), shape), self.asked
        )


@dataclass(frozen=True)
class StoredRun:
    """What is kept of a fit."""

    path: Path

    @property
    def plan_path(self) -> Path:
        return self.path / "plan.json"

    @property
    def weights_path(self) -> Path:
        return self.path / "weights.safetensors"

    @property
    def test_path(self) -> Path:
        return self.path / "test.json"

    @property
    def metrics_path(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def exists(self) -> bool:
        return self.test_path.exists()

    @cached_property
    def plan(self) -> Plan:
        return Plan.from_tree(read_json(self.plan_path))

    @cached_property
    def outcome(self) -> dict[str, Any]:
        """How the fit ended: seconds, verdict, events, commit, figures; or its failure and when."""
        return read_json(self.test_path)

    @property
    def failed_at(self) -> int | None:
        """The iteration at which it diverged."""
        return self.outcome.get("failed_at")

    @property
    def commit(self) -> str:
        return str(self.outcome.get("commit", "not noted"))

    def rows(self) -> list[dict[str, float]]:
        return [json.loads(line) for line in self.metrics_path.read_text(encoding="utf-8").splitlines()]

    def changes(self, asked: ImageFit) -> list[str]:
        """Settings by which the plan that is made today differs from the stored one."""
        now = asked.plan(self.plan.data)
        return list(_differences(_fitted(self.plan), _fitted(now)))

    def measured(self, what: str) -> dict[str, Any] | None:
        """What was measured from the weights, by name of the measurement."""
        path = self.path / f"{what}.json"
        return read_json(path) if path.exists() else None

    def open(self, device: torch.device, train: NDArray[Any]) -> FittedModel:
        """The model from its weights; of its training rows some are needed, and nothing else is kept."""
        made = self.plan
        try:
            tensors = {name: tensor.float() for name, tensor in load_file(self.weights_path).items()}
        except (SafetensorError, OSError) as error:
            raise StorageError(f"{self.weights_path} is damaged or not there: {error}") from None
        fixed = {name.removeprefix(_ASSIGNED): tensors.pop(name) for name in list(tensors) if _ASSIGNED in name}
        data = made.config.data.prepare(train, torch.Generator())
        none = torch.zeros(0, train.shape[1])
        network = build_network(made, train.shape[1], data.bandwidth, torch.Generator(), none, none)
        load_weights(network, tensors)
        network = network.to(device).requires_grad_(False).eval()
        some = torch.randperm(len(train), generator=torch.Generator().manual_seed(made.seed))[:_REFERENCE]
        reference = data.rows(some).to(device)
        spread = fixed.pop("spread", None)
        placed = {name: tensor.to(device) for name, tensor in fixed.items()}
        assignment = Assignment.from_tensors(
            made.config.head.labels, 1.0 if spread is None else float(spread), placed
        )
        if placed and spread is None:  # not every stored run has it
            assignment = _spread_over(assignment, network, reference)
        return FittedModel(
            network=network,
            plan=made,
            execution=Execution(device=str(device)),
            assignment=assignment,
            scaler=data.scaler,
            box=data.box.to(device),
            bandwidth=data.bandwidth,
            buffer=torch.empty(0, train.shape[1], device=device),
            step_size=float("nan"),
            log_normaliser=None,
            quantiles=np.empty(0),
            outliers=None,
            training_labels=np.empty(0, np.int64),
            reference=reference,
            info={"events": self.outcome.get("events", []), "n_samples": len(train)},
        )


_ASSIGNED = "assignment."


def _spread_over(assignment: Assignment, network: EnergyClassifier, rows: Tensor) -> Assignment:
    """Clusters as wide as rows lie around the centres of k-means."""
    with torch.inference_mode():
        squared = -2 * assignment.of_points(network, rows).amax(-1)
    assert assignment.centers is not None
    return replace(assignment, spread=max(1e-6, float(squared.mean() / assignment.centers.shape[1]) ** 0.5))


@dataclass(frozen=True)
class Place:
    """Where runs are stored, where unfinished ones go on, and on which device until when."""

    runs: Path
    unfinished: Path
    device: str = "auto"
    deadline: float = float("inf")  # by time.monotonic()
    commit: str = ""

    def stored(self, asked: ImageFit) -> StoredRun:
        return StoredRun(self.runs / asked.name)

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.deadline

    def state_of(self, asked: ImageFit) -> str:
        """Stored, begun or missing, in words."""
        stored = self.stored(asked)
        if stored.exists:
            if stored.failed_at is not None:
                return f"diverged at iteration {stored.failed_at}"
            changed = stored.changes(asked)
            return "stored" if not changed else f"stored with another plan: {'; '.join(changed)}"
        run = Run(self.unfinished / asked.name)
        if run.checkpoints():
            done = int(run.checkpoints()[-1].stem.removeprefix("step-"))
            return f"begun: {done} of {run.config().plan.config.optimiser.iterations} iterations"
        return "missing"


@lru_cache(maxsize=4)
def images(data: str, split: str) -> sources.Dataset:
    return sources.load(data, split=split)


def fit_run(asked: ImageFit, place: Place) -> str:
    """Fit, or go on with a fit, and store it; returns how it stands."""
    run = Run(place.unfinished / asked.name)
    with run.locked() as lock:
        return _fit_run(asked, place, run, lock)


def _fit_run(asked: ImageFit, place: Place, run: Run, lock: DirectoryLock) -> str:
    train, stored = images(asked.data, "train"), place.stored(asked)
    if not run.exists:
        made, _ = plan_rows(train.x, train.image_shape or (), asked.asked)
        run.create(_config(asked, made, train, place.device))
    config = run.config()
    changed = list(_differences(_fitted(config.plan), _fitted(asked.plan(config.plan.data))))
    if changed:
        raise UsageError(f"{run.path} was begun with another plan ({'; '.join(changed)}): remove it to begin anew")
    checkpoint = run.latest_checkpoint(config.fingerprint)
    history = run.history(up_to=checkpoint[1]["iteration"] if checkpoint else 0)
    clock = _Clock(run.path / "seconds.txt")
    with clock, RunRecorder(run, config, lock) as recorder:
        try:
            result = fit(
                config.plan,
                train.x,
                execution=config.execution,
                callbacks=[recorder, _Deadline(place.deadline)],
                checkpoint=checkpoint,
                history=history,
            )
        except DivergenceError as error:
            rows = _lines(run.metrics_path)
            at = int(rows[-1]["iteration"]) if rows else 0
            _store(stored, config.plan, rows, _about(place, clock) | {"failure": str(error), "failed_at": at})
            shutil.rmtree(run.path)
            return f"diverged at iteration {at}"
        except Interrupted:
            return place.state_of(asked)
    fitted = result.fitted
    test = images(asked.data, "test")
    last = result.history.rows[-1] if result.history.rows else None
    verdict = diagnose(fitted, fitted.scaler.inverse(fitted.reference.cpu().numpy()), last)
    made_of = clustering_metrics(
        np.asarray(test.y), fitted.labels(test.x), test.split, labels_by=fitted.assignment.description
    )
    figures = {metric.name: round(metric.value, 4) for metric in made_of}
    outcome = _about(place, clock) | {
        "verdict": verdict.verdict,
        "events": fitted.info["events"],
        "split": test.split,
        "labels": fitted.assignment.description,
        "figures": figures,
    }
    _store(stored, config.plan, _lines(run.metrics_path), outcome, _half(fitted))
    shutil.rmtree(run.path)
    return f"NMI {figures['nmi']:.3f}, ACC {figures['acc']:.3f}, {verdict.verdict}"


def check_losses(asked: ImageFit, place: Place) -> dict[str, float]:
    """Fit the first iterations again: by how much each loss differs from the stored one, at most.

    Relative to the stored value where that is above 1. Kept beside the run as `losses.json`, with the other
    measurements, of which some, such as the largest log-density, magnify the order of sums on a GPU.
    """
    stored = place.stored(asked)
    train = images(asked.data, "train")
    before = {int(row["iteration"]): row for row in stored.rows() if row["iteration"] <= FIRST}
    watch = _FirstRows(max(before))
    with contextlib.suppress(Interrupted, DivergenceError):  # after as many as were asked for, or as it lived
        fit(asked.plan(stored.plan.data), train.x, execution=_execution(place.device), callbacks=[watch])
    found = loss_differences(before, {int(row["iteration"]): row for row in watch.rows})
    losses = {name: gap for name, gap in found.items() if name in stored.plan.terms}
    others = {name: gap for name, gap in found.items() if name not in losses}
    content = {**_about(place), "iterations": len(watch.rows), "largest_differences": losses, "of_others": others}
    write_text(stored.path / "losses.json", json.dumps(content, indent=1) + "\n")
    return losses


def loss_differences(
    before: Mapping[int, Mapping[str, float]], now: Mapping[int, Mapping[str, float]]
) -> dict[str, float]:
    """The largest difference of each measurement over the iterations, relative to values above 1."""
    found: dict[str, float] = {}
    for iteration, row in before.items():
        again = now.get(iteration, {})
        for name, value in row.items():
            if name == "iteration":
                continue
            gap = abs(again.get(name, float("inf")) - value) / max(1.0, abs(value))
            found[name] = max(found.get(name, 0.0), gap)
    return found


def read_json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StorageError(f"{path} is damaged or not there: {error}") from None
    return content


def head_commit() -> str:
    """Of the checkout that the code is in, where it is in one."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "not noted"


def where(device: str) -> dict[str, str]:
    place = resolve_device(device)
    name = torch.cuda.get_device_name(place) if place.type == "cuda" else "CPU"
    return {"device": name, "torch": torch.__version__}


def title_of(method: str) -> str:
    name = NAMES[method.removesuffix(recipes.PRINTED)]
    return f"{name} as printed" if method.endswith(recipes.PRINTED) else name


def learns_density(method: str) -> bool:
    return methods[method.removesuffix(recipes.PRINTED)].density is not None


class _Deadline(Callback):
    """Leaves the fit with a checkpoint when its time is over."""

    def __init__(self, deadline: float):
        self.deadline = deadline

    def on_metrics(self, fit: FitView, metrics: Metrics) -> None:  # noqa: ARG002
        if time.monotonic() > self.deadline:
            fit.interrupt()


class _FirstRows(Callback):
    """Keeps the measurements of the first iterations and leaves the fit then."""

    def __init__(self, n: int):
        self.n, self.rows = n, list[Metrics]()

    def on_metrics(self, fit: FitView, metrics: Metrics) -> None:
        self.rows.append(metrics)
        if fit.iteration >= self.n:
            fit.interrupt()


class _Clock:
    """Seconds that all processes spent on a run: a line for each of them, also where it was stopped."""

    def __init__(self, path: Path):
        self.path, self.began = path, time.monotonic()
        self.before = sum(map(float, path.read_text(encoding="utf-8").split())) if path.exists() else 0.0

    def __enter__(self) -> None:
        self.began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        if self.path.parent.exists():  # else the run has been stored
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"{time.monotonic() - self.began:.1f}\n")

    @property
    def seconds(self) -> float:
        return self.before + time.monotonic() - self.began


def _execution(device: str) -> Execution:
    return Execution(device=device, log_every=1, checkpoint_every=5000, threads=0)


def _config(asked: ImageFit, made: Plan, train: sources.Dataset, device: str) -> RunConfig:
    return RunConfig(
        source=asked.data,
        data_seed=0,
        columns=(),
        image_shape=train.image_shape or (),
        fingerprint=fingerprint(train.x),
        imports=(),
        plan=made,
        execution=_execution(device),
    )


def _about(place: Place, clock: _Clock | None = None) -> dict[str, Any]:
    spent = {} if clock is None else {"seconds": round(clock.seconds)}
    return {"commit": place.commit or head_commit(), **where(place.device), **spent}


def _store(
    stored: StoredRun,
    made: Plan,
    rows: Sequence[Mapping[str, float]],
    outcome: Mapping[str, Any],
    weights: Mapping[str, Tensor] | None = None,
) -> None:
    """Write a run; `test.json` last, which says that it is whole."""
    last = len(rows) - 1
    kept = [row for i, row in enumerate(rows) if i < FIRST or i % _KEPT_EVERY == _KEPT_EVERY - 1 or i == last]
    write_text(stored.plan_path, json.dumps(made.tree(), indent=1) + "\n")
    write_text(stored.metrics_path, "".join(json.dumps(row) + "\n" for row in kept))
    if weights is not None:
        write_atomically(stored.weights_path, lambda path: save_file(dict(weights), path))
    write_text(stored.test_path, json.dumps(outcome, indent=1) + "\n")


def _half(fitted: FittedModel) -> dict[str, Tensor]:
    """Weights in 16 bits, and what clusters are read off by."""
    kept = {
        name: (tensor.to(torch.bfloat16) if tensor.is_floating_point() and tensor.ndim > 1 else tensor)
        for name, tensor in fitted.network.state_dict().items()
    }
    kept |= {f"{_ASSIGNED}{name}": tensor for name, tensor in fitted.assignment.tensors().items()}
    if fitted.assignment.centers is not None:
        kept[f"{_ASSIGNED}spread"] = torch.tensor(fitted.assignment.spread)
    return {name: tensor.contiguous().cpu() for name, tensor in kept.items()}


def _lines(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _fitted(made: Plan) -> dict[str, Any]:
    """What of a plan decides the fit: not the reasons, nor where the shares of its prior are from."""
    tree: dict[str, Any] = json.loads(json.dumps(made.tree()))
    data = {name: tree["data"][name] for name in ("n_rows", "n_features", "image_shape")}
    return {**{part: tree[part] for part in _FITTED}, "data": data}


def _differences(before: Any, now: Any, path: str = "") -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for name in sorted({*before, *now}):
            yield from _differences(before.get(name), now.get(name), f"{path}.{name}" if path else name)
    elif before != now:
        yield f"{path.removeprefix('config.')} was {before}, is {now}"
