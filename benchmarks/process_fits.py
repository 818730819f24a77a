"""Whole fits in 32 bits by any number of processes: their final metrics, to be compared over seeds.

python benchmarks/process_fits.py [SEEDS] [ITERATIONS]
torchrun --nproc-per-node 2 benchmarks/process_fits.py [SEEDS] [ITERATIONS]
"""

import json
import sys

import numpy as np
import torch
from sklearn.datasets import make_moons
from sklearn.metrics import normalized_mutual_info_score

from gedikit import GEDI
from gedikit.processes import is_first, launched, n_processes

NOISE = 0.2  # moons that overlap, so that no fit is perfect


def main() -> None:
    seeds, iterations = (int(word) for word in [*sys.argv[1:], "5", "600"][:2])
    torch.set_num_threads(1)
    x, _ = make_moons(1000, noise=NOISE, random_state=0)
    new, truth = make_moons(5000, noise=NOISE, random_state=1)
    with launched():
        for seed in range(seeds):
            model = GEDI(2, max_iter=iterations, random_state=seed).fit(x)
            if is_first():
                nmi = normalized_mutual_info_score(truth, model.predict(new))
                found = {"nmi": nmi, "log_likelihood": float(np.mean(model.score_samples(new)))}
                line = {"processes": n_processes(), "iterations": iterations, "seed": seed, **found}
                sys.stdout.write(json.dumps(line) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
