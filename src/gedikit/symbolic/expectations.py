"""What examples say before any image is looked at: which symbols they show, and whether they can be at all."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from numpy.typing import NDArray
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
            nowhere = _nowhere(group, example[part])
            log_p, by_variable = _answer(placed, group, log_shares, example[part], nowhere)
            weight = torch.from_numpy(count[part])
            for j, (kind, of_values) in enumerate(zip(group.kinds, by_variable, strict=True)):
                if kind is None:
                    continue
                shown = torch.from_numpy(group.rows[example[part], j] != NOTHING) & (log_p > -torch.inf)
                expected = torch.where(shown[:, None], of_values, 0.0) * weight[:, None]
                found[kind.clusters] += expected.sum(0).numpy()
    return found


def expected_of_rows(placed: Placed, log_p: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
    """In how many examples each row shows each symbol, by expectation given the rule and log p(symbol | row)."""
    found = torch.zeros_like(log_p)
    for group, part, by_variable, possible in marginals_of(placed, log_p):
        rows = torch.from_numpy(group.rows[part]).to(log_p.device)
        weights = torch.from_numpy(placed.examples.weights[group.numbers[part]]).to(log_p)
        for kind, own, of_values in zip(group.kinds, rows.T, by_variable, strict=True):
            if kind is None:
                continue
            shown = (own != NOTHING) & possible
            found[:, kind.clusters].index_add_(0, own[shown], of_values[shown] * weights[shown, None])
    return found


def marginals_of(
    placed: Placed, log_p: Float[Tensor, "n c"]
) -> Iterator[tuple[Group, NDArray[np.int64], list[Tensor], Bool[Tensor, " m"]]]:
    """Some examples of a group, p(value) of its variables given what is known of each, and which are possible."""
    for group in placed.groups:
        for part in np.array_split(np.arange(len(group.rows)), _n_blocks(group, len(group.rows))):
            rows = torch.from_numpy(group.rows[part]).to(log_p.device)
            joint, by_variable = _answer(placed, group, log_p, part, rows.clamp_min(0))
            yield group, part, by_variable, joint > -torch.inf


def first_contradiction(placed: Placed) -> int | None:
    """The first example that is not possible whatever its images show; None where all are."""
    equal = torch.cat([torch.full((k.size,), 1 / k.size, dtype=torch.float64).log() for k in placed.symbols.kinds])
    found = []
    for group in placed.groups:
        example, _ = _situations(placed, group)
        for part in np.array_split(example, _n_blocks(group, len(example))):
            with torch.no_grad():
                nowhere = _nowhere(group, part)
                given = _posteriors(placed, group, equal[None], part, nowhere)
                log_p = group.constraint.log_probability(given).numpy()
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


def _nowhere(group: Group, example: np.ndarray) -> Int64[Tensor, "m v"]:
    """Places of images of which nothing is known but how often symbols are shown: all have the same one."""
    return torch.zeros(len(example), group.rows.shape[1], dtype=torch.int64)


def _posteriors(
    placed: Placed, group: Group, log_p: Tensor, example: np.ndarray, places: Int64[Tensor, "m v"]
) -> list[Tensor]:
    is_image = torch.from_numpy(group.rows[example] != NOTHING)
    return group.posteriors(
        log_p,
        places,
        is_image.to(log_p.device),
        torch.from_numpy(group.known[example]).to(log_p.device),
        shown=is_image.all(0).tolist(),
        within=placed.several,
    )


def _answer(
    placed: Placed, group: Group, log_p: Tensor, example: np.ndarray, places: Int64[Tensor, "m v"]
) -> tuple[Tensor, list[Tensor]]:
    """log P(constraint) of examples, and p(value) of their variables given what is known of them.

    `places` are those of images in `log_p`.
    """
    sizes = [v.size for v in group.constraint.variables]
    with torch.inference_mode(False), torch.enable_grad():
        posteriors = _posteriors(placed, group, log_p, example, places)
        columns = torch.cat(posteriors, dim=-1).mT.contiguous().requires_grad_()
        joint = group.constraint.body.log_joint(columns)
        (gradient,) = torch.autograd.grad(joint.sum(), columns)
    joint, before = joint.detach(), columns.detach().exp()
    of = placed.examples
    holds, q = of.holds[group.numbers[example]], of.probability[group.numbers[example]]
    if not (holds.all() and (q == 1).all()):
        said = (torch.from_numpy(part).to(joint.device) for part in (holds, q))
        gradient = observed(joint, gradient, before, *said)
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
