"""The default fit on two public suites of tables, beside what people use today.

    python benchmarks/tables.py FOLDER --out results/tables

FOLDER has `clusters/*.npz` (X, and reference labellings y0, y1, …; 0 marks noise) from Gagolewski's suite and
`outliers/*.npz` (X, y = 1 for outliers) from ADBench. Sets at even places of the alphabetical list played a part in
choosing settings, those at odd places did not; both halves are reported. Peers have standardised columns.
"""

import argparse
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN, AgglomerativeClustering, KMeans, SpectralClustering
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.metrics import adjusted_rand_score, average_precision_score, roc_auc_score
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KernelDensity, LocalOutlierFactor, NearestNeighbors
from sklearn.preprocessing import StandardScaler

OURS, START, NO_DENSITY = "gedikit", "its starting partition", "gedi-no-gen"
_RIGHT, _WRONG, _PEER = 0.95, 0.7, 0.9
_KDE_ROWS = 1000
Row = dict[str, Any]


def clusterers(k: int, seed: int) -> dict[str, Callable[[NDArray[Any]], NDArray[Any]]]:
    """Labels of standardised rows by what scikit-learn has."""
    return {
        "k-means": KMeans(k, n_init=10, random_state=seed).fit_predict,
        "GMM": GaussianMixture(k, n_init=5, random_state=seed).fit_predict,
        "Ward": AgglomerativeClustering(k).fit_predict,
        "spectral": SpectralClustering(
            k, affinity="nearest_neighbors", n_neighbors=10, assign_labels="cluster_qr", random_state=seed
        ).fit_predict,
        "HDBSCAN (finds k)": HDBSCAN(copy=True).fit_predict,
    }


def cluster_rows(path: Path, seed: int) -> Iterable[Row]:
    from gedikit import GEDI
    from gedikit.starts import Starts

    archive = np.load(path)
    x = archive["X"].astype(np.float64)
    references = [archive[name] for name in archive.files if name.startswith("y")]
    k = int(archive["y0"].max())

    def row(method: str, labels: NDArray[Any], seconds: float, **more: Any) -> Row:
        scores = [adjusted_rand_score(y[y > 0], labels[y > 0]) for y in references]
        return {"set": path.stem, "method": method, "seed": seed, "ari": max(scores), "s": seconds, **more}

    began = time.process_time()
    model = GEDI(k, random_state=seed).fit(x)
    verdict = model.diagnose().verdict
    yield row(OURS, model.labels_, time.process_time() - began, verdict=verdict)
    yield row(START, Starts(x, seed).find(k, "auto").labels, 0.0)
    began = time.process_time()
    yield row(
        NO_DENSITY,
        GEDI(k, method="gedi-no-gen", random_state=seed).fit(x).labels_,
        time.process_time() - began,
    )
    scaled = StandardScaler().fit_transform(x)
    for name, fit in clusterers(k, seed).items():
        began = time.process_time()
        yield row(name, fit(scaled), time.process_time() - began)


def detectors(train: NDArray[Any], test: NDArray[Any], seed: int) -> dict[str, Callable[[], NDArray[Any]]]:
    """Scores of test rows, larger for stranger ones; rows that were trained on do not count for themselves."""
    same = train is test

    def nearest() -> NDArray[Any]:
        found = NearestNeighbors(n_neighbors=5).fit(train)
        return np.asarray(found.kneighbors(None if same else test)[0][:, -1])

    def mahalanobis() -> NDArray[Any]:
        found = PCA(random_state=seed).fit(train)
        spread = np.maximum(found.explained_variance_, 1e-9)
        return np.asarray((found.transform(test) ** 2 / spread)[:, spread > 1e-6].sum(1))

    def mixture() -> NDArray[Any]:
        sizes = [m for m in (1, 2, 4, 8) if m * 10 < len(train)]
        fits = [GaussianMixture(m, reg_covar=1e-3, random_state=seed).fit(train) for m in sizes]
        return np.asarray(-min(fits, key=lambda fit: fit.bic(train)).score_samples(test))

    def kernels() -> NDArray[Any]:
        some = np.random.default_rng(seed).permutation(len(train))[:_KDE_ROWS]
        search = GridSearchCV(KernelDensity(), {"bandwidth": np.geomspace(0.05, 3, 12)}, cv=3).fit(train[some])
        return np.asarray(-KernelDensity(bandwidth=search.best_params_["bandwidth"]).fit(train).score_samples(test))

    def local() -> NDArray[Any]:
        if same:
            found = LocalOutlierFactor().fit(train)
            return np.asarray(-found.negative_outlier_factor_)
        return np.asarray(-LocalOutlierFactor(novelty=True).fit(train).score_samples(test))

    return {
        "5-NN distance": nearest,
        "PCA (Mahalanobis)": mahalanobis,
        "isolation forest": lambda: -IsolationForest(random_state=seed).fit(train).score_samples(test),
        "GMM by BIC": mixture,
        "KDE by CV": kernels,
        "LOF": local,
    }


def outlier_rows(path: Path, seed: int) -> Iterable[Row]:
    from gedikit import GEDI

    archive = np.load(path)
    x, y = archive["X"].astype(np.float64), archive["y"]
    normal = np.random.default_rng(seed).permutation(np.flatnonzero(y == 0))
    half = len(normal) // 2
    everything = np.arange(len(x))
    protocols = {
        "contaminated": (everything, everything),
        "normal rows only": (normal[:half], np.r_[normal[half:], np.flatnonzero(y == 1)]),
    }
    for protocol, (train, test) in protocols.items():

        def row(
            method: str, score: NDArray[Any], seconds: float, protocol: str = protocol, test: Any = test
        ) -> Row:
            found = {"auroc": roc_auc_score(y[test], score), "ap": average_precision_score(y[test], score)}
            return {"set": path.stem, "method": method, "seed": seed, "protocol": protocol, "s": seconds, **found}

        began = time.process_time()
        model = GEDI(random_state=seed).fit(x[train])
        yield row(OURS, model.outlier_score(x[test]), time.process_time() - began)
        yield row("its log-likelihood", -model.score_samples(x[test]), 0.0)
        scaler = StandardScaler().fit(x[train])
        scaled = scaler.transform(x[train])
        other = scaled if protocol == "contaminated" else scaler.transform(x[test])
        for name, score in detectors(scaled, other, seed).items():
            began = time.process_time()
            yield row(name, score(), time.process_time() - began)


def measured(task: tuple[str, Path, int]) -> list[Row]:
    """All rows of a set; a fit that fails is a row too."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    kind, path, seed = task
    rows: list[Row] = []
    try:
        rows.extend(cluster_rows(path, seed) if kind == "clusters" else outlier_rows(path, seed))
    except Exception as error:
        rows.append({"set": path.stem, "method": OURS, "seed": seed, "failed": f"{type(error).__name__}: {error}"})
    return [{"kind": kind, **row} for row in rows]


def table(rows: list[Row], columns: tuple[str, ...], halves: dict[str, int], title: str) -> str:
    """Means over sets and seeds of every method, for both halves and all."""
    lines = [
        f"### {title}",
        "",
        "| | even half (chosen on) | odd half | all | CPU seconds, median |",
        "|---|---|---|---|---|",
    ]
    for method in dict.fromkeys(row["method"] for row in rows if columns[0] in row):
        own = [row for row in rows if row["method"] == method and columns[0] in row]
        cells = []
        for half in (0, 1, None):
            part = [row for row in own if half is None or halves[row["set"]] == half]
            cells.append(
                " / ".join(f"{statistics.mean(row[c] for row in part):.3f}" if part else "" for c in columns)
            )
        lines.append(f"| {method} | {' | '.join(cells)} | {statistics.median(row['s'] for row in own):.1f} |")
    return "\n".join(lines)


def verdicts(rows: list[Row]) -> str:
    """How verdicts and results go together, over sets and seeds."""
    best: dict[str, float] = {}
    for row in rows:
        if row["method"] not in (OURS, START, NO_DENSITY):
            best[row["set"]] = max(best.get(row["set"], -1.0), row["ari"])
    counts: dict[tuple[str, str], int] = {}
    for row in rows:
        if row["method"] == OURS and "ari" in row:
            wrong = row["ari"] < _WRONG and best.get(row["set"], -1.0) >= _PEER
            kind = "wrong" if wrong else "right" if row["ari"] >= _RIGHT else "in between"
            counts[kind, row["verdict"]] = counts.get((kind, row["verdict"]), 0) + 1
    lines = ["### Verdicts", "", "| result | verdict | fits |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {kind} | {said} | {n} |" for (kind, said), n in sorted(counts.items()))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/tables"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--sets", nargs="+", default=[], help="only sets whose name contains one of these")
    asked = parser.parse_args()
    halves, tasks = {}, []
    for kind in ("clusters", "outliers"):
        for place, path in enumerate(sorted((asked.folder / kind).glob("*.npz"))):
            halves[path.stem] = place % 2
            if not asked.sets or any(name in path.stem for name in asked.sets):
                tasks += [(kind, path, seed) for seed in asked.seeds]
    rows: list[Row] = []
    with ProcessPoolExecutor(asked.workers) as pool:
        for n, found in enumerate(pool.map(measured, tasks), start=1):
            rows += found
            print(f"{n} of {len(tasks)}: {found[0]['set']}", flush=True)
    clusters = [row for row in rows if row["kind"] == "clusters"]
    outliers = [row for row in rows if row["kind"] == "outliers"]
    failed = [row for row in rows if "failed" in row]
    parts = [f"{len(tasks)} tables and seeds, {len(failed)} failed."]
    if clusters:
        parts += [table(clusters, ("ari",), halves, "Clustering, k given: mean ARI"), verdicts(clusters)]
    for protocol in dict.fromkeys(row["protocol"] for row in outliers if "protocol" in row):
        own = [row for row in outliers if row.get("protocol") == protocol]
        parts.append(table(own, ("auroc", "ap"), halves, f"Outliers, {protocol}: mean AUROC / AP"))
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "tables.md").write_text("\n\n".join(parts) + "\n")
    (asked.out / "tables.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    print("\n\n".join(parts))


if __name__ == "__main__":
    main()
