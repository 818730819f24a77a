"""Real runs on real images, recorded: config, seed, commit, figures and a grid of samples under results/images.

python benchmarks/images.py cifar10 --epochs 200 --out results/images
"""

import argparse
import json
import shutil
import subprocess
import time
from pathlib import Path

import torch

from gedikit.cli import figures as measured
from gedikit.cli import fitting
from gedikit.data import sources
from gedikit.data.official import data_root, is_there
from gedikit.fitted import FittedModel
from gedikit.report.samples import samples_png
from gedikit.runs import Run
from gedikit.training.devices import resolve_device
from gedikit.version import __version__

OUTSIDE = {
    "mnist": ["fashion-mnist"],
    "fashion-mnist": ["mnist"],
    "cifar10": ["svhn"],
    "svhn": ["cifar10"],
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

    run = Run(asked.runs / f"{asked.data}-{asked.seed}")
    began = time.monotonic()
    if run.exists:
        fitting.fit(None, out=run.path, resume=True)
    else:
        fitting.fit(asked.data, seed=asked.seed, epochs=asked.epochs, out=run.path, assignments=asked.set)
    trained = time.monotonic() - began
    commit = asked.commit or _head()
    record(run, asked.out / f"{asked.data}-{asked.seed}", asked.fid, trained, commit)


def _head() -> str:
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()


def record(run: Run, out: Path, fid: int, seconds: float, commit: str) -> None:
    config = run.config()
    where = resolve_device(config.device)
    fitted = FittedModel.load(run.model_path, where)
    train, test = (sources.load(config.source, split=split) for split in ("train", "test"))
    outside = [*OUTSIDE[config.source], *measured.SYNTHETIC]
    there = [name for name in outside if name in measured.SYNTHETIC or is_there(name, data_root())]
    began = time.monotonic()
    figures = measured.headline_figures(fitted, test)
    figures += measured.probe_figures(fitted, train, test, seed=0)
    others = {name: measured.outside_rows(name, test, seed=0) for name in there}
    figures += measured.outlier_figures(fitted, test, others)
    images, _ = fitted.sample(max(fid, 100), steps=500, start="noise", seed=0)
    if fid:
        figures += measured.fid_figures(fitted, train, fid, 500, 0, images)
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


if __name__ == "__main__":
    main()
