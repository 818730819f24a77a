"""Stream a million rows of 64 features through `gedikit predict`: rate and memory."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

ROWS, FEATURES = 1_000_000, 64
ENV = {**os.environ, "OMP_NUM_THREADS": "1"}
GEDIKIT = [sys.executable, "-c", "from gedikit.cli import main; main()"]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        small, large, run = (Path(folder) / name for name in ("small.npy", "large.npy", "run"))
        rng = np.random.default_rng(0)
        np.save(small, rng.normal(size=(1000, FEATURES)).astype(np.float32))
        out = np.lib.format.open_memmap(large, mode="w+", dtype=np.float32, shape=(ROWS, FEATURES))
        for start in range(0, ROWS, 50_000):
            out[start : start + 50_000] = rng.normal(size=(50_000, FEATURES))
        out.flush()
        fit = [*GEDIKIT, "fit", str(small), "--iters", "20", "--out", str(run)]
        subprocess.run(fit, check=True, env=ENV, capture_output=True)
        for rows, path in ((1000, small), (ROWS, large)):
            peak, text = watched([*GEDIKIT, "predict", str(run), str(path), "-o", f"{folder}/out.csv"])
            print(f"{rows:>9,} rows: {peak / 2**20:,.0f} MiB private memory at most; {text.strip()}")


def watched(command: list[str]) -> tuple[int, str]:
    """Run a command; returns the most private memory it held (mapped file pages are the system's) and its words."""
    process = subprocess.Popen(command, env=ENV, stderr=subprocess.PIPE, text=True)
    peak = 0
    while process.poll() is None:
        try:
            peak = max(peak, psutil.Process(process.pid).memory_full_info().uss)
        except psutil.Error:
            break
        time.sleep(0.1)
    _, text = process.communicate()
    return peak, text


if __name__ == "__main__":
    main()
