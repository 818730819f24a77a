"""Real runs on real images, recorded: config, seed, commit, figures and a grid of samples under results/images.

python benchmarks/images.py cifar10 --epochs 200 --out results/images
"""

import argparse
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from gedikit.cli import fitting
from gedikit.cli import measuring as measured
from gedikit.data import sources
from gedikit.data.official import data_root, is_there
from gedikit.fitted import FittedModel
from gedikit.paper.recipes import working
from gedikit.paper.reproduce.page import ResultTable
from gedikit.paper.reproduce.paper import IMAGES
from gedikit.report.samples import samples_png
from gedikit.runs import Run, RunConfig
from gedikit.training.devices import resolve_device
from gedikit.version import __version__

OUTSIDE = {
    "mnist": ["fashion-mnist"],
    "fashion-mnist": ["mnist"],
    "cifar10": ["svhn"],
    "svhn": ["cifar10"],
}
EXECUTION = ("execution.log_every=100", "execution.checkpoint_every=2000", "execution.threads=0")
SHOWN = {
    "NMI": "nmi",
    "NMI, mean over batches": "nmi_batch_mean",
    "ACC": "acc",
    "linear probe": "linear_probe",
    "linear probe, standardised": "linear_probe_standardised",
    "kNN probe": "knn_probe",
    "FID": "fid",
    "outliers, AUROC by log p(x)": "ood_auroc ({other}, log_density)",
    "outliers, AUROC by gradient": "ood_auroc ({other}, gradient_norm)",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", choices=[*OUTSIDE])
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--fid", type=int, default=10_000)
    parser.add_argument("--runs", type=Path, default=Path("runs/images"))
    parser.add_argument("--out", type=Path, default=Path("results/images"))
    parser.add_argument("--commit", help="where the code is not in a git checkout")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    asked = parser.parse_args()

    if asked.fid:
        measured.inception_path()  # what is missing is said before the training, not after it
    run = Run(asked.runs / f"{asked.data}-{asked.seed}")
    if run.exists and (asked.set or _epochs(run.config()) != asked.epochs):
        parser.error(f"{run.path} was asked for {_epochs(run.config())} epochs: remove it to ask anew")
    small = resolve_device("auto").type == "cpu"
    request = fitting.FitRequest(
        seed=asked.seed,
        epochs=asked.epochs,
        assignments=[*EXECUTION, *asked.set],
        **working(asked.data, small=small),
    )
    with _timed(run.path / "seconds.txt") as parts:
        if run.exists:
            fitting.fit(None, fitting.FitRequest(), out=run.path, resume=True)
        else:
            fitting.fit(asked.data, request, out=run.path)
    seconds = sum(map(float, parts.read_text().split()))
    commit = asked.commit or _head()
    record(run, asked.out / f"{asked.data}-{asked.seed}", asked.fid, seconds, commit)
    (asked.out / "table.md").write_text(table(asked.out).markdown() + "\n")


@contextmanager
def _timed(parts: Path) -> Iterator[Path]:
    """A line for every process that worked on it, also where it was stopped."""
    began = time.monotonic()
    try:
        yield parts
    finally:
        parts.parent.mkdir(parents=True, exist_ok=True)
        with parts.open("a") as file:
            file.write(f"{time.monotonic() - began:.1f}\n")


def _epochs(config: RunConfig) -> int:
    return config.plan.config.optimiser.epochs


def _head() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def record(run: Run, out: Path, fid: int, seconds: float, commit: str) -> None:
    config = run.config()
    where = resolve_device(config.execution.device)
    fitted = FittedModel.load(run.model_path, where)
    train, test = (sources.load(config.source, split=split) for split in ("train", "test"))
    outside = [*OUTSIDE[config.source], *measured.SYNTHETIC]
    there = [name for name in outside if name in measured.SYNTHETIC or is_there(name, data_root())]
    began = time.monotonic()
    figures = measured.headline_metrics(fitted, test)
    figures += measured.probe_metrics(fitted, train, test, seed=0)
    others = {name: measured.outside_rows(name, test, seed=0) for name in there}
    figures += measured.outlier_metrics(fitted, test, others)
    images, _ = fitted.sample(max(fid, 100), steps=500, start="noise", seed=0)
    if fid:
        figures += measured.fid_metrics(fitted, train, fid, 500, 0, images[:fid])
    out.mkdir(parents=True, exist_ok=True)
    first = images[:100]
    (out / "samples.png").write_bytes(samples_png(first, fitted.labels(first), train.image_shape))
    shutil.copy(run.config_path, out / "config.toml")
    if run.evaluations_path.exists():
        shutil.copy(run.evaluations_path, out / "evaluations.jsonl")
    kept = {
        "gedikit": __version__,
        "commit": commit,
        "device": torch.cuda.get_device_name() if where.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "seconds_of_training_and_report": round(seconds, 1),
        "seconds_of_evaluation": round(time.monotonic() - began, 1),
        "events": fitted.info["events"],
        "figures": [figure.as_dict() for figure in figures],
    }
    (out / "figures.json").write_text(json.dumps(kept, indent=1) + "\n")
    for figure in figures:
        print(f"{figure.name:45} {figure.value:.4f}")


def table(out: Path) -> ResultTable:
    """All that is recorded, a column for each data set and seed, the paper's GEDI in brackets."""
    columns = []
    for path in sorted(out.glob("*/figures.json")):
        kept, config = json.loads(path.read_text()), RunConfig.from_toml(path.parent / "config.toml")
        values = {figure["name"]: figure["value"] for figure in kept["figures"]}
        cells = {
            "": f"{config.source}, seed {config.plan.seed}",
            "epochs": str(_epochs(config)),
            "seconds": f"{kept['seconds_of_training_and_report']:.0f}",
        }
        for title, name in SHOWN.items():
            value = values.get(name.format(other=OUTSIDE[config.source][0]))
            shown = "–" if value is None else f"{value:.0f}" if name == "fid" else f"{value:.3f}"
            paper = IMAGES.get((config.source, title))
            cells[title] = f"{shown} ({paper})" if paper else shown
        columns.append(cells)
    head, *rows = [[title, *(cells[title] for cells in columns)] for title in columns[0]]
    return ResultTable(head, rows)


if __name__ == "__main__":
    main()
