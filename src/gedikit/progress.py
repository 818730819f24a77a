"""A live line while a fit runs: how far, how fast, each loss beside its optimum."""

import time
from collections.abc import Mapping
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

from gedikit.training.callbacks import Callback, FitView, Metrics

_PLAIN_EVERY = 5.0
_FIRST_STEPS, _FIRST_SECONDS = 5, 3.0  # before the time that is left is estimated
_WORTH_TELLING = 10.0  # seconds
_LONG = 600.0  # seconds, above which a cheaper budget is named
_SHORT = {"invariance": "inv", "prior": "prior", "generative": "gen", "mutual_information": "I(x;y)"}


class ProgressLine(Callback):
    """On a terminal a line that redraws itself; elsewhere a plain line every few seconds."""

    def __init__(self, console: Console | None = None):
        self.console = console or Console(stderr=True)
        self.live = self.console.is_terminal
        self.bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=10, table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[losses]}", table_column=Column(no_wrap=False)),
            console=self.console,
            transient=True,
            disable=not self.live,
        )
        self.optima: dict[str, float] = {}
        self.iterations = 0
        self.began = self.printed = time.monotonic()
        self.first = 0
        self.task: TaskID = self.bar.add_task("getting ready", total=None, rate="", losses="")

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def on_start(self, fit: FitView) -> None:
        self.optima, self.iterations, self.first = fit.optima, fit.iterations, fit.iteration
        self.began = self.printed = time.monotonic()
        self.bar.update(self.task, total=fit.iterations, completed=fit.iteration, description="training")

    def on_metrics(self, fit: FitView, metrics: Metrics) -> None:
        elapsed = max(time.monotonic() - self.began, 1e-9)
        rate = (fit.iteration - self.first) / elapsed
        shown = (*(name for name in self.optima if name not in _SHORT), *_SHORT)
        losses = "  ".join(self._one(name, metrics[name]) for name in shown if name in metrics)
        if self.live:
            at = f"{fit.iteration}/{self.iterations}"
            self.bar.update(self.task, completed=fit.iteration, description=at, rate=_speed(rate), losses=losses)
        elif time.monotonic() - self.printed > _PLAIN_EVERY or fit.iteration == self.iterations:
            self.printed = time.monotonic()
            left = (self.iterations - fit.iteration) / max(rate, 1e-9)
            self.console.print(
                f"{fit.iteration}/{self.iterations}  {_speed(rate)}  {duration(left)} left  {losses}",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )

    def on_event(self, text: str) -> None:
        self.console.print(text, style="yellow", markup=False)

    def _one(self, name: str, value: float) -> str:
        best = f"/{self.optima[name]:.3g}" if name in self.optima else ""
        return f"{_SHORT.get(name, name)} {value:.3g}{best}"


def _speed(rate: float) -> str:
    """Iterations a second, or seconds an iteration, whichever is the larger number."""
    return f"{rate:.{0 if rate >= 10 else 1}f} it/s" if rate >= 1 else f"{1 / max(rate, 1e-9):.1f} s/it"


def duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


class Forecast(Callback):
    """Says once how long the training will take and, where that is long, which budget would take less."""

    def __init__(self, console: Console, cheaper: Mapping[str, float]):
        """`cheaper`: budgets, and the share of this fit's work that each is."""
        self.console, self.cheaper = console, cheaper
        self.first: tuple[int, float] | None = None
        self.told = False

    def on_start(self, fit: FitView) -> None:
        self.first, self.told = None, fit.iterations - fit.iteration <= _FIRST_STEPS

    def on_step(self, fit: FitView) -> None:
        if self.told:
            return
        now = time.monotonic()
        if self.first is None:
            self.first = (fit.iteration, now)  # the first iterations compile and allocate
            return
        done, seconds = fit.iteration - self.first[0], now - self.first[1]
        if done < _FIRST_STEPS or seconds < _FIRST_SECONDS:
            return
        self.told = True
        left = seconds / done * (fit.iterations - fit.iteration)
        if left >= _WORTH_TELLING:
            self.console.print(f"about {duration(left)} left{self._instead(fit, seconds / done)}", markup=False)

    def _instead(self, fit: FitView, each: float) -> str:
        if each * (fit.iterations - fit.iteration) <= _LONG:
            return ""
        whole = each * fit.iterations
        shares = sorted(self.cheaper.items(), key=lambda item: -item[1])
        budget = next((item for item in shares if item[1] * whole <= _LONG), shares[-1] if shares else None)
        if budget is None:
            return ""
        return f"; --budget {budget[0]} would take about {duration(budget[1] * whole)}"
