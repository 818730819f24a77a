"""The commands that train."""

import dataclasses
import hashlib
import json
import os
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray

from gedikit.callbacks import Callback, ProgressLine
from gedikit.cli import measuring
from gedikit.cli.inference import Predicted, write_predictions, write_report
from gedikit.cli.loading import (
    check_labels_from,
    holds_pictures,
    import_to_go_on,
    indexed_together,
    keep_features,
    left_out_in_words,
    load_run,
    other_rows,
    read_data,
    rows_of,
    title_of,
    unfinished_in_0_1,
)
from gedikit.cli.output import console, detail
from gedikit.cli.request import FitRequest
from gedikit.cli.together import together
from gedikit.components import merge, parse_assignments
from gedikit.components.tree import expand
from gedikit.config import Execution
from gedikit.data import sources
from gedikit.data.index import Texts
from gedikit.data.shard_pictures import STOP, check_bad
from gedikit.data.shards import PARQUET, is_shards
from gedikit.diagnosis import Diagnosis
from gedikit.errors import Unhealthy, UsageError
from gedikit.estimator import GEDI, plan_rows
from gedikit.evaluation import clustering_metrics
from gedikit.features import FeatureNetwork
from gedikit.features.embedding import named_network
from gedikit.fitted import FittedModel, Predictions
from gedikit.imports import import_as_asked, whole_path
from gedikit.known import Known
from gedikit.legacy import FIRST_WITH_PLANS
from gedikit.locks import DirectoryLock
from gedikit.methods import methods
from gedikit.planning import AUTO, BUDGETS, PRIORS, Asked, Decision, Plan, check_prior, plan, split_execution
from gedikit.processes import alone, each, first_says, is_first, n_processes, restarted
from gedikit.progress import Forecast
from gedikit.report.findings import groups_in_words
from gedikit.report.rules import RuleSections, rule_sections
from gedikit.runs import Run, RunConfig, RunRecorder, StopOnSignal
from gedikit.starts import Starts
from gedikit.storage import regular_or_new
from gedikit.symbolic import Names
from gedikit.symbolic.wording import Wording
from gedikit.tables import ColumnOptions
from gedikit.training.callbacks import Callbacks
from gedikit.training.devices import resolve_device
from gedikit.training.fit import Checkpoint, fingerprint
from gedikit.training.loop import History
from gedikit.training.rules import Rules
from gedikit.views.image_views import batches_per_epoch

Done = tuple[Diagnosis, int]  # the verdict, and how many rows were written
_LABELS = "labels"
_WRITTEN = 65_536  # rows that are written together
_OF_COLUMNS = ("--columns", "--drop", "--id", "--label", "--types", "--known")


def _network(request: FitRequest) -> FeatureNetwork | None:
    """What describes pictures, where it was named."""
    return None if request.features is None else named_network(request.features, request.image_size)


def _column_options(request: FitRequest, data: str) -> ColumnOptions:
    """What was said about columns, which only tables have."""
    if request.known is not None and request.label is not None:
        raise UsageError("--known and --label are both about the column of labels: give one")
    label = request.label if request.known is None else request.known
    options = ColumnOptions.parse(request.columns, request.drop, request.ids, label, request.types)
    if options != ColumnOptions() and (data in sources.BUILTIN or holds_pictures(data)):
        said = [name for name in request.given() if name in _OF_COLUMNS]
        raise UsageError(f"{', '.join(said)} is about columns of a table, which {data} is not")
    return options


def demo(data: str, out: Path, seed: int) -> None:
    if data not in sources.BUILTIN:
        raise UsageError(f"demo takes a built-in data set ({', '.join(sources.BUILTIN)}), not {data!r}")
    if Run(out).exists:
        with Run(out).locked():
            Run(out).remove()
    fit(data, FitRequest(seed=seed), out=out)
    test = sources.load(data, split="test", seed=seed)
    fitted = load_run(out, "cpu")
    console.print("\nAgainst labels the training never saw, with k-means beside it:")
    for name, clusters, by in (
        ("gedikit", fitted.labels(test.x), fitted.assignment.description),
        ("k-means", _k_means(data, seed, test.x), "nearest centre"),
    ):
        made = clustering_metrics(np.asarray(test.y), clusters, test.split, labels_by=by)
        metrics = {f.name: f.value for f in made}
        console.print(f"  {name}  NMI {metrics['nmi']:.3f}  ACC {metrics['acc']:.3f}")
    console.print(f"\nOpen the report: {Run(out).report_path.resolve()}")


def fit(
    data: str | None,
    request: FitRequest,
    *,
    out: Path | None = None,
    resume: bool = False,
    evaluate_every: int = 10,
    strict: bool = False,
    as_json: bool = False,
    typed: Mapping[str, str] = MappingProxyType({}),
) -> None:
    began = time.monotonic()
    with together(typed):
        run, config, done = _fit(data, request, out, resume, evaluate_every)
    if done is None:
        return  # another process writes and speaks
    if as_json:
        sys.stdout.write(json.dumps(summary(run, config, *done, time.monotonic() - began), indent=2) + "\n")
    verdict, _ = done
    if strict and not verdict.healthy:
        raise Unhealthy(f"{run.path}: {verdict.verdict}: {verdict.explanation}")


def _fit(
    data: str | None, request: FitRequest, out: Path | None, resume: bool, evaluate_every: int
) -> "tuple[Run, RunConfig, Done | None]":
    if resume:
        run, config, dataset = _resumed(data, out, request)
        with _written_by_first(run) as lock:
            return run, config, train(run, lock, config, dataset, evaluate_every)
    if data is None:
        raise UsageError("fit needs DATA: a built-in data set, a file or a folder of pictures")
    found = planned(data, request)
    config, dataset = found.config, found.dataset
    run = Run(out or Path("runs") / f"{title_of(config.source)}-{config.plan.method}-{config.plan.seed}")
    with _written_by_first(run) as lock:
        if lock is not None and not _is_begun(run, config):
            run.create(config)
        try:
            if config.features is not None and lock is not None:
                keep_features(run, config.features, dataset)
            if dataset.index is not None and lock is not None:
                dataset.index.save(regular_or_new(run.index_path))
            budgets = cheaper_budgets(config, found.asked)
            return run, config, train(run, lock, config, dataset, evaluate_every, budgets, found.starts)
        except Exception:
            if lock is not None:
                run.remove_if_nothing_was_done(lock)
            raise


@contextmanager
def _written_by_first(run: Run) -> Iterator[DirectoryLock | None]:
    """The lock of a run directory, which the first of several processes has."""
    if not is_first():
        yield None
        return
    with run.locked() as lock:
        yield lock


def _is_begun(run: Run, config: RunConfig) -> bool:
    """Whether torchrun has started this very run before: it goes on from its last checkpoint."""
    return restarted() and run.exists and run.config().to_toml() == config.to_toml()


@dataclass(frozen=True)
class Planned:
    """A run before its first iteration."""

    config: RunConfig
    dataset: sources.Dataset
    asked: Asked
    starts: Starts


def planned(data: str, request: FitRequest) -> Planned:
    """Everything about a run that can be wrong is found wrong here, before a directory is made for it."""
    import_as_asked(request.imports)
    changes, computed = asked_changes(data, request)
    seed = request.seed_or_first
    n_clusters = request.clusters if request.clusters is not None else sources.default_clusters(data)
    asked = Asked(
        n_clusters,
        request.method or "gedi",
        parse_prior(request.prior),
        request.views or "auto",
        request.budget or "default",
        seed,
        changes,
    )
    _check_early(asked)
    execution = Execution.of({"device": request.device or "auto", **computed})
    resolve_device(execution.device)
    size = sources.IMAGE_SIZE if request.image_size is None else request.image_size
    network = _network(request)
    if network is not None:  # numbers of one network have one unit
        asked = dataclasses.replace(asked, config=merge({"data": {"scaling": "global"}}, dict(asked.config)))
    labels_from = "" if request.labels_from is None else check_labels_from(request.labels_from, data)
    shards = _shard_reading(data, request)
    options = _column_options(request, data)
    reading = indexed_together(data, shards, size) if shards is not None and network is None else shards
    dataset = each(
        lambda: read_data(
            data,
            seed,
            image_size=size,
            options=options,
            network=network,
            labels_from=labels_from,
            device=execution.device,
            shards=reading,
        )
    )
    if request.known is not None:
        asked = dataclasses.replace(asked, known=_known_labels(dataset, told=True))
    elif dataset.label_column:
        console.print(f"{dataset.label_column!r} is kept for evaluation and not trained on")
    with console.status("looking for groups") if console.is_terminal else nullcontext():
        made, starts = plan_rows(dataset.rows, dataset.image_shape or (), asked, dataset.encoding)
    made = dataclasses.replace(made, decisions=(*_about_pictures(dataset, network), *made.decisions))
    config = run_config(data, request, dataset, made, execution)
    config = dataclasses.replace(
        config, features=network, labels_from=labels_from, beside=beside(dataset), shards=shards
    )
    return Planned(config, dataset, asked, starts)


def run_config(
    data: str, request: FitRequest, dataset: sources.Dataset, made: Plan, execution: Execution
) -> RunConfig:
    """What a run directory says of a plan for rows that were read."""
    pictures = made.config.data.image_shape or dataset.image_shape or ()
    return RunConfig(
        source=data if data in sources.BUILTIN or "://" in data else str(Path(data).resolve()),
        data_seed=made.seed,
        columns=dataset.columns,
        image_shape=pictures if dataset.x.dtype == np.uint8 else (),
        fingerprint=fingerprint(dataset.rows),
        imports=tuple(map(whole_path, request.imports or [])),
        plan=made,
        execution=execution,
        encoding=dataset.encoding,
    )


def _shard_reading(data: str, request: FitRequest) -> sources.ShardReading | None:
    """How shards are read, which only some data are."""
    said = {"--bad-shards": request.bad_shards, "--memory": request.memory, "--index": request.index}
    if data in sources.BUILTIN or not (is_shards(data) or data.lower().endswith(PARQUET)):
        given = [name for name, value in said.items() if value is not None]
        if given:
            raise UsageError(f"{', '.join(given)} is about shards, which {data} is not")
        return None
    how = sources.ShardReading(
        bad=check_bad(request.bad_shards or STOP),
        index=None if request.index is None else Path(request.index),
    )
    if request.memory is None:
        beside = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if n_processes() > 1 else 1
        return dataclasses.replace(how, memory=first_says(lambda: how.memory // beside))
    if not request.memory >= 0:
        raise UsageError(f"--memory must not be negative, not {request.memory}")
    return dataclasses.replace(how, memory=int(request.memory * 1e9))


def _known_labels(dataset: sources.Dataset, *, told: bool = False) -> Known | None:
    """Labels of some rows, from the column of labels: its values in order are clusters 0, 1, …"""
    if dataset.y is None:
        raise UsageError(f"{dataset.name} has no column of labels for --known")
    codes, values = pd.factorize(dataset.y, sort=True)
    if told:
        names = ", ".join(f"{i} is {value}" for i, value in enumerate(values))
        console.print(f"{int((codes >= 0).sum())} rows have a known label; cluster {names}")
    return Known.of(len(codes), partial_labels=codes)


def _about_pictures(dataset: sources.Dataset, network: FeatureNetwork | None) -> list[Decision]:
    """What the plan says of pictures before anything is decided about their rows."""
    said = []
    if network is not None:
        what = f"{network.name} at {network.size} pixels a side"
        said.append(Decision("features", what, f"asked for: {network.summary}"))
    if dataset.drawn_from is not None and dataset.drawn_from > len(dataset.x):
        why = f"drawn by the seed from {dataset.drawn_from:,}, which memory cannot hold"
        said.append(Decision("rows", f"{len(dataset.x):,} to learn from", why))
    if dataset.skipped:
        why = left_out_in_words(dataset.skipped)
        said.append(
            Decision(
                "files",
                f"{len(dataset.rows)} {'pictures' if dataset.names else 'rows'}, {len(dataset.skipped)} left out",
                why,
            )
        )
    return said


def asked_changes(data: str, request: FitRequest) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings that were asked for, about the fit and about how it is computed."""
    if request.iters is not None and request.epochs is not None:
        raise UsageError("--iters and --epochs both say how long to train: give one")
    for name, value in (("--iters", request.iters), ("--epochs", request.epochs)):
        if value is not None and value < 1:
            raise UsageError(f"{name} must be at least 1, not {value}")
    if request.image_size is not None and request.features is None and not holds_pictures(data):
        raise UsageError(f"--image-size is for a folder of pictures or shards of them, which {data} is not")
    changes, computed = split_execution(parse_assignments(request.assignments or []))
    if request.iters is not None:
        changes = merge(changes, expand({"optimiser.iterations": request.iters, "optimiser.epochs": 0}))
    if request.epochs is not None:
        changes = merge(changes, expand({"optimiser.epochs": request.epochs}))
    return changes, computed


def _check_early(asked: Asked) -> None:
    """Say what is wrong with the request before data is read."""
    method = methods[asked.method]
    if method.needs_examples:
        raise UsageError(
            f"{asked.method!r} learns from rules: use gedikit fit-rules, or GEDI.fit_examples in Python"
        )
    if asked.n_clusters is not None and asked.n_clusters < 1:
        raise UsageError(f"n_clusters must be at least 1, not {asked.n_clusters}")
    if not isinstance(asked.prior, str):
        check_prior(np.asarray(asked.prior), asked.n_clusters or len(asked.prior))


def _k_means(data: str, seed: int, x: NDArray[Any]) -> NDArray[Any]:
    from sklearn.cluster import KMeans

    model = KMeans(sources.BUILTIN[data].n_clusters, n_init=10, random_state=seed)
    clusters: NDArray[Any] = model.fit(sources.load(data, seed=seed).x).predict(x)
    return clusters


def _resumed(data: str | None, out: Path | None, request: FitRequest) -> tuple[Run, RunConfig, sources.Dataset]:
    if out is None:
        raise UsageError("--resume needs --out: which run is to be continued?")
    import_to_go_on(request)
    run = Run(out)
    config = _config_of(run)
    if config.format < FIRST_WITH_PLANS and not run.model_path.exists():
        raise UsageError(unfinished_in_0_1(out))
    if methods[config.plan.method].needs_examples:
        raise UsageError(f"{out} learns from rules: continue it with gedikit fit-rules --resume --out {out}")
    source = data or config.source
    dataset = rows_of(run, config, data)
    if fingerprint(dataset.rows) != config.fingerprint:
        raise UsageError(f"{out} was trained on other data than is in {source} now")
    refuse_changes(out, source, config.beside, beside(dataset), (_LABELS,) if _learns_labels(config) else ())
    return run, config, dataset


def refuse_changes(
    out: Path, source: str, before: Mapping[str, str], now: Mapping[str, str], learned_from: Collection[str]
) -> None:
    """Say what beside the rows is not as it was when a run began; what it learns from must be."""
    changed = [name for name, mark in before.items() if now.get(name) != mark]
    for name in changed:
        if name in learned_from:
            raise UsageError(f"{out} learns from {name}, and those in {source} are not the same as when it began")
    if changed:
        what = " and ".join(changed)
        console.print(f"{what} in {source} have changed since the run began: outputs have them as they are now")


def _config_of(run: Run) -> RunConfig:
    """What a run directory says, which the first of several processes reads for all."""
    if n_processes() == 1:
        return run.config()

    def text() -> str:
        run.config()
        return run.config_path.read_text(encoding="utf-8")

    return RunConfig.parsed(first_says(text), run.config_path)


def beside(dataset: sources.Dataset) -> dict[str, str]:
    """Fingerprints of what comes with the rows and goes into outputs; training on the rows does not see it."""
    names = dataset.all_names
    labels = dataset.y if dataset.index is None else dataset.index.labels
    listed = np.array(names) if names and not isinstance(names, Texts) else None
    found = {_LABELS: labels, "ids": dataset.ids, "names": listed}
    made = {name: _fingerprint_of_values(values) for name, values in found.items() if values is not None}
    return (
        {**made, "names": hashlib.sha256(names.letters.tobytes()).hexdigest()[:16]}
        if isinstance(names, Texts)
        else made
    )


def _fingerprint_of_values(values: ArrayLike) -> str:
    """Tells whether two arrays or tables of any values are the same, as they are written."""
    rows = pd.DataFrame(np.asarray(values)).to_csv(index=False)
    return hashlib.sha256(rows.encode()).hexdigest()[:16]


def _learns_labels(config: RunConfig) -> bool:
    return any(objective.needs_labels for objective in config.plan.config.objectives.values())


@dataclass(frozen=True)
class Learned:
    """What a fit learns from beside rows: rules and examples, what these are called, and labels of a few rows."""

    rules: Rules
    words: Wording
    known: Known | None

    def sections(self, fitted: FittedModel, x: NDArray[Any]) -> RuleSections | None:
        return rule_sections(fitted, fitted.posterior(x), self.rules.placed, self.words)


def train(
    run: Run,
    lock: DirectoryLock | None,
    config: RunConfig,
    dataset: sources.Dataset,
    evaluate_every: int,
    cheaper: Mapping[str, float] = MappingProxyType({}),
    starts: Starts | None = None,
    learned: Learned | None = None,
) -> "Done | None":
    """Train unless that is done, then write what a finished run has; checkpoints are removed last.

    Of several processes the first one, which has the lock, writes.
    """
    made = config.plan
    trained = first_says(run.model_path.exists)
    model = GEDI(config={"execution": dataclasses.asdict(config.execution)})
    if lock is None:
        if not trained:
            with StopOnSignal() as stop:
                _compute(model, config, dataset, [stop], starts, learned)
        return None
    if trained:
        console.print(f"{run.path} is already trained")
        fitted = load_run(run.path, config.execution.device)
    else:
        checkpoint = run.latest_checkpoint(config.fingerprint)
        at = checkpoint[1]["iteration"] if checkpoint else 0
        console.print(announcement(config, at))
        for decision in made.decisions:
            detail(f"  {decision.what}: {decision.choice} ({decision.reason})")
        with ExitStack() as stack:
            line = stack.enter_context(ProgressLine(console))
            recorder = stack.enter_context(RunRecorder(run, config, lock))
            followers: list[Callback] = [recorder, line, Forecast(console, cheaper)]
            followers += _evaluations(run, config, evaluate_every, len(dataset.rows), line)
            history = run.history(up_to=at)
            if checkpoint is not None and checkpoint[1].get("processes", 1) != n_processes():
                before = checkpoint[1].get("processes", 1)
                Callbacks([recorder, line]).on_event(
                    f"iteration {at}: resumed on {_processes(n_processes())}, was {before}"
                )
            _compute(model, config, dataset, followers, starts, learned, checkpoint, history)
        for name, why in dataset.skipped:
            run.append(run.log_path, f"left out: {name} ({why})")
        fitted = model.fitted_
        lock.check()
        model.save(run.model_path)
    with console.status("writing the report") if console.is_terminal else nullcontext():
        predictions = fitted.training_predictions or fitted.predictions(dataset.rows)
        with alone():
            rows, _ = write_predictions(fitted, _in_blocks(dataset, predictions), regular_or_new(run.labels_path))
        of_shown = predictions if dataset.numbers is None else predictions.of(dataset.numbers)
        sections = None if learned is None else learned.sections(fitted, dataset.x)
        verdict = write_report(run, config, fitted, dataset, of_shown, sections)
    run.forget_checkpoints()
    sizes = np.bincount(predictions.labels, minlength=fitted.n_clusters)
    console.print(groups_in_words(sizes, "pictures" if dataset.names else "rows"))
    if "names" in fitted.info:
        _tell_names(Names.from_tree(fitted.info["names"]))
    console.print(f"{verdict.verdict}: {verdict.explanation}", style="green" if verdict.healthy else "yellow")
    if not verdict.healthy:
        console.print(verdict.advice)
    console.print(f"clusters of {rows} {'pictures' if dataset.names else 'rows'}: {run.labels_path}")
    console.print(f"report: {run.report_path}")
    return verdict, rows


def _tell_names(names: Names) -> None:
    n = len(names.names)
    console.print(f"{n - len(names.undecided)} of {n} clusters have a name that is sure")
    for line in names.left_open():
        console.print(line)


def _in_blocks(dataset: sources.Dataset, found: Predictions) -> Iterator[list[Predicted]]:
    """What was found of all rows, so many at a time: as text they would take many times the memory."""
    names = dataset.all_names
    for start in range(0, len(found.labels), _WRITTEN):
        some = slice(start, start + _WRITTEN)
        ids = None if dataset.ids is None else dataset.ids.iloc[some]
        yield [(sources.Block(np.empty((0, 0)), names[some], ids=ids), found.of(some))]


def _compute(
    model: GEDI,
    config: RunConfig,
    dataset: sources.Dataset,
    followers: list[Callback],
    starts: Starts | None,
    learned: Learned | None,
    checkpoint: Checkpoint | None = None,
    history: History | None = None,
) -> None:
    encoding = config.encoding
    labels = _known_labels(dataset) if _learns_labels(config) and learned is None else None
    model.fit_planned(
        config.plan,
        dataset.rows,
        followers,
        encoding=encoding,
        feature_names=[] if encoding is None else [column.name for column in encoding.columns],
        rules=None if learned is None else learned.rules,
        starts=starts,
        known=labels if learned is None else learned.known,
        checkpoint=checkpoint,
        history=history,
    )


def _processes(n: int) -> str:
    return "1 process" if n == 1 else f"{n} processes"


def summary(run: Run, config: RunConfig, verdict: Diagnosis, rows: int, seconds: float) -> dict[str, Any]:
    history = run.history().rows
    return {
        "run": str(run.path),
        "method": config.plan.method,
        "n_clusters": config.plan.n_clusters,
        "seed": config.plan.seed,
        "rows": rows,
        "iterations": config.plan.config.optimiser.iterations,
        "seconds": round(seconds, 2),
        "diagnosis": verdict.as_dict(),
        "metrics": history[-1] if history else {},
        "labels": str(run.labels_path),
        "report": str(run.report_path),
        "model": str(run.model_path),
    }


def announcement(config: RunConfig, at: int) -> str:
    """What is about to happen, in a line."""
    made = config.plan
    iterations, where = made.config.optimiser.iterations, resolve_device(config.execution.device)
    if at:
        return f"resuming at iteration {at} of {iterations}"
    place = "the CPU" if where.type == "cpu" else torch.cuda.get_device_name(where)
    if n_processes() > 1:
        place = f"{n_processes()} processes ({place})"
    clusters = "1 cluster" if made.n_clusters == 1 else f"{made.n_clusters} clusters"
    return f"training {made.method}: {clusters}, {iterations} iterations on {place}"


def cheaper_budgets(config: RunConfig, asked: Asked) -> dict[str, float]:
    """Budgets that would take less, and the share of this plan's work that they are."""
    made = config.plan
    same = dataclasses.replace(asked, n_clusters=made.n_clusters, prior=made.prior)
    costs = {budget: plan(made.data, dataclasses.replace(same, budget=budget)).cost() for budget in BUDGETS}
    return {budget: cost / made.cost() for budget, cost in costs.items() if cost < made.cost()}


def _evaluations(run: Run, config: RunConfig, epochs: int, n_rows: int, line: ProgressLine) -> list[Callback]:
    """Built-in images come with a labelled test set that the training can be watched by."""
    made = config.plan
    if not (epochs and made.config.data.image_shape and config.source in sources.BUILTIN):
        return []
    if not made.trains_posterior:
        return []
    every = epochs * batches_per_epoch(n_rows, made.config.optimiser.batch_size)
    test, log_every = other_rows(run, config, config.source), config.execution.log_every
    return [measuring.TestSetEvaluation(run, test, every, log_every, line.on_event)]


def parse_prior(text: str | None) -> NDArray[np.float64] | str:
    if text is None or text in PRIORS:
        return text or AUTO
    try:
        return np.array([float(v) for v in text.split(",")])
    except ValueError:
        raise UsageError(
            f"--prior takes {' or '.join(PRIORS)}, or numbers separated by commas, not {text!r}"
        ) from None


def show_plan(data: str, request: FitRequest, *, as_json: bool) -> None:
    """Print what a fit would do and why, without fitting."""
    config = planned(data, request).config
    if as_json:
        sys.stdout.write(json.dumps(config.plan.tree(), indent=2) + "\n")
        return
    from gedikit.cli.listing import print_plan

    print_plan(config.plan)
