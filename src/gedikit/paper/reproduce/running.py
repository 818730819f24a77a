"""Jobs spread over processes, kept on disk when they are done."""

import hashlib
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import gedikit
from gedikit.errors import Interrupted, UsageError
from gedikit.planning import Plan
from gedikit.storage import write_text
from gedikit.training.callbacks import Callback, FitView, Metrics
from gedikit.training.devices import resolve_device
from gedikit.version import __version__

_CURVE_ROWS = 150
_SECONDS_A_LINE = 30  # of progress, where there is no bar


@dataclass(frozen=True)
class Request:
    """What every reproduction is asked for."""

    out: Path
    seeds: int = 5
    first_seed: int = 300
    iterations: int = 0  # 0: each recipe's own
    device: str = "auto"
    workers: int | None = None  # None: one for each core
    minutes: float | None = None  # after which no fit begins and those under way are given up
    fits: bool = True  # False: only those that are there already

    def __post_init__(self) -> None:
        for name in ("seeds", "workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"--{name} must be at least 1, not {value}")
        for name, option in (("first_seed", "--first-seed"), ("iterations", "--iters")):
            if getattr(self, name) < 0:
                raise UsageError(f"{option} must not be negative, not {getattr(self, name)}")
        if self.minutes is not None and self.minutes <= 0:
            raise UsageError(f"--minutes must be above 0, not {self.minutes:g}")

    @property
    def chosen_seeds(self) -> tuple[int, ...]:
        return tuple(range(self.first_seed, self.first_seed + self.seeds))


@runtime_checkable
class Result(Protocol):
    """A dataclass that JSON can hold."""

    @property
    def failure(self) -> str | None: ...


R = TypeVar("R", bound=Result)


@runtime_checkable
class Job(Protocol[R]):
    """Fits that are run together and kept together."""

    @property
    def key(self) -> str:
        """Names the job and all that is asked of it."""
        ...

    @property
    def title(self) -> str: ...

    @property
    def n_fits(self) -> int: ...

    def run(self, device: str, callback: Callback) -> list[R]: ...

    def read(self, values: dict[str, Any]) -> R:
        """A result from what was kept of it."""
        ...


@dataclass(frozen=True)
class Done(Generic[R]):
    """A job and what came out."""

    job: Job[R]
    results: list[R]
    seconds: float
    by_this_code: bool = True


@lru_cache
def code_digest() -> str:
    """Of all modules of the package: versions stay the same while it is worked on."""
    digest = hashlib.sha256()
    for path in sorted(Path(gedikit.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def key_of(name: str, asked: Mapping[str, Any], plan: Plan | None = None) -> str:
    """A name for results that depend on all that was asked and planned, and on the version."""
    planned = {} if plan is None else {part: value for part, value in plan.tree().items() if part != "decisions"}
    text = json.dumps([asked, planned, __version__], sort_keys=True)
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def curve(rows: Sequence[dict[str, float]], names: Sequence[str]) -> list[dict[str, float]]:
    """So many rows of a history, with these measurements, as a figure can show."""
    apart = max(1, -(-len(rows) // _CURVE_ROWS))
    kept = rows[::-apart][::-1]  # the last one in any case
    return [{name: row[name] for name in names if name in row} for row in kept]


def timed(job: Job[R], device: str, callback: Callback | None = None) -> Done[R]:
    began = time.monotonic()
    results = job.run(device, callback or Callback())
    return Done(job, results, time.monotonic() - began)


def run_all(jobs: Sequence[Job[R]], request: Request, console: Console) -> list[Done[R]]:
    """All jobs; those that are on disk already are read. Several processes share the work on a CPU, and on a GPU
    where they are asked for."""
    out, device = request.out, request.device
    on_cpu = resolve_device(device).type == "cpu"
    workers = request.workers or (os.cpu_count() if on_cpu else 1) or 1
    kept = {job.key: _read(job, out) for job in jobs}
    todo = [job for job in jobs if kept[job.key] is None]
    if len(todo) < len(jobs):
        console.print(f"{len(jobs) - len(todo)} of {len(jobs)} jobs are in {out} already")
    others = sum(done is not None and not done.by_this_code for done in kept.values())
    if others:
        console.print(
            f"{others} of them were computed by another state of the code: remove {out / 'fits'} to repeat them"
        )
    if todo and not request.fits:
        console.print(f"{len(todo)} of {len(jobs)} jobs are not in {out}: cells that need them stay empty")
        todo = []
    n_fits = {job.key: job.n_fits for job in todo}
    deadline = None if request.minutes is None else time.monotonic() + 60 * request.minutes
    said = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("fits", total=sum(n_fits.values()))

        def heard(shares: dict[str, float]) -> None:
            nonlocal said
            done = sum(n_fits[key] * share for key, share in shares.items())
            bar.update(task, completed=int(done))
            if not console.is_terminal and time.monotonic() > said + _SECONDS_A_LINE:
                said = time.monotonic()
                console.print(f"{done:.1f} of {sum(n_fits.values())} fits")

        run = _in_turn if workers == 1 else _side_by_side
        try:
            for done in run(todo, device, workers, heard, deadline):
                kept[done.job.key] = done
                _write(done, out)
                failed = sum(r.failure is not None for r in done.results)
                ending = f", {failed} diverged" if failed else ""
                console.print(f"{done.job.title}: {len(done.results)} fits in {done.seconds:.0f} s{ending}")
        except KeyboardInterrupt:
            raise Interrupted(f"finished jobs are kept in {out}: the same command goes on with the rest") from None
    left = sum(done is None for done in kept.values())
    if left and request.fits:
        console.print(
            f"the time is up: {left} of {len(jobs)} jobs are left, and the same command goes on with them"
        )
    return [found for job in jobs if (found := kept[job.key]) is not None]


class _Teller(Callback):
    """Tells how far a job is, and gives it up when the time is."""

    def __init__(self, tell: Callable[[str, float], None], key: str, deadline: float | None = None):
        self.tell, self.key, self.deadline = tell, key, deadline

    def on_metrics(self, fit: FitView, metrics: Metrics) -> None:  # noqa: ARG002
        self.tell(self.key, fit.iteration / fit.iterations)
        if _is_past(self.deadline):
            fit.interrupt()


Heard = Callable[[dict[str, float]], None]


def _is_past(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() > deadline


def _in_turn(
    jobs: Sequence[Job[R]],
    device: str,
    workers: int,  # noqa: ARG001
    heard: Heard,
    deadline: float | None,
) -> Iterator[Done[R]]:
    shares: dict[str, float] = {}

    def tell(key: str, share: float) -> None:
        shares[key] = share
        heard(shares)

    for job in jobs:
        if _is_past(deadline):
            return
        try:
            done = timed(job, device, _Teller(tell, job.key, deadline))
        except Interrupted:
            if _is_past(deadline):
                return
            raise
        yield done
        tell(job.key, 1.0)


def _side_by_side(
    jobs: Sequence[Job[R]], device: str, workers: int, heard: Heard, deadline: float | None
) -> Iterator[Done[R]]:
    context = multiprocessing.get_context("spawn")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # inherited: small products on many threads wait for each other
    messages: Any = context.Queue()
    stop = context.Event()
    shares: dict[str, float] = {}
    with ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(messages, stop)) as pool:
        pending = {pool.submit(_work, job, device) for job in jobs}
        error: BaseException | None = None
        try:
            while pending and error is None and not _is_past(deadline):
                finished, pending = wait(pending, timeout=0.5, return_when=FIRST_COMPLETED)
                while not messages.empty():
                    key, share = messages.get()
                    shares[key] = share
                heard(shares)
                for future in finished:
                    error = error or future.exception()
                    if future.exception() is None:
                        done = future.result()
                        shares[done.job.key] = 1.0
                        yield done
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
        yield from (f.result() for f in pending if not f.cancelled() and f.exception() is None)
        if error is not None:
            raise error


class _WorkerTeller(_Teller):
    """Tells the main process, and stops when it asks for that."""

    messages: Any = None
    stop: Any = None

    def __init__(self, key: str):
        super().__init__(lambda name, share: self.messages.put((name, share)), key)

    def on_metrics(self, fit: FitView, metrics: Metrics) -> None:
        super().on_metrics(fit, metrics)
        if self.stop.is_set():
            fit.interrupt()


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


def _work(job: Job[R], device: str) -> Done[R]:
    return timed(job, device, _WorkerTeller(job.key))


def _path(job: Job[Any], out: Path) -> Path:
    return out / "fits" / f"{job.key}.json"


def _write(done: Done[Any], out: Path) -> None:
    content = {"code": code_digest(), "seconds": done.seconds, "results": [asdict(r) for r in done.results]}
    write_text(_path(done.job, out), json.dumps(content))


def _read(job: Job[R], out: Path) -> Done[R] | None:
    path = _path(job, out)
    if not path.exists():
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    same = content.get("code") == code_digest()
    return Done(job, [job.read(r) for r in content["results"]], content["seconds"], same)
