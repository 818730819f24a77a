"""Examples explained: how probable what is said of one is, and which symbols most probably stand behind it.

A gap takes nothing away: the probability is that *some* values of what is not known agree with the example. It is
then no smaller than with a value given, and examples with and without gaps can be compared.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import exp, inf, prod

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import one_hot

from gedikit.symbolic.constraint import Constraint
from gedikit.symbolic.examples import NOTHING, SMALLEST, Group, Placed
from gedikit.symbolic.explanation import World
from gedikit.symbolic.situations import allowed
from gedikit.symbolic.table import Table

MAX_TUPLES = 20_000  # of values of images, for which gaps are filled one by one
MAX_WORLDS = 4000  # that are looked at for those that agree with an example
_AT_ONCE, _WORK = 64, 4_000_000  # worlds, and numbers


@dataclass(frozen=True)
class ExplainedExample:
    """log P of one example, and the most probable symbols behind it, none if it is impossible."""

    log_probability: float
    worlds: tuple[World, ...]


def log_possible(placed: Placed, log_p: Float[Tensor, "n c"]) -> Float[np.ndarray, " e"]:
    """log P that some values of gaps agree with what is said of each example, from log p(symbol) of all rows.

    Exact where images have at most 20,000 tuples of values, or the rule is a table. Beyond that it is the sum over
    all values of gaps, at most 1: the same where the rest determines what is missing, and never less.
    """
    found: Float[np.ndarray, " e"] = placed.log_probability(log_p[placed.images]).double().clamp_max(0).numpy()
    missing = np.flatnonzero(((placed.rows == NOTHING) & (placed.known == NOTHING)).any(1))
    if not len(missing):
        return found
    some = placed.some(missing)
    for group in some.groups:
        of, numbers = some.examples, group.numbers
        seen = np.column_stack([group.rows != NOTHING, group.known, of.holds[numbers], of.probability[numbers]])
        _, which = np.unique(seen, axis=0, return_inverse=True)
        for i in range(which.max() + 1):
            mine = np.flatnonzero(which.ravel() == i)
            holds, q = bool(of.holds[numbers[mine[0]]]), float(of.probability[numbers[mine[0]]])
            satisfied, violated = _some_values(some, group, mine, log_p)
            said, opposite = (satisfied, violated) if holds else (violated, satisfied)
            doubted = (q * said.exp() + (1 - q) * opposite.exp()).clamp_min(SMALLEST).log()
            found[missing[numbers[mine]]] = (said if holds and q == 1 else doubted).clamp_max(0).numpy()
    return found


def _some_values(
    placed: Placed, group: Group, mine: Int64[np.ndarray, " m"], log_p: Float[Tensor, "n c"]
) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
    """log P that some values of gaps satisfy a constraint, and that some violate it; all have the same gaps."""
    variables, rows, known = group.constraint.variables, group.rows[mine[0]], group.known[mine[0]]
    images = [j for j, row in enumerate(rows) if row != NOTHING]
    told = {j: int(at) for j, at in enumerate(known) if at != NOTHING}
    gaps = prod(v.size for j, v in enumerate(variables) if j not in images and j not in told)
    given = _posteriors(placed, group, mine, log_p)
    if not isinstance(group.constraint.body, Table) and prod(variables[j].size for j in images) > MAX_TUPLES:
        p = group.constraint.log_probability(given).exp()
        return (gaps * p).clamp_max(1).log(), (gaps * (1 - p)).clamp(0, 1).log()
    tuples, log_ways = allowed(group.constraint, images, told)
    ways = log_ways.exp()
    parts = []
    for block in torch.arange(len(mine)).split(max(1, _WORK // max(1, len(tuples)))):
        p = sum((given[j][block][:, tuples[:, i]] for i, j in enumerate(images)), torch.zeros(()).double())
        always = 1 - (gaps - ways).clamp(0, 1)
        parts.append((p + ways.clamp_max(1).log()).logsumexp(1))
        parts.append((1 - (p.exp() * always).sum(1)).clamp(0, 1).log())
    return torch.cat(parts[::2]), torch.cat(parts[1::2])


def _posteriors(
    placed: Placed, group: Group, mine: Int64[np.ndarray, " m"], log_p: Float[Tensor, "n c"]
) -> list[Float[Tensor, "m _"]]:
    rows = torch.from_numpy(group.rows[mine])
    is_image = rows != NOTHING
    known = torch.from_numpy(group.known[mine])
    shown = is_image.all(0).tolist()
    return group.posteriors(log_p.double(), rows.clamp_min(0), is_image, known, shown=shown, within=placed.several)


def explained(placed: Placed, row: int, log_p: Float[Tensor, "n c"], k: int) -> ExplainedExample:
    """An example with its k most probable worlds: values that agree with what is said of it."""
    one = placed.some(np.array([row]))
    log_probability = float(log_possible(one, log_p)[0])
    if log_probability == -inf:
        return ExplainedExample(log_probability, ())
    (group,) = one.groups
    given = [block[0] for block in _posteriors(one, group, np.array([0]), log_p)]
    holds, q = bool(one.examples.holds[0]), float(one.examples.probability[0])
    if holds and q == 1:
        worlds = group.constraint.explain(given, k).worlds
    else:
        total = exp(float(one.log_probability(log_p[one.images])[0]))
        weights = (q, 1 - q) if holds else (1 - q, q)
        worlds = _of_doubt(group.constraint, given, weights, total, k)
    names = [v.name for v in placed.constraint.variables]
    rows = placed.rows[row].tolist()
    same = {
        name: names[rows.index(image)] if image != NOTHING else name
        for name, image in zip(names, rows, strict=True)
    }
    whole = [World({name: w.values[same[name]] for name in names}, w.probability) for w in worlds]
    return ExplainedExample(log_probability, tuple(whole))


def _of_doubt(
    constraint: Constraint,
    given: Sequence[Float[Tensor, " _"]],
    weights: tuple[float, float],
    total: float,
    k: int,
) -> list[World]:
    """The most probable values where a constraint holds or not, each with a weight; `total` is the sum of all."""
    found: list[tuple[float, tuple[int, ...]]] = []
    every = islice(_products([g.tolist() for g in given]), MAX_WORLDS)
    while some := list(islice(every, _AT_ONCE)):
        places = torch.tensor([positions for _, positions in some])
        columns = [one_hot(places[:, j], v.size).double().log() for j, v in enumerate(constraint.variables)]
        satisfied = constraint.log_probability(columns).exp().tolist()
        for (log_weight, positions), p in zip(some, satisfied, strict=True):
            found.append((exp(log_weight) * (weights[0] * p + weights[1] * (1 - p)), positions))
        found = sorted((f for f in found if f[0] > 0), reverse=True)[:k]
        if len(found) == k and found[-1][0] >= exp(some[-1][0]) * max(weights):
            break
    variables = constraint.variables
    return [
        World({v.name: v.values[at] for v, at in zip(variables, positions, strict=True)}, min(1.0, weight / total))
        for weight, positions in found
    ]


def _products(log_p: Sequence[Sequence[float]]) -> Iterator[tuple[float, tuple[int, ...]]]:
    """All tuples of positions with the sums of their numbers, the largest first."""
    order = [sorted(range(len(column)), key=lambda i, c=column: -c[i]) for column in log_p]  # type: ignore[misc]
    first = (0,) * len(log_p)
    queue, seen = [(-sum(c[o[0]] for c, o in zip(log_p, order, strict=True)), first)], {first}
    while queue:
        loss, ranks = heapq.heappop(queue)
        if loss == inf:
            return
        yield -loss, tuple(o[r] for o, r in zip(order, ranks, strict=True))
        for j, r in enumerate(ranks):
            following = (*ranks[:j], r + 1, *ranks[j + 1 :])
            if r + 1 < len(order[j]) and following not in seen:
                seen.add(following)
                better = log_p[j][order[j][r]] - log_p[j][order[j][r + 1]]
                heapq.heappush(queue, (loss + better, following))
