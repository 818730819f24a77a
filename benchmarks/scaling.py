"""How long an iteration takes on several processes, and what a fit costs: a model of two measured times.

An iteration of N processes takes a + b·(rows each), from the times of one process with two batches, plus what is
sent: the gradient by a ring, the chains to everyone, and a delay for each call. Nothing is sent while computing.

python benchmarks/scaling.py                                                  # the tables of docs/scaling.md
python benchmarks/scaling.py --pictures 1000000 --epochs 200 --batch 2048     # hours of a fit
python benchmarks/scaling.py --times 64:469 32:259 --processes 1 2 4 --batch 64 --delay 0   # the CPU of that page
"""

import argparse
import sys
from dataclasses import dataclass

_BYTES = {"float32": 4, "bfloat16": 2, "uint8": 1}  # of a number of a chain


@dataclass(frozen=True)
class Model:
    """What an iteration is made of; times in milliseconds, rates in bytes a millisecond."""

    fixed: float
    row: float
    weights: int
    numbers: int  # of a row
    stored: str
    calls: int
    node: int
    rates: tuple[float, float]  # within a node and between nodes
    delays: tuple[float, float]  # of a call

    def computed(self, rows: float) -> float:
        return self.fixed + self.row * rows

    def sent(self, batch: int, n: int) -> float:
        """Until all processes have the gradient and the chains of all."""
        if n == 1:
            return 0.0
        rate, delay = self.rates[n > self.node], self.delays[n > self.node]
        others = (n - 1) / n
        gradient = 2 * others * 4 * self.weights
        chains = others * batch * self.numbers * _BYTES[self.stored]
        return (gradient + chains) / rate + self.calls * delay

    def iteration(self, batch: int, n: int) -> float:
        return self.computed(batch / n) + self.sent(batch, n)


def line(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """a and b of a + b·rows through two measured (rows, milliseconds)."""
    (rows, time), (other_rows, other_time) = first, second
    slope = (time - other_time) / (rows - other_rows)
    return time - slope * rows, slope


def table(model: Model, processes: list[int], batch: int, each: int) -> list[str]:
    """One batch divided among more and more processes, and as much for each of them."""
    rows = [
        f"| processes | batch {batch} in all: ms | times faster | batch {each} each: ms | rows/s | of perfect |",
        "|---|---|---|---|---|---|",
    ]
    alone, own = model.iteration(batch, 1), model.iteration(each, 1)
    for n in processes:
        divided, grown = model.iteration(batch, n), model.iteration(each * n, n)
        share = "" if n == 1 else f" {100 * own / grown:.0f} %"
        per_second = float(f"{1000 * each * n / grown:.3g}")
        rows.append(f"| {n} | {divided:.1f} | {alone / divided:.1f} | {grown:.1f} | {per_second:,.0f} |{share} |")
    return rows


def cost(model: Model, processes: list[int], batch: int, pictures: int, epochs: int) -> list[str]:
    """Hours of the clock, and hours of all processes together, for passes over many pictures."""
    iterations = max(1, pictures // batch) * epochs
    rows = [
        f"{pictures:,} rows × {epochs} epochs in batches of {batch}: {iterations:,} iterations",
        "",
        "| processes | hours | hours of all together |",
        "|---|---|---|",
    ]
    for n in processes:
        hours = iterations * model.iteration(batch, n) / 3_600_000
        rows.append(f"| {n} | {hours:.2f} | {n * hours:.2f} |")
    return rows


def pair(text: str) -> tuple[float, float]:
    rows, time = text.split(":")
    return float(rows), float(time)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measured = [(64.0, 7.50), (256.0, 15.12)]
    parser.add_argument("--times", nargs=2, type=pair, default=measured, metavar="ROWS:MS", help="one process")
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--batch", type=int, default=2048, help="rows of all processes together")
    parser.add_argument("--each", type=int, default=256, help="rows of each process, in the other columns")
    parser.add_argument("--weights", type=int, default=1_100_000)
    parser.add_argument("--numbers", type=int, default=32 * 32 * 3, help="numbers of a row")
    parser.add_argument("--storage", choices=list(_BYTES), default="float32", help="sampler.storage")
    parser.add_argument("--calls", type=int, default=11, help="calls of an iteration")
    parser.add_argument("--node", type=int, default=8, help="processes of a node")
    parser.add_argument("--rate", type=float, default=200.0, help="GB/s within a node")
    parser.add_argument("--rate-between", type=float, default=25.0, help="GB/s between nodes")
    parser.add_argument("--delay", type=float, default=30.0, help="µs of a call within a node")
    parser.add_argument("--delay-between", type=float, default=60.0, help="µs of a call between nodes")
    parser.add_argument("--pictures", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=100)
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    fixed, row = line(*asked.times)
    model = Model(
        fixed=fixed,
        row=row,
        weights=asked.weights,
        numbers=asked.numbers,
        stored=asked.storage,
        calls=asked.calls,
        node=asked.node,
        rates=(asked.rate * 1e6, asked.rate_between * 1e6),
        delays=(asked.delay / 1000, asked.delay_between / 1000),
    )
    said = [f"an iteration of one process: {fixed:.3g} ms + {row:.3g} ms a row", ""]
    said += table(model, asked.processes, asked.batch, asked.each)
    said += ["", *cost(model, asked.processes, asked.batch, asked.pictures, asked.epochs)]
    sys.stdout.write("\n".join(said) + "\n")


if __name__ == "__main__":
    main()
