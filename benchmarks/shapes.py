"""The default estimator on two-dimensional shapes, against a kernel estimate.

Every fit is GEDI(n_clusters) with defaults on 1000 points; figures are on 1000 other points. The kernel
estimate gets the bandwidth that is best on those test points, which favours it.
"""

import argparse
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from sklearn.metrics import normalized_mutual_info_score

from gedikit import GEDI
from gedikit.data.toy import N_CLASSES, SHAPES
from gedikit.evaluation import best_kde, energy_distance, grid_log_normaliser

PLACES = {"as made": (1.0, 0.0), "x0.01": (0.01, 0.0), "x100, shifted": (100.0, 1234.5)}


def one(task: tuple[str, str, int]) -> dict[str, object]:
    import torch

    torch.set_num_threads(1)
    shape, place, seed = task
    factor, shift = PLACES[place]
    x, y = SHAPES[shape](2000, seed)
    x = factor * x + shift
    train, test, labels = x[:1000], x[1000:], y[1000:]
    began = time.perf_counter()
    model = GEDI(N_CLASSES[shape], random_state=seed).fit(train)
    seconds = time.perf_counter() - began
    fitted = model.fitted_
    low, high = fitted.bounds()
    likelihood = model.score_samples(test).mean() - grid_log_normaliser(model.score_samples, low, high)
    kde, kde_likelihood = best_kde(train, test)
    ours = energy_distance(model.sample(5000, random_state=seed)[0], test)
    theirs = energy_distance(kde.sample(5000, random_state=seed), test)
    return {
        "shape": shape,
        "place": place,
        "seed": seed,
        "nmi": float(normalized_mutual_info_score(labels, model.predict(test))),
        "log_likelihood": float(likelihood),
        "kde_log_likelihood": kde_likelihood,
        "energy_distance": ours,
        "kde_energy_distance": theirs,
        "outside_domain": int((~fitted.box.contains(fitted.to_scaled(test))).sum()),
        "rollbacks": len(fitted.info["events"]),
        "seconds": seconds,
    }


def table(rows: list[dict[str, object]]) -> str:
    columns = [
        *("shape", "place", "seeds", "NMI mean (min)", "log-likelihood", "best KDE", "difference mean (min)"),
        *("energy distance, ours / KDE = ratio", "s a fit"),
    ]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for shape, place in dict.fromkeys((r["shape"], r["place"]) for r in rows):
        group = [r for r in rows if (r["shape"], r["place"]) == (shape, place)]

        def column(name: str, group: list[dict[str, object]] = group) -> np.ndarray:
            return np.array([r[name] for r in group])

        nmi, gap = column("nmi"), column("log_likelihood") - column("kde_log_likelihood")
        ours, kde = column("energy_distance").mean(), column("kde_energy_distance").mean()
        lines.append(
            f"| {shape} | {place} | {len(group)} | {nmi.mean():.3f} ({nmi.min():.3f}) "
            f"| {column('log_likelihood').mean():.3f} | {column('kde_log_likelihood').mean():.3f} "
            f"| {gap.mean():+.3f} ({gap.min():+.3f}) | {ours:.3g} / {kde:.3g} = {ours / kde:.2f} "
            f"| {column('seconds').mean():.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first-seed", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=10, help="for moons and circles; half as many for the others")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--out", type=Path, default=Path("results/shapes"))
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    tasks = []
    for shape in args.shapes.split(","):
        main_shape = shape in ("moons", "circles")
        count = args.seeds if main_shape else max(1, args.seeds // 2)
        for place in list(PLACES)[: 1 if main_shape else None]:
            tasks += [(shape, place, args.first_seed + i) for i in range(count)]
    with ProcessPoolExecutor(args.workers) as pool:
        rows = []
        for row in pool.map(one, tasks):
            rows.append(row)
            print(json.dumps(row), flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "fits.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (args.out / "table.md").write_text(table(rows) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
