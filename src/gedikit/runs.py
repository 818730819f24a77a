"""A run on disk: what was asked for, how it went, where it can go on, and what came out."""

import contextlib
import json
import math
import operator
import os
import re
import shutil
import signal
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Self

from gedikit import legacy
from gedikit.components import as_tree
from gedikit.config import SECTIONS, Execution
from gedikit.data.shard_pictures import check_bad
from gedikit.data.sources import ShardReading
from gedikit.errors import GediWarning, StorageError, UsageError
from gedikit.features import FeatureNetwork, feature_networks
from gedikit.imports import import_again
from gedikit.locks import DirectoryLock
from gedikit.planning import Plan
from gedikit.processes import is_first, n_processes
from gedikit.storage import (
    FORMAT,
    check_format,
    damaged,
    forget_unfinished,
    parsed_toml,
    read_tensors,
    regular_or_new,
    write_tensors,
    write_text,
)
from gedikit.tables import TableEncoding
from gedikit.training.callbacks import Callback, FitView, Metrics
from gedikit.training.fit import Checkpoint
from gedikit.training.loop import History
from gedikit.training.state import TrainState
from gedikit.version import __version__

_KEPT_CHECKPOINTS = 2
EXAMPLES, KNOWN_LABELS = "examples.csv", "known-labels.csv"  # of a run that learns from rules
# what a run consists of, beside its checkpoints
_WRITTEN = (
    *("config.toml", "metrics.jsonl", "log.txt", "evaluations.jsonl", "model.safetensors", "features.safetensors"),
    *("index.safetensors", "labels.csv", "report.html", "rules.toml", "rules.pl", EXAMPLES, KNOWN_LABELS),
)
_BARE = re.compile(r"[A-Za-z0-9_-]+")  # keys that TOML takes without quotes


@dataclass(frozen=True)
class RunConfig:
    """All that determines a run: where its rows come from, its plan, and how it is computed."""

    source: str
    data_seed: int
    columns: tuple[str, ...]
    image_shape: tuple[int, ...]  # where rows are pictures in bytes: height, width, channels
    fingerprint: str
    imports: tuple[str, ...]  # modules and files that define components it needs
    plan: Plan
    execution: Execution
    format: int = FORMAT
    encoding: TableEncoding | None = None  # where rows stand for a table
    features: FeatureNetwork | None = None  # where rows are features of pictures: what computes them
    labels_from: str = ""  # where labels of pictures come from, if there are any
    beside: Mapping[str, str] = field(default_factory=dict)  # fingerprints of what comes with rows, such as labels
    shards: ShardReading | None = None  # where rows are in shards: how they are read

    def to_toml(self) -> str:
        head = {
            "format": FORMAT,
            "gedikit": __version__,
            "source": self.source,
            "data_seed": self.data_seed,
            "columns": list(self.columns),
            "image_shape": list(self.image_shape),
            "fingerprint": self.fingerprint,
            "imports": list(self.imports),
            **({"labels_from": self.labels_from} if self.labels_from else {}),
        }
        beside: dict[str, Any] = {"beside": self.beside} if self.beside else {}
        if self.shards is not None:
            beside["shards"] = {"memory": self.shards.memory, "bad": self.shards.bad}
        pictures = {} if self.features is None else {"features": as_tree(self.features)}
        table = {} if self.encoding is None else {"table": self.encoding.tree()}
        sections = {**_as_sections(self.plan), "execution": as_tree(self.execution)}
        return to_toml({**head, **sections, **pictures, **table, **beside})

    @classmethod
    def from_toml(cls, path: Path) -> "RunConfig":
        return cls.parsed(_text_of(path), path)

    @classmethod
    def parsed(cls, text: str, path: Path) -> "RunConfig":
        """What a file says, which the first of several processes may have read."""
        table = _table_of(text, path)
        with damaged(path):
            if table["format"] < legacy.FIRST_WITH_PLANS:
                return cls(**legacy.run(table))
            for module in table["imports"]:
                import_again(module, path.parent)
            return cls(
                table["source"],
                table["data_seed"],
                tuple(table["columns"]),
                tuple(table["image_shape"]),
                table["fingerprint"],
                tuple(table["imports"]),
                Plan.from_tree(_from_sections(table)),
                Execution.of(table["execution"]),
                encoding=TableEncoding.from_tree(table["table"]) if "table" in table else None,
                features=_features(table["features"]) if "features" in table else None,
                labels_from=table.get("labels_from", ""),
                beside=table.get("beside", {}),
                shards=_shards(table["shards"]) if "shards" in table else None,
            )


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"{path.parent} is not a run directory: it has no {path.name}") from None
    except ValueError as error:
        raise StorageError(f"{path} is damaged: {error}") from None


def _table_of(text: str, path: Path) -> dict[str, Any]:
    """The file of a run as it is written; that it is one of ours is all that is checked."""
    try:
        table = parsed_toml(text)
    except ValueError as error:
        raise StorageError(f"{path} is damaged: {error}") from None
    if "format" not in table:
        raise StorageError(f"{path} is not of a run: it was not written by gedikit")
    check_format(path, table["format"])
    return table


def _shards(tree: Mapping[str, Any]) -> ShardReading:
    """How shards are read; where an index is kept is no matter of this file."""
    return ShardReading(operator.index(tree["memory"]), check_bad(tree["bad"]))


def _features(tree: Mapping[str, Any]) -> FeatureNetwork:
    settings = {key: value for key, value in tree.items() if key != "name"}
    return feature_networks.get(tree["name"]).of(settings)


# the plan's own parts beside the settings, which are sections of the file
_PARTS = ("stages", "decisions", "needs")


def _as_sections(plan: Plan) -> dict[str, Any]:
    tree = plan.tree()
    head = {key: value for key, value in tree.items() if key not in (*_PARTS, "config", "data")}
    parts = {key: tree[key] for key in _PARTS}
    return {"plan": {**head, "profile": tree["data"]}, **tree["config"], **parts}


def _from_sections(table: dict[str, Any]) -> dict[str, Any]:
    head = dict(table["plan"])
    profile = head.pop("profile")
    config = {section: table[section] for section in SECTIONS}
    return {**head, "data": profile, "config": config, **{key: table.get(key, []) for key in _PARTS[:2]}} | {
        "needs": table.get("needs", {})
    }


@dataclass(frozen=True)
class Run:
    """Paths of a run directory and what is read and written there."""

    path: Path

    @property
    def config_path(self) -> Path:
        return self.path / "config.toml"

    @property
    def metrics_path(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def log_path(self) -> Path:
        return self.path / "log.txt"

    @property
    def model_path(self) -> Path:
        return self.path / "model.safetensors"

    @property
    def evaluations_path(self) -> Path:
        return self.path / "evaluations.jsonl"

    @property
    def report_path(self) -> Path:
        return self.path / "report.html"

    @property
    def labels_path(self) -> Path:
        return self.path / "labels.csv"

    @property
    def features_path(self) -> Path:
        return self.path / "features.safetensors"

    @property
    def _of_the_data(self) -> tuple[Path, ...]:
        """What is known of the data and took a while to find out."""
        return self.features_path, self.index_path

    @property
    def index_path(self) -> Path:
        return self.path / "index.safetensors"

    @property
    def exists(self) -> bool:
        return self.config_path.exists()

    @contextlib.contextmanager
    def locked(self) -> Iterator[DirectoryLock]:
        """Be the only process that writes here; what one that was killed left half-written is removed."""
        with DirectoryLock(self.path) as lock:
            for name in _WRITTEN:
                regular_or_new(self.path / name)
            for folder in (self.path, self._checkpoints()):
                forget_unfinished(folder)
            yield lock

    def create(self, config: RunConfig) -> None:
        if self.exists:
            raise UsageError(f"{self.path} already holds a run: add --resume to continue it, or another --out")
        write_text(self.config_path, config.to_toml())

    def config(self) -> RunConfig:
        if not self.path.is_dir():
            raise UsageError(f"there is no run directory {self.path}")
        return RunConfig.from_toml(self.config_path)

    def remove(self) -> None:
        """Delete what a run consists of and nothing else; a directory that is no run of ours is refused."""
        _table_of(_text_of(self.config_path), self.config_path)
        self.forget_checkpoints()
        written = (self.metrics_path, self.log_path, self.evaluations_path)
        for path in (*written, self.model_path, self.report_path, self.labels_path, *self._of_the_data):
            path.unlink(missing_ok=True)
        self.config_path.unlink()

    def remove_if_nothing_was_done(self, lock: DirectoryLock) -> None:
        """Remove a run that failed before its first measurement: the corrected command may take its place."""
        done = (self.metrics_path, self.log_path, self.evaluations_path, self.model_path, *self.checkpoints())
        if lock.is_held and not any(path.exists() for path in done):
            with contextlib.suppress(OSError):  # other files are there, or it can be read only
                for path in self._of_the_data:
                    path.unlink(missing_ok=True)
                self.config_path.unlink(missing_ok=True)
                lock.path.unlink()
                self.path.rmdir()

    def _checkpoints(self) -> Path:
        """The folder of checkpoints, in which old ones are removed: a link could lead to those of another run."""
        folder = self.path / "checkpoints"
        if folder.is_symlink():
            raise StorageError(f"{folder} is a link, not a folder of this run: remove it first")
        return folder

    def forget_checkpoints(self) -> None:
        shutil.rmtree(self.path / "checkpoints", ignore_errors=True)

    def checkpoints(self) -> list[Path]:
        """Oldest first."""
        return sorted((self.path / "checkpoints").glob("step-*.safetensors"))

    def write_checkpoint(self, state: TrainState, fingerprint: str) -> Path:
        path = self._checkpoints() / f"step-{state.iteration:09d}.safetensors"
        several = {} if n_processes() == 1 else {"processes": n_processes()}
        meta = {**state.meta(), "fingerprint": fingerprint, **several}
        write_tensors(regular_or_new(path), state.tensors(), meta, "checkpoint")
        for old in self.checkpoints()[:-_KEPT_CHECKPOINTS]:
            old.unlink(missing_ok=True)
        return path

    def latest_checkpoint(self, fingerprint: str) -> Checkpoint | None:
        """The newest readable checkpoint; a damaged one is named and passed over, never loaded in part."""
        failure: StorageError | None = None
        for path in reversed(self.checkpoints()):
            try:
                tensors, meta = read_tensors(path, "checkpoint")
            except StorageError as error:
                warnings.warn(GediWarning(f"{error}; trying the one before"), stacklevel=2)
                failure = error
                continue
            if meta.get("fingerprint") != fingerprint:
                raise UsageError(f"{self.path} was trained on other data: --resume needs the same rows")
            return tensors, meta
        if failure is not None:
            raise StorageError(
                f"no checkpoint of {self.path} can be read ({failure}): remove {self.path / 'checkpoints'} to "
                "train it from the start"
            )
        return None

    def history(self, up_to: int | None = None) -> History:
        """The measurements on disk; with `up_to`, what was written after it is dropped from the files as well."""
        if up_to is not None:
            for path in (self.metrics_path, self.evaluations_path):
                _cut_back(path, up_to)
        history = History()
        for row in _json_lines(self.metrics_path):
            history.add(row)
        return history

    def evaluations(self) -> list[dict[str, float]]:
        """Evaluations on labelled rows during the training, if there were any."""
        return list(_json_lines(self.evaluations_path))

    def append(self, path: Path, line: str) -> None:
        try:
            with regular_or_new(path).open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(f"could not write {path}: {error.strerror}") from error


class StopOnSignal(Callback):
    """Stops a fit cleanly, after a checkpoint, when the process is told to end."""

    everywhere: ClassVar[bool] = True

    def __init__(self) -> None:
        self.signal: int | None = None
        self.view: FitView | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.signal is not None:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return  # a scheduler tells torchrun and its processes, and torchrun tells them again
        self.signal = number
        if self.view is not None:
            self.view.interrupt()
        if is_first():
            with contextlib.suppress(OSError):  # past Python's buffers, which may be in the middle of a line
                os.write(2, b"\nstopping after a checkpoint; press Ctrl-C again to stop at once\n")

    def on_start(self, fit: FitView) -> None:
        self.view = fit
        if self.signal is not None:
            fit.interrupt()


class RunRecorder(StopOnSignal):
    """Writes a fit down as it happens, and stops it cleanly when the process is told to end."""

    def __init__(self, run: Run, config: RunConfig, lock: DirectoryLock):
        super().__init__()
        self.run, self.config, self.lock = run, config, lock
        self.last_checkpoint = 0

    def on_start(self, fit: FitView) -> None:
        super().on_start(fit)
        self.last_checkpoint = fit.iteration

    def on_metrics(self, fit: FitView, metrics: Metrics) -> None:
        if is_planned(fit, self.config.execution.log_every):
            self.lock.check()
            self.run.append(self.run.metrics_path, json.dumps(metrics))

    def on_event(self, text: str) -> None:
        self.lock.check()
        self.run.append(self.run.log_path, text)

    def on_checkpoint(self, fit: FitView) -> bool:
        if fit.iteration - self.last_checkpoint < self.config.execution.checkpoint_every:
            return False
        self._write(fit)
        return True

    def on_interrupt(self, fit: FitView) -> str:
        self._write(fit)
        return (
            f"stopped at iteration {fit.iteration} of {fit.iterations}; "
            f"continue with: gedikit fit --resume --out {self.run.path}"
        )

    def _write(self, fit: FitView) -> None:
        self.lock.check()
        self.run.write_checkpoint(fit.state, self.config.fingerprint)
        self.last_checkpoint = fit.iteration


def is_planned(fit: FitView, log_every: int) -> bool:
    """Whether a measurement would be there without an interruption: a resumed run is to be as if there was none."""
    return not fit.interrupted or fit.iteration % log_every == 0 or fit.iteration == fit.iterations


def to_toml(table: Mapping[str, Any], prefix: str = "") -> str:
    """A table of plain values as TOML, in which None is the text "none", as on the command line."""
    plain, tables = [], []
    for key, value in table.items():
        name = key if _BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False)
        if isinstance(value, Mapping):
            inner = to_toml(value, f"{prefix}{name}.")
            tables.append(f"\n[{prefix}{name}]\n{inner}" if inner or not value else "")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            tables += [f"\n[[{prefix}{name}]]\n{to_toml(item)}" for item in value]
        else:
            plain.append(f"{name} = {_toml_value(value)}\n")
    return "".join([*plain, *tables])


def _toml_value(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    # JSON's strings and other numbers are valid TOML, but for one control character
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _cut_back(path: Path, iteration: int) -> None:
    if path.exists():
        with damaged(path):
            kept = [json.dumps(row) + "\n" for row in _json_lines(path) if row["iteration"] <= iteration]
        write_text(path, "".join(kept))


def _json_lines(path: Path) -> Iterable[dict[str, Any]]:
    if not path.exists():
        return
    lines = path.read_bytes().splitlines()
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            if number == len(lines):
                return  # a process that was killed cut it short
            raise StorageError(f"{path} is damaged: line {number} is no measurement") from None
        if not isinstance(row, dict) or not all(isinstance(value, int | float) for value in row.values()):
            raise StorageError(f"{path} is damaged: a line of it is no measurement")
        yield row
