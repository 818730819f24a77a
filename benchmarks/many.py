"""Many models in one step against the same fits one after another, by the same trainer, in one run."""

import argparse
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from rich.console import Console

from gedikit.config import Execution
from gedikit.paper.reproduce.fits import Group, Member, points
from gedikit.paper.reproduce.running import Request, run_all
from gedikit.training import fit


def one_after_another(group: Group, device: str) -> float:
    began = time.perf_counter()
    for member in group.members:
        fit(group.plan(member), points(member.shape, member.seed)[0], execution=Execution(device=device))
    return time.perf_counter() - began


def at_once(groups: list[Group], device: str, workers: int) -> float:
    with tempfile.TemporaryDirectory() as out:
        began = time.perf_counter()
        run_all(groups, Request(Path(out), device=device, workers=workers), Console(quiet=True))
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--iterations", type=int, default=600)
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--methods", default="gedi,gedi-no-gen,swav,gedi-no-gen-as-printed")
    args = parser.parse_args()
    members = tuple(Member(("moons", "circles")[i % 2], 400 + i) for i in range(args.members))
    groups = [Group(name, members, args.iterations) for name in args.methods.split(",")]
    alone = 0.0
    for group in groups:
        alone += one_after_another(group, args.device)
    together = at_once(groups, args.device, args.workers)
    print(
        f"{len(groups) * len(members)} fits of {args.iterations} iterations on {args.device}: one after another "
        f"{alone:.0f} s, as {len(groups)} stacks {together:.0f} s: {alone / together:.1f} x as fast "
        "(evaluation included in the second)"
    )


if __name__ == "__main__":
    main()
