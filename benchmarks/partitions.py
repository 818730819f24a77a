"""Candidate partitions, the choice among them and the number of groups, without any network.

    python benchmarks/partitions.py tables FOLDER --parity 0
    python benchmarks/partitions.py numbers --first-seed 100 --seeds 20
    python benchmarks/partitions.py groups

`numbers`: problems with 1 to 12 groups; constants were chosen on seeds 0 to 39. `tables`: constants were chosen on
the sets with an even place in the alphabet. `groups`: four Gaussian groups of unequal sizes.
"""

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import NearestNeighbors

from gedikit.modalities.scaling import Scaler
from gedikit.partitions import choose_number, choose_partition

Rows = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Problem:
    x: Rows
    y: Labels  # 1 … k; 0 for outliers
    n_clusters: int
    about: str


def problem(seed: int) -> Problem:
    """1–12 groups in 2–10 columns: equal or unequal, apart or touching, convex or not, some with 1 % outliers.

    A group is pushed away from the others until all but 2 % of its points are farther from them than `gap` times
    the distance between neighbours within groups: 1–1.5 where groups touch, 2–3 where they do not.
    """
    rng = np.random.default_rng([14, seed])
    k = int(rng.integers(1, 13))
    d = int(rng.choice([2, 2, 3, 4, 6, 8, 10]))
    n = max(600, 200 * k)
    law = str(rng.choice(["equal", "dirichlet", "steep"]))
    shares = (
        np.ones(k)
        if law == "equal"
        else rng.dirichlet(np.full(k, 3.0))
        if law == "dirichlet"
        else 0.5 ** np.arange(k)
    )
    least = max(0.02, 40 / n)
    shares = shares / shares.sum()
    for _ in range(50):
        shares = np.maximum(shares, least * 1.001)
        shares = shares / shares.sum()
    sizes = np.maximum((shares * n).astype(int), int(np.ceil(least * n)))
    convex = rng.random() < 0.5
    touching = rng.random() < 0.5
    groups: list[Rows] = []
    labels: list[Labels] = []
    for c in rng.permutation(k):
        size = int(sizes[c])
        round_ones = ["gaussian", "gaussian", "box", "heavy"]
        shape = str(rng.choice(round_ones if convex or size < 100 else ["gaussian", "box", "heavy", "arc", "ring"]))
        group = _group(rng, size, d, shape)
        if groups:
            within = max(float(np.quantile(_to_nearest(g), 0.9)) for g in (group, *groups))
            close = touching and rng.random() < 0.5
            gap = within * (rng.uniform(1.0, 1.5) if close else rng.uniform(2, 3))
            base = groups[rng.integers(len(groups))].mean(0)
            direction = rng.standard_normal(d)
            direction /= np.linalg.norm(direction)
            others = NearestNeighbors(n_neighbors=1).fit(np.concatenate(groups))
            step = 0.0
            while np.quantile(others.kneighbors(group + base + step * direction)[0], 0.02) < gap:
                step += 0.1
            group = group + base + step * direction
        groups.append(group)
        labels.append(np.full(size, c + 1))
    x, y = np.concatenate(groups), np.concatenate(labels)
    outliers = rng.random() < 0.4
    if outliers:
        count = max(1, len(x) // 100)
        low, high = x.min(0), x.max(0)
        x = np.concatenate([x, rng.uniform(low - 0.5 * (high - low), high + 0.5 * (high - low), (count, d))])
        y = np.concatenate([y, np.zeros(count, dtype=np.int64)])
    order = rng.permutation(len(x))
    about = f"{d} columns, {law}{', touching' if touching else ''}{', convex' if convex else ''}"
    return Problem(x[order], y[order], k, about + (", outliers" if outliers else ""))


def four_groups(
    seed: int, d: int, shares: tuple[float, ...], outliers: bool, apart: float, n: int = 1000
) -> Problem:
    """Unit Gaussians, the nearest centres `apart` deviations apart; 1 % outliers in a box three times as wide."""
    rng = np.random.default_rng([60, seed])
    centres = np.zeros((0, d))
    while len(centres) < len(shares):
        centre = rng.uniform(-12, 12, d) / np.sqrt(d / 2)
        if len(centres) == 1:  # the two largest groups are as near as any may be
            centre = centres[0] + apart * (centre - centres[0]) / np.linalg.norm(centre - centres[0])
        if len(centres) <= 1 or np.linalg.norm(centres - centre, axis=1).min() >= apart:
            centres = np.concatenate([centres, centre[None]])
    y = np.repeat(np.arange(len(shares)) + 1, [round(share * n) for share in shares])
    x = centres[y - 1] + rng.standard_normal((len(y), d))
    if outliers:
        middle, half = (x.max(0) + x.min(0)) / 2, (x.max(0) - x.min(0)) / 2
        x = np.concatenate([x, middle + rng.uniform(-3, 3, (n // 100, d)) * half])
        y = np.concatenate([y, np.zeros(n // 100, dtype=np.int64)])
    return Problem(x, y.astype(np.int64), len(shares), f"{d} columns")


def _group(rng: np.random.Generator, n: int, d: int, shape: str) -> Rows:
    if shape == "gaussian":
        x = rng.standard_normal((n, d)) * np.exp(rng.uniform(-0.6, 0.6, d))
    elif shape == "box":
        x = rng.uniform(-1.7, 1.7, (n, d))
    elif shape == "heavy":
        x = rng.standard_normal((n, d)) / np.sqrt(rng.chisquare(4, (n, 1)) / 4)
    else:
        angle = rng.uniform(0, 2 * np.pi if shape == "ring" else np.pi * 1.2, n)
        x = 0.15 * rng.standard_normal((n, d))
        x[:, 0] += 2 * np.cos(angle)
        x[:, 1] += 2 * np.sin(angle)
    rotation, _ = np.linalg.qr(rng.standard_normal((d, d)))
    grown: Rows = x @ rotation * rng.uniform(0.7, 1.4)
    return grown


def _to_nearest(x: Rows) -> Rows:
    distance: Rows = NearestNeighbors(n_neighbors=1).fit(x).kneighbors()[0].ravel()
    return distance


def _scaled(x: NDArray[Any]) -> NDArray[np.float32]:
    return Scaler.fit(x).transform(x)


def _ari(y: Labels, labels: Labels) -> float:
    return float(adjusted_rand_score(y[y > 0], labels[y > 0]))


def numbers(first_seed: int, seeds: int) -> None:
    right = near = 0
    for seed in range(first_seed, first_seed + seeds):
        p = problem(seed)
        x = _scaled(p.x)
        began = time.perf_counter()
        found = choose_number(x, seed=0)
        seconds = time.perf_counter() - began
        given = choose_partition(x, p.n_clusters, seed=0)
        right += found.n_clusters == p.n_clusters
        near += abs(found.n_clusters - p.n_clusters) == 1
        print(
            f"{seed:4d} k {p.n_clusters:2d} found {found.n_clusters:2d} runner-up {found.runner_up:2d} "
            f"margin {found.margin:5.2f} ARI {_ari(p.y, found.choice.chosen.labels):.3f} "
            f"k given {_ari(p.y, given.chosen.labels):.3f} {seconds:4.1f} s {len(x)} rows, {p.about}",
            flush=True,
        )
    print(f"right {right}, off by one {near}, of {seeds}")


def groups(apart: float) -> None:
    for shares in ((0.6, 0.25, 0.1, 0.05), (0.6, 0.25, 0.13, 0.02)):
        for d in (2, 6):
            for outliers in (False, True):
                rows = []
                for seed in range(5):
                    p = four_groups(seed, d, shares, outliers, apart)
                    x, clean = _scaled(p.x), p.y > 0
                    start = np.stack([p.x[p.y == c].mean(0) for c in range(1, 5)])
                    k_means = KMeans(4, init=start, n_init=1).fit(p.x[clean]).labels_
                    auto = choose_number(x, seed=seed)
                    given = choose_partition(x, 4, seed=seed)
                    with_prior = choose_partition(x, 4, seed=seed, prior=shares)
                    rows.append(
                        [
                            float(adjusted_rand_score(p.y[clean], k_means)),
                            *(_ari(p.y, c.chosen.labels) for c in (given, with_prior, auto.choice)),
                            float(auto.n_clusters),
                        ]
                    )
                least = np.array(rows).min(0)
                print(
                    f"{shares} {d} columns{', outliers' if outliers else '':10s} least of 5 seeds: k-means from "
                    f"the truth {least[0]:.3f}, k given {least[1]:.3f}, shares given {least[2]:.3f}, "
                    f"auto {least[3]:.3f}; numbers found {[int(row[4]) for row in rows]}",
                    flush=True,
                )


def tables(folder: Path, parity: int) -> None:
    rows = []
    for path in sorted(folder.glob("*.npz"))[parity::2]:
        with np.load(path) as stored:
            x, ys = _scaled(stored["X"]), [stored[key] for key in sorted(stored) if key.startswith("y")]
        k = int(ys[0].max())
        sizes = np.bincount(ys[0][ys[0] > 0])[1:]
        shares = sizes / sizes.sum()
        began = time.perf_counter()
        choice = choose_partition(x, k, seed=0)
        seconds = time.perf_counter() - began
        with_prior = choose_partition(x, k, seed=0, prior=shares)
        auto = choose_number(x, seed=0)

        def best(labels: Labels, ys: list[Labels] = ys) -> float:
            return max(_ari(y, labels) for y in ys)

        off = min((auto.n_clusters - int(y.max()) for y in ys), key=abs)
        unequal = sizes.max() > 2 * sizes.min()
        rows.append(
            [
                best(choice.chosen.labels),
                best(with_prior.chosen.labels),
                max(best(p.labels) for p in choice.candidates),
                best(auto.choice.chosen.labels),
                float(off),
                float(unequal),
                seconds,
            ]
        )
        print(
            f"{path.stem:26s} {len(x):6d} × {x.shape[1]:3d} k {k:2d} ARI {rows[-1][0]:.3f} "
            f"{choice.chosen.name:26s} "
            f"shares given {rows[-1][1]:.3f} best candidate {rows[-1][2]:.3f} "
            f"agreement {choice.chosen.agreement:.2f} "
            f"margin {choice.margin:.2f} | auto k {auto.n_clusters:2d} ARI {rows[-1][3]:.3f} | {seconds:.1f} s",
            flush=True,
        )
    table = np.array(rows)
    print(
        f"mean ARI {table[:, 0].mean():.4f} (unequal {table[table[:, 5] == 1, 0].mean():.4f}), "
        f"shares given {table[:, 1].mean():.4f}, best candidate {table[:, 2].mean():.4f}, "
        f"auto k {table[:, 3].mean():.4f}: number right {(table[:, 4] == 0).sum()}, "
        f"within one {(np.abs(table[:, 4]) <= 1).sum()}, of {len(table)}; "
        f"median {np.median(table[:, 6]):.1f} s, most {table[:, 6].max():.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tasks = parser.add_subparsers(dest="task", required=True)
    one = tasks.add_parser("numbers")
    one.add_argument("--first-seed", type=int, default=100)
    one.add_argument("--seeds", type=int, default=20)
    three = tasks.add_parser("groups")
    three.add_argument("--apart", type=float, default=6.0, help="deviations between the nearest centres")
    two = tasks.add_parser("tables")
    two.add_argument("folder", type=Path)
    two.add_argument("--parity", type=int, choices=(0, 1), required=True)
    args = parser.parse_args()
    if args.task == "numbers":
        numbers(args.first_seed, args.seeds)
    elif args.task == "groups":
        groups(args.apart)
    else:
        tables(args.folder, args.parity)


if __name__ == "__main__":
    main()
