"""Time constraints on one core: addition by tables, programs and chains, beside enumeration and klaycircuits."""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import klay
import torch
from torch import Tensor

from gedikit.paper.reproduce.sums import CARRIED, Sums
from gedikit.symbolic import Constraint, best_relabelling
from gedikit.symbolic.budget import Budget
from gedikit.symbolic.compiler import sentential
from gedikit.symbolic.program import grounded

BATCH, ROUNDS = 256, 25
LONG_BATCH, LENGTHS = 64, (1, 4, 15, 50, 100)

Evaluate = Callable[[Sequence[Tensor]], Tensor]


def sums(n: int) -> list[tuple[int, ...]]:
    """All sums of two numbers of n digits."""
    digits = lambda x, m: [x // 10**i % 10 for i in range(m)]  # noqa: E731
    pairs = product(range(10**n), repeat=2)
    return [(*digits(x, n), *digits(y, n), *digits(x + y, n + 1)) for x, y in pairs]


def enumeration(n: int) -> Evaluate:
    """log Σ Π p over all sums, written down as such."""
    tuples = torch.tensor(sums(n))

    def evaluate(log_p: Sequence[Tensor]) -> Tensor:
        products = sum(p[:, tuples[:, v]] for v, p in enumerate(log_p))
        return torch.logsumexp(torch.as_tensor(products), -1)

    return evaluate


def klay_of(n: int) -> Evaluate:
    """The diagram of the program, evaluated by klaycircuits."""
    ground = grounded(CARRIED, Sums(n).query, Budget(60, 10**7))
    groups, (node,) = sentential([ground.holds], Budget(60, 10**7))
    circuit = klay.Circuit()
    circuit.add_sdd(node)
    module = circuit.to_torch_module(semiring="log", compile=False)
    order = [10 * ground.variables.index(g.choice) + min(cell) for g in groups for cell in g.cells]

    def evaluate(log_p: Sequence[Tensor]) -> Tensor:
        true = torch.cat(list(log_p), dim=-1)[:, order]
        found: Tensor = module(true, torch.zeros_like(true))[:, 0]
        return found

    return evaluate


def posteriors(n_variables: int, rows: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(n_variables, rows, 10, generator=generator)
    return [x.requires_grad_() for x in torch.log_softmax(logits, -1).unbind()]


def report(name: str, make: Callable[[], tuple[Evaluate, object]], n_variables: int, rows: int) -> None:
    began = time.process_time()
    evaluate, size = make()
    ready = time.process_time() - began
    log_p = posteriors(n_variables, rows)
    forward, both = [], []
    for _ in range(ROUNDS):
        began = time.process_time()
        value = evaluate(log_p)
        forward.append(time.process_time() - began)
        torch.autograd.grad(value.sum(), log_p)
        both.append(time.process_time() - began)
    times = [f"{1e3 * sorted(t)[ROUNDS // 2]:>10.2f} ms" for t in (forward, both)]
    print(f"{name:<36}{rows:>5}{ready:>8.2f} s{size!s:>10}{times[0]}{times[1]}")


def naming_seconds() -> float:
    """Of a search for the names of ten clusters from 100 additions, every twentieth label of which is wrong."""
    generator = torch.Generator().manual_seed(0)
    pairs = torch.tensor([(a, b) for a in range(10) for b in range(10 - a)])
    terms = pairs[torch.randint(len(pairs), (100,), generator=generator)]
    digits = torch.cat([terms, terms.sum(1, keepdim=True)], 1)
    wrong = torch.rand(digits.shape, generator=generator) < 0.05
    digits = torch.where(wrong, torch.randint(10, digits.shape, generator=generator), digits)
    clusters = torch.eye(10)[torch.randperm(10, generator=generator)[digits]].log()
    addition = Constraint(lambda a, b, c: a + b == c, domains=(10, 10, 10))
    began = time.process_time()
    best_relabelling(clusters.unbind(1), addition)
    return time.process_time() - began


def single_digit() -> tuple[Evaluate, object]:
    return Constraint(lambda a, b, c: a + b == c, domains=(10, 10, 10)).log_probability, 55


def program(n: int) -> tuple[Evaluate, object]:
    constraint = Constraint.from_program(CARRIED, Sums(n).query)
    return constraint.log_probability, constraint.body.circuit.n_products


def table(n: int) -> tuple[Evaluate, object]:
    constraint = Constraint.from_table(sums(n), (10,) * (3 * n + 1))
    return constraint.log_probability, constraint.body.circuit.n_products


def add(carry: int, a: int, b: int, c: int) -> int | None:
    carry, digit = divmod(a + b + carry, 10)
    return carry if c == digit else None


def last(carry: int, c: int) -> int | None:
    return carry if c == carry else None


def chain(n: int) -> Constraint:
    return Constraint.from_chain([add] * n + [last], [(10, 10, 10)] * n + [10], start=0)


def long_program(n: int) -> Constraint:
    a, b, c = (f"[{', '.join(f'{x}{i}' for i in range(m))}]" for x, m in (("a", n), ("b", n), ("c", n + 1)))
    return Constraint.from_program(CARRIED, f"sum({a}, {b}, 0, {c})")


LONG = {"chain": chain, "program": long_program}


def report_long(kind: str, n: int) -> None:
    """CPU seconds and memory of two numbers of n digits, in a process of its own."""
    LONG[kind](1)  # what is imported on the way counts before
    before = _mebibytes()
    began = time.process_time()
    constraint = LONG[kind](n)
    ready = time.process_time() - began
    when_ready = _mebibytes()
    log_p = posteriors(3 * n + 1, LONG_BATCH)
    forward, both = [], []
    for _ in range(ROUNDS):
        began = time.process_time()
        value = constraint.log_probability(log_p)
        forward.append(time.process_time() - began)
        torch.autograd.grad(value.sum(), log_p)
        both.append(time.process_time() - began)
    times = [f"{1e3 * sorted(t)[ROUNDS // 2]:>9.2f} ms" for t in (forward, both)]
    nodes, products = len(constraint.body.diagram.nodes), constraint.body.circuit.n_products
    used = f"{when_ready - before:>8.0f}{_mebibytes() - before:>8.0f}"
    print(f"{kind:<10}{n:>4}{ready:>9.2f} s{nodes:>7}{products:>10}{times[0]}{times[1]}{used}", flush=True)


def _mebibytes() -> float:
    """The most that this process has held; what `resource` says includes the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 2**10


def check() -> None:
    """All ways to compute a constraint agree before they are timed."""
    log_p = posteriors(7, 5)
    expected = enumeration(2)(log_p)
    for evaluate in (program(2)[0], table(2)[0], klay_of(2)):
        torch.testing.assert_close(evaluate(log_p), expected)


def main() -> None:
    torch.set_num_threads(1)
    print(f"CPU time on one core; median of {ROUNDS}; size: products in the circuit, or tuples")
    print(f"{'constraint':<36}{'rows':>5}{'ready':>10}{'size':>10}{'forward':>13}{'+ gradient':>13}")
    check()
    report("1 digit + 1 digit, predicate", single_digit, 3, 60)
    for n in (2, 3):
        report(f"{n} digits + {n} digits, program", lambda n=n: program(n), 3 * n + 1, BATCH)
        report(f"{n} digits + {n} digits, klaycircuits", lambda n=n: (klay_of(n), "-"), 3 * n + 1, BATCH)
    report("2 digits + 2 digits, table", lambda: table(2), 7, BATCH)
    report("2 digits + 2 digits, enumerated", lambda: (enumeration(2), 10**4), 7, BATCH)
    print(f"\nsums of two numbers of n digits, {LONG_BATCH} rows; CPU times, MiB when ready and at most")
    columns = f"{'stated as':<10}{'n':>4}{'ready':>11}{'nodes':>7}{'products':>10}{'forward':>12}{'+ gradient':>12}"
    print(f"{columns}{'MiB':>16}")
    for kind in LONG:
        for n in LENGTHS:
            subprocess.run([sys.executable, __file__, kind, str(n)], check=True)
    print(f"\nnaming ten clusters from 100 additions with 5% of labels wrong: {naming_seconds():.2f} s")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        torch.set_num_threads(1)
        report_long(sys.argv[1], int(sys.argv[2]))
    else:
        main()
