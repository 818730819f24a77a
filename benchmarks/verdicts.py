"""How verdicts and results go together: fits that are right, and fits that are made to go wrong.

    python benchmarks/verdicts.py --seeds 2000 2040
    python benchmarks/verdicts.py --tables FOLDER --half 1

Data sets come from a generator (seeds below 2000 were used for choosing thresholds) or are the small ones of
FOLDER/clusters (see `tables.py`; the half at even places played a part in choosing thresholds). Each is fitted as
it comes, with equal shares, with too few and too many clusters, from a wrong start, and without label invariance.

A fit is *wrong* where its ARI is below 0.7 and a peer has 0.9 or more with the true number, *right* from 0.95 on.
"""

import argparse
import json
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.datasets import make_circles, make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from gedikit import GEDI
from gedikit.estimator import plan_rows
from gedikit.partitions import Partition, PartitionChoice
from gedikit.starts import Start, Starts

_WRONG, _RIGHT, _PEER = 0.7, 0.95, 0.9
_MOST_ROWS = 2000
Row = dict[str, Any]
Made = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class Data:
    """Rows and what they are; −1 and 0 of other references mark rows that do not count."""

    name: str
    x: NDArray[Any]
    references: tuple[NDArray[Any], ...]
    k: int

    def ari(self, labels: NDArray[Any]) -> float:
        return max(float(adjusted_rand_score(y[y >= 0], labels[y >= 0])) for y in self.references)

    def best_peer(self, seed: int) -> float:
        x = (self.x - self.x.mean(0)) / np.maximum(self.x.std(0), 1e-12)
        peers: list[Callable[[NDArray[Any]], NDArray[Any]]] = [
            KMeans(self.k, n_init=5, random_state=seed).fit_predict,
            GaussianMixture(self.k, n_init=2, reg_covar=1e-4, random_state=seed).fit_predict,
            SpectralClustering(
                self.k,
                affinity="nearest_neighbors",
                n_neighbors=10,
                assign_labels="cluster_qr",
                random_state=seed,
            ).fit_predict,
        ]
        return max(self.ari(peer(x)) for peer in peers)


def blobs(rng: np.random.Generator, n: int) -> Made:
    k, d = int(rng.integers(2, 7)), int(rng.choice([2, 3, 5, 8]))
    shares = np.maximum(rng.dirichlet(np.full(k, 2.0)), 0.05)
    sizes = np.maximum((shares / shares.sum() * n).astype(int), 20)
    centres: list[NDArray[Any]] = []
    while len(centres) < k:
        centre = rng.uniform(-1, 1, d) * 6 * k ** (1 / d)
        if all(np.linalg.norm(centre - other) > 5.5 for other in centres):
            centres.append(centre)
    parts = [rng.normal(c, rng.uniform(0.6, 1.1, d), (m, d)) for c, m in zip(centres, sizes, strict=True)]
    return np.concatenate(parts), np.repeat(np.arange(k), sizes)


def moons(rng: np.random.Generator, n: int) -> Made:
    x, y = make_moons(n, noise=rng.uniform(0.04, 0.09), random_state=int(rng.integers(10**6)))
    return x, y


def circles(rng: np.random.Generator, n: int) -> Made:
    factor, noise = rng.uniform(0.3, 0.6), rng.uniform(0.02, 0.06)
    x, y = make_circles(n, noise=noise, factor=factor, random_state=int(rng.integers(10**6)))
    return x, y


def stripes(rng: np.random.Generator, n: int) -> Made:
    k = int(rng.integers(2, 5))
    parts = [np.c_[rng.uniform(0, 10, n // k), rng.normal(2.2 * i, 0.22, n // k)] for i in range(k)]
    return np.concatenate(parts), np.repeat(np.arange(k), n // k)


def rings(rng: np.random.Generator, n: int) -> Made:
    m = n // 2
    angle, radius = rng.uniform(0, 2 * np.pi, m), rng.normal(4, 0.25, m)
    ring = np.c_[radius * np.cos(angle), radius * np.sin(angle)]
    inside, beside = rng.normal(0, 0.8, (n - m, 2)), rng.normal([9, 0], 0.7, (n // 4, 2))
    return np.concatenate([ring, inside, beside]), np.repeat([0, 1, 2], [m, n - m, n // 4])


def spirals(rng: np.random.Generator, n: int) -> Made:
    m, parts = n // 3, []
    for arm in range(3):
        t = np.sqrt(rng.uniform(0.08, 1, m)) * 2.2 * np.pi
        turned = t + 2 * np.pi * arm / 3
        parts.append(np.c_[t * np.cos(turned), t * np.sin(turned)] + rng.normal(0, 0.12, (m, 2)))
    return np.concatenate(parts), np.repeat(np.arange(3), m)


def mixed(rng: np.random.Generator, n: int) -> Made:
    m = n // 3
    x, y = make_moons(2 * m, noise=0.06, random_state=int(rng.integers(10**6)))
    small = max(20, m // 4)
    parts = [3 * x, rng.normal([10, 4], 0.6, (m, 2)), rng.normal([10, -4], 0.5, (small, 2))]
    return np.concatenate(parts), np.r_[y, np.full(m, 2), np.full(small, 3)]


KINDS = (blobs, moons, circles, stripes, rings, spirals, mixed)


def generated(seed: int) -> Data:
    """A data set whose groups neighbours tell apart, three times in ten with 1 to 3 % of outliers."""
    rng = np.random.default_rng(seed)
    kind = KINDS[rng.integers(len(KINDS))]
    x, y = kind(rng, int(rng.integers(300, 1000)))
    if rng.random() < 0.3:
        m = max(2, int(rng.uniform(0.01, 0.03) * len(x)))
        low, high = x.min(0), x.max(0)
        far = rng.uniform(low - 0.3 * (high - low), high + 0.3 * (high - low), (m, x.shape[1]))
        x, y = np.r_[x, far], np.r_[y, np.full(m, -1)]
    return Data(f"{kind.__name__}-{seed}", x, (y,), int(y.max()) + 1)


def tables(folder: Path, half: int) -> Iterator[Data]:
    for place, path in enumerate(sorted((folder / "clusters").glob("*.npz"))):
        archive = np.load(path)
        if place % 2 == half and len(archive["X"]) <= _MOST_ROWS:
            references = tuple(archive[name].astype(int) - 1 for name in archive.files if name.startswith("y"))
            yield Data(path.stem, archive["X"].astype(float), references, int(archive["y0"].max()))


class WrongStarts(Starts):
    """What k-means finds, whatever else there is."""

    def find(self, n_clusters: int | None, scaling: str, prior: Any = None) -> Start:  # noqa: ARG002
        assert n_clusters is not None
        labels = KMeans(n_clusters, n_init=1, random_state=self._seed).fit_predict(self._x).astype(np.int64)
        order = np.argsort(np.argsort(-np.bincount(labels)))
        only = Partition(order[labels], "k-means", 0.0, 1.0)
        return Start(PartitionChoice(only, None, (only,)))


def fits(data: Data, seed: int, iterations: int) -> dict[str, Callable[[], GEDI]]:
    """Fits of one data set: as it comes, and made to go wrong; without a density where it plays no part."""

    def fit(k: int, **given: Any) -> GEDI:
        given = {"method": "gedi-no-gen", "random_state": seed, "max_iter": iterations, **given}
        return GEDI(k, **given).fit(data.x)

    def from_wrong_start() -> GEDI:
        model = GEDI(data.k, method="gedi-no-gen", random_state=seed, max_iter=iterations)
        starts = WrongStarts(data.x, seed)
        made, _ = plan_rows(data.x, (), model._asked(None))
        return model.fit_planned(made, data.x, starts=starts)

    return {
        "as it comes": lambda: fit(data.k, method="gedi"),
        "equal shares": lambda: fit(data.k, prior="uniform"),
        "k - 1": lambda: fit(data.k - 1),
        "k + 1": lambda: fit(data.k + 1),
        "2 k": lambda: fit(2 * data.k),
        "wrong start": from_wrong_start,
        "gedi-no-inv": lambda: fit(data.k, method="gedi-no-inv"),
        "jem": lambda: fit(data.k, method="jem"),
    }


def rows(data: Data, seed: int, iterations: int, only: list[str]) -> Iterator[Row]:
    peer = data.best_peer(seed)
    for case, fit in fits(data, seed, iterations).items():
        if only and case not in only:
            continue
        model = fit()
        found = model.diagnose()
        ari = data.ari(model.labels_)
        yield {
            "set": data.name,
            "case": case,
            "ari": round(ari, 3),
            "peer": round(peer, 3),
            "result": "wrong" if ari < _WRONG and peer >= _PEER else "right" if ari >= _RIGHT else "between",
            "verdict": found.verdict,
            "explanation": found.explanation,
            "numbers": {name: round(value, 4) for name, value in found.numbers.items()},
            "concerns": [c | {"rows": len(c["rows"])} for c in found.as_dict()["concerns"]],
        }


def summary(found: list[Row]) -> str:
    """Counts and the three figures that matter."""
    lines = ["| result | healthy | uncertain | unhealthy |", "|---|---|---|---|"]
    for result in ("right", "between", "wrong"):
        own = [row for row in found if row["result"] == result]
        healthy = sum(row["verdict"] == "healthy" for row in own)
        unsure = sum(row["verdict"] == "uncertain" for row in own)
        lines.append(f"| {result} ({len(own)}) | {healthy} | {unsure} | {len(own) - healthy - unsure} |")
    unsure = sum(row["verdict"] == "uncertain" for row in found)
    lines += ["", f"uncertain: {unsure} of {len(found)}", "", "| case | result | verdicts |", "|---|---|---|"]
    for case in dict.fromkeys(row["case"] for row in found):
        for result in ("right", "between", "wrong"):
            said = Counter(row["verdict"] for row in found if (row["case"], row["result"]) == (case, result))
            if said:
                told = ", ".join(f"{verdict} {n}" for verdict, n in said.most_common())
                lines.append(f"| {case} | {result} | {told} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs=2, default=[2000, 2040], help="first and last + 1")
    parser.add_argument("--tables", type=Path)
    parser.add_argument("--half", type=int, default=1)
    parser.add_argument("--cases", nargs="+", default=[])
    parser.add_argument("--iterations", type=int, default=200, help="of every fit")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    sets = map(generated, range(*asked.seeds)) if asked.tables is None else tables(asked.tables, asked.half)
    found: list[Row] = []
    for data in sets:
        began = time.process_time()
        for row in rows(data, 0, asked.iterations, asked.cases):
            found.append(row)
            if asked.out is not None:
                with asked.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
        print(f"{data.name}: {time.process_time() - began:.0f} CPU seconds", flush=True)
    print(summary(found))


if __name__ == "__main__":
    main()
