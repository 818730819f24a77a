"""Callbacks: follow a fit, log it, or end it early and keep the model.

model.fit(X, callbacks=[JSONLLogger("metrics.jsonl"), EarlyStopping("mutual_information", patience=20)])
"""

import csv
import json
import math
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from gedikit.components.component import unknown
from gedikit.errors import UsageError
from gedikit.progress import ProgressLine
from gedikit.training.callbacks import Callback, FitView, Metrics

__all__ = [
    "CSVLogger",
    "Callback",
    "EarlyStopping",
    "FitView",
    "JSONLLogger",
    "ProgressLine",
    "TensorBoardLogger",
]


class EarlyStopping(Callback):
    """End the training when a measurement has not improved for some measurements, and keep the model.

    A loss improves when it falls; the mutual information, the log-density and effective samples when they rise.
    """

    RISING = ("mutual_information", "log_density", "effective_samples")

    def __init__(self, metric: str, *, patience: int = 10, min_change: float = 0.0):
        if patience < 1:
            raise UsageError(f"patience must be at least 1, not {patience}")
        self.metric, self.patience, self.min_change = metric, patience, min_change
        self.sign = -1 if metric in self.RISING else 1
        self.best, self.waited = math.inf, 0

    def on_start(self, fit: FitView) -> None:  # noqa: ARG002
        self.best, self.waited = math.inf, 0

    def on_metrics(self, fit: FitView, metrics: Metrics) -> None:
        if self.metric not in metrics and self.metric in fit.plan.terms:
            return  # of another stage
        if self.metric not in metrics:
            raise UsageError(unknown("measurement", self.metric, metrics))
        value = self.sign * metrics[self.metric]
        if value < self.best - self.min_change:
            self.best, self.waited = value, 0
            return
        self.waited += 1
        if self.waited >= self.patience:
            fit.stop(f"{self.metric} has not improved for {self.patience} measurements")


class _FileLogger(Callback):
    """A file that is open while a fit runs; a fit that goes on is added to it."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.file: TextIOWrapper | None = None

    def on_start(self, fit: FitView) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not fit.iteration:
            self.path.unlink(missing_ok=True)
        self.file = self.path.open("a", encoding="utf-8", newline="")

    def on_end(self, fit: FitView) -> None:  # noqa: ARG002
        if self.file is not None:
            self.file.close()
            self.file = None


class JSONLLogger(_FileLogger):
    """One JSON object a measurement."""

    def on_metrics(self, fit: FitView, metrics: Metrics) -> None:  # noqa: ARG002
        assert self.file is not None
        self.file.write(json.dumps(metrics) + "\n")
        self.file.flush()


class CSVLogger(_FileLogger):
    """One row a measurement; what is measured in later stages alone gets columns then."""

    def __init__(self, path: str | Path):
        super().__init__(path)
        self.columns: list[str] = []

    def on_start(self, fit: FitView) -> None:
        super().on_start(fit)
        self.columns = next(iter(self._rows()), [])

    def on_metrics(self, fit: FitView, metrics: Metrics) -> None:  # noqa: ARG002
        assert self.file is not None
        new = [name for name in metrics if name not in self.columns]
        if new:
            _, *rows = self._rows() or [[]]
            self.columns = [*self.columns, *new]
            self.file.truncate(0)
            self._write([self.columns, *([*row, *[""] * len(new)] for row in rows)])
        self._write([[metrics.get(name, "") for name in self.columns]])

    def _rows(self) -> list[list[str]]:
        with self.path.open(encoding="utf-8", newline="") as file:
            return list(csv.reader(file))

    def _write(self, rows: Sequence[Sequence[Any]]) -> None:
        assert self.file is not None
        csv.writer(self.file, lineterminator="\n").writerows(rows)
        self.file.flush()


class TensorBoardLogger(Callback):
    """Scalars for TensorBoard; needs the package tensorboard (the extra `tensorboard`)."""

    def __init__(self, directory: str | Path):
        self.directory = str(directory)
        self.writer: Any = None

    def on_start(self, fit: FitView) -> None:  # noqa: ARG002
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UsageError("TensorBoardLogger needs tensorboard: pip install 'gedikit[tensorboard]'") from None
        self.writer = SummaryWriter(self.directory)

    def on_metrics(self, fit: FitView, metrics: Metrics) -> None:
        for name, value in metrics.items():
            if name != "iteration":
                self.writer.add_scalar(name, value, fit.iteration)

    def on_event(self, text: str) -> None:
        if self.writer is not None:
            self.writer.add_text("events", text)

    def on_end(self, fit: FitView) -> None:  # noqa: ARG002
        self.writer.close()
        self.writer = None
