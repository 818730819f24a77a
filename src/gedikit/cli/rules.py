"""Commands about rules: look at them before training, learn from them, and explain examples."""

import dataclasses
import hashlib
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, inf
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from gedikit.cli import fitting
from gedikit.cli.loading import import_to_go_on, load_run, read_data, rows_of, title_of
from gedikit.cli.request import FitRequest
from gedikit.config import Execution
from gedikit.data import sources
from gedikit.data.sizes import memory
from gedikit.diagnosis import Diagnosis
from gedikit.errors import DataError, GediError, Interrupted, Unhealthy, UsageError
from gedikit.estimator import plan_rows
from gedikit.fitted import FittedModel
from gedikit.imports import import_as_asked
from gedikit.known import Known
from gedikit.locks import DirectoryLock
from gedikit.methods import methods
from gedikit.planning import Asked
from gedikit.report.rules import log_posterior
from gedikit.runs import EXAMPLES, KNOWN_LABELS, Run, RunConfig
from gedikit.starts import Starts
from gedikit.storage import write_text
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
LEARNED_FROM = ("rules", "examples", "known labels")  # files of which a run keeps copies
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
        given = dict(zip(LEARNED_FROM, (rules, examples, labels), strict=True))
        run, task = _resumed(out, given, places.source(), request)
        with run.locked() as lock:
            verdict, rows = _train(run, lock, task)
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
                verdict, rows = _train(run, lock, task, asked, starts)
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
    stored = dataset.index is not None or dataset.drawn_from is not None
    came_with = fitting.beside(dataset) | _fingerprints(rules, examples, labels)
    config = dataclasses.replace(config, shards=reading if stored else None, beside=came_with)
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


def _fingerprints(rules: Path, examples: Path, labels: Path | None) -> dict[str, str]:
    """Of the files that a run learns from."""
    given = {"rules": rules, "examples": examples} | ({} if labels is None else {"known labels": labels})
    return {name: _fingerprint(path) for name, path in given.items()}


def _fingerprint(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _opened(path: Path, what_to_do: str) -> tuple[Run, RunConfig, RuleFile]:
    """A run that learns from rules."""
    run = Run(path)
    config = run.config()
    kept = next((p for p in (path / "rules.toml", path / "rules.pl") if p.exists()), None)
    if not methods[config.plan.method].needs_examples:
        raise UsageError(f"{path} learns from no rules{what_to_do}")
    if kept is None:
        raise UsageError(f"{path} has lost its rules: it has no rules.toml or rules.pl")
    return run, config, RuleFile.read(kept)


def _resumed(
    out: Path | None, given: Mapping[str, Path | None], data: str | None, request: FitRequest
) -> tuple[Run, Task]:
    if out is None:
        raise UsageError("--resume needs --out: which run is to be continued?")
    import_to_go_on(request)
    run, config, stated = _opened(out, f": continue it with gedikit fit --resume --out {out}")
    examples, labels = run.path / EXAMPLES, run.path / KNOWN_LABELS
    kept = _fingerprints(stated.path, examples, labels if labels.exists() else None)
    for name, path in given.items():
        if path is not None and _fingerprint(path) != kept.get(name):
            raise UsageError(f"{out} began with other {name} than {path} has: leave it out, or begin another run")
    dataset = _all_rows(rows_of(run, config, data))
    if fingerprint(dataset.rows) != config.fingerprint:
        raise UsageError(f"{out} was trained on other data than is in {data or config.source} now")
    others = {name: mark for name, mark in config.beside.items() if name not in LEARNED_FROM}
    if len(others) < len(config.beside):  # else it was begun by an earlier version, which did not look
        before, now = ({name: marks.get(name, "") for name in LEARNED_FROM} for marks in (config.beside, kept))
        fitting.refuse_changes(out, str(out), before, now, LEARNED_FROM)
    fitting.refuse_changes(out, data or config.source, others, fitting.beside(dataset), ())
    read = ExampleFile.read(examples, stated, _row_of(dataset))
    learned, known = _learned(stated, read, dataset, labels if labels.exists() else None)
    return run, Task(config, dataset, stated, read, learned, known)


def _train(
    run: Run, lock: DirectoryLock, task: Task, asked: Asked | None = None, starts: Starts | None = None
) -> tuple[Diagnosis, int]:
    """Train; who is interrupted is told the command that goes on with rules."""
    config, learned = task.config, fitting.Learned(task.rules, task.read, task.known)
    cheaper = {} if asked is None else fitting.cheaper_budgets(config, asked)
    try:
        done = fitting.train(run, lock, config, task.dataset, 0, cheaper, starts, learned)
    except Interrupted as stopped:
        raise Interrupted(str(stopped).replace("gedikit fit --resume", "gedikit fit-rules --resume")) from None
    assert done is not None
    return done


def explain(path: Path, examples: Path, places: Places, *, k: int, device: str, as_json: bool) -> None:
    """Print the most probable symbols behind every example of a file, as a trained run sees them."""
    run, config, stated = _opened(path, ": there is nothing to explain examples by")
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
