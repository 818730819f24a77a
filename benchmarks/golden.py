"""Two versions of the package side by side: the same small fits with both, compared bit for bit.

python benchmarks/golden.py                          the last commit with flat settings against this working tree
python benchmarks/golden.py --before DIR --only 'moons/*'

A case says what is fitted in the words of 0.1 (`options=`, one flat name a setting) and in those of 0.2 (`config=`,
"section.setting"). Each version runs in a process of its own, with the same interpreter, and records what comes
out: measurements of every iteration, labels, posteriors, log-densities, features and samples.
"""

import argparse
import fnmatch
import importlib
import importlib.util
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits, make_circles, make_moons
from sklearn.metrics import normalized_mutual_info_score


def _flat_settings() -> Any:
    """The words of 0.1, from this working tree: the tree that is run may not have them."""
    path = Path(__file__).resolve().parents[1] / "src" / "gedikit" / "flat_settings.py"
    spec = importlib.util.spec_from_file_location("flat_settings", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_flat = _flat_settings()
OBJECTIVES, made_of, new_config = _flat.OBJECTIVES, _flat.made_of, _flat.new_config
Flat = Mapping[str, Any]

Record = dict[str, NDArray[Any]]  # what came out, by name; columns of measurements are "metric/NAME"

BEFORE = "30b9df3"  # the last commit with flat settings
HERE = Path(__file__).resolve().parents[1]
FIRST, TOLERANCE = 20, 1e-5  # of the first losses, where a fit is not the same bit for bit
RENAMED = {"reading": "pseudo-labels"}  # measurements


class Data(NamedTuple):
    """Rows, of which the first are trained on and all are looked at afterwards, and their classes."""

    x: NDArray[Any]
    y: NDArray[Any]
    n_clusters: int
    n_train: int
    examples: NDArray[np.int64] | None = None  # rows of x that show a, b and a + b


def moons(seed: int = 0) -> Data:
    x, y = make_moons(400, noise=0.05, random_state=seed)
    return Data(x, y, 2, 300)


def circles(seed: int = 0) -> Data:
    x, y = make_circles(400, noise=0.05, factor=0.5, random_state=seed)
    return Data(x, y, 2, 300)


def digits() -> Data:
    x, y = load_digits(return_X_y=True)
    return Data(x, y, 10, len(x))


def addition() -> Data:
    """Thirty sums of handwritten digits, no image in two of them."""
    whole = digits()
    rng = np.random.default_rng(0)
    pairs = np.array([(a, b) for a in range(10) for b in range(10 - a)])
    drawn = pairs[rng.integers(len(pairs), size=30)]
    shown = np.column_stack([drawn, drawn.sum(1)])
    rows = np.empty(shown.shape, dtype=np.int64)
    for digit in range(10):
        rows[shown == digit] = rng.permutation(np.flatnonzero(whole.y == digit))[: (shown == digit).sum()]
    return whole._replace(examples=rows)


def pictures(channels: int) -> Data:
    """Images in bytes, 16 pixels a side: a soft blob in one of three places, in any light."""
    rng = np.random.default_rng(0)
    y = np.arange(72) % 3
    centers = np.array([(4.0, 4.0), (11.0, 5.0), (7.0, 12.0)])[y] + rng.normal(scale=0.7, size=(72, 2))
    rows, columns = np.mgrid[:16, :16]
    distances = (rows - centers[:, 0, None, None]) ** 2 + (columns - centers[:, 1, None, None]) ** 2
    blobs = np.exp(-distances / 8)[..., None] * rng.uniform(0.6, 1, size=(72, 1, 1, channels))
    noisy = 255 * blobs + rng.normal(scale=4, size=blobs.shape)
    return Data(noisy.clip(0, 255).astype(np.uint8), y, 3, 60)


@dataclass(frozen=True)
class Case:
    """Something to fit with both versions, asked for in the words of each: keyword arguments of GEDI."""

    name: str
    method: str
    data: Callable[[], Data]
    old: Flat
    new: Flat
    run: Callable[["Case", Flat, "Package"], Record]
    steps: int = 20  # Langevin steps of samples
    own_encoder: bool = False  # a module of the user's instead of the one that settings name
    members: tuple[tuple[Callable[[], Data], int], ...] = ()  # of a stack: data and seed

    @property
    def has_density(self) -> bool:
        return made_of(self.method)[1] is not None


@dataclass(frozen=True)
class Package:
    """The version that this process has imported."""

    tree: Path
    flat: bool  # speaks the words of 0.1
    looks_for_shares: bool  # in the data, unless equal ones are asked for

    @classmethod
    def imported_from(cls, tree: Path) -> "Package":
        source = tree / "src"
        sys.path.insert(0, str(source))
        package = importlib.import_module("gedikit")
        assert Path(str(package.__file__)).is_relative_to(source), f"{package.__file__} is not of {tree}"
        parameters = inspect.signature(package.GEDI).parameters
        return cls(tree, "options" in parameters, parameters["prior"].default == "auto")

    def asked(self, case: Case) -> Flat:
        return case.old if self.flat else case.new

    @property
    def equal_shares(self) -> Flat:
        """What asks for clusters of equal shares."""
        return {"prior": "uniform"} if self.looks_for_shares else {}

    def get(self, module: str, name: str) -> Any:
        return getattr(importlib.import_module(f"gedikit.{module}" if module else "gedikit"), name)


def cases() -> dict[str, Case]:
    fits = [*_moons(), *_settings(), *_parameters(), *_digits(), *_printed(), *_pictures(), *_additions()]
    return {case.name: case for case in (*fits, _stack(), _resumed())}


SMALL = {"iterations": 60, "log_every": 1, "batch_size": 100, "warmup": 10, "negatives": 100, "bank": 2000}


def _moons() -> Iterator[Case]:
    """Every method that needs no rules, and pairs of sides."""
    named = ("gedi", "gedi-no-gen", "gedi-no-inv", "gedi-no-prior", "jem", "gedi-two-stage", "ebclr")
    pairs = ("swav+cluster-energy", "simclr+flow", "vicreg+contrastive-energy", "bound+flow")
    for method in (*named, *OBJECTIVES[5:], *pairs):
        yield _fit(f"moons/{method}", method, moons, SMALL)


def _settings() -> Iterator[Case]:
    """Settings that no recipe changes, each away from its default."""
    chains = {**SMALL, "buffer": 200, "steps": 3, "restart": 0.1}
    asked: dict[str, tuple[str, Flat]] = {
        "mala": ("gedi", {**chains, "sampler": "mala", "step_size": 0.4, "buffer_dtype": "bfloat16"}),
        "sgld": (
            "gedi",
            {
                **chains,
                **{"sampler": "sgld", "buffer_start": "gaussian", "step_size": 0.01, "noise_std": 0.02},
                **{"bounds": "reject", "energy_l2": 0.01, "largest_gap": 2.0},
            },
        ),
        "importance": ("gedi", {**SMALL, "sampler": "importance", "step_size": 0.1}),
        "weights": ("gedi", {**SMALL, "generative": 0.5, "invariance": 5, "prior": 20, "symmetric": "on"}),
        "network": (
            "gedi",
            {
                **SMALL,
                **{"hidden": (32, 16), "features": 8, "activation": "tanh", "projection": 4, "frequencies": 16},
                **{"detail": 0.1, "head": "cosine", "temperature": 0.2, "labels": "k-means"},
            },
        ),
        "paper-mlp": ("gedi", {**SMALL, "network": "paper-normalised", "labels": "projection"}),
        "noise": ("gedi", {**SMALL, "augmentation": "noise", "noise": 0.1, "noise_unit": "absolute"}),
        "walk": ("gedi", {**SMALL, "noise": 0.3, "neighbours": 6, "walk_hold": 0.1, "walk_end": 0.5}),
        "domain": ("gedi", {**SMALL, "scaling": "global", "margin": 1.0}),
        "optimiser": (
            "gedi-no-gen",
            {
                **{**SMALL, "learning_rate": 3e-3, "warmup": 5, "decay_from": 0.2, "decay_to": 0.1},
                **{"average": 0.9, "weight_decay": 0.01},
            },
        ),
        "swav": (
            "swav",
            {
                **{**SMALL, "queue": 250, "freeze_prototypes": 10, "sinkhorn_epsilon": 0.03},
                **{"sinkhorn_iterations": 5, "discriminative": 2.0},
            },
        ),
        "sela": ("sela", {**SMALL, "sinkhorn_epsilon": 0.1, "assign_every": 7}),
        "infonce": ("infonce", {**SMALL, "similarity": "dot", "similarity_temperature": 0.3}),
        "kscl": ("kscl", {**SMALL, "shots": 2, "similarity_temperature": 0.3}),
        "ebclr": ("ebclr", {**SMALL, "similarity_temperature": 0.2, "references": 64, "discriminative": 0.5}),
        "protocpc": ("protocpc", {**SMALL, "teacher_temperature": 0.07}),
        "barlow-twins": ("barlow-twins", {**SMALL, "off_diagonal": 0.01}),
        "vicreg": ("vicreg", {**SMALL, "vicreg_invariance": 10, "vicreg_variance": 15, "vicreg_covariance": 2}),
        "w-mse": ("w-mse", {**SMALL, "shrinkage": 0.01}),
        "corinfomax": ("corinfomax", {**SMALL, "corinfomax_invariance": 100, "covariance_momentum": 0.8}),
        "mec": ("mec", {**SMALL, "distortion": 0.1}),
        "flow": ("bound+flow", {**SMALL, "flow_transforms": 2, "flow_hidden": (16,), "generative": 2.0}),
    }
    for name, (method, options) in asked.items():
        yield _fit(f"settings/{name}", method, moons, options)


# shares that are given are not looked for in a partition of the rows
_WITHOUT_START = {"objectives.pseudo-labels.share": 0.0, "views.hold": 0.3, "views.end": 0.8}


def _parameters() -> Iterator[Case]:
    """What the estimator is given beside settings."""
    given = _fit("parameters/prior", "gedi", moons, SMALL, prior=(0.3, 0.7))
    yield replace(given, new={**given.new, "config": {**given.new["config"], **_WITHOUT_START}})
    yield _fit(
        "parameters/max_iter", "gedi", moons, {"log_every": 1}, max_iter=60, batch_size=80, learning_rate=2e-3
    )
    yield replace(_fit("parameters/encoder", "gedi", moons, SMALL), own_encoder=True)


def _digits() -> Iterator[Case]:
    """Columns enough for chains instead of weighted proposals; the defaults, but for the time."""
    yield _fit("digits/gedi", "gedi", digits, {"iterations": 60, "log_every": 1}, n_features=64)


def _printed() -> Iterator[Case]:
    """The recipes of the paper's appendix on synthetic data."""
    for method in ("gedi", "jem", "barlow-twins", "swav"):
        name = method + "-as-printed"
        yield _fit(f"printed/{name}", name, moons, {"iterations": 40, "log_every": 1})


# What 0.1 does by default for images on a CPU, and the values that go with it for images as for anything else
_IMAGES = {
    **{"network": "resnet8", "head": "linear", "temperature": 1.0, "freeze_prototypes": 0},
    **{"generative": 1.0, "invariance": 25.0, "prior": 50.0, "symmetric": "on", "energy_l2": 0.001},
    **{"largest_gap": 5.0, "reading": 25.0, "walk_hold": 0.3, "walk_end": 0.8, "neighbours": 10},
    **{"sampler": "sgld", "step_size": 1.0, "noise_std": 0.01, "bounds": "clip"},
    **{"buffer_start": "gaussian", "restart": 0.05, "buffer_dtype": "float32"},
    **{"learning_rate": 5e-4, "weight_decay": 0.0, "decay_from": 0.5, "decay_to": 0.05, "average": 0.999},
    **{"epochs": 0, "max_rollbacks": 4, "threads": 0, "checkpoint_every": 200},
}
_NEIGHBOURS = {"image_walks": "on", "walk_by": "pixels", "spectral_start": 0.4}
_OUTLINES = {**_NEIGHBOURS, "walk_by": "outlines", "spectral_start": 0.5, "learning_rate": 1e-3}
RECIPES: dict[str, tuple[str, int, Flat]] = {  # the data set it is named after in 0.1, channels, settings
    "drawings": ("mnist", 1, {**_IMAGES, **_NEIGHBOURS, "augmentation": "digits"}),
    "photos": ("cifar10", 3, {**_IMAGES, "image_walks": "off", "augmentation": "cifar10"}),
    "writing": ("svhn", 3, {**_IMAGES, **_OUTLINES, "augmentation": "svhn"}),
}
_TINY = {
    **{"width": 4, "steps": 2, "batch_size": 16, "negatives": 16, "buffer": 64, "walk_copies": 2},
    **{"iterations": 20, "warmup": 5, "log_every": 1},
}


def _pictures() -> Iterator[Case]:
    """Images in bytes; in 0.2 every setting of the recipe is spelt out, so that its own recipes may differ."""
    for name, (like, channels, recipe) in RECIPES.items():
        shape = (16, 16, channels)
        config = new_config("gedi", {**recipe, **_TINY, "image_shape": shape}, 256 * channels)
        yield Case(
            f"pictures/{name}",
            "gedi",
            lambda channels=channels: pictures(channels),  # type: ignore[misc]
            {"like": like, "options": _TINY},
            {"config": config},
            run_fit,
            steps=2,
        )


def _additions() -> Iterator[Case]:
    """Digits that are known by thirty of their sums."""
    options = {"iterations": 40, "log_every": 1, "batch_size": 60, "negatives": 64, "buffer": 256, "warmup": 5}
    for method in ("gedi-symbols", "nesy", "gedi-nesy"):
        yield _fit(f"addition/{method}", method, addition, options, n_features=64)
    weights = {**options, "constraint": 10.0, "uniformity": 100.0}
    yield _fit("addition/weights", "gedi-nesy", addition, weights, n_features=64)


def _stack() -> Case:
    """Models of several data, seeds and weights in one step."""
    weights = ({"invariance": 10.0}, {"invariance": 20.0}, {"prior": 15.0})
    return Case(
        "stack/gedi",
        "gedi",
        moons,
        {"members": [{**SMALL, "max_rollbacks": 2, **w} for w in weights]},
        {"members": [new_config("gedi", {**SMALL, "max_rollbacks": 2, **w}) for w in weights]},
        run_stack,
        members=((moons, 0), (lambda: moons(1), 1), (circles, 2)),
    )


def _resumed() -> Case:
    """A training that is killed and resumed, beside one that is not."""
    options = {
        **{"iterations": 400, "log_every": 1, "checkpoint_every": 50, "batch_size": 100, "negatives": 100},
        **{"bank": 2000, "warmup": 10},
    }
    config = new_config("gedi", options)
    return Case("resumed/gedi", "gedi", moons, {"options": options}, {"config": config}, run_resumed)


def _fit(
    name: str, method: str, data: Callable[[], Data], options: Flat, n_features: int = 2, **given: Any
) -> Case:
    """A case of one fit; `given` are parameters that both versions have."""
    config = new_config(method, options, n_features)
    density = made_of(method)[1]
    if density is not None:
        config["density.name"] = density  # the plan might take another one
    return Case(name, method, data, {"options": options, **given}, {"config": config, **given}, run_fit)


def run_fit(case: Case, asked: Flat, package: Package) -> Record:
    """One estimator, from its rows to its samples."""
    data = case.data()
    train = data.x[: data.n_train]
    model = package.get("", "GEDI")(
        data.n_clusters,
        method=case.method,
        random_state=0,
        device="cpu",
        encoder=_encoder(data.x.shape[1]) if case.own_encoder else None,
        **{**package.equal_shares, **_copied(asked)},
    )
    if data.examples is None:
        model.fit(train)
    else:
        rule = package.get("symbolic", "Constraint")(lambda a, b, c: a + b == c, domains=(10, 10, 10))
        model.fit_examples(train, rule, data.examples)
    return {**_columns(model.history_), **_outputs(model, data, case)}


def _encoder(n_features: int) -> Any:
    import torch
    from torch import nn

    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(n_features, 32), nn.SiLU(), nn.Linear(32, 16))


def run_stack(case: Case, asked: Flat, package: Package) -> Record:
    """Several models fitted in one step."""
    data = [make() for make, _ in case.members]
    seeds = [seed for _, seed in case.members]
    together = _stack_of_flat_settings if package.flat else _stack_of_plans
    outcomes = together(case, data, seeds, asked["members"], package)
    record: Record = {}
    for i, (outcome, of) in enumerate(zip(outcomes, data, strict=True)):
        assert outcome.failure is None, outcome.failure
        model = package.get("", "GEDI").from_fitted(outcome.fitted, device="cpu")
        member = {**_columns(outcome.history.rows), **_outputs(model, of, case)}
        record |= {f"{i}/{name}": value for name, value in member.items()}
    return record


def _stack_of_flat_settings(
    case: Case, data: Sequence[Data], seeds: Sequence[int], options: Sequence[Flat], package: Package
) -> list[Any]:
    """In the words of 0.1."""
    method = package.get("methods", "get_method")(case.method)
    task = package.get("training.many", "Task")
    tasks = [
        task(of.x[: of.n_train], method.settings(**asked), seed, of.n_clusters)
        for of, seed, asked in zip(data, seeds, options, strict=True)
    ]
    outcomes: list[Any] = package.get("training.many", "fit_many")(tasks, method, device="cpu")
    return outcomes


def _stack_of_plans(
    case: Case, data: Sequence[Data], seeds: Sequence[int], configs: Sequence[Flat], package: Package
) -> list[Any]:
    """In the words of 0.2."""
    profile, asked = package.get("profile", "DataProfile"), package.get("planning", "Asked")
    plan, task = package.get("planning", "plan"), package.get("training.many", "Task")
    tasks = []
    for of, seed, config in zip(data, seeds, configs, strict=True):
        train = of.x[: of.n_train]
        wanted = asked(of.n_clusters, case.method, seed=seed, config=config)
        tasks.append(task(train, plan(profile.of(train), wanted)))
    _, computed = package.get("planning", "split_execution")(configs[0])
    execution = package.get("config", "Execution").of({**computed, "device": "cpu"})
    outcomes: list[Any] = package.get("training.many", "fit_many")(tasks, execution=execution)
    return outcomes


def run_resumed(case: Case, asked: Flat, package: Package) -> Record:
    """The command line: a run to the end, and one that is killed between two checkpoints and goes on."""
    settings = [word for name, value in next(iter(asked.values())).items() for word in ("--set", f"{name}={value}")]
    settings += [word for name, value in package.equal_shares.items() for word in (f"--{name}", value)]
    wanted = ["fit", "moons", "--method", case.method, "--seed", "0", "--device", "cpu", *settings]
    record: Record = {}
    with tempfile.TemporaryDirectory() as directory:
        straight, killed = Path(directory, "straight"), Path(directory, "killed")
        _finish(_start([*wanted, "--out", str(straight)], package))
        _kill_after_checkpoints(_start([*wanted, "--out", str(killed)], package), killed)
        _finish(_start(["fit", "--resume", "--out", str(killed)], package))
        for name, run in (("straight", straight), ("resumed", killed)):
            lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            model = package.get("", "GEDI").load(run / "model.safetensors", device="cpu")
            found = {**_columns([json.loads(line) for line in lines]), **_outputs(model, case.data(), case)}
            record |= {f"{name}/{key}": value for key, value in found.items()}
    return record


def _start(arguments: Sequence[str], package: Package) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from gedikit.cli import main; main()", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(package.tree / "src")}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=package.tree
    )


def _finish(process: subprocess.Popen[str]) -> None:
    output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"gedikit ended with {process.returncode}: {output.strip()[-500:]}")


def _kill_after_checkpoints(process: subprocess.Popen[str], run: Path, count: int = 2) -> None:
    """SIGKILL, as soon as there are so many checkpoints."""
    while process.poll() is None and len([*run.glob("checkpoints/step-*.safetensors")]) < count:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    output, _ = process.communicate()
    if process.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the run ended before it could be killed: {output.strip()[-500:]}")


def _outputs(model: Any, data: Data, case: Case) -> Record:
    """Everything that can be asked of a fitted model; log-densities with log Γ, which was left to users once."""
    labels, fitted = model.predict(data.x), model.fitted_
    taken_off = 0.0 if hasattr(model, "log_normaliser_") else fitted.log_normaliser or 0.0
    record: Record = {
        "training labels": model.labels_,
        "labels": labels,
        "posterior": model.predict_proba(data.x),
        "log-density": (model.score_samples(data.x) + taken_off).astype(np.float32),
        "quantiles": (fitted.quantiles + taken_off).astype(np.float32),
        "log normaliser": np.array(np.nan if fitted.log_normaliser is None else fitted.log_normaliser),
        "features": model.transform(data.x),
        "NMI": np.array(normalized_mutual_info_score(data.y, labels)),
    }
    if case.has_density:
        record["samples"], record["labels of samples"] = model.sample(20, steps=case.steps, random_state=0)
        record["samples from noise"] = model.sample(10, steps=case.steps, start="noise", random_state=1)[0]
        record["samples of a cluster"] = model.sample(10, steps=case.steps, cluster=1, random_state=2)[0]
    return record


def _columns(rows: Sequence[Mapping[str, float]]) -> Record:
    """Measurements by name; not a number where one was not measured."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {f"metric/{name}": np.array([row.get(name, np.nan) for row in rows]) for name in names}


def _copied(asked: Flat) -> dict[str, Any]:
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in asked.items()}


def record(tree: Path, names: Sequence[str], out: Path) -> None:
    """Run cases with the version of one tree and write down what comes out."""
    package = Package.imported_from(tree)
    known = cases()
    found: Record = {}
    for name in names:
        began = time.perf_counter()
        case = known[name]
        try:
            made = case.run(case, package.asked(case), package)
        except Exception as error:
            made = {"error": np.array(f"{type(error).__name__}: {error}")}
        seconds = time.perf_counter() - began
        print(f"{name}: {made.get('error', f'{seconds:.1f} s')}", flush=True)
        found |= {f"{name}|{key}": np.asarray(value) for key, value in made.items()}
        found[f"{name}|seconds"] = np.array(seconds)
    np.savez(out, **found)  # type: ignore[arg-type]


def read(path: Path) -> dict[str, Record]:
    """What `record` wrote, by case, with measurements under their present names."""
    found: dict[str, Record] = {}
    with np.load(path) as file:
        for key in file.files:
            case, _, name = key.partition("|")
            head, slash, metric = name.rpartition("metric/")
            found.setdefault(case, {})[head + slash + RENAMED.get(metric, metric)] = file[key]
    return found


@dataclass(frozen=True)
class Comparison:
    """What two versions made of one case."""

    verdict: str
    passed: bool
    first: int | None = None  # iteration that differs
    worst: float = 0.0  # relative difference of the first losses
    differing: tuple[str, ...] = ()


def compare(before: Record, now: Record) -> Comparison:
    """Whether two records are the same bit for bit and, if not, how far apart they are."""
    for when, one in (("before", before), ("now", now)):
        if "error" in one:
            return Comparison(f"failed {when}: {one['error']}", False, worst=np.inf)
        if _resumes_otherwise(one):
            return Comparison(f"resumed is not uninterrupted {when}", False, worst=np.inf)
    names = dict.fromkeys(name for name in (*before, *now) if name != "seconds")
    differing = [name for name in names if not _same(before.get(name), now.get(name))]
    if not differing:
        return Comparison("equal bit for bit", True)
    worst = max((_distance(before.get(n), now.get(n)) for n in names if _is_loss(n)), default=np.inf)
    passed = bool(worst <= TOLERANCE)
    first = min((at for n in differing if (at := _first_difference(n, before, now)) is not None), default=None)
    said = [f"{n} (only {'before' if n in before else 'now'})" for n in differing if (n in before) != (n in now)]
    said += [n for n in differing if n in before and n in now]
    return Comparison("close" if passed else "different", passed, first, worst, tuple(said))


def _resumes_otherwise(one: Record) -> bool:
    resumed = {name.removeprefix("resumed/"): value for name, value in one.items() if name.startswith("resumed/")}
    return any(not _same(value, one.get(f"straight/{name}")) for name, value in resumed.items())


def _same(a: NDArray[Any] | None, b: NDArray[Any] | None) -> bool:
    if a is None or b is None:
        return False
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _is_loss(name: str) -> bool:
    _, found, metric = name.rpartition("metric/")
    return bool(found) and metric in (*OBJECTIVES, "generative", "energy_l2")


def _distance(a: NDArray[Any] | None, b: NDArray[Any] | None) -> float:
    """The largest relative difference of the first losses."""
    if a is None or b is None or len(a) != len(b):
        return np.inf
    a, b = a[:FIRST], b[:FIRST]
    if (np.isnan(a) != np.isnan(b)).any():
        return np.inf
    apart, size = np.abs(a - b), np.maximum(np.abs(a), np.abs(b))
    return float(np.nanmax(np.divide(apart, size, out=np.zeros_like(apart), where=apart > 0), initial=0.0))


def _first_difference(name: str, before: Record, now: Record) -> int | None:
    """The first iteration in which a measurement differs."""
    head, found, _ = name.rpartition("metric/")
    if not found or name not in before or name not in now:
        return None
    a, b = before[name], now[name]
    n = min(len(a), len(b))
    different = np.flatnonzero(~((a[:n] == b[:n]) | (np.isnan(a[:n]) & np.isnan(b[:n]))))
    return int(before[f"{head}metric/iteration"][different[0]]) if len(different) else None


def _nmi(one: Record) -> str:
    values = [float(value) for name, value in one.items() if name.rpartition("/")[2] == "NMI"]
    return f"{np.mean(values):.4f}" if values else "–"


def _table(before: Mapping[str, Record], now: Mapping[str, Record], found: Mapping[str, Comparison]) -> Table:
    table = Table("case", "verdict", "differs from", f"first {FIRST} losses", "what differs", "NMI", "s")
    for name, result in found.items():
        a, b = before[name], now[name]
        what = ", ".join(result.differing[:4]) + (", …" if len(result.differing) > 4 else "")
        table.add_row(
            name,
            result.verdict,
            "–" if result.first is None else str(result.first),
            f"{result.worst:.1e}" if result.worst else "equal",
            what or "–",
            f"{_nmi(a)} / {_nmi(b)}",
            f"{float(a['seconds']):.1f} / {float(b['seconds']):.1f}",
            style="green" if result.passed and not result.differing else "yellow" if result.passed else "red",
        )
    return table


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """A directory as it is, or a temporary working tree of a commit."""
    if Path(commit).is_dir():
        yield Path(commit).resolve()
        return
    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory).resolve() / "before"
        git = ["git", "-C", str(HERE), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def _side_by_side(before: str, now: str, names: Sequence[str]) -> tuple[dict[str, Record], dict[str, Record]]:
    with checked_out(before) as old, checked_out(now) as new, tempfile.TemporaryDirectory() as directory:
        outs = [Path(directory, "before.npz"), Path(directory, "now.npz")]
        processes = [
            subprocess.Popen([sys.executable, __file__, "--record", out, "--tree", tree, "--only", *names])
            for out, tree in zip(outs, (old, new), strict=True)
        ]
        codes = [process.wait() for process in processes]
        if any(codes):
            raise SystemExit(f"the two versions ended with {codes[0]} and {codes[1]}")
        return read(outs[0]), read(outs[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default=BEFORE, metavar="COMMIT_OR_DIR")
    parser.add_argument("--now", default=str(HERE), metavar="COMMIT_OR_DIR", help="this working tree if not given")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="CASE", help="names or patterns of cases")
    parser.add_argument(
        "--record", type=Path, metavar="NPZ", help="run the cases with one tree and write what comes out"
    )
    parser.add_argument("--tree", type=Path, default=HERE, help="of --record")
    args = parser.parse_args()
    names = [name for name in cases() if any(fnmatch.fnmatch(name, pattern) for pattern in args.only)]
    if not names:
        parser.error(f"there is no such case; there are: {', '.join(cases())}")
    if args.record:
        record(args.tree.resolve(), names, args.record)
        return
    before, now = _side_by_side(args.before, args.now, names)
    found = {name: compare(before[name], now[name]) for name in names}
    Console(width=None if sys.stdout.isatty() else 200).print(_table(before, now, found))
    equal = sum(result.verdict == "equal bit for bit" for result in found.values())
    failed = [name for name, result in found.items() if not result.passed]
    print(f"{equal} of {len(found)} cases are equal bit for bit, {len(failed)} are neither that nor close")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
