"""Commands about rules: look at them before training, learn from them, and explain examples."""

import dataclasses
import json
import sys
import time
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from math import exp, inf
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from gedikit.callbacks import Callback, ProgressLine
from gedikit.cli import fitting, measuring
from gedikit.cli.inference import write_predictions
from gedikit.cli.loading import import_to_go_on, load_run, other_rows, read_data, rows_of, title_of
from gedikit.cli.output import console, detail
from gedikit.cli.request import FitRequest
from gedikit.config import Execution
from gedikit.data import sources
from gedikit.data.sizes import memory
from gedikit.diagnosis import Diagnosis, diagnose
from gedikit.errors import DataError, GediError, Interrupted, Unhealthy, UsageError
from gedikit.estimator import GEDI, plan_rows
from gedikit.fitted import FittedModel
from gedikit.imports import import_as_asked
from gedikit.known import Known
from gedikit.locks import DirectoryLock
from gedikit.methods import methods
from gedikit.planning import Asked
from gedikit.progress import Forecast
from gedikit.report import ReportData, render
from gedikit.report.inputs import diagnosed_rows
from gedikit.report.rules import log_posterior, rule_sections
from gedikit.runs import EXAMPLES, KNOWN_LABELS, Run, RunConfig, RunRecorder
from gedikit.starts import Starts
from gedikit.storage import regular_or_new, write_text
from gedikit.symbolic import Names, Shortcuts, shortcuts
from gedikit.symbolic.contradictions import contradictory_rules
from gedikit.symbolic.example_files import ExampleFile, RowOf, any_name, file_name, read_labels, row_number
from gedikit.symbolic.explained import explained
from gedikit.symbolic.explanation import World
from gedikit.symbolic.rule_files import RULE, Rule, RuleFile
from gedikit.symbolic.wording import told
from gedikit.tables import ColumnOptions
from gedikit.training.devices import resolve_device
from gedikit.training.fit import fingerprint
from gedikit.training.rules import Rules

METHOD = "gedi-symbols"
ASSUMED = "assuming that every combination of symbols that satisfies the rules"
_TOLD = 12


def check(rules: Path, examples: Path | None, labels: Path | None, *, symbols: bool, as_json: bool) -> bool:
    """Say what rules and examples settle before anything is trained; whether every name is."""
    stated = RuleFile.read(rules)
    names = any_name()
    read = None if examples is None else ExampleFile.read(examples, stated, None if symbols else names)
    if read is None:
        _refuse_contradictory(stated)
    elif not symbols:
        _checked(stated, read, len(read.images))
    labelled: dict[str, list[Any]] = {}
    if labels is not None:
        for cluster in np.unique(read_labels(labels, stated.symbols, names, None)).tolist():
            kind = next((k for k in stated.symbols.kinds if k.first <= cluster < k.first + k.size), None)
            if kind is not None:
                labelled.setdefault(kind.name, []).append(kind.values[cluster - kind.first])
    shown = stated.shown() if read is None else read.shown()
    told = shortcuts(shown, kinds=stated.kinds, labelled=labelled)
    if as_json:
        sys.stdout.write(json.dumps(_as_tree(stated, read, told), indent=2, default=str) + "\n")
        return told.settled
    out = [line for rule in stated.rules for line in _about(rule)]
    if read is not None:
        out += [f"{len(e)} examples of {r.name}" for r, e in zip(read.rules, read.examples, strict=True)]
        if not symbols:
            out.append(f"{ASSUMED} with the known values is shown; --symbols checks those that are")
        out += [
            f"never shown, as far as the rules tell: {_listed(s)}" for s in (told.never_shown or {}).values() if s
        ]
    sys.stdout.write("\n".join([*out, str(told)]) + "\n")
    return told.settled


def _refuse_contradictory(stated: RuleFile) -> None:
    """Rules of one file share their variables: an example of all of them would have to satisfy all."""
    certain = [rule for rule in stated.rules if rule.probability == 1]
    found = contradictory_rules([rule.constraint for rule in certain])
    if found:
        names = ", ".join(certain[which].name for which in found)
        raise DataError(
            f"{stated.path}: no values satisfy {names} together, so no line can be an example of all of them; a"
            f" column {RULE!r} says of which a line is, and with such examples the rules can be checked"
        )


def _rules_of(stated: RuleFile, read: ExampleFile) -> Rules:
    return Rules.of(list(read.examples), symbols=stated.symbols, n_clusters=stated.symbols.n_clusters)


def _checked(stated: RuleFile, read: ExampleFile, n_rows: int) -> Rules:
    """What can be learned from a file of examples, once nothing in it contradicts itself."""
    learned = _rules_of(stated, read)
    try:
        learned.check(n_rows, stated.symbols.n_clusters, read)
    except GediError as error:
        raise type(error)(f"{read.path}: {error}") from None
    return learned


def _about(rule: Rule) -> list[str]:
    """Variables, number of tuples and implied prior of a rule."""
    lines = [f"{rule.name}: {rule.constraint.name.removeprefix('the rule ')}"]
    for v in rule.constraint.variables:
        what = f"image of {rule.kinds[v.name]}" if v.name in rule.kinds else "known with each example"
        lines.append(f"  {v.name}: {what}, one of {_listed(v.values)}")
    lines.append(f"  satisfied by {_number_of_tuples(rule)} of {rule.constraint.n_tuples:.6g} tuples of values")
    marginals = rule.constraint.implied_prior().marginals
    for kind in dict.fromkeys(rule.kinds.values()):
        names = [name for name, own in rule.kinds.items() if own == kind]
        share = torch.stack([marginals[name] for name in names]).mean(0).tolist()
        values = next(v.values for v in rule.constraint.variables if v.name == names[0])
        said = ", ".join(f"{value} {p:.1%}" for value, p in zip(values[:_TOLD], share, strict=False))
        lines.append(f"  implied shares of {kind}: {said}{', …' if len(values) > _TOLD else ''}")
    return lines


def _number_of_tuples(rule: Rule) -> str:
    ones = torch.zeros(sum(v.size for v in rule.constraint.variables), 1, dtype=torch.float64)
    number = exp(min(600.0, float(rule.constraint.body.log_joint(ones))))
    return f"{number:,.0f}" if number < 1e9 else f"{number:.3g}"


def _as_tree(stated: RuleFile, read: ExampleFile | None, told: Shortcuts) -> dict[str, Any]:
    rules = stated.rules if read is None else [*read.rules, *read.without]  # in the order of what may be shown
    return {
        "rules": [
            {
                "name": rule.name,
                "variables": {v.name: list(v.values) for v in rule.constraint.variables},
                "kinds": dict(rule.kinds),
            }
            for rule in stated.rules
        ],
        "examples": None if read is None else sum(len(e) for e in read.examples),
        "maps": {"at_least": told.maps.at_least, "at_most": told.maps.at_most},
        "namings": {"at_least": told.namings.at_least, "at_most": told.namings.at_most},
        "settled": told.settled,
        "groups": {kind: [list(g) for g in groups] for kind, groups in told.groups.items()},
        "undecided": {kind: list(symbols) for kind, symbols in told.undecided.items()},
        "labels": [list(label) for label in told.labels],
        "labels_for_maps": [list(label) for label in told.labels_for_maps],
        "examples_to_add": [
            {RULE: rules[which].name, **tuples}
            for which, tuples in zip(told.examples_of, told.examples, strict=True)
        ],
        "symmetric": told.symmetric,
    }


def _listed(values: Any) -> str:
    said = [str(value) for value in values]
    return ", ".join(said if len(said) <= _TOLD else [*said[: _TOLD - 2], "…", said[-1]])


@dataclass(frozen=True)
class Places:
    """Where rows come from: exactly one is given."""

    images: Path | None = None
    data: str | None = None
    table: Path | None = None

    def source(self) -> str | None:
        given = [str(place) for place in (self.images, self.data, self.table) if place is not None]
        if len(given) > 1:
            raise UsageError("--images, --data and --table all say where rows are: give one")
        if self.images is not None and not self.images.is_dir():
            raise UsageError(f"--images: there is no folder {self.images}")
        return given[0] if given else None


@dataclass(frozen=True)
class Task:
    """A run that learns from rules, before its first iteration."""

    config: RunConfig
    dataset: sources.Dataset
    stated: RuleFile
    read: ExampleFile
    rules: Rules
    known: Known | None


def fit_rules(
    rules: Path | None,
    examples: Path | None,
    places: Places,
    request: FitRequest,
    *,
    labels: Path | None = None,
    out: Path | None = None,
    resume: bool = False,
    strict: bool = False,
    as_json: bool = False,
) -> None:
    began = time.monotonic()
    if resume:
        run, task = _resumed(out, places.source(), request)
        with run.locked() as lock:
            verdict, rows = _interruptible(run, lock, task)
    else:
        if rules is None or examples is None:
            raise UsageError("fit-rules needs RULES and EXAMPLES: a file of rules and a .csv of examples")
        task, asked, starts = _planned(rules, examples, labels, places, request)
        config = task.config
        run = Run(out or Path("runs") / f"{title_of(config.source)}-{rules.stem}-{config.plan.seed}")
        with run.locked() as lock:
            run.create(config)
            try:
                _keep(run, rules, examples, labels)
                verdict, rows = _interruptible(run, lock, task, asked, starts)
            except Exception:
                run.remove_if_nothing_was_done(lock)
                raise
    if as_json:
        summary = fitting.summary(run, task.config, verdict, rows, time.monotonic() - began)
        names = load_run(run.path, "cpu").info.get("names")
        sys.stdout.write(json.dumps(summary | {"names": names}, indent=2, default=str) + "\n")
    if strict and not verdict.healthy:
        raise Unhealthy(f"{run.path}: {verdict.verdict}: {verdict.explanation}")


def _planned(
    rules: Path, examples: Path, labels: Path | None, places: Places, request: FitRequest
) -> tuple[Task, Asked, Starts]:
    """Everything that can be wrong is found wrong here, before a directory is made."""
    import_as_asked(request.imports)
    stated = RuleFile.read(rules)
    method = request.method or METHOD
    if not methods[method].needs_examples:
        raise UsageError(f"{method!r} learns from no rules: take {METHOD}, gedi-nesy or nesy")
    data = places.source()
    if data is None:
        raise UsageError("fit-rules needs --images, --data or --table: where are the rows that examples name?")
    changes, computed = fitting.asked_changes(data, request)
    execution = Execution.of({"device": request.device or "auto", **computed})
    resolve_device(execution.device)
    seed = request.seed_or_first
    size = sources.IMAGE_SIZE if request.image_size is None else request.image_size
    options = ColumnOptions.parse(request.columns, request.drop, request.ids, request.label, request.types)
    reading = sources.ShardReading(memory())
    dataset = _all_rows(
        read_data(data, seed, image_size=size, options=options, device=execution.device, shards=reading)
    )
    read = ExampleFile.read(examples, stated, _row_of(dataset))
    learned, known = _learned(stated, read, dataset, labels)
    asked = Asked(
        stated.symbols.n_clusters,
        method,
        fitting.parse_prior(request.prior),
        request.views or "auto",
        request.budget or "default",
        seed,
        changes,
        examples=learned.profile(),
        known=known,
    )
    made, starts = plan_rows(dataset.x, dataset.image_shape or (), asked, dataset.encoding)
    config = fitting.run_config(data, request, dataset, made, execution)
    if dataset.index is not None or dataset.drawn_from is not None:
        config = dataclasses.replace(config, shards=reading)
    return Task(config, dataset, stated, read, learned, known), asked, starts


def _learned(
    stated: RuleFile, read: ExampleFile, dataset: sources.Dataset, labels: Path | None
) -> tuple[Rules, Known | None]:
    learned = _checked(stated, read, len(dataset.x))
    known = None
    if labels is not None:
        rows = read_labels(labels, stated.symbols, _row_of(dataset), len(dataset.x))
        known = Known.of(len(dataset.x), partial_labels=rows)
    return learned, known


def _all_rows(dataset: sources.Dataset) -> sources.Dataset:
    """The same, unless some of its rows are not in memory: each may be named by an example."""
    n = dataset.drawn_from if dataset.stored is None else len(dataset.stored)
    if dataset.stored is not None or (n is not None and n > len(dataset.x)):
        raise UsageError(f"examples name rows, and not all {n:,} of {dataset.name} fit into memory")
    return dataset


def _row_of(dataset: sources.Dataset) -> RowOf:
    return file_name(dataset.names) if dataset.names else row_number(len(dataset.x))


def _keep(run: Run, rules: Path, examples: Path, labels: Path | None) -> None:
    """Copies of what the run learns from, so that it can go on and explain examples without the originals."""
    write_text(run.path / f"rules{rules.suffix}", rules.read_text(encoding="utf-8"))
    write_text(run.path / EXAMPLES, examples.read_text(encoding="utf-8-sig"))
    if labels is not None:
        write_text(run.path / KNOWN_LABELS, labels.read_text(encoding="utf-8-sig"))


def _kept_rules(run: Run) -> RuleFile:
    path = next((p for p in (run.path / "rules.toml", run.path / "rules.pl") if p.exists()), None)
    if path is None:
        raise UsageError(f"{run.path} did not learn from rules: it has no rules.toml or rules.pl")
    return RuleFile.read(path)


def _resumed(out: Path | None, data: str | None, request: FitRequest) -> tuple[Run, Task]:
    if out is None:
        raise UsageError("--resume needs --out: which run is to be continued?")
    import_to_go_on(request)
    run = Run(out)
    config, stated = run.config(), _kept_rules(run)
    dataset = _all_rows(rows_of(run, config, data))
    if fingerprint(dataset.rows) != config.fingerprint:
        raise UsageError(f"{out} was trained on other data than is in {data or config.source} now")
    read = ExampleFile.read(run.path / EXAMPLES, stated, _row_of(dataset))
    labels = run.path / KNOWN_LABELS
    learned, known = _learned(stated, read, dataset, labels if labels.exists() else None)
    return run, Task(config, dataset, stated, read, learned, known)


def _interruptible(
    run: Run, lock: DirectoryLock, task: Task, asked: Asked | None = None, starts: Starts | None = None
) -> tuple[Diagnosis, int]:
    """Train; who is interrupted is told the command that goes on with rules."""
    try:
        return _train(run, lock, task, asked, starts)
    except Interrupted as stopped:
        raise Interrupted(str(stopped).replace("gedikit fit --resume", "gedikit fit-rules --resume")) from None


def _train(
    run: Run, lock: DirectoryLock, task: Task, asked: Asked | None = None, starts: Starts | None = None
) -> tuple[Diagnosis, int]:
    """Train unless that is done, then write what a finished run has; checkpoints are removed last."""
    config, dataset = task.config, task.dataset
    if run.model_path.exists():
        console.print(f"{run.path} is already trained")
        fitted = load_run(run.path, config.execution.device)
    else:
        checkpoint = run.latest_checkpoint(config.fingerprint)
        at = checkpoint[1]["iteration"] if checkpoint else 0
        console.print(fitting.announcement(config, at))
        for decision in config.plan.decisions:
            detail(f"  {decision.what}: {decision.choice} ({decision.reason})")
        model = GEDI(config={"execution": dataclasses.asdict(config.execution)})
        cheaper = {} if asked is None else fitting.cheaper_budgets(config, asked)
        with ExitStack() as stack:
            line = stack.enter_context(ProgressLine(console))
            recorder = stack.enter_context(RunRecorder(run, config, lock))
            followers: list[Callback] = [recorder, line, Forecast(console, cheaper)]
            encoding = config.encoding
            model.fit_planned(
                config.plan,
                dataset.x,
                followers,
                encoding=encoding,
                feature_names=[] if encoding is None else [column.name for column in encoding.columns],
                rules=task.rules,
                starts=starts,
                known=task.known,
                checkpoint=checkpoint,
                history=run.history(up_to=at),
            )
        fitted = model.fitted_
        lock.check()
        model.save(run.model_path)
    with console.status("writing the report") if console.is_terminal else nullcontext():
        predictions = fitted.training_predictions or fitted.predictions(dataset.x)
        block = sources.Block(dataset.x, dataset.names, ids=dataset.ids)
        rows = write_predictions(fitted, [(block, predictions)], regular_or_new(run.labels_path))
        verdict = _write_report(run, task, fitted)
    run.forget_checkpoints()
    names = Names.from_tree(fitted.info["names"])
    console.print(
        f"{len(names.names) - len(names.undecided)} of {len(names.names)} clusters have a name that is sure"
    )
    for line in names.left_open():
        console.print(line)
    console.print(f"{verdict.verdict}: {verdict.explanation}", style="green" if verdict.healthy else "yellow")
    if not verdict.healthy:
        console.print(verdict.advice)
    console.print(f"clusters of {rows} {'pictures' if dataset.names else 'rows'}: {run.labels_path}")
    console.print(f"report: {run.report_path}")
    return verdict, rows


def _write_report(run: Run, task: Task, fitted: FittedModel) -> Diagnosis:
    config, dataset = task.config, task.dataset
    history = run.history().rows
    held_out = other_rows(run, config, config.source) if config.source in sources.BUILTIN else dataset
    verdict = diagnose(fitted, diagnosed_rows(fitted, held_out.x), history[-1] if history else None)
    sections = rule_sections(fitted, fitted.posterior(dataset.x), task.rules.placed, task.read)
    page = render(
        ReportData(
            title=title_of(config.source),
            fitted=fitted,
            x=dataset.x,
            predictions=fitted.predictions(dataset.x),
            labels=dataset.y,
            image_shape=dataset.image_shape,
            history=history,
            optima=fitted.info["optima"],
            diagnosis=verdict,
            metrics=measuring.headline_metrics(fitted, held_out),
            encoding=dataset.encoding,
            ids=dataset.ids,
            names=dataset.names,
            skipped=dataset.skipped,
            folder=dataset.folder,
            rules=sections,
        )
    )
    write_text(regular_or_new(run.report_path), page)
    return verdict


def explain(path: Path, examples: Path, places: Places, *, k: int, device: str, as_json: bool) -> None:
    """Print the most probable symbols behind every example of a file, as a trained run sees them."""
    run = Run(path)
    config, stated = run.config(), _kept_rules(run)
    fitted = load_run(path, device)
    dataset = _all_rows(rows_of(run, config, places.source()))
    read = ExampleFile.read(examples, stated, _row_of(dataset))
    learned = _rules_of(stated, read)
    log_p = _log_posterior(fitted, dataset.x, learned)
    found = [
        (which, row, explained(placed, row, log_p, k))
        for which, placed in enumerate(learned.placed)
        for row in range(len(placed))
    ]
    if as_json:
        tree = [
            {
                "example": _said(learned, read, which, row),
                "log_probability": None if e.log_probability == -inf else e.log_probability,
                "worlds": [{"probability": w.probability, "values": _by_column(w, read, which)} for w in e.worlds],
            }
            for which, row, e in found
        ]
        sys.stdout.write(json.dumps(tree, indent=2, default=str) + "\n")
        return
    for which, row, e in found:
        sys.stdout.write(f"{_said(learned, read, which, row)}\n  log P = {e.log_probability:.4f}\n")
        for world in e.worlds:
            sys.stdout.write(f"  {World(_by_column(world, read, which), world.probability)}\n")
    if "names" in fitted.info:
        for line in Names.from_tree(fitted.info["names"]).left_open():
            sys.stdout.write(f"{line}\n")


def _said(learned: Rules, read: ExampleFile, which: int, row: int) -> str:
    return f"{read.example(which, row)}: {told(learned.placed[which], which, row, read)}"


def _by_column(world: World, read: ExampleFile, which: int) -> dict[str, Any]:
    return {read.variable(which, name): value for name, value in world.values.items()}


def _log_posterior(fitted: FittedModel, x: NDArray[Any], learned: Rules) -> Float[torch.Tensor, "n c"]:
    """Of the rows that examples name; others are not looked at."""
    rows = np.unique(np.concatenate([placed.images.numpy() for placed in learned.placed]))
    posterior = np.ones((len(x), fitted.n_clusters))
    posterior[rows] = fitted.posterior(x[rows])
    return log_posterior(posterior)
