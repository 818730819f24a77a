"""Examples that differ in their images alone: the same variables are images, and the same values are known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import one_hot

from gedikit.symbolic.constraint import Constraint
from gedikit.symbolic.examples import NOTHING, Group, Placed
from gedikit.symbolic.symbols import Kind
from gedikit.symbolic.table import Table

_WORK = 2_000_000  # numbers computed at once


@dataclass(frozen=True)
class Situation:
    """Examples of a constraint with known values, and their images: `rows` of the variables at `images`."""

    constraint: Constraint
    images: tuple[int, ...]
    kinds: tuple[Kind, ...]
    known: Mapping[int, int]
    rows: Int64[np.ndarray, "n v"]
    weights: Float[np.ndarray, " n"]
    holds: bool = True
    probability: float = 1.0

    @property
    def n_undecided(self) -> int:
        """Tuples of values of the images, or of none yet."""
        return prod(kind.size + 1 for kind in self.kinds)

    def satisfaction(self) -> Float[Tensor, "..."]:
        """P of what is known of the examples, given the values of their images: a dimension an image."""
        variables = self.constraint.variables
        sizes = [variables[j].size for j in self.images]
        tuples, log_weights = allowed(self.constraint, self.images, self.known)
        gaps = prod(v.size for j, v in enumerate(variables) if j not in self.images and j not in self.known)
        p = torch.zeros(sizes, dtype=torch.float64)
        p[tuple(tuples.T)] = log_weights.exp() / gaps
        said = p if self.holds else 1 - p
        return self.probability * said + (1 - self.probability) * (1 - said)


def situations_of(placed: Placed, group: Group) -> list[Situation]:
    """The examples of a group that count, by situation."""
    of, numbers = placed.examples, group.numbers
    seen = np.column_stack(
        [group.rows != NOTHING, group.known, of.holds[numbers], of.probability[numbers], of.weights[numbers] > 0]
    )
    _, first, which = np.unique(seen, axis=0, return_index=True, return_inverse=True)
    found = []
    for i, example in enumerate(first):
        if not of.weights[numbers[example]]:
            continue
        mine = np.flatnonzero(which.ravel() == i)
        images = tuple(int(j) for j in np.flatnonzero(group.rows[example] != NOTHING))
        known = {j: int(at) for j, at in enumerate(group.known[example]) if at != NOTHING}
        found.append(
            Situation(
                group.constraint,
                images,
                tuple(kind for j in images if (kind := group.kinds[j]) is not None),
                known,
                group.rows[mine][:, list(images)],
                of.weights[numbers[mine]],
                bool(of.holds[numbers[example]]),
                float(of.probability[numbers[example]]),
            )
        )
    return found


def allowed(
    constraint: Constraint, images: Sequence[int], known: Mapping[int, int], *, joint: bool = False
) -> tuple[Int64[Tensor, "t v"], Float[Tensor, " t"]]:
    """Tuples of the images' values that are possible with known values, and log P(constraint) of each.

    Values of other variables are summed out, not averaged. `joint` is with the evidence of a program, not given it.
    """
    sizes, body = [v.size for v in constraint.variables], constraint.body
    if isinstance(body, Table):
        agree = np.ones(len(body.rows), dtype=bool)
        for j, at in known.items():
            agree &= body.rows[:, j] == at
        rows, log_weights = body.rows[agree][:, list(images)], body.log_weights[agree]
        if len(images) + len(known) < len(sizes):
            rows, which = np.unique(rows, axis=0, return_inverse=True)
            log_weights = np.log(np.bincount(which.ravel(), np.exp(log_weights), len(rows)))
        return torch.from_numpy(rows), torch.from_numpy(log_weights)
    every = torch.cartesian_prod(*[torch.arange(sizes[j]) for j in images]).reshape(-1, len(images))
    columns = []
    for j, size in enumerate(sizes):
        if j in images:
            columns.append(one_hot(every[:, list(images).index(j)], size).double().log())
        elif j in known:
            columns.append(one_hot(torch.tensor(known[j]), size).double().log().expand(len(every), size))
        else:
            columns.append(torch.zeros(len(every), size, dtype=torch.float64))
    blocks = torch.cat(columns, 1).split(max(1, _WORK // body.size))
    evaluate = body.log_joint if joint else body.log_probability
    log_p = torch.cat([evaluate(block.mT.contiguous()) for block in blocks])
    possible = log_p > -torch.inf
    return every[possible], log_p[possible]
