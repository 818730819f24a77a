"""What examples say before any image is looked at: which symbols they show, and whether they can be at all."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.symbolic.examples import NOTHING, Group, Placed

_WORK = 4_000_000  # numbers computed at once
_MOST = 2000  # situations looked at for expectations


def expected_symbols(placed: Placed, shares: Float[np.ndarray, " c"]) -> Float[np.ndarray, " c"]:
    """How often images of the examples show each symbol, where symbols of a kind occur as often as `shares` say.

    Posterior expectations given the constraint and what is known. Of many different situations some are looked at.
    """
    log_shares = torch.from_numpy(np.log(np.maximum(shares, 1e-12)))[None]
    found = np.zeros(len(shares))
    for group in placed.groups:
        example, count = _situations(placed, group)
        if len(example) > _MOST:
            some = np.random.default_rng(0).choice(len(example), _MOST, replace=False)
            example, count = example[some], count[some]
        for part in np.array_split(np.arange(len(example)), _n_blocks(group, len(example))):
            log_p, by_variable = _answer(placed, group, log_shares, example[part])
            weight = torch.from_numpy(count[part])
            for j, (kind, of_values) in enumerate(zip(group.kinds, by_variable, strict=True)):
                if kind is None:
                    continue
                shown = torch.from_numpy(group.rows[example[part], j] != NOTHING) & (log_p > -torch.inf)
                expected = torch.where(shown[:, None], of_values, 0.0) * weight[:, None]
                found[kind.clusters] += expected.sum(0).numpy()
    return found


def first_contradiction(placed: Placed) -> int | None:
    """The first example that is not possible whatever its images show; None where all are."""
    equal = torch.cat([torch.full((k.size,), 1 / k.size, dtype=torch.float64).log() for k in placed.symbols.kinds])
    found = []
    for group in placed.groups:
        example, _ = _situations(placed, group)
        for part in np.array_split(example, _n_blocks(group, len(example))):
            with torch.no_grad():
                log_p = group.constraint.log_probability(_posteriors(placed, group, equal[None], part)).numpy()
            holds = placed.examples.holds[group.numbers[part]]
            certain = placed.examples.probability[group.numbers[part]] == 1
            wrong = part[certain & np.where(holds, log_p == -np.inf, log_p > -1e-12)]
            found += group.numbers[wrong].tolist()
    return min(found, default=None)


def _situations(placed: Placed, group: Group) -> tuple[np.ndarray, np.ndarray]:
    """Examples that differ in more than which images they have: one of each, and the weight of all alike."""
    numbers = group.numbers
    of = placed.examples
    seen = np.column_stack([group.rows == NOTHING, group.known, of.holds[numbers], of.probability[numbers]])
    _, first, which = np.unique(seen, axis=0, return_index=True, return_inverse=True)
    return first, np.bincount(which.ravel(), of.weights[numbers], len(first))


def _n_blocks(group: Group, n: int) -> int:
    return max(1, -(-n * group.constraint.body.size // _WORK))


def _posteriors(placed: Placed, group: Group, log_p: Tensor, example: np.ndarray) -> list[Tensor]:
    is_image = torch.from_numpy(group.rows[example] != NOTHING)
    return group.posteriors(
        log_p,
        torch.zeros(is_image.shape, dtype=torch.int64),
        is_image,
        torch.from_numpy(group.known[example]),
        shown=is_image.all(0).tolist(),
        within=placed.several,
    )


def _answer(placed: Placed, group: Group, log_p: Tensor, example: np.ndarray) -> tuple[Tensor, list[Tensor]]:
    """log P(constraint) of situations, and p(value) of their variables given what is known of them."""
    sizes = [v.size for v in group.constraint.variables]
    with torch.inference_mode(False), torch.enable_grad():
        columns = torch.cat(_posteriors(placed, group, log_p, example), dim=-1).mT.contiguous().requires_grad_()
        joint = group.constraint.body.log_joint(columns)
        (gradient,) = torch.autograd.grad(joint.sum(), columns)
    joint, before = joint.detach(), columns.detach().exp()
    of = placed.examples
    holds, q = of.holds[group.numbers[example]], of.probability[group.numbers[example]]
    if not (holds.all() and (q == 1).all()):
        gradient = observed(joint, gradient, before, torch.from_numpy(holds), torch.from_numpy(q))
    return joint, [part.mT for part in gradient.split(sizes)]


def observed(joint: Tensor, given: Tensor, before: Tensor, holds: Tensor, probability: Tensor) -> Tensor:
    """p(value) where the constraint holds or not as said with `probability`, from p(value | constraint).

    p(value | not the constraint) = (p(value) − P p(value | constraint))/(1 − P).
    """
    p = joint.exp()
    rest = (1 - p).clamp_min(1e-12)
    right = torch.where(holds, probability, 1 - probability) * p
    wrong = torch.where(holds, 1 - probability, probability) * rest
    it_holds = right / (right + wrong).clamp_min(1e-300)
    otherwise = ((before - p * given) / rest).clamp_min(0.0)
    return it_holds * given + (1 - it_holds) * otherwise
