"""Table nesy_result with the figures around it: what digits mean, from examples of a + b = c alone."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from sklearn.metrics import confusion_matrix, normalized_mutual_info_score
from sklearn.neighbors import NearestNeighbors

from gedikit.config import Execution
from gedikit.data import sources
from gedikit.errors import DivergenceError, UsageError
from gedikit.fitted import FittedModel
from gedikit.methods import methods
from gedikit.objectives.pseudo_labels import PseudoLabels
from gedikit.paper import recipes
from gedikit.paper.reproduce import addition_figures as figures
from gedikit.paper.reproduce.addition_figures import Explained
from gedikit.paper.reproduce.page import ResultTable, Section, write_page
from gedikit.paper.reproduce.paper import ADDITION
from gedikit.paper.reproduce.running import Done, Request, curve, key_of, run_all
from gedikit.paper.reproduce.sums import Sums
from gedikit.planning import UNIFORM, Asked, ExamplesProfile, Plan, plan
from gedikit.profile import DataProfile
from gedikit.training.callbacks import Callback
from gedikit.training.devices import resolve_device
from gedikit.training.fit import Setup, fit, prepare
from gedikit.training.loop import History
from gedikit.training.rules import Rules

_SHAPE = (28, 28, 1)
_CURVES = ("iteration", "constraint", "invariance", "watched_invariance", "pseudo-labels")
_NOT_THERE = ("–", "–")
_SHOWN, _LOOKED_AT = 4, 100  # test examples


@dataclass(frozen=True)
class Kind:
    """A column of the table."""

    title: str
    method: str
    in_paper: str  # its name in the paper's table, which does not have all of them
    has_network: bool = True

    @property
    def printed(self) -> bool:
        return recipes.PRINTED in self.method


KINDS = {
    "nesy": Kind("NeSy only", "nesy", "nesy"),
    "gedi": Kind("GEDI only", "gedi", "gedi"),
    "printed": Kind("GEDI & NeSy as printed", recipes.printed("gedi-nesy", "mnist").name, "gedi-nesy"),
    "rule": Kind("GEDI & NeSy, only the rule optimised", "gedi-nesy", "gedi-nesy"),
    "pseudo": Kind("pseudo-labels alone: no network", "gedi-symbols", "", has_network=False),
    "both": Kind("GEDI & NeSy from pseudo-labels on", "gedi-symbols", "gedi-nesy"),
}
_VOTERS = 5  # nearest training images that name a test image where there is no network


@dataclass(frozen=True)
class AdditionResult:
    """What was measured of a fit, or why there is nothing to measure."""

    kind: str
    n: int
    seed: int
    accuracy: float | None
    nmi: float | None
    failure: str | None
    failed_at: int | None
    events: list[str]
    confusion: list[list[int]]
    curve: list[dict[str, float]]
    explained: list[Explained]


@dataclass(frozen=True)
class AdditionFit:
    """One fit to n examples; `small` is for a CPU, and `iterations` 0 means the paper's epochs."""

    kind: str
    n: int
    seed: int
    small: bool
    iterations: int = 0
    sums: Sums = field(default_factory=Sums)

    def plan(self, shares: Sequence[float] = (0.1,) * 10) -> Plan:
        """What is fitted; `shares` is how often the rule lets each digit occur, which follows from `sums`."""
        kind, n_variables = KINDS[self.kind], sum(self.sums.lengths)
        n_rows, size = self.n * n_variables, self.sums.batch_size(self.n, printed=kind.printed)
        config: dict[str, Any] = {"optimiser.batch_size": size, "optimiser.epochs": self.sums.sizes[self.n]}
        if self.iterations:
            config |= {"optimiser.epochs": 0, "optimiser.iterations": self.iterations}
        if not kind.printed:
            config["optimiser.warmup"] = 100  # trainings are short
            config["objectives.pseudo-labels.share"] = 0.0  # GEDI only is without, and the others by themselves
        if kind.method == "gedi":
            config["similarity.copies"] = 8 if self.small else 32  # methods with a rule have theirs
        made = plan(
            DataProfile(n_rows, int(np.prod(_SHAPE)), _SHAPE),
            Asked(
                10,
                kind.method,
                UNIFORM,
                seed=self.seed,
                config=config,
                examples=ExamplesProfile(n_rows, n_variables, tuple(shares)) if self.needs_rule else None,
                **({} if kind.printed else recipes.working("mnist", small=self.small)),
            ),
        )
        sampler = made.config.sampler
        if sampler is None:
            return made
        return made.replaced(sampler=sampler.replace(samples=min(sampler.samples, size)))

    @property
    def needs_rule(self) -> bool:
        return methods[KINDS[self.kind].method].needs_examples

    @property
    def key(self) -> str:
        return key_of(f"{self.kind}-{self.n}-{self.seed}", asdict(self), self.plan())

    @property
    def title(self) -> str:
        return f"{KINDS[self.kind].title}, {self.n} examples, seed {self.seed}"

    @property
    def n_fits(self) -> int:
        return 1

    def read(self, values: dict[str, Any]) -> AdditionResult:
        return AdditionResult(**{**values, "explained": [Explained(**e) for e in values["explained"]]})

    def run(self, device: str, callback: Callback) -> list[AdditionResult]:
        """Train on images of the training set and measure on all of the test set, names as they are."""
        train = _mnist("train")
        rows = self.sums.examples(np.asarray(train.y), self.n, self.seed)
        rules, planned = None, self.plan()
        if self.needs_rule:
            rules = Rules.of(self.sums.constraint(), np.arange(rows.size).reshape(rows.shape))
            planned = self.plan(rules.profile().prior)
        execution = Execution(device=device, log_every=20, threads=0)
        history = History()
        if not KINDS[self.kind].has_network:
            named = prepare(planned, train.x[rows.ravel()], execution=execution, rules=rules)
            return [self._by_neighbours(train.x[rows.ravel()], pseudo_labels(named))]
        try:
            fitted = fit(
                planned,
                train.x[rows.ravel()],
                execution=execution,
                rules=rules,
                callbacks=[callback],
                history=history,
            ).fitted
        except DivergenceError as error:
            last = int(history.rows[-1]["iteration"]) if history.rows else 0
            return [self._result(None, str(error), last, history)]
        return [self._result(fitted, None, None, history)]

    def _by_neighbours(self, x: NDArray[Any], targets: NDArray[np.float32]) -> AdditionResult:
        """Test images named by the pseudo-labels of the training images nearest in their pixels."""
        test = _mnist("test")
        known = targets.sum(1) > 0
        nearest = NearestNeighbors(n_neighbors=_VOTERS).fit(x[known] / 255.0).kneighbors(test.x / 255.0)[1]
        labels, truth = targets[known][nearest].sum(1).argmax(1), np.asarray(test.y)
        accuracy, nmi = float((labels == truth).mean()), float(normalized_mutual_info_score(truth, labels))
        confusion = confusion_matrix(truth, labels, labels=range(10)).tolist()
        return AdditionResult(self.kind, self.n, self.seed, accuracy, nmi, None, None, [], confusion, [], [])

    def _result(
        self, fitted: FittedModel | None, failure: str | None, failed_at: int | None, history: History
    ) -> AdditionResult:
        accuracy = nmi = None
        confusion: list[list[int]] = []
        explained: list[Explained] = []
        if fitted is not None:
            test = _mnist("test")
            labels, truth = fitted.labels(test.x), np.asarray(test.y)
            accuracy = float((labels == truth).mean())
            nmi = float(normalized_mutual_info_score(truth, labels))
            confusion = confusion_matrix(truth, labels, labels=range(10)).tolist()
            explained = _explained(self.sums, fitted, test.x, truth, self.seed)
        return AdditionResult(
            self.kind,
            self.n,
            self.seed,
            accuracy,
            nmi,
            failure,
            failed_at,
            [] if fitted is None else fitted.info["events"],
            confusion,
            curve(history.rows, _CURVES),
            explained,
        )


def pseudo_labels(ready: Setup) -> NDArray[np.float32]:
    """What a fit takes its rows for before its training, zeros of rows that it takes for nothing."""
    objective = ready.step.objectives["pseudo-labels"]
    assert isinstance(objective, PseudoLabels)
    found: NDArray[np.float32] = objective.targets.cpu().numpy()
    return found


@lru_cache
def _mnist(split: str) -> sources.Dataset:
    return sources.load("mnist", split=split)


def _explained(sums: Sums, fitted: FittedModel, x: NDArray[Any], truth: NDArray[Any], seed: int) -> list[Explained]:
    """Of some hundred test examples those that satisfy the rule with the least probability."""
    rule = sums.constraint()
    names = [v.name for v in rule.variables]
    examples = sums.examples(truth, _LOOKED_AT, seed)
    log_p = torch.from_numpy(np.log(fitted.posterior(x[examples.ravel()]).clip(1e-30))).unflatten(0, examples.shape)
    doubtful = rule.log_probability(log_p.unbind(1)).argsort()[:_SHOWN].tolist()
    as_written = [names.index(name) for number in sums.names for name in reversed(number)]
    shown = []
    for i in doubtful:
        found = rule.explain(list(log_p[i]), k=3)
        shown.append(
            Explained(
                x[examples[i][as_written]].tolist(),
                sums.written(dict(zip(names, truth[examples[i]].tolist(), strict=True))),
                found.log_probability,
                [f"{sums.written(w.values)}   {_share(w.probability)}" for w in found.worlds],
            )
        )
    return shown


def _share(p: float) -> str:
    return f"{p:.3f}" if p >= 0.0005 else "< 0.001"


def reproduce(
    request: Request, console: Console, sizes: Sequence[int], sums: Sums, *, printed: bool = False
) -> Path:
    """Fit every column for every size and seed, write the table and the figures; returns the page.

    On a CPU the fits are small.
    """
    chosen = sorted(set(sizes or sums.sizes))
    unknown = [n for n in chosen if n not in sums.sizes]
    if unknown:
        raise UsageError(f"choose from {', '.join(map(str, sums.sizes))} examples, not {unknown[0]}")
    small = resolve_device(request.device).type == "cpu"
    console.print(_size(small))
    kinds = [name for name, kind in KINDS.items() if printed or not kind.printed]
    # the longest first, so that no process ends alone
    jobs = [
        AdditionFit(kind, n, seed, small, request.iterations, sums)
        for n in reversed(chosen)
        for kind in reversed(kinds)
        for seed in request.chosen_seeds
    ]
    done = run_all(jobs, request, console)
    title = "Digits from sums: a + b = c" if sums.digits == 1 else f"Digits from sums of {sums.digits} digits"
    return write_page(request.out, "addition", title, sections(done, chosen, kinds, sums, request, small=small))


def sections(
    done: Sequence[Done[AdditionResult]],
    sizes: Sequence[int],
    kinds: Sequence[str],
    sums: Sums,
    request: Request,
    *,
    small: bool,
) -> list[Section]:
    results = [result for job in done for result in job.results]
    cells = {(kind, n): [r for r in results if (r.kind, r.n) == (kind, n)] for kind in kinds for n in sizes}
    seeds = request.chosen_seeds
    note = (
        f"An example is {sum(sums.lengths)} MNIST images, the digits of two numbers and of their sum; nothing else "
        "is said about them. Accuracy counts a digit as right if the cluster of its name was chosen, without "
        f"matching clusters to classes afterwards. Median ± standard deviation over {len(seeds)} seeds ({seeds[0]} "
        f"to {seeds[-1]}), and the lowest, on the 10,000 test images. {_size(small)}"
    )
    made = [
        Section(
            "Accuracy and NMI (Table nesy_result)", note, _table(cells, sizes, kinds, in_paper=sums.digits == 1)
        )
    ]
    curves = {
        f"{KINDS[kind].title}, {n} examples": cells[kind, n][0].curve
        for n in sizes
        for kind in kinds
        if kind in ("printed", "rule", "both") and cells[kind, n]
    }
    made.append(
        Section(
            "The rule's loss and the invariance (Figure inv_nesy)",
            f"L_NESY and L_INV over the training, seed {seeds[0]}. As printed, and where only the rule is "
            "optimised, L_INV is watched and not minimised (dotted); by default the training begins with "
            "pseudo-labels, clusters that the rule has named; then both are minimised.",
            picture=figures.losses(curves),
            name="inv_nesy",
        )
    )
    trained = {n: [r for r in cells["both", n] if r.confusion] for n in sizes}
    full = {n: group[0] for n, group in trained.items() if group}
    if full:
        made.append(
            Section(
                "Which digits are taken for which",
                f"{KINDS['both'].title}, test images, first seed that did not diverge; rows are the true digits.",
                picture=figures.confusions({n: np.array(r.confusion) for n, r in full.items()}),
                name="confusion",
            )
        )
        made.append(
            Section(
                "Examples explained",
                f"Of {_LOOKED_AT} test examples the {_SHOWN} that satisfy the rule with the least probability, for "
                f"the model of {max(full)} examples: the most probable sums given that the rule holds.",
                picture=figures.explained(full[max(full)].explained),
                name="explained",
            )
        )
    return made


def _size(small: bool) -> str:
    c = AdditionFit("both", min(Sums().sizes), 0, small).plan().config.tree()
    kind = "small, for a CPU" if small else "those for a GPU"
    return f"Fits are {kind}: width {c['encoder']['width']}, {c['sampler']['steps']} SGLD steps an iteration."


def _table(
    cells: Mapping[tuple[str, int], Sequence[AdditionResult]],
    sizes: Sequence[int],
    kinds: Sequence[str],
    *,
    in_paper: bool,
) -> ResultTable:
    head = ["examples", "", "accuracy, paper", "accuracy", "lowest", "NMI, paper", "NMI", "lowest", "diverged"]
    rows = []
    for n in sizes:
        for name in kinds:
            kind, group = KINDS[name], cells[name, n]
            paper = ADDITION.get((kind.in_paper, n), _NOT_THERE) if in_paper else _NOT_THERE
            accuracy, nmi = (
                [v for r in group if (v := getattr(r, what)) is not None] for what in ("accuracy", "nmi")
            )
            failed = sum(r.failure is not None for r in group)
            rows.append(
                [
                    *(str(n), kind.title),
                    *(paper[0], _spread(accuracy), _lowest(accuracy)),
                    *(paper[1], _spread(nmi), _lowest(nmi)),
                    f"{failed} of {len(group)}" if failed else "–",
                ]
            )
    return ResultTable(head, rows)


def _spread(values: Sequence[float]) -> str:
    return f"{np.median(values):.3f} ± {np.std(values):.3f}" if values else "–"


def _lowest(values: Sequence[float]) -> str:
    return f"{min(values):.3f}" if values else "–"
