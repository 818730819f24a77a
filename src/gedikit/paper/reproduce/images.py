"""Tables nmi_real, acc and ood… of the paper: SVHN, CIFAR-10 and CIFAR-100, also MNIST and Fashion-MNIST.

Fits are computed in parts and stored (`image_runs`), figures are measured from stored weights
(`image_measures`), tables are written from stored figures: each can be stopped and gone on with anywhere.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from gedikit.components.component import unknown
from gedikit.errors import UsageError
from gedikit.paper.recipes import PRINTED
from gedikit.paper.reproduce.image_baselines import compute_baselines
from gedikit.paper.reproduce.image_measures import measure, open_run
from gedikit.paper.reproduce.image_runs import (
    ImageFit,
    Place,
    StoredRun,
    check_losses,
    fit_run,
    learns_density,
    title_of,
)
from gedikit.paper.reproduce.image_weights import write_weights
from gedikit.paper.reproduce.paper import COMPARISON

FIRST_SEED = 400
AS_PRINTED = f"gedi{PRINTED}"
TWO_STAGE = "gedi-two-stage"
METHODS = (*COMPARISON, TWO_STAGE, AS_PRINTED)
# of the paper, but for CIFAR-100, which it trains for 200, and the two sets that it does not have
EPOCHS = {"svhn": 20, "cifar10": 200, "cifar100": 40, "mnist": 7, "fashion-mnist": 5}
_SAME = 1e-3  # a loss that differs by less was computed by the same fit
_TOLD = 4  # figures of a measurement
_FEWER = {"cifar10": 2, "cifar100": 1}  # seeds of methods that sample in every iteration


@dataclass(frozen=True)
class Selection:
    """Which fits a command is about; empty means all that are planned, and a method may be named anywhere."""

    data: Sequence[str] = ()
    methods: Sequence[str] = ()
    seeds: Sequence[int] = ()
    epochs: int = 0  # 0: those planned for the data
    small: bool = False

    def __post_init__(self) -> None:
        for kind, chosen, known in (("data set", self.data, EPOCHS), ("method", self.methods, METHODS)):
            for name in chosen:
                if name not in known:
                    raise UsageError(unknown(kind, name, known))
        if self.epochs < 0 or any(seed < 0 for seed in self.seeds):
            raise UsageError("--epochs and --seed must not be negative")

    def takes(self, asked: ImageFit) -> bool:
        return all(
            not chosen or value in chosen
            for chosen, value in (
                (self.data, asked.data),
                (self.methods, asked.method),
                (self.seeds, asked.seed),
            )
        )

    def fits(self) -> list[ImageFit]:
        chosen = [(data, method) for data in self.data or EPOCHS for method in self.methods or METHODS]
        return [
            ImageFit(data, method, seed, self.epochs or EPOCHS[data], self.small)
            for data, method in chosen
            if self.methods or _is_planned(data, method)
            for seed in self.seeds or _planned_seeds(data, method)
        ]


def _is_planned(data: str, method: str) -> bool:
    """As printed where it is known to diverge soon, in two stages once, and additional rows for two more sets."""
    if method == TWO_STAGE:
        return data == "svhn"
    if method == AS_PRINTED:
        return data in ("svhn", "cifar10")
    return data in ("svhn", "cifar10", "cifar100") or method in ("gedi", "gedi-no-gen")


def _planned_seeds(data: str, method: str) -> range:
    if method in (AS_PRINTED, TWO_STAGE) or "mnist" in data:
        return range(FIRST_SEED, FIRST_SEED + 1)
    return range(FIRST_SEED, FIRST_SEED + (_FEWER.get(data, 3) if learns_density(method) else 3))


def place(out: Path, unfinished: Path, device: str, minutes: float, commit: str) -> Place:
    """Where a command works and for how long; 0 minutes are no limit."""
    if minutes < 0:
        raise UsageError(f"--minutes must not be negative, not {minutes:g}")
    deadline = time.monotonic() + 60 * minutes if minutes else float("inf")
    return Place(out / "runs", unfinished, device, deadline, commit)


def show_states(selection: Selection, place: Place, console: Console) -> None:
    """What is planned, and what is there of it."""
    table = Table("data", "method", "seed", "epochs", "iterations", "state")
    for asked in selection.fits():
        iterations = asked.plan().config.optimiser.iterations
        table.add_row(
            asked.data,
            title_of(asked.method),
            *(str(asked.seed), str(asked.epochs), str(iterations)),
            place.state_of(asked),
        )
    console.print(table)


def fit_missing(selection: Selection, place: Place, console: Console) -> bool:
    """Fit what is not stored; returns whether all of it is there now."""
    for asked in selection.fits():
        if place.stored(asked).exists:
            continue
        if place.is_over:
            console.print("the time is over: the same command goes on")
            return False
        console.print(f"{asked.name}: {fit_run(asked, place)}")
        if not place.stored(asked).exists:
            console.print(f"the time is over: the same command goes on with {asked.name} from its checkpoint")
            return False
    return True


def check_stored(selection: Selection, place: Place, console: Console) -> bool:
    """Fit the first iterations of stored runs again; returns whether all losses are the same."""
    same = True
    for asked in selection.fits():
        stored = place.stored(asked)
        if not stored.exists:
            continue
        if place.is_over:
            console.print("the time is over: the rest was not checked")
            return False
        found = check_losses(asked, place)
        name = max(found, key=lambda key: found[key])
        same = same and found[name] <= _SAME
        console.print(f"{asked.name}: largest difference {found[name]:.2g} ({name})")
    return same


def stored_fits(place: Place) -> list[ImageFit]:
    """All fits that are stored, in the order of the tables."""
    found = []
    for data in EPOCHS:
        for method in METHODS:
            for path in place.runs.glob(f"{data}-{method}-[0-9]*"):
                stored = StoredRun(path)
                if stored.exists:
                    made = stored.plan
                    small = made.budget == "quick"
                    found.append(ImageFit(data, method, made.seed, made.config.optimiser.epochs, small))
    return sorted(found, key=lambda a: (list(EPOCHS).index(a.data), METHODS.index(a.method), a.seed))


def measure_missing(selection: Selection, place: Place, console: Console, names: Sequence[str]) -> bool:
    """Measure what was not measured of stored runs; returns whether all of it is there now."""
    for asked in filter(selection.takes, stored_fits(place)):
        stored = place.stored(asked)
        missing = [name for name in names if stored.measured(name) is None]
        if not missing or stored.failed_at is not None:
            continue
        opened = open_run(asked, place)
        for name in missing:
            if place.is_over:
                console.print("the time is over: the same command goes on")
                return False
            figures = measure(opened, name, place)["figures"]
            told = ", ".join(f"{key} {value:.3f}" for key, value in list(figures.items())[:_TOLD])
            console.print(f"{asked.name}, {name}: {told}")
    return True


def reproduce(
    selection: Selection, place: Place, console: Console, *, measured: bool = True, samples: bool = True
) -> Path:
    """Clusters and samples of stored runs, and the table of all; returns the page."""
    names = ("clusters", "samples") if samples else ("clusters",)
    return _page("images", names, selection, place, console, measured=measured)


def reproduce_probe(selection: Selection, place: Place, console: Console, *, measured: bool = True) -> Path:
    """Probes of stored runs, and the table of all; returns the page."""
    return _page("probe", ("probe",), selection, place, console, measured=measured)


def reproduce_ood(selection: Selection, place: Place, console: Console, *, measured: bool = True) -> Path:
    """How stored runs tell other images apart, and the table of all; returns the page."""
    return _page("ood", ("ood",), selection, place, console, measured=measured)


def write_pretrained(selection: Selection, place: Place, console: Console) -> None:
    """The models that `gedikit.load_pretrained` opens: of each data set the first stored run of GEDI."""
    written = set()
    for asked in filter(selection.takes, stored_fits(place)):
        if asked.method == "gedi" and asked.data not in written and place.stored(asked).failed_at is None:
            path = write_weights(open_run(asked, place), place.runs.parent / "weights")
            console.print(f"{asked.name}: {path}, {path.stat().st_size / 1e6:.1f} MB")
            written.add(asked.data)


def _page(
    name: str, measurements: Sequence[str], selection: Selection, place: Place, console: Console, *, measured: bool
) -> Path:
    if measured:
        measure_missing(selection, place, console, measurements)
        for data in dict.fromkeys(asked.data for asked in filter(selection.takes, stored_fits(place))):
            if not place.is_over:
                compute_baselines(data, name, place, console)
    from gedikit.paper.reproduce import image_tables  # nothing before needs what draws

    return image_tables.PAGES[name](place, stored_fits(place), Selection().fits())
