"""Constraints in several forms, programs drawn at random, and answers by going through all worlds."""

import itertools
import random
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gedikit.symbolic import Constraint

DIGITS = "nn(digit, [X], Y, [0,1,2,3,4,5,6,7,8,9]) :: digit(X, Y).\n"
ADDITION = DIGITS + "addition(A, B, C) :- digit(A, X), digit(B, Y), Z is X + Y, digit(C, Z).\n"
CARRY = (
    DIGITS
    + """
add([], [], C, [Z]) :- digit(Z, C).
add([A|As], [B|Bs], C, [Z|Zs]) :-
    digit(A, X), digit(B, Y), S is X + Y + C, D is S mod 10, digit(Z, D), T is S // 10, add(As, Bs, T, Zs).
"""
)


def carry_query(n: int) -> str:
    """Numbers of n digits, the last digit first."""
    a, b, c = (f"[{','.join(f'{s}{i}' for i in range(m))}]" for s, m in (("a", n), ("b", n), ("c", n + 1)))
    return f"add({a}, {b}, 0, {c})"


def addition() -> Constraint:
    return Constraint(lambda a, b, c: a + b == c, domains=(10, 10, 10))


def draw(sizes: Sequence[int], rows: Sequence[int] = (), seed: int = 0, scale: float = 2.0) -> list[Tensor]:
    """Normalised log-posteriors in double precision."""
    generator = torch.Generator().manual_seed(seed)
    logits = [scale * torch.randn(*rows, c, generator=generator, dtype=torch.float64) for c in sizes]
    return [torch.log_softmax(x, -1) for x in logits]


def worlds(weight: Callable[..., float], log_p: Sequence[Tensor]) -> dict[tuple[int, ...], float]:
    """The probability of every tuple of positions, of one example, times the weight the constraint gives it."""
    p = [x.exp().tolist() for x in log_p]
    found = {}
    for positions in itertools.product(*(range(len(x)) for x in p)):
        probability = weight(*positions)
        for x, i in zip(p, positions, strict=True):
            probability *= x[i]
        if probability:
            found[positions] = probability
    return found


def marginals(found: dict[tuple[int, ...], float], sizes: Sequence[int]) -> list[Tensor]:
    total = sum(found.values())
    shares = [torch.zeros(c, dtype=torch.float64) for c in sizes]
    for positions, probability in found.items():
        for share, i in zip(shares, positions, strict=True):
            share[i] += probability / total
    return shares


def random_program(seed: int) -> str:
    """A program for the query q with facts, disjunctions, rules with negation, at times a cycle or evidence.

    It takes shape/2 and bright/1 from NEURAL or, for ProbLog itself, from `with_probabilities`.
    """
    rng = random.Random(seed)
    facts = [f"f{i}" for i in range(rng.randint(1, 6))]
    lines = [f"{rng.randint(1, 9) / 10}::{f}." for f in facts]
    choices = []
    for d in range(rng.randint(0, 2)):
        n = rng.randint(2, 3)
        shares = [rng.randint(1, 9) for _ in range(n + rng.randint(0, 1))]
        lines.append("; ".join(f"{s / sum(shares):.6f}::d{d}({i})" for i, s in enumerate(shares[:n])) + ".")
        choices += [f"d{d}({i})" for i in range(n)]
    neural = [f"shape({x},{v})" for x in "xy" for v in ("square", "disc", "star")] + ["bright(x)", "bright(y)"]
    body = lambda atoms: ", ".join(("\\+ " if rng.random() < 0.3 else "") + a for a in atoms)  # noqa: E731
    heads: list[str] = []
    for level in range(3):
        atoms = facts + choices + neural * 2 + heads
        for _ in range(rng.randint(1, 3)):
            lines.append(f"r{level} :- {body(rng.sample(atoms, rng.randint(1, 3)))}.")
        heads.append(f"r{level}")
    if rng.random() < 0.5:
        lines += ["loop :- r1.", "loop :- back, shape(x,disc).", "back :- loop.", "back :- bright(y)."]
        heads.append("loop")
    lines.append(f"q :- {body(rng.sample(heads, 2))}.")
    # every neural predicate has to matter, if only a little
    lines.append("q :- shape(x,star), shape(y,square), bright(x), \\+ bright(y).")
    if rng.random() < 0.4:
        lines.append(f"evidence({rng.choice(facts + heads[:1])}{rng.choice(['', ',false'])}).")
    return "\n".join(lines)


NEURAL = "nn(shapes, [X], Y, [square, disc, star]) :: shape(X, Y).\nnn(lights, [X]) :: bright(X).\n"


def with_probabilities(program: str, p: dict[str, list[float]]) -> str:
    """The program for ProbLog itself, with numbers in place of networks."""
    lines = []
    for x in "xy":
        shares = zip(("square", "disc", "star"), p[f"shape({x})"], strict=True)
        lines.append("; ".join(f"{s:.12f}::shape({x},{v})" for v, s in shares) + ".")
        lines.append(f"{p[f'bright({x})'][1]:.12f}::bright({x}).")
    return "\n".join([*lines, program])
