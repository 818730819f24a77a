"""A run on disk: what was asked for, how it went, where it can go on, and what came out."""

import contextlib
import json
import os
import shutil
import signal
import tomllib
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Self

from gedikit.errors import GediWarning, StorageError, UsageError
from gedikit.storage import FORMAT, read_tensors, write_tensors, write_text
from gedikit.training import Observer
from gedikit.training.fit import Checkpoint
from gedikit.training.loop import History
from gedikit.training.state import TrainState
from gedikit.version import __version__

_KEPT_CHECKPOINTS = 2


@dataclass(frozen=True)
class RunConfig:
    """All that determines a run."""

    source: str
    method: str
    n_clusters: int
    seed: int
    data_seed: int
    device: str
    prior: tuple[float, ...]
    columns: tuple[str, ...]
    image_shape: tuple[int, ...]  # where rows are images in bytes: height, width, channels
    fingerprint: str
    settings: dict[str, Any]

    def to_toml(self) -> str:
        head = {"format": FORMAT, "gedikit": __version__}
        head |= {k: v for k, v in vars(self).items() if k != "settings"}
        return "".join([*_toml_lines(head), "\n[settings]\n", *_toml_lines(self.settings)])

    @classmethod
    def from_toml(cls, path: Path) -> "RunConfig":
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UsageError(f"{path.parent} is not a run directory: it has no {path.name}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise StorageError(f"{path} is damaged: {error}") from None
        if table.get("format", 0) > FORMAT:
            raise StorageError(
                f"{path.parent} was written by gedikit {table.get('gedikit', '?')}, newer than this {__version__}: "
                "upgrade gedikit"
            )
        table.setdefault("image_shape", table.get("settings", {}).get("image_shape", ()))  # as once written
        try:
            values = {name: table[name] for name in cls.__dataclass_fields__}
        except KeyError as error:
            raise StorageError(f"{path} is damaged: {error.args[0]} is missing") from None
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return cls(**{**values, **lists})


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
    def exists(self) -> bool:
        return self.config_path.exists()

    def create(self, config: RunConfig) -> None:
        if self.exists:
            raise UsageError(
                f"{self.path} already holds a run: add --resume to go on with it, or name another --out"
            )
        write_text(self.config_path, config.to_toml())

    def config(self) -> RunConfig:
        if not self.path.is_dir():
            raise UsageError(f"there is no run directory {self.path}")
        return RunConfig.from_toml(self.config_path)

    def remove(self) -> None:
        """Delete what a run consists of and nothing else; a directory that is no run of ours is refused."""
        self.config()
        self.forget_checkpoints()
        written = (self.metrics_path, self.log_path, self.evaluations_path)
        for path in (*written, self.model_path, self.report_path, self.labels_path):
            path.unlink(missing_ok=True)
        self.config_path.unlink()

    def forget_checkpoints(self) -> None:
        shutil.rmtree(self.path / "checkpoints", ignore_errors=True)

    def checkpoints(self) -> list[Path]:
        """Oldest first."""
        return sorted((self.path / "checkpoints").glob("step-*.safetensors"))

    def write_checkpoint(self, state: TrainState, fingerprint: str) -> Path:
        path = self.path / "checkpoints" / f"step-{state.iteration:09d}.safetensors"
        write_tensors(path, state.tensors(), {**state.meta(), "fingerprint": fingerprint}, "checkpoint")
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
            if meta["fingerprint"] != fingerprint:
                raise UsageError(f"{self.path} was trained on other data: --resume needs the same rows")
            return tensors, meta
        if failure is not None:
            raise failure
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
        """Looks at labelled rows during the training, if there were any."""
        return list(_json_lines(self.evaluations_path))

    def append(self, path: Path, line: str) -> None:
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            raise StorageError(f"could not write {path}: {error.strerror}") from error


class RunRecorder(Observer):
    """Writes a fit down as it happens, and stops it cleanly when the process is told to end."""

    def __init__(self, run: Run, config: RunConfig, shown: Observer):
        self.run, self.config, self.shown = run, config, shown
        self.last_checkpoint = 0
        self.signal: int | None = None
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
            raise KeyboardInterrupt  # asked twice: now
        self.signal = number
        with contextlib.suppress(OSError):  # past Python's buffers, which may be in the middle of a line
            os.write(2, b"\nstopping at the next measurement; asked again, at once\n")

    def started(self, state: TrainState, iterations: int, optima: dict[str, float]) -> None:
        self.last_checkpoint = state.iteration
        self.shown.started(state, iterations, optima)

    def measured(self, state: TrainState, row: dict[str, float]) -> None:
        self.run.append(self.run.metrics_path, json.dumps(row))
        self.shown.measured(state, row)

    def event(self, text: str) -> None:
        self.run.append(self.run.log_path, text)
        self.shown.event(text)

    def healthy(self, state: TrainState) -> bool:
        if state.iteration - self.last_checkpoint < self.config.settings["checkpoint_every"]:
            return False
        self._write(state)
        return True

    def should_stop(self) -> bool:
        return self.signal is not None

    def stopped(self, state: TrainState) -> str:
        self._write(state)
        return (
            f"stopped at iteration {state.iteration} of {self.config.settings['iterations']}; "
            f"go on with: gedikit fit --resume --out {self.run.path}"
        )

    def _write(self, state: TrainState) -> None:
        self.run.write_checkpoint(state, self.config.fingerprint)
        self.last_checkpoint = state.iteration


def _toml_lines(table: dict[str, Any]) -> Iterable[str]:
    # JSON's strings, numbers and arrays are valid TOML
    return [f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in table.items()]


def _cut_back(path: Path, iteration: int) -> None:
    if path.exists():
        kept = [json.dumps(row) + "\n" for row in _json_lines(path) if row["iteration"] <= iteration]
        write_text(path, "".join(kept))


def _json_lines(path: Path) -> Iterable[dict[str, Any]]:
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return  # a line cut short by a killed process is the last one
