"""The default fit on two public suites of tables, beside what people use today.

    python benchmarks/tables.py FOLDER --out results/tables

FOLDER has `clusters/*.npz` (X, and reference labellings y0, y1, …; 0 marks noise) from Gagolewski's suite and
`outliers/*.npz` (X, y = 1 for outliers) from ADBench. Sets at even places of the alphabetical list played a part in
choosing settings, those at odd places did not; both halves are reported. Peers have standardised columns; those of
`clusters/peers.json` that are not run here (Genie is AGPL) are repeated from it. What is measured is kept in
`tables.jsonl` as it comes, and a second call goes on from there.

Likelihoods: normal rows of the outlier sets whose columns all have 20 or more values, standardised, with noise of
deviation 0.05 added to all rows so that no density is unbounded; 75 % are fitted, the mean log-likelihood of the
rest is measured.
"""

import argparse
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # what is measured is the time of one core

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
_UNEQUAL = 2  # times as many rows in the largest group as in the smallest
_KDE_ROWS = 1000
_BLUR = 0.05
_DISTINCT = 20  # different values from which on a column counts as continuous
_LIKELIHOOD_ROWS = 5000
_FLOW_EPOCHS, _FLOW_PATIENCE = 200, 10
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
    sizes = np.bincount(archive["y0"][archive["y0"] > 0])[1:]
    unequal = bool(sizes.max() > _UNEQUAL * sizes.min())

    def row(method: str, labels: NDArray[Any], seconds: float, **more: Any) -> Row:
        scores = [adjusted_rand_score(y[y > 0], labels[y > 0]) for y in references]
        about = {"set": path.stem, "method": method, "seed": seed, "unequal": unequal}
        return {**about, "ari": max(scores), "s": seconds, **more}

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
    for name, found in _published(path).items():
        about = {"set": path.stem, "method": f"{name} (published)", "seed": seed, "unequal": unequal}
        yield {**about, "ari": found, "s": None}


def _published(path: Path) -> dict[str, float]:
    """Figures of methods that are not run here."""
    file = path.parent / "peers.json"
    found = json.loads(file.read_text()).get(path.stem, {}) if file.exists() else {}
    return {name: value for name, value in found.items() if name.startswith("genie") and value is not None}


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


def likelihood_rows(path: Path, seed: int) -> Iterable[Row]:
    """Nothing for tables with columns that are not continuous."""
    from gedikit import GEDI

    archive = np.load(path)
    x = archive["X"].astype(np.float64)[archive["y"] == 0]
    x = x[:, x.std(0) > 0]
    if min(len(np.unique(column)) for column in x.T) < _DISTINCT:
        return
    rng = np.random.default_rng(seed)
    x = x[rng.permutation(len(x))[:_LIKELIHOOD_ROWS]]
    x = StandardScaler().fit_transform(x)
    x = x + _BLUR * rng.standard_normal(x.shape)
    cut = round(0.75 * len(x))
    train, test = x[:cut], x[cut:]

    def mixture() -> float:
        sizes = [m for m in (1, 2, 4, 8, 16, 32) if m * 10 < len(train)]
        fits = [GaussianMixture(m, reg_covar=1e-3, random_state=seed).fit(train) for m in sizes]
        return float(min(fits, key=lambda fit: fit.bic(train)).score(test))

    def kernels() -> float:
        search = GridSearchCV(KernelDensity(), {"bandwidth": np.geomspace(0.05, 3, 12)}, cv=3)
        return float(search.fit(train[:_KDE_ROWS]).best_estimator_.fit(train).score(test) / len(test))

    models: dict[str, Callable[[], float]] = {
        OURS: lambda: GEDI(random_state=seed).fit(train).score(test),
        "GMM by BIC": mixture,
        "KDE by CV": kernels,
        "spline flow": lambda: _spline_flow(train, test, seed),
    }
    for name, fit in models.items():
        began = time.process_time()
        found = fit()
        seconds = time.process_time() - began
        yield {"set": path.stem, "method": name, "seed": seed, "log_likelihood": found, "s": seconds}


def _spline_flow(train: NDArray[Any], test: NDArray[Any], seed: int) -> float:
    """A neural spline flow (Durkan et al., 2019), stopped when a tenth of the rows that it does not see says so."""
    import torch
    import zuko

    torch.manual_seed(seed)
    rows = torch.from_numpy(train).float()
    some, unseen = rows[len(rows) // 10 :], rows[: len(rows) // 10]
    flow = zuko.flows.NSF(rows.shape[1], transforms=3, hidden_features=(64, 64))
    optimiser = torch.optim.Adam(flow.parameters(), 1e-3)
    best, weights, waited = -np.inf, flow.state_dict(), 0
    for _ in range(_FLOW_EPOCHS):
        for batch in torch.randperm(len(some)).split(128):
            optimiser.zero_grad()
            loss = -flow().log_prob(some[batch]).mean()
            loss.backward()
            optimiser.step()
        with torch.no_grad():
            now = float(flow().log_prob(unseen).mean())
        waited += 1
        if now > best:
            best, waited = now, 0
            weights = {name: value.clone() for name, value in flow.state_dict().items()}
        if waited == _FLOW_PATIENCE:
            break
    flow.load_state_dict(weights)
    with torch.no_grad():
        return float(flow().log_prob(torch.from_numpy(test).float()).mean())


_KINDS = {"clusters": cluster_rows, "outliers": outlier_rows, "likelihoods": likelihood_rows}


def measured(task: tuple[str, Path, int]) -> list[Row]:
    """All rows of a set; a fit that fails is a row too."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    kind, path, seed = task
    rows: list[Row] = []
    try:
        rows.extend(_KINDS[kind](path, seed))
    except Exception as error:
        rows.append({"set": path.stem, "method": OURS, "seed": seed, "failed": f"{type(error).__name__}: {error}"})
    return [{"kind": kind, **row} for row in rows] or [
        {"kind": kind, "set": path.stem, "seed": seed, "method": "left out"}
    ]


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
        seconds = [row["s"] for row in own if row["s"] is not None]
        cells.append(f"{statistics.median(seconds):.1f}" if seconds else "")
        lines.append(f"| {method} | {' | '.join(cells)} |")
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


def likelihoods(rows: list[Row], halves: dict[str, int]) -> str:
    """Every table with the mean over seeds of each model, and how often ours is near the best."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = ["### Held-out log-likelihood, nats a row", "", f"| table | half | {' | '.join(methods)} |"]
    lines.append("|---|---|" + "---|" * len(methods))
    near = 0
    sets = sorted({row["set"] for row in rows})
    for name in sets:
        means = {
            method: statistics.mean(
                row["log_likelihood"] for row in rows if row["set"] == name and row["method"] == method
            )
            for method in methods
        }
        near += means[OURS] >= max(means.values()) - 0.5
        cells = " | ".join(f"{means[method]:.2f}" for method in methods)
        lines.append(f"| {name} | {('even', 'odd')[halves[name]]} | {cells} |")
    return "\n".join([*lines, "", f"Best or within 0.5 nats of the best on {near} of {len(sets)}."])


def summary(rows: list[Row], halves: dict[str, int]) -> str:
    of_kind = {kind: [row for row in rows if row["kind"] == kind and "failed" not in row] for kind in _KINDS}
    failed = [row for row in rows if "failed" in row]
    tried = {(row["kind"], row["set"], row["seed"]) for row in rows}
    parts = [f"{len(tried)} tables and seeds, {len(failed)} failed."]
    parts += [f"* {row['kind']} {row['set']}, seed {row['seed']}: {row['failed']}" for row in failed]
    clusters = of_kind["clusters"]
    if clusters:
        ours = (row for row in rows if row["method"] == OURS and row["kind"] != "likelihoods")
        seconds = [row["s"] for row in ours if row["s"] is not None]
        if seconds:
            parts.append(
                f"CPU seconds of our fits: median {statistics.median(seconds):.1f}, most {max(seconds):.1f}."
            )
        parts += [table(clusters, ("ari",), halves, "Clustering, k given: mean ARI"), verdicts(clusters)]
        unequal = [row for row in clusters if row.get("unequal")]
        if unequal:
            parts.append(table(unequal, ("ari",), halves, "The same, sets with unequal groups"))
    for protocol in dict.fromkeys(row["protocol"] for row in of_kind["outliers"]):
        own = [row for row in of_kind["outliers"] if row["protocol"] == protocol]
        parts.append(table(own, ("auroc", "ap"), halves, f"Outliers, {protocol}: mean AUROC / AP"))
    if told := [row for row in of_kind["likelihoods"] if "log_likelihood" in row]:
        parts.append(likelihoods(told, halves))
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/tables"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", choices=[*_KINDS], default=[*_KINDS])
    parser.add_argument("--sets", nargs="+", default=[], help="only sets whose name contains one of these")
    asked = parser.parse_args()
    halves: dict[str, int] = {}
    tasks = []
    for kind in asked.kinds:
        folder = asked.folder / ("clusters" if kind == "clusters" else "outliers")
        for place, path in enumerate(sorted(folder.glob("*.npz"))):
            halves[path.stem] = place % 2
            if not asked.sets or any(name in path.stem for name in asked.sets):
                tasks += [(kind, path, seed) for seed in asked.seeds]
    asked.out.mkdir(parents=True, exist_ok=True)
    kept = asked.out / "tables.jsonl"
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    known = {(row["kind"], row["set"], row["seed"]) for row in rows}
    tasks = [task for task in tasks if (task[0], task[1].stem, task[2]) not in known]
    tasks.sort(key=lambda task: (task[2], -task[1].stat().st_size))  # every seed whole, the longest fits first
    with ProcessPoolExecutor(asked.workers) as pool, kept.open("a") as file:
        for n, done in enumerate(as_completed([pool.submit(measured, task) for task in tasks]), start=1):
            found = done.result()
            rows += found
            file.write("".join(json.dumps(row) + "\n" for row in found))
            file.flush()
            print(f"{n} of {len(tasks)}: {found[0]['kind']} {found[0]['set']}", flush=True)
    text = summary(rows, halves)
    (asked.out / "tables.md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
