"""Texts by mean word vectors: descriptions from the documentation of installed packages, grouped without labels.

The texts are the first paragraphs of docstrings, and the true groups are the packages they are from. The vectors
come inside the package `wordllama` (pip install --no-deps wordllama); nothing is downloaded. k-means, Gaussian
mixtures, spectral clustering and the partition that GEDI starts from get the same rows.
"""

import argparse
import importlib
import importlib.util
import inspect
import json
import os
import pkgutil
import re
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.preprocessing import normalize

from gedikit import GEDI
from pictures import MODELS, ONE_UNIT, PEERS, Labels, gedi, reduced

PACKAGES = (
    "asyncio",
    "email",
    "tkinter",
    "unittest",
    "scipy.stats",
    "scipy.signal",
    "matplotlib.axes",
    "pandas.core",
)
_LEAST_WORDS = 6
_MOST = 250  # texts of a package
COMPONENTS = 64


def docstrings(package: str) -> Iterator[str]:
    """First paragraphs of everything public in a package and its modules, each once."""
    root = importlib.import_module(package)
    modules = [root]
    for found in pkgutil.iter_modules(getattr(root, "__path__", [])):
        if not found.name.startswith(("_", "test")) or package.startswith("scipy"):
            try:
                modules.append(importlib.import_module(f"{package}.{found.name}"))
            except Exception:
                continue  # some are for other systems
    seen = set()
    for module in modules:
        for owner in (module, *(one for _, one in inspect.getmembers(module, inspect.isclass))):
            if owner is not module and not str(owner.__module__).startswith(package):
                continue
            for name, member in inspect.getmembers(owner):
                own = str(getattr(member, "__module__", "")).startswith(package)
                text = (inspect.getdoc(member) or "").split("\n\n")[0] if own else ""
                text = re.sub(r"\s+", " ", text).strip()
                if not name.startswith("_") and len(text.split()) >= _LEAST_WORDS and text not in seen:
                    seen.add(text)
                    yield text


def texts(seed: int) -> tuple[list[str], Labels]:
    rng, found, of = np.random.default_rng(seed), list[str](), list[str]()
    for package in PACKAGES:
        own = sorted(docstrings(package))
        some = [own[i] for i in rng.permutation(len(own))[:_MOST]]
        found += some
        of += [package] * len(some)
    return found, np.array(of)


class WordVectors:
    """Vectors of parts of words inside the package `wordllama`, whose own loader would look for them online."""

    def __init__(self) -> None:
        spec = importlib.util.find_spec("wordllama")
        if spec is None or not spec.submodule_search_locations:
            raise SystemExit("the vectors are not installed: pip install wordllama")
        root = Path(spec.submodule_search_locations[0])
        self.vectors = load_file(root / "weights" / "l2_supercat_256.safetensors")["embedding.weight"].astype(
            np.float32
        )
        model = json.loads((root / "tokenizers" / "l2_supercat_tokenizer_config.json").read_text("utf-8"))["model"]
        self.number: dict[str, int] = model["vocab"]
        self.rank = {tuple(pair.split(" ")): rank for rank, pair in enumerate(model["merges"])}
        self.parts = cache(self._parts)

    def _parts(self, word: str) -> list[int]:
        """Byte-pair encoding (Sennrich, Haddow & Birch 2016): the pair that was learned first is joined first."""
        parts = list(f"▁{word}")
        while True:
            ranks = [self.rank.get(pair, len(self.rank)) for pair in pairwise(parts)]
            if not ranks or min(ranks) == len(self.rank):
                return [self.number[part] for part in parts if part in self.number]
            first = ranks.index(min(ranks))
            parts[first : first + 2] = [parts[first] + parts[first + 1]]

    def __call__(self, found: list[str]) -> NDArray[np.float32]:
        """Means of the vectors of a text's parts, of unit length."""
        means = [self.vectors[[n for word in text.split() for n in self.parts(word)]].mean(0) for text in found]
        rows: NDArray[np.float32] = normalize(np.stack(means))
        return rows


def show(
    name: str, y: Labels, fit: Callable[..., Labels], x: NDArray[Any], k: int, seed: int, **asked: Any
) -> None:
    began = time.process_time()
    labels = fit(x, k, seed, **asked)
    nmi, ari = normalized_mutual_info_score(y, labels), adjusted_rand_score(y, labels)
    seconds = time.process_time() - began
    print(f"| {name} | {nmi:.3f} | {ari:.3f} | {len(np.unique(labels))} | {seconds:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=200)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    found, y = texts(args.seed)
    vectors, k, seed = WordVectors()(found), len(PACKAGES), args.seed
    sizes = dict(zip(*(part.tolist() for part in np.unique(y, return_counts=True)), strict=True))
    print(f"{len(found)} texts, {vectors.shape[1]} numbers each: {sizes}\n")
    x = reduced(vectors, COMPONENTS, seed)
    print("| model | NMI | ARI | clusters | CPU seconds |\n|---|---|---|---|---|")
    for name, peer in PEERS.items():
        show(name, y, peer, x, k, seed)
    for name, asked in MODELS.items():
        show(name, y, gedi, x, k, seed, **asked)
    model = GEDI(k, random_state=seed, config=ONE_UNIT).fit(x)
    strangest = np.argsort(-model.outlier_score(x))[:3]
    print("\nstrangest:", *(f"\n  {y[row]}: {found[row][:100]}" for row in strangest))


if __name__ == "__main__":
    main()
