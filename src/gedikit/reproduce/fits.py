"""Groups of fits that are trained as one stack, spread over processes, kept on disk when they are done."""

import hashlib
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gedikit.data.toy import N_CLASSES, SHAPES
from gedikit.errors import Interrupted, UsageError
from gedikit.evaluation import clustering_figures, grid_log_normaliser
from gedikit.fitted import FittedModel
from gedikit.methods import get_method
from gedikit.report.findings import on_grid
from gedikit.storage import write_text
from gedikit.training.fit import resolve_device
from gedikit.training.loop import Observer
from gedikit.training.many import Outcome, Task, fit_many
from gedikit.training.state import TrainState
from gedikit.version import __version__

N_TRAIN = N_TEST = 1000
_CELLS = 200  # a side, for the exact normaliser
_PICTURE = 100  # grid lines a side
_CURVE_ROWS = 150
_SAMPLES = 300
_CURVES = ("iteration", "invariance", "prior", "watched_invariance", "watched_prior")


@dataclass(frozen=True)
class Plan:
    """What both reproductions are asked for."""

    out: Path
    seeds: int = 5
    first_seed: int = 300
    iterations: int = 0  # 0: each recipe's own
    device: str = "auto"
    workers: int | None = None  # None: one for each core

    def __post_init__(self) -> None:
        for name in ("seeds", "workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"--{name} must be at least 1, not {value}")
        for name, option in (("first_seed", "--first-seed"), ("iterations", "--iters")):
            if getattr(self, name) < 0:
                raise UsageError(f"{option} must not be negative, not {getattr(self, name)}")

    @property
    def chosen_seeds(self) -> tuple[int, ...]:
        return tuple(range(self.first_seed, self.first_seed + self.seeds))


@dataclass(frozen=True)
class Member:
    """One fit of a group: which points, which seed, and the settings it changes."""

    shape: str
    seed: int
    changes: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Group:
    """Fits of one method that are trained as one stack; `iterations` 0 means the method's own."""

    method: str
    members: tuple[Member, ...]
    iterations: int = 0
    pictured: int | None = None  # the seed whose fits are drawn

    @property
    def key(self) -> str:
        """Names the group and everything its result depends on."""
        settings = get_method(self.method).settings().as_dict()
        content = json.dumps([asdict(self), settings, __version__], sort_keys=True)
        return f"{self.method}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class Picture:
    """What a figure needs of a fit."""

    points: list[list[float]]
    truth: list[int]
    clusters: list[int]
    extent: list[float]  # of the grid: x from, to; y from, to
    log_density: list[list[float]] | None
    samples: list[list[float]]


@dataclass(frozen=True)
class Result:
    method: str
    shape: str
    seed: int
    changes: dict[str, float]
    nmi: float | None
    log_likelihood: float | None
    clusters_by: str
    failure: str | None
    failed_at: int | None
    rollbacks: int
    curve: list[dict[str, float]]
    picture: Picture | None

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Result":
        picture = values["picture"]
        return cls(**{**values, "picture": None if picture is None else Picture(**picture)})


@dataclass(frozen=True)
class Done:
    group: Group
    results: list[Result]
    seconds: float


def points(shape: str, seed: int) -> tuple[Any, Any, Any]:
    """Training points, and test points with their labels."""
    x, y = SHAPES[shape](N_TRAIN + N_TEST, seed)
    return x[:N_TRAIN], x[N_TRAIN:], y[N_TRAIN:]


def run_group(group: Group, device: str, observer: Observer | None = None) -> Done:
    """Train a group and measure its members on points they were not trained on."""
    began = time.monotonic()
    method = get_method(group.method)
    tasks = []
    for member in group.members:
        settings = method.settings(**dict(member.changes))
        if group.iterations:
            settings = settings.replace(iterations=group.iterations)
        tasks.append(Task(points(member.shape, member.seed)[0], settings, member.seed, N_CLASSES[member.shape]))
    outcomes = fit_many(tasks, method, device=device, observer=observer)
    results = [_measured(group, m, o) for m, o in zip(group.members, outcomes, strict=True)]
    return Done(group, results, time.monotonic() - began)


def run_all(groups: Sequence[Group], plan: Plan, console: Console) -> list[Done]:
    """All groups; those that are on disk already are read. On a CPU several processes share the work."""
    out, device, workers = plan.out, plan.device, plan.workers or os.cpu_count() or 1
    where = resolve_device(device)
    kept = {group.key: _read(group, out) for group in groups}
    todo = [group for group in groups if kept[group.key] is None]
    if len(todo) < len(groups):
        console.print(f"{len(groups) - len(todo)} of {len(groups)} groups are in {out} already")
    n_fits = sum(len(group.members) for group in todo)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("fits", total=n_fits)

        def heard(shares: dict[str, float]) -> None:
            by_key = {group.key: len(group.members) for group in todo}
            bar.update(task, completed=int(sum(by_key[key] * share for key, share in shares.items())))

        run = _in_turn if where.type != "cpu" or workers == 1 else _side_by_side
        try:
            for done in run(todo, device, workers, heard):
                kept[done.group.key] = done
                _write(done, out)
                failed = sum(r.failure is not None for r in done.results)
                ending = f", {failed} diverged" if failed else ""
                console.print(f"{done.group.method}: {len(done.results)} fits in {done.seconds:.0f} s{ending}")
        except KeyboardInterrupt:
            raise Interrupted(
                f"finished groups are kept in {out}: the same command goes on with the rest"
            ) from None
    return [found for group in groups if (found := kept[group.key]) is not None]


class _Teller(Observer):
    """Tells how far a stack is."""

    def __init__(self, tell: Callable[[str, float], None], key: str):
        self.tell, self.key, self.iterations = tell, key, 1

    def started(self, state: TrainState, iterations: int, optima: dict[str, float]) -> None:  # noqa: ARG002
        self.iterations = iterations

    def measured(self, state: TrainState, row: dict[str, float]) -> None:  # noqa: ARG002
        self.tell(self.key, state.iteration / self.iterations)


Heard = Callable[[dict[str, float]], None]


def _in_turn(groups: Sequence[Group], device: str, workers: int, heard: Heard) -> Iterator[Done]:  # noqa: ARG001
    shares: dict[str, float] = {}

    def tell(key: str, share: float) -> None:
        shares[key] = share
        heard(shares)

    for group in groups:
        yield run_group(group, device, _Teller(tell, group.key))
        tell(group.key, 1.0)


def _side_by_side(groups: Sequence[Group], device: str, workers: int, heard: Heard) -> Iterator[Done]:
    context = multiprocessing.get_context("spawn")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # inherited: small products on many threads wait for each other
    messages: Any = context.Queue()
    stop = context.Event()
    shares: dict[str, float] = {}
    with ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(messages, stop)) as pool:
        pending = {pool.submit(_work, group, device) for group in groups}
        try:
            while pending:
                finished, pending = wait(pending, timeout=0.5, return_when=FIRST_COMPLETED)
                while not messages.empty():
                    key, share = messages.get()
                    shares[key] = share
                heard(shares)
                for future in finished:
                    done = future.result()
                    shares[done.group.key] = 1.0
                    yield done
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


class _WorkerTeller(_Teller):
    """Tells the main process, and stops when it asks for that."""

    messages: Any = None
    stop: Any = None

    def __init__(self, key: str):
        super().__init__(lambda name, share: self.messages.put((name, share)), key)

    def should_stop(self) -> bool:
        return bool(self.stop.is_set())


def _start_worker(messages: Any, stop: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process hears it and says when to stop
    _WorkerTeller.messages, _WorkerTeller.stop = messages, stop
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A main process that is killed cannot say so."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _work(group: Group, device: str) -> Done:
    return run_group(group, device, _WorkerTeller(group.key))


def _measured(group: Group, member: Member, outcome: Outcome) -> Result:
    rows = outcome.history.rows
    nmi = likelihood = picture = None
    by, rollbacks = "", 0
    if outcome.fitted is not None:
        fitted = outcome.fitted
        _, x, y = points(member.shape, member.seed)
        by, rollbacks = fitted.assignment.description, len(fitted.info["events"])
        figures = clustering_figures(y, fitted.labels(x), "test", labels_by=by)
        nmi = next(f.value for f in figures if f.name == "nmi")
        likelihood = _log_likelihood(fitted, x)
        if member.seed == group.pictured:
            picture = _picture(fitted, x, y)
    thinned = rows[:: max(1, len(rows) // _CURVE_ROWS)] if member.seed == group.pictured else []
    curve = [{name: row[name] for name in row if name in _CURVES} for row in thinned]
    return Result(
        group.method,
        member.shape,
        member.seed,
        dict(member.changes),
        nmi,
        likelihood,
        by,
        outcome.failure,
        None if outcome.failure is None else int(rows[-1]["iteration"] if rows else 0),
        rollbacks,
        curve,
        picture,
    )


def _log_likelihood(fitted: FittedModel, x: Any) -> float | None:
    """Exact up to the grid: mean log p(x) with Γ summed over the domain."""
    if not fitted.models_density:
        return None
    low, high = fitted.bounds()
    return float(fitted.log_density(x).mean()) - grid_log_normaliser(fitted.log_density, low, high, _CELLS)


def _picture(fitted: FittedModel, x: Any, y: Any) -> Picture:
    density: list[list[float]] | None = None
    samples: list[list[float]] = []
    low, high = fitted.bounds()
    if fitted.models_density:
        grid = on_grid(fitted, _PICTURE)[3]
        density = np.round(grid - grid.max(), 2).tolist()
        samples = np.round(fitted.sample(_SAMPLES, seed=0)[0], 3).tolist()
    return Picture(
        np.round(x, 3).tolist(),
        y.tolist(),
        fitted.labels(x).tolist(),
        [float(low[0]), float(high[0]), float(low[1]), float(high[1])],
        density,
        samples,
    )


def _path(group: Group, out: Path) -> Path:
    return out / "fits" / f"{group.key}.json"


def _write(done: Done, out: Path) -> None:
    content = {"seconds": done.seconds, "results": [asdict(r) for r in done.results]}
    write_text(_path(done.group, out), json.dumps(content))


def _read(group: Group, out: Path) -> Done | None:
    path = _path(group, out)
    if not path.exists():
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    return Done(group, [Result.from_dict(r) for r in content["results"]], content["seconds"])
