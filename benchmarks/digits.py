"""Real handwritten digits without labels: clusters of fitted and of held-out rows, samples, and a class left out.

fitted: ten equal clusters of all 1797 rows, beside k-means.
held-out: fitted on 75 %, measured on the other 25 %, beside spectral clusters that new rows join by their five
nearest neighbours; samples from noise, by their energy distance to the held-out rows in units of the common
deviation of all pixels, beside a kernel estimate whose bandwidth is the best one for these very rows.
left-out: nine classes are fitted, 75 % of their rows; rows of the tenth are told from their other 25 % by the
outlier score, beside the distance to the fifth neighbour.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from gedikit import GEDI
from gedikit.evaluation import best_kde, clustering_metrics, energy_distance
from gedikit.starts import Starts

Row = dict[str, float | str]
_CLASSES = 10
_NEIGHBOURS = 5
_SAMPLES = 2000
_FEW_ITERATIONS = 50


def fitted(seed: int) -> Row:
    x, y = load_digits(return_X_y=True)
    model = GEDI(_CLASSES, prior="uniform", random_state=seed).fit(x)
    k_means = KMeans(_CLASSES, n_init=10, random_state=seed).fit_predict(x)
    return {
        "seed": seed,
        **_figures("", y, model.labels_),
        **_figures("k_means_", y, k_means),
        "verdict": model.diagnose().verdict,
    }


def held_out(split: int) -> Row:
    x, y = load_digits(return_X_y=True)
    train, test, _, labels = train_test_split(x, y, test_size=0.25, random_state=split)
    began = time.process_time()
    model = GEDI(_CLASSES, random_state=split).fit(train)
    seconds = time.process_time() - began
    spectral = SpectralClustering(
        _CLASSES,
        affinity="nearest_neighbors",
        n_neighbors=_NEIGHBOURS,
        assign_labels="cluster_qr",
        random_state=split,
    )
    start = Starts(train, split).find(_CLASSES, "auto").labels
    unit = float(np.sqrt(train.var(0).mean()))
    kernels = best_kde(train / unit, test / unit)[0].sample(_SAMPLES, random_state=split)
    samples, _ = model.sample(_SAMPLES, start="noise", random_state=split)
    return {
        "split": split,
        **_figures("", labels, model.predict(test)),
        **_figures("spectral_", labels, _joined(train, spectral.fit_predict(train), test)),
        **_figures("start_", labels, _joined(train, start, test)),
        "energy_distance": energy_distance(samples / unit, test / unit),
        "kde_energy_distance": energy_distance(kernels, test / unit),
        "training_rows_energy_distance": energy_distance(train / unit, test / unit),
        "seconds": seconds,
    }


def left_out(digit: int) -> Row:
    x, y = load_digits(return_X_y=True)
    others, strange = x[y != digit], x[y == digit]
    train, test = train_test_split(others, test_size=0.25, random_state=digit)
    # of many columns the outlier score looks at neighbours alone: how long the network learns plays no part
    model = GEDI(_CLASSES - 1, random_state=digit, max_iter=_FEW_ITERATIONS).fit(train)
    rows, is_strange = np.r_[test, strange], np.repeat([0, 1], [len(test), len(strange)])
    far = NearestNeighbors(n_neighbors=_NEIGHBOURS).fit(train).kneighbors(rows)[0][:, -1]
    return {
        "digit": digit,
        "auroc": float(roc_auc_score(is_strange, model.outlier_score(rows))),
        "neighbour_auroc": float(roc_auc_score(is_strange, far)),
    }


PARTS: dict[str, Callable[[int], Row]] = {"fitted": fitted, "held-out": held_out, "left-out": left_out}


def _figures(prefix: str, labels: NDArray[np.int64], clusters: NDArray[np.int64]) -> Row:
    made = clustering_metrics(labels, clusters.astype(np.int64), "", labels_by="")
    return {prefix + metric.name: metric.value for metric in made}


def _joined(
    train: NDArray[np.float64], clusters: NDArray[np.int64], test: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Clusters of new rows: those of most of their nearest neighbours."""
    found: NDArray[np.int64] = KNeighborsClassifier(_NEIGHBOURS).fit(train, clusters).predict(test)
    return found


def _mean(rows: list[Row], name: str) -> str:
    values = [float(row[name]) for row in rows]
    return f"{np.mean(values):.3f} ({min(values):.3f}–{max(values):.3f})"


def table(part: str, rows: list[Row]) -> list[str]:
    """What a part found, means with the smallest and the largest."""
    if part == "left-out":
        names = {"gedikit, outlier score": "auroc", "distance to the fifth neighbour": "neighbour_auroc"}
        lines = [f"| {title} | {_mean(rows, name)} |" for title, name in names.items()]
        return ["| a class left out | AUROC |", "|---|---|", *lines]
    kinds = {
        "fitted": {"gedikit, equal shares": "", "k-means": "k_means_"},
        "held-out": {"gedikit": "", "its start alone, 5-NN": "start_", "spectral, 5-NN": "spectral_"},
    }[part]
    figures = ("nmi", "ami", "ari", "acc")
    lines = [
        f"| {title} | {' | '.join(_mean(rows, prefix + name) for name in figures)} |"
        for title, prefix in kinds.items()
    ]
    lines = [f"| {part} rows | NMI | AMI | ARI | ACC |", "|---|---|---|---|---|", *lines]
    if part == "held-out":
        lines += ["", f"CPU seconds a fit: {_mean(rows, 'seconds')}"]
        prefixes = {"gedikit": "", "best kernel estimate": "kde_", "the training rows themselves": "training_rows_"}
        lines += ["", "| samples | energy distance to held-out rows |", "|---|---|"]
        lines += [f"| {title} | {_mean(rows, prefix + 'energy_distance')} |" for title, prefix in prefixes.items()]
    return lines


def run(part: str, seeds: range, workers: int) -> list[Row]:
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(PARTS[part], seeds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS), help="none: the table alone")
    parser.add_argument("--first-seed", type=int, default=200, help="of the fits to all rows")
    parser.add_argument("--seeds", type=int, default=5, help="fits to all rows, and splits")
    parser.add_argument("--out", type=Path, default=Path("results/digits"))
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    seeds = {
        "fitted": range(args.first_seed, args.first_seed + args.seeds),
        "held-out": range(args.seeds),
        "left-out": range(_CLASSES),
    }
    for part in args.parts:
        rows = run(part, seeds[part], args.workers)
        (args.out / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    stored = {part: args.out / f"{part}.jsonl" for part in PARTS}
    tables = [
        table(part, [json.loads(line) for line in path.read_text().splitlines()])
        for part, path in stored.items()
        if path.exists()
    ]
    text = "\n\n".join("\n".join(lines) for lines in tables) + "\n"
    (args.out / "table.md").write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
