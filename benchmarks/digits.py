"""Real handwritten digits, ten clusters, no labels: the default estimator beside k-means."""

import argparse
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

from gedikit import GEDI
from gedikit.evaluation import clustering_metrics


def one(seed: int) -> dict[str, object]:
    import torch

    torch.set_num_threads(1)
    x, y = load_digits(return_X_y=True)
    began = time.perf_counter()
    model = GEDI(10, random_state=seed).fit(x)
    seconds = time.perf_counter() - began
    k_means = KMeans(10, n_init=10, random_state=seed).fit_predict(x)
    split = "all 1797 images"
    figures = {f.name: f.value for f in clustering_metrics(y, model.labels_, split, labels_by="posterior")}
    reference = {
        f"k_means_{f.name}": f.value for f in clustering_metrics(y, k_means, split, labels_by="nearest centre")
    }
    return {"seed": seed, **figures, **reference, "verdict": model.diagnose().verdict, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first-seed", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/digits"))
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    with ProcessPoolExecutor(args.workers) as pool:
        rows = list(pool.map(one, range(args.first_seed, args.first_seed + args.seeds)))
    lines = ["| model | NMI mean (min) | AMI | ARI | ACC mean (min) | s a fit |", "|---|---|---|---|---|---|"]
    for name, prefix in (("gedikit", ""), ("k-means", "k_means_")):
        nmi, ami, ari, acc = (np.array([r[prefix + k] for r in rows]) for k in ("nmi", "ami", "ari", "acc"))
        seconds = f"{np.mean([r['seconds'] for r in rows]):.0f}" if not prefix else "<1"
        lines.append(
            f"| {name} | {nmi.mean():.3f} ({nmi.min():.3f}) | {ami.mean():.3f} | {ari.mean():.3f} "
            f"| {acc.mean():.3f} ({acc.min():.3f}) | {seconds} |"
        )
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "fits.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (args.out / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
