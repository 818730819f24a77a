"""Pictures by features of a pretrained network: drawn ones of four unequal kinds, and CIFAR-10's test images.

Settings were chosen on training images of CIFAR-10 and on drawings of seeds 0 to 2. Every model gets the same rows.
Beside GEDI stand the simplest models: k-means, Gaussian mixtures, spectral clustering, the partition that it starts
from, and GEDI without a density.
"""

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.mixture import GaussianMixture

from gedikit import GEDI
from gedikit.data import sources
from gedikit.data.pictures import square_of
from gedikit.features import embed
from gedikit.starts import Starts

KINDS = {"sea": 150, "woods": 100, "street": 60, "plate": 30}
COMPONENTS = 64
ONE_UNIT = {"data.scaling": "global"}  # features of one network, and their principal components, have one unit
Labels = NDArray[Any]
Colour = tuple[int, int, int]
Random = np.random.Generator

# drawings


def colour(rng: Random, base: Colour, spread: float) -> Colour:
    red, green, blue = np.clip(np.array(base) + rng.normal(0, spread, 3), 0, 255).astype(int).tolist()
    return red, green, blue


def gradient(width: int, height: int, top: Colour, bottom: Colour) -> Image.Image:
    share = np.linspace(0, 1, height)[:, None, None]
    pixels = np.broadcast_to((1 - share) * np.array(top) + share * np.array(bottom), (height, width, 3))
    return Image.fromarray(pixels.astype(np.uint8))


def circle(draw: ImageDraw.ImageDraw, x: float, y: float, radius: float, fill: Colour) -> None:
    draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=fill)


def sea(rng: Random, w: int, h: int) -> Image.Image:
    """A sun over water."""
    picture = gradient(w, h, colour(rng, (120, 150, 200), 45), colour(rng, (230, 180, 140), 45))
    draw, horizon = ImageDraw.Draw(picture), rng.uniform(0.35, 0.7)
    x, y, radius = rng.uniform(0.15, 0.85) * w, rng.uniform(0.1, horizon) * h, rng.uniform(0.05, 0.12) * w
    circle(draw, x, y, radius, colour(rng, (250, 230, 160), 20))
    water = colour(rng, (50, 90, 130), 35)
    draw.rectangle((0, horizon * h, w, h), fill=water)
    red, green, blue = water
    for _ in range(int(rng.integers(8, 24))):
        left, top, length = rng.uniform(0, w), rng.uniform(horizon * h, h), rng.uniform(0.05, 0.25) * w
        glint = colour(rng, (red + 40, green + 40, blue + 40), 10)
        draw.line((left, top, left + length, top), fill=glint, width=int(rng.integers(1, 4)))
    return picture


def woods(rng: Random, w: int, h: int) -> Image.Image:
    """Firs."""
    picture = gradient(w, h, colour(rng, (150, 180, 190), 40), colour(rng, (70, 90, 50), 30))
    draw = ImageDraw.Draw(picture)
    for _ in range(int(rng.integers(5, 14))):
        x, base, tall = rng.uniform(0, w), rng.uniform(0.6, 1) * h, rng.uniform(0.35, 0.8) * h
        leaves, wide = colour(rng, (50, 100, 50), 28), rng.uniform(0.08, 0.18) * w
        trunk = (x - 0.015 * w, base - 0.2 * tall, x + 0.015 * w, base)
        draw.rectangle(trunk, fill=colour(rng, (80, 55, 35), 15))
        for k in range(3):
            low, half = base - tall * (0.15 + 0.28 * k), wide * (1 - 0.25 * k)
            draw.polygon([(x - half, low), (x + half, low), (x, low - 0.42 * tall)], fill=leaves)
    return picture


def street(rng: Random, w: int, h: int) -> Image.Image:
    """Houses in a row."""
    picture = gradient(w, h, colour(rng, (120, 160, 210), 40), colour(rng, (200, 200, 200), 35))
    draw, ground, x = ImageDraw.Draw(picture), rng.uniform(0.78, 0.9) * h, -rng.uniform(0, 0.2) * w
    while x < w:
        wide, top = rng.uniform(0.18, 0.35) * w, rng.uniform(0.15, 0.5) * h
        draw.rectangle((x, top, x + wide, ground), fill=colour(rng, (170, 120, 100), 45))
        if rng.random() < 0.5:
            roof = [(x, top), (x + wide, top), (x + wide / 2, top - 0.12 * h)]
            draw.polygon(roof, fill=colour(rng, (120, 50, 40), 20))
        pane, n = colour(rng, (60, 70, 90), 25), int(rng.integers(2, 4))
        for i in range(n):
            left = x + wide * (i + 0.25) / n
            for y in np.arange(top + 0.06 * h, ground - 0.1 * h, 0.14 * h):
                draw.rectangle((left, y, left + 0.5 * wide / n, y + 0.07 * h), fill=pane)
        x += wide
    draw.rectangle((0, ground, w, h), fill=colour(rng, (90, 90, 95), 15))
    return picture


def plate(rng: Random, w: int, h: int) -> Image.Image:
    """Food from above."""
    picture = Image.new("RGB", (w, h), colour(rng, (150, 110, 80), 45))
    draw = ImageDraw.Draw(picture)
    x, y, radius = rng.uniform(0.4, 0.6) * w, rng.uniform(0.4, 0.6) * h, rng.uniform(0.28, 0.42) * min(w, h)
    circle(draw, x, y, radius, colour(rng, (235, 235, 230), 10))
    circle(draw, x, y, 0.75 * radius, colour(rng, (215, 215, 210), 10))
    foods: tuple[Colour, ...] = ((200, 60, 40), (90, 140, 50), (220, 180, 70))
    for _ in range(int(rng.integers(3, 9))):
        angle, out, size = rng.uniform(0, 2 * np.pi), rng.uniform(0, 0.5) * radius, rng.uniform(0.08, 0.25) * radius
        food = colour(rng, foods[rng.integers(3)], 25)
        circle(draw, x + out * np.cos(angle), y + out * np.sin(angle), size, food)
    return picture


PAINTERS: dict[str, Callable[[Random, int, int], Image.Image]] = {
    "sea": sea,
    "woods": woods,
    "street": street,
    "plate": plate,
}


def drawn(seed: int) -> tuple[list[Image.Image], Labels]:
    """340 pictures of four kinds in other colours, light, blur and noise each, upright or wide."""
    rng, pictures, kinds = np.random.default_rng(seed), [], []
    for kind, count in KINDS.items():
        for _ in range(count):
            width, height = (160, 120) if rng.random() < 0.6 else (120, 160)
            clean = PAINTERS[kind](rng, width, height).filter(ImageFilter.GaussianBlur(rng.uniform(0, 1)))
            light, grain = rng.uniform(0.75, 1.15), rng.normal(0, 6, (height, width, 3))
            pixels = np.asarray(clean, dtype=np.float64) * light + grain
            pictures.append(Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)))
            kinds.append(kind)
    return pictures, np.array(kinds)


# models


def reduced(x: NDArray[Any], components: int, seed: int) -> NDArray[Any]:
    rows: NDArray[Any] = PCA(min(components, len(x) - 1), random_state=seed).fit_transform(x)
    return rows


def mixture(x: NDArray[Any], k: int, seed: int, covariance: str = "full", components: int = 20) -> Labels:
    rows = reduced(x, components, seed)
    model = GaussianMixture(
        k, covariance_type=covariance, n_init=5, reg_covar=1e-5 * float(rows.var()), random_state=seed
    )
    return np.asarray(model.fit_predict(rows))


def spectral(x: NDArray[Any], k: int, seed: int) -> Labels:
    model = SpectralClustering(
        k, affinity="nearest_neighbors", n_neighbors=10, assign_labels="cluster_qr", random_state=seed
    )
    return np.asarray(model.fit_predict(x))


PEERS: dict[str, Callable[[NDArray[Any], int, int], Labels]] = {
    "k-means": lambda x, k, seed: np.asarray(KMeans(k, n_init=10, random_state=seed).fit_predict(x)),
    "GMM, full": mixture,
    "GMM, tied": lambda x, k, seed: mixture(x, k, seed, "tied"),
    "spectral": spectral,
    "GEDI's start": lambda x, k, seed: Starts(np.asarray(x, dtype=np.float64), seed).find(k, "global").labels,
}
MODELS: dict[str, dict[str, Any]] = {
    "gedi": {},
    "gedi-no-gen": {"method": "gedi-no-gen"},
    "gedi, uniform prior": {"prior": "uniform"},
    "gedi-no-gen, uniform prior": {"prior": "uniform", "method": "gedi-no-gen"},
}


def gedi(x: NDArray[Any], k: int | str, seed: int, **asked: Any) -> Labels:
    labels: Labels = GEDI(k, random_state=seed, config=ONE_UNIT, **asked).fit(x).labels_
    return labels


def gedi_of_pixels(images: NDArray[np.uint8], k: int, seed: int) -> Labels:
    labels: Labels = GEDI(k, random_state=seed).fit(images).labels_
    return labels


def measured(
    name: str, y: Labels, fit: Callable[..., Labels], x: NDArray[Any], k: int | str, seed: int, **asked: Any
) -> dict[str, object]:
    """Agreement with the true kinds, and the seconds of CPU that a fit takes."""
    began = time.process_time()
    labels = fit(x, k, seed, **asked)
    row: dict[str, object] = {
        "model": name,
        "seed": seed,
        "nmi": float(normalized_mutual_info_score(y, labels)),
        "ari": float(adjusted_rand_score(y, labels)),
        "clusters": len(np.unique(labels)),
        "cpu_seconds": round(time.process_time() - began, 1),
    }
    print(json.dumps(row), flush=True)
    return row


def run_drawn(seed: int, *, pixels: bool) -> list[dict[str, object]]:
    pictures, y = drawn(seed)
    small = np.stack([square_of(picture.copy(), 32) for picture in pictures])
    rows = [measured("PCA + GMM of pixels", y, mixture, small.reshape(len(y), -1) / 255.0, 4, seed)]
    if pixels:
        rows.append(measured("gedi of pixels", y, gedi_of_pixels, small, 4, seed))
    began = time.process_time()
    x = embed(pictures)
    rows.append({"model": "features alone", "seed": seed, "cpu_seconds": round(time.process_time() - began, 1)})
    rows += [measured(name, y, peer, x, 4, seed) for name, peer in PEERS.items()]
    return [
        *rows,
        measured("gedi, 4 given", y, gedi, x, 4, seed),
        measured("gedi, number unknown", y, gedi, x, "auto", seed),
        measured("gedi-no-gen, 4 given", y, gedi, x, 4, seed, method="gedi-no-gen"),
    ]


def run_cifar(seeds: range, n: int, split: str, keep: Path | None) -> list[dict[str, object]]:
    """Features of all images are computed once; `n` of them are drawn anew for each seed."""
    data = sources.load("cifar10", split=split)
    assert data.image_shape is not None and data.y is not None
    if keep is not None and keep.exists():
        features = np.load(keep)
    else:
        features = embed(data.x.reshape(-1, *data.image_shape))
        if keep is not None:
            np.save(keep, features)
    rows = []
    for seed in seeds:
        some = np.sort(np.random.default_rng(seed).permutation(len(features))[:n])
        y, whole = np.asarray(data.y)[some], features[some]
        x = reduced(whole, COMPONENTS, seed)
        for name, peer in PEERS.items():
            rows.append(measured(name, y, peer, x, 10, seed))
        for name in ("k-means", "spectral"):
            rows.append(measured(f"{name}, all columns", y, PEERS[name], whole, 10, seed))
        rows += [measured(name, y, gedi, x, 10, seed, **asked) for name, asked in MODELS.items()]
    return rows


def table(rows: list[dict[str, object]]) -> str:
    lines = ["| model | NMI mean (min) | ARI mean (min) | clusters | CPU seconds |", "|---|---|---|---|---|"]
    for name in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == name]
        seconds = np.mean([float(str(row["cpu_seconds"])) for row in own])
        if "nmi" not in own[0]:
            lines.append(f"| {name} | – | – | – | {seconds:.1f} |")
            continue
        nmi, ari = (np.array([float(str(row[key])) for row in own]) for key in ("nmi", "ari"))
        found = ", ".join(dict.fromkeys(str(row["clusters"]) for row in own))
        lines.append(
            f"| {name} | {nmi.mean():.3f} ({nmi.min():.3f}) | {ari.mean():.3f} ({ari.min():.3f}) | {found} "
            f"| {seconds:.1f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("drawn", "cifar10", "folder"))
    parser.add_argument("--first-seed", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--pixels", action="store_true", help="drawn: fit the pixels, too")
    parser.add_argument("--rows", type=int, default=10_000, help="cifar10: images of the split")
    parser.add_argument("--split", default="test", help="cifar10: train is for choosing settings")
    parser.add_argument("--keep", type=Path, help="cifar10: a .npy file for the features of the whole split")
    parser.add_argument("--out", type=Path, default=Path("results/pictures"), help="folder: where pictures go")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    args.out.mkdir(parents=True, exist_ok=True)
    if args.what == "folder":
        for i, (picture, kind) in enumerate(zip(*drawn(args.first_seed), strict=True)):
            (args.out / kind).mkdir(exist_ok=True)
            picture.save(args.out / kind / f"{i:03d}.jpg", quality=92)
        return
    if args.what == "drawn":
        rows = [row for seed in seeds for row in run_drawn(seed, pixels=args.pixels)]
    else:
        rows = run_cifar(seeds, args.rows, args.split, args.keep)
    (args.out / f"{args.what}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (args.out / f"{args.what}.md").write_text(table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
