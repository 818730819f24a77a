"""Groups of fits on points in the plane that are trained as one stack."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gedikit.config import Execution
from gedikit.data.toy import N_CLASSES, SHAPES
from gedikit.evaluation import clustering_metrics, grid_log_normaliser
from gedikit.fitted import FittedModel
from gedikit.paper.reproduce.running import curve, key_of
from gedikit.planning import UNIFORM, Asked, Plan, plan
from gedikit.profile import DataProfile
from gedikit.report.findings import on_grid
from gedikit.training.callbacks import Callback
from gedikit.training.many import Outcome, Task, fit_many

N_TRAIN = N_TEST = 1000
_CELLS = 200  # a side, for the exact normaliser
_PICTURE = 100  # grid lines a side
_SAMPLES = 300
_CURVES = ("iteration", "invariance", "prior", "watched_invariance", "watched_prior")


@dataclass(frozen=True)
class Member:
    """One fit of a group: which points, which seed, and the weights of objectives it changes."""

    shape: str
    seed: int
    weights: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Group:
    """Fits of one method that are trained as one stack; `iterations` 0 means the method's own."""

    method: str
    members: tuple[Member, ...]
    iterations: int = 0
    pictured: int | None = None  # the seed whose fits are drawn

    @property
    def key(self) -> str:
        """Names the group and all that is asked of it."""
        return key_of(self.method, asdict(self), self.plan(self.members[0]))

    @property
    def title(self) -> str:
        return self.method

    @property
    def n_fits(self) -> int:
        return len(self.members)

    def plan(self, member: Member) -> Plan:
        config: dict[str, Any] = {f"objectives.{name}.weight": weight for name, weight in member.weights}
        if self.iterations:
            config["optimiser.iterations"] = self.iterations
        data = DataProfile(N_TRAIN, n_features=2)
        asked = Asked(N_CLASSES[member.shape], self.method, UNIFORM, seed=member.seed, config=config)
        return plan(data, asked)

    def run(self, device: str, callback: Callback) -> "list[Result]":
        """Train the group and measure its members on points they were not trained on."""
        tasks = [Task(points(member.shape, member.seed)[0], self.plan(member)) for member in self.members]
        outcomes = fit_many(tasks, execution=Execution(device=device), callbacks=[callback])
        return [_measured(self, m, o) for m, o in zip(self.members, outcomes, strict=True)]

    def read(self, values: dict[str, Any]) -> "Result":
        return Result.from_dict(values)


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
    """What was measured of a member, or why there is nothing to measure."""

    method: str
    shape: str
    seed: int
    weights: dict[str, float]
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


def points(shape: str, seed: int) -> tuple[Any, Any, Any]:
    """Training points, and test points with their labels."""
    x, y = SHAPES[shape](N_TRAIN + N_TEST, seed)
    return x[:N_TRAIN], x[N_TRAIN:], y[N_TRAIN:]


def _measured(group: Group, member: Member, outcome: Outcome) -> Result:
    rows = outcome.history.rows
    nmi = likelihood = picture = None
    by, rollbacks = "", 0
    if outcome.fitted is not None:
        fitted = outcome.fitted
        _, x, y = points(member.shape, member.seed)
        by, rollbacks = fitted.assignment.description, len(fitted.info["events"])
        metrics = clustering_metrics(y, fitted.labels(x), "test", labels_by=by)
        nmi = next(f.value for f in metrics if f.name == "nmi")
        likelihood = _log_likelihood(fitted, x)
        if member.seed == group.pictured:
            picture = _picture(fitted, x, y)
    return Result(
        group.method,
        member.shape,
        member.seed,
        dict(member.weights),
        nmi,
        likelihood,
        by,
        outcome.failure,
        None if outcome.failure is None else int(rows[-1]["iteration"] if rows else 0),
        rollbacks,
        curve(rows, _CURVES) if member.seed == group.pictured else [],
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
