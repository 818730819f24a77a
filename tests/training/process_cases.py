"""Fits that one, two and four processes compute; run as a program, this file is one of those processes.

Everything is computed in 64 bits: what differs then by more than rounding differs for a reason.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

STEPS = 5


def in_64_bits() -> None:
    """Let what is 32 bits wide be 64 bits wide; before anything of gedikit is imported but the scaling of rows."""
    torch.float32, torch.Tensor.float = torch.float64, torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    from gedikit.modalities import scaling

    class Wide:
        float32 = np.float64

        def __getattr__(self, name: str) -> Any:
            return getattr(np, name)

    scaling.np = Wide()


@dataclass(frozen=True)
class Case:
    """A method with settings, on moons, blobs with rules, four columns, or pictures."""

    method: str
    config: Mapping[str, Any] = field(default_factory=dict)
    data: str = "moons"
    known: Mapping[str, Any] = field(default_factory=dict)
    encoder: Callable[[], torch.nn.Module] | None = None


NO_ENCODER = {"encoder.hidden": None, "encoder.features": None, "encoder.frequencies": None}
SMALL = {
    "encoder.hidden": (16,),
    "encoder.features": 6,
    "encoder.frequencies": 8,
    "optimiser.iterations": STEPS,
    "optimiser.batch_size": 24,
    "optimiser.warmup": 2,
}
PICTURES = {
    **NO_ENCODER,
    "encoder.width": 8,
    "optimiser.batch_size": 16,
    "sampler.samples": 8,
    "sampler.chains": 32,
    "sampler.steps": 2,
}
CHAINS = {"sampler.samples": 12, "sampler.chains": 40, "sampler.steps": 3}
PROPOSALS = {"sampler.samples": 12, "sampler.bank": 200}
NO_CHAINS = {"sampler.samples": None, "sampler.chains": None, "sampler.steps": None}
NORMALISED = {**NO_ENCODER, "encoder.name": "paper-mlp", "encoder.batch_norm": True}
LABELS = np.where(np.arange(60) % 4 == 0, np.arange(60) // 4 % 2, -1)

CASES = {
    "gedi": Case("gedi", {**PROPOSALS, "density.l2": 0.1}),
    "stages": Case("gedi-two-stage", PROPOSALS),
    "contrastive energy": Case("ebclr", {**PROPOSALS, "density.references": 9}),
    "flow": Case("invariance+prior+flow", {"density.hidden": (8,), "density.transforms": 1}),
    "mixture at all levels": Case("gedi", {"density.samples": 17, "density.rows": 50}, "columns"),
    "few rows of a mixture": Case("gedi", {"density.rows": 50, "optimiser.batch_size": 4}, "columns"),
    "mala": Case("gedi", {**CHAINS, "sampler.name": "mala"}),
    "sgld": Case("gedi", {**CHAINS, "sampler.name": "sgld", "sampler.step_size": 0.1, "density.largest_gap": 0.05}),
    "chains begun anew": Case(
        "jem", {**CHAINS, "sampler.name": "sgld", "sampler.restart": 0.5, "sampler.start": "noise"}
    ),
    "noise": Case("gedi-no-gen", {"views.name": "noise"}),
    "uniformity": Case("invariance+uniformity"),
    "pseudo-labels": Case("gedi-no-gen", {"objectives.pseudo-labels.share": 0.9}),
    "known labels": Case("gedi-no-gen", known={"partial_labels": LABELS}),
    "some known labels": Case(
        "gedi-no-gen",
        {"objectives.known-labels.rows": 7},
        known={"partial_labels": LABELS, "sample_weight": 1 + LABELS.clip(0)},
    ),
    "links": Case("gedi-no-gen", known={"must_link": [(0, 1), (2, 3)], "cannot_link": [(0, 5)]}),
    "some links": Case(
        "gedi-no-gen", {"objectives.links.pairs": 3}, known={"must_link": [(i, i + 1) for i in range(0, 20, 2)]}
    ),
    "constraint": Case("gedi-symbols", {**PROPOSALS, "objectives.constraint.symmetric": True}, "rules"),
    "uniform constraint": Case("gedi-nesy", PROPOSALS, "rules"),
    "queue": Case("swav", {"objectives.swav.queue": 42}),
    "batch normalisation": Case("barlow-twins", NORMALISED),
    "normalised teacher": Case("protocpc", NORMALISED),
    "normalised labels": Case("gedi-no-gen", NORMALISED, known={"partial_labels": LABELS[:, None][:, 0]}),
    "normalised chains": Case("gedi", {**CHAINS, **NORMALISED, "sampler.name": "sgld", "sampler.step_size": 0.01}),
    "frozen prototypes": Case("swav", {"head.freeze": 3}),
    "pictures": Case("gedi", PICTURES, "pictures"),
    "pictures by walks": Case("gedi", {**PICTURES, "views.walks": True, "sampler.storage": "bfloat16"}, "pictures"),
    "normalised pictures": Case("barlow-twins", {**PICTURES, **NO_CHAINS, "encoder.batch_norm": True}, "pictures"),
    **{
        name: Case(name)
        for name in (
            *("barlow-twins", "corinfomax", "cpc", "deepcluster", "infonce", "kscl", "mec", "protocpc", "sela"),
            *("simclr", "swav", "vicreg", "w-mse"),
        )
    },
}


def columns(n: int) -> np.ndarray:
    """Two clouds of five columns."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 5)) + 3 * (np.arange(n) % 2)[:, None]


def ready(case: Case) -> Any:
    """All that a case needs before its first iteration."""
    from gedikit.config import Execution
    from gedikit.data.toy import moons
    from gedikit.estimator import plan_rows
    from gedikit.known import Known
    from gedikit.planning import Asked
    from gedikit.training.fit import prepare
    from gedikit.training.rules import Rules

    shape: tuple[int, ...] = ()
    rules, n_clusters = None, 2
    if case.data == "pictures":
        from image_cases import SHAPE, pictures

        x, shape = pictures(48)[0], SHAPE
    elif case.data == "rules":
        from test_rules import SUM, blobs, sums

        x, labels = blobs(60, 0)
        rules, n_clusters = Rules.of(SUM, sums(labels, 40, 0)), 3
    else:
        x = columns(60) if case.data == "columns" else moons(60, 0)[0]
    known = Known.of(len(x), **case.known) if case.known else None
    config = {name: value for name, value in {**SMALL, **case.config}.items() if value is not None}
    asked = Asked(
        n_clusters,
        case.method,
        config=config,
        views="photos" if shape else "auto",
        examples=None if rules is None else rules.profile(),
        known=known,
    )
    made, starts = plan_rows(x, shape, asked)
    execution = Execution(device="cpu", log_every=1)
    return prepare(made, x, execution=execution, rules=rules, starts=starts, known=known)


def steps(case: Case) -> dict[str, Any]:
    """Measurements and the state after some iterations."""
    from gedikit.training.fit import _share

    setup = ready(case)
    state = setup.new_state()
    _share(state)
    measured = [setup.step(state, measure=True)[0] for _ in range(STEPS)]
    tensors = {name: t.clone() for name, t in state.tensors().items()}
    return {"measured": measured, "tensors": tensors, "terms": list(setup.plan.terms), "density": _density(setup)}


def _density(setup: Any) -> str:
    density = setup.plan.config.density
    return "" if density is None else str(density.name)


FITS = {
    "rows": Case("gedi", {**PROPOSALS, "optimiser.iterations": 100}),
    "chains of rows": Case("gedi", {**CHAINS, "sampler.name": "mala", "optimiser.iterations": 100}),
    "columns": Case("gedi", {"density.rows": 50, "optimiser.iterations": 100}, "columns"),
    "pictures": Case("gedi", {**PICTURES, "optimiser.iterations": 20}, "pictures"),
}


OF_FOUR = ("rows", "pictures")


def whole(case: Case) -> dict[str, Any]:
    """A fitted model, and what was measured on the way."""
    from gedikit.training import fit

    setup = ready(case)
    execution = replace(setup.execution, log_every=10)
    done = fit(setup.plan, setup.x, execution=execution, starts=setup.starts)
    predicted = done.fitted.predictions(setup.x)
    return {
        "measured": done.history.rows,
        "terms": setup.plan.terms,
        "weights": done.fitted.network.state_dict(),
        "labels": done.fitted.training_labels,
        "posterior": done.fitted.posterior(setup.x),
        "log_density": predicted.log_density,
    }


def estimator() -> dict[str, Any]:
    """What every process gets that calls `GEDI.fit`, without a seed that they have in common."""
    from gedikit import GEDI
    from gedikit.callbacks import Callback, EarlyStopping
    from gedikit.data.toy import moons

    class Counter(Callback):
        calls = 0

        def on_metrics(self, fit: Any, metrics: Any) -> None:  # noqa: ARG002
            self.calls += 1

    counter, rows = Counter(), moons(60, 0)[0]
    config = {**PROPOSALS, "execution.log_every": 1}
    stopping = EarlyStopping("prior", patience=2, min_change=100.0)
    model = GEDI(2, max_iter=20, batch_size=24, config=config).fit(rows, callbacks=[counter, stopping])
    return {
        "seed": model.plan_.seed,
        "labels": model.labels_,
        "posterior": model.predict_proba(rows),
        "calls": counter.calls,
        "iterations": model.n_iter_,
        "verdict": model.diagnose().verdict,
    }


def work(rank: int, world: int, folder: str, bits: int, port: int) -> None:
    torch.set_num_threads(1)
    if bits == 64:
        in_64_bits()
    from gedikit.processes import meeting

    if world > 1:
        where = f"tcp://localhost:{port}"
        dist.init_process_group(
            "gloo", init_method=where, rank=rank, world_size=world, timeout=timedelta(seconds=600)
        )
    with meeting(600):
        found = {name: steps(case) for name, case in CASES.items()} if bits == 64 else {}
        fits = {name: whole(case) for name, case in FITS.items() if world <= 2 or name in OF_FOUR}
        fitted = estimator()
    torch.save({"steps": found, "fits": fits, "estimator": fitted}, Path(folder) / f"{bits}-{world}-{rank}.pt")
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    work(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
