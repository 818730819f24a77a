"""Tasks of learning from rules: each is fitted in full, without one of its parts, and by the simplest means.

A task makes examples of training images, and measures what a model says about test images that no fit has seen.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int64, Shaped
from rich.console import Console
from sklearn.neighbors import NearestNeighbors

from gedikit.config import Execution
from gedikit.data import sources
from gedikit.densities.base import GENERATIVE
from gedikit.errors import DivergenceError, UsageError
from gedikit.estimator import GEDI, plan_rows
from gedikit.fitted import FittedModel
from gedikit.known import Known
from gedikit.methods import methods
from gedikit.objectives.base import Stage
from gedikit.objectives.pseudo_labels import PseudoLabels
from gedikit.paper import recipes
from gedikit.paper.reproduce.page import ResultTable, Section, write_page
from gedikit.paper.reproduce.running import Done, Request, key_of, run_all
from gedikit.paper.reproduce.task_figures import spread_of_measures
from gedikit.planning import Asked, Plan
from gedikit.symbolic import Examples, Symbols
from gedikit.training.callbacks import Callback
from gedikit.training.devices import resolve_device
from gedikit.training.fit import prepare
from gedikit.training.rules import Rules

_EXECUTION: Mapping[str, Any] = {"log_every": 20, "threads": 0}
# rules leave no way out to a constant posterior, so that the prior need not be above the invariance
_LARGE: Mapping[str, Any] = {
    "optimiser.iterations": 4000,
    "optimiser.learning_rate": 1e-3,
    "objectives.prior.weight": 10.0,
    "sampler.samples": 100,
}
_FEWER: Mapping[str, Any] = {"optimiser.iterations": 2500, "sampler.samples": 40}  # what a CPU can do
_DIGITS_TRAIN = 1297  # of 1797 images
_NEIGHBOURS = 5  # that lend a test image their pseudo-labels

Rows = Shaped[np.ndarray, "_ _"]
Classify = Callable[[Rows, str], Int64[np.ndarray, " _"]]
"""Positions of the values that images show, among those of a kind of symbols."""


@dataclass(frozen=True)
class Pictures:
    """Images of digits to train on and others to test on."""

    name: str
    x: Rows
    y: Int64[np.ndarray, " n"]
    test_x: Rows
    test_y: Int64[np.ndarray, " m"]
    image_shape: tuple[int, ...]  # () for rows of numbers
    side: int
    white: float  # the largest value of a pixel
    asked: Mapping[str, Any]  # of a plan
    settings: Mapping[str, Any]  # dotted names
    n_tests: int  # test examples


@dataclass(frozen=True)
class Problem:
    """What a fit is given, and how what it says is measured."""

    x: Rows
    symbols: Mapping[str, tuple[Hashable, ...]]
    examples: Sequence[Examples]
    measure: Callable[[Classify, GEDI | None], dict[str, float]]
    labels: Int64[np.ndarray, " _"] | None = None  # of some rows, −1 for the others


@runtime_checkable
class Task(Protocol):
    """A block of rows of a table: a dataclass that JSON can hold."""

    @property
    def title(self) -> str: ...

    @property
    def published(self) -> str:
        """The best published figure, for the first measure."""
        ...

    def problem(self, pictures: Pictures, seed: int) -> Problem: ...

    def batch_size(self, pictures: Pictures) -> int:
        """Images of whole examples."""
        ...


def _whole(made: Plan) -> Plan:
    return made


def _without_density(made: Plan) -> Plan:
    stages = tuple(Stage(s.until, tuple(term for term in s.terms if term != GENERATIVE)) for s in made.stages)
    return replace(made.replaced(density=None, sampler=None), stages=stages)


def _without_pseudo_labels(made: Plan) -> Plan:
    """The last stage for all of the training."""
    kept = {name: part for name, part in made.config.objectives.items() if name != PseudoLabels.name}
    return replace(made.replaced(objectives=kept), stages=made.stages[-1:])


@dataclass(frozen=True)
class Variant:
    """A row of a table: a method and what is left out of its plan; `fitted` is False for pseudo-labels alone."""

    title: str
    method: str = "gedi-symbols"
    left: Callable[[Plan], Plan] = _whole
    fitted: bool = True


VARIANTS = {
    "full": Variant("GEDI & rule"),
    "no-density": Variant("without the density", left=_without_density),
    "no-pseudo-labels": Variant("without pseudo-labels", left=_without_pseudo_labels),
    "rule": Variant("the rule alone", "nesy"),
    "pseudo-labels": Variant("pseudo-labels alone, no network", fitted=False),
}


@dataclass(frozen=True)
class TaskResult:
    """What was measured of a fit, or why there is nothing to measure."""

    task: str
    variant: str
    seed: int
    failure: str | None
    measures: dict[str, float]
    events: list[str]


@dataclass(frozen=True)
class TaskFit:
    """One fit of a variant to a task; `iterations` 0 means the task's own."""

    task: Task
    variant: str
    seed: int
    size: str
    iterations: int = 0
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def key(self) -> str:
        name = f"{type(self.task).__name__}-{self.task.title}-{self.variant}-{self.seed}"
        plain = "".join(c if c.isalnum() or c == "-" else "_" for c in name)
        return key_of(plain, asdict(self) | {"asked": self.asked(pictures(self.size))})

    @property
    def title(self) -> str:
        return f"{self.task.title}, {VARIANTS[self.variant].title}, seed {self.seed}"

    @property
    def n_fits(self) -> int:
        return 1

    def read(self, values: dict[str, Any]) -> TaskResult:
        return TaskResult(**values)

    def asked(self, images: Pictures) -> dict[str, Any]:
        """What is asked of a plan, besides the number of clusters and what examples imply."""
        method = VARIANTS[self.variant].method
        objectives, density = methods[method].objectives, methods[method].density
        config = {**images.settings, "optimiser.batch_size": self.task.batch_size(images), **dict(self.settings)}
        without = ["sampler.", "density."] if density is None else []
        without += [f"objectives.{name}." for name in ("prior", "invariance") if name not in objectives]
        config = {name: value for name, value in config.items() if not name.startswith(tuple(without))}
        if self.iterations:
            config |= {"optimiser.epochs": 0, "optimiser.iterations": self.iterations}
        return {**images.asked, "method": method, "config": config, "seed": self.seed}

    def run(self, device: str, callback: Callback) -> list[TaskResult]:
        """Train on examples of training images and measure on test images."""
        images = pictures(self.size)
        problem = self.task.problem(images, self.seed)
        model = GEDI(device=device, config={"execution": _EXECUTION})
        rules = Rules.of(problem.examples, symbols=Symbols.of(problem.symbols))
        known = Known.of(len(problem.x), None, problem.labels, None, None)
        asked = Asked(rules.symbols.n_clusters, examples=rules.profile(), known=known, **self.asked(images))
        made, starts = plan_rows(problem.x, images.image_shape, asked)
        variant = VARIANTS[self.variant]
        made = variant.left(made)
        if not variant.fitted:
            execution = Execution(device=device, **_EXECUTION)
            ready = prepare(made, problem.x, execution=execution, rules=rules, starts=starts, known=known)
            bound = ready.step.objectives["pseudo-labels"]
            assert isinstance(bound, PseudoLabels)
            classify = _by_neighbours(problem.x, bound.targets.cpu().numpy(), rules.symbols)
            return [self._result(problem.measure(classify, None))]
        try:
            model.fit_planned(made, problem.x, [callback], rules=rules, starts=starts, known=known)
        except DivergenceError as error:
            return [replace(self._result({}), failure=str(error))]
        measures = problem.measure(_by_network(model.fitted_, rules.symbols), model)
        return [replace(self._result(measures), events=model.fitted_.info["events"])]

    def _result(self, measures: dict[str, float]) -> TaskResult:
        return TaskResult(self.task.title, self.variant, self.seed, None, measures, [])


def _by_network(fitted: FittedModel, symbols: Symbols) -> Classify:
    def classify(x: Rows, kind: str) -> Int64[np.ndarray, " _"]:
        return np.asarray(fitted.posterior(x)[:, symbols[kind].clusters].argmax(1))

    return classify


def _by_neighbours(train: Rows, targets: Float[np.ndarray, "n c"], symbols: Symbols) -> Classify:
    """An image shows what the pseudo-labels of the training images nearest to it say."""

    def classify(x: Rows, kind: str) -> Int64[np.ndarray, " _"]:
        of_kind = targets[:, symbols[kind].clusters]
        labelled = np.flatnonzero(of_kind.sum(1) > 0)
        points = train[labelled].astype(np.float32)
        nearest = NearestNeighbors(n_neighbors=min(_NEIGHBOURS, len(points))).fit(points)
        found = nearest.kneighbors(x.astype(np.float32), return_distance=False)
        return np.asarray(of_kind[labelled][found].sum(1).argmax(1))

    return classify


@lru_cache
def pictures(size: str) -> Pictures:
    """MNIST, for the paper's network or a small one; scikit-learn's digits; or few of these, for tests."""
    if size not in SIZES:
        raise UsageError(f"--size is one of {', '.join(SIZES)}, not {size}")
    if size in (MNIST, MNIST_SMALL):
        train, test = (sources.load("mnist", split=split) for split in ("train", "test"))
        small, shape = size == MNIST_SMALL, train.image_shape or ()
        asked = recipes.working("mnist", small=small)
        settings = {**_LARGE, **_FEWER} if small else _LARGE
        name = "MNIST, by a small network" if small else "MNIST"
        y, test_y = (np.asarray(part.y).astype(np.int64) for part in (train, test))
        return Pictures(name, train.x, y, test.x, test_y, shape, 28, 255.0, asked, settings, 10_000)
    digits = sources.load("digits")
    order = np.random.default_rng(0).permutation(len(digits.x))
    chosen, others = np.split(order, [_DIGITS_TRAIN])
    name, n_tests = "scikit-learn's digits", 10_000
    if size == "tiny":
        chosen, others, name, n_tests = chosen[:600], others[:200], f"{name}, few of them", 200
    y = np.asarray(digits.y).astype(np.int64)
    return Pictures(name, digits.x[chosen], y[chosen], digits.x[others], y[others], (), 8, 16.0, {}, {}, n_tests)


MNIST, MNIST_SMALL = "mnist", "mnist-small"
SIZES = (MNIST, MNIST_SMALL, "digits", "tiny")


@dataclass(frozen=True)
class Selection:
    """What of a reproduction is run."""

    size: str = MNIST
    only: Sequence[str] = ()
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def variants(self) -> list[str]:
        for name in self.only:
            if name not in VARIANTS:
                raise UsageError(f"--only is one of {', '.join(VARIANTS)}, not {name}")
        return [name for name in VARIANTS if not self.only or name in self.only]


@dataclass(frozen=True)
class Page:
    """What a reproduction is called and how its figures are to be read."""

    name: str
    title: str
    text: str
    measures: Mapping[str, str]  # names of measures to the heads of their columns, the most important first


def reproduce(page: Page, tasks: Sequence[Task], selection: Selection, request: Request, console: Console) -> Path:
    """Fit every variant to every task for every seed, write the table and the figure; returns the page."""
    images = pictures(selection.size)
    if request.fits and selection.size == MNIST and resolve_device(request.device).type == "cpu":
        console.print(f"fits of this size take hours each without a GPU: --size {MNIST_SMALL} takes less")
    # the first seed of everything first, so that a table can be read early
    jobs = [
        TaskFit(task, variant, seed, selection.size, request.iterations, selection.settings)
        for seed in request.chosen_seeds
        for variant in selection.variants
        for task in tasks
    ]
    done = run_all(jobs, request, console)
    seeds = request.chosen_seeds
    text = f"{page.text} Images: {images.name}. Median over seeds {seeds[0]} to {seeds[-1]}, and the lowest."
    table = results_table(page, tasks, selection.variants, done)
    sections = [Section("Results", text, table)]
    main, label = next(iter(page.measures.items()))
    points = {
        VARIANTS[variant].title: [
            (task.title, [r.measures[main] for r, _ in _of(done, task, variant) if main in r.measures])
            for task in tasks
        ]
        for variant in selection.variants
    }
    picture = spread_of_measures(points, label)
    sections.append(Section(label, "A dot a seed.", picture=picture, name=page.name))
    return write_page(request.out, page.name, page.title, sections)


def results_table(
    page: Page, tasks: Sequence[Task], variants: Sequence[str], done: Sequence[Done[TaskResult]]
) -> ResultTable:
    measured = (text for m in page.measures.values() for text in (m, "lowest"))
    rows = []
    for task in tasks:
        for variant in variants:
            group = _of(done, task, variant)
            results = [result for result, _ in group]
            failed = sum(result.failure is not None for result in results)
            cells = []
            for measure in page.measures:
                values = [r.measures[measure] for r in results if measure in r.measures]
                cells += [f"{np.median(values):.4f}", f"{min(values):.4f}"] if values else ["–", "–"]
            took = f"{np.median([seconds for _, seconds in group]):.0f}" if group else "–"
            ending = f"{len(group)}, {failed} diverged" if failed else str(len(group))
            rows.append([task.title, VARIANTS[variant].title, task.published, *cells, took, ending])
    return ResultTable(["task", "", "published", *measured, "seconds", "fits"], rows)


def _of(done: Sequence[Done[TaskResult]], task: Task, variant: str) -> list[tuple[TaskResult, float]]:
    """Results with the seconds they took."""
    return [
        (result, job.seconds)
        for job in done
        for result in job.results
        if (result.task, result.variant) == (task.title, variant)
    ]
