"""What the page shows of a fit that learned from rules: names, how far they hold, and examples explained."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64

from gedikit.fitted import FittedModel
from gedikit.report.tables import Cell, HtmlTable
from gedikit.symbolic import Explanation, Names, Placed
from gedikit.symbolic.examples import NOTHING

_EXPLAINED = 6  # examples of either end
_WORLDS = 3
_LEAST = -30.0  # log-probability below which a posterior is as good as zero
_SHADE = "rgba(11, 122, 85, {:.2f})"


@dataclass(frozen=True)
class ExplainedExample:
    """One example: what it says, how probable that is, and the most probable symbols behind it."""

    said: str
    explanation: Explanation | None  # None where it is impossible
    log_probability: float

    def worlds(self) -> str:
        if self.explanation is None:
            return "impossible as clusters are named"
        return "; ".join(
            f"{w.probability:.2f}: {', '.join(f'{name} = {value}' for name, value in w.values.items())}"
            for w in self.explanation.worlds
        )


@dataclass(frozen=True)
class RuleSections:
    """Tables of the page."""

    names: HtmlTable
    groups: tuple[str, ...]
    agreement: tuple[tuple[str, HtmlTable], ...] = ()
    explained: HtmlTable | None = None
    satisfied: str = ""


def names_section(fitted: FittedModel) -> RuleSections | None:
    """The names of clusters, where a fit has any."""
    if "names" not in fitted.info:
        return None
    names = Names.from_tree(fitted.info["names"])
    several = len({name.kind for name in names.names}) > 1
    head = ["cluster", *(["kind"] if several else []), "stands for", "probability", "could also stand for"]
    rows = [
        [
            Cell(str(name.cluster)),
            *([Cell(name.kind)] if several else []),
            Cell(str(name.value) if name.decided else f"{name.value}?"),
            Cell(f"{name.probability:.3f}"),
            Cell(", ".join(map(str, name.others)) or ("" if name.decided else "any other")),
        ]
        for name in names.names
    ]
    groups = tuple(", ".join(map(str, values)) for _, values in names.groups)
    good = names.n_examples - names.violated
    satisfied = f"{good} of {names.n_examples} examples satisfy their rule as clusters are named"
    return RuleSections(HtmlTable(head, rows), groups, satisfied=satisfied)


def rule_sections(
    fitted: FittedModel,
    posterior: Float[np.ndarray, "n c"],
    placed: Sequence[Placed],
    lines: Sequence[Sequence[int]],
) -> RuleSections | None:
    """The names, what rows show by the network and by the rule, and the surest and the strangest examples."""
    found = names_section(fitted)
    if found is None:
        return None
    log_p = np.log(np.maximum(posterior, np.exp(_LEAST)))
    explained = [e for p, at in zip(placed, lines, strict=True) for e in explain_all(p, log_p, at, _EXPLAINED)]
    rows = [[Cell(e.said), Cell(f"{e.log_probability:.3g}"), Cell(e.worlds())] for e in explained]
    return RuleSections(
        found.names,
        found.groups,
        tuple(_agreement(log_p, placed)),
        HtmlTable(["example", "log P", "most probable symbols"], rows),
        found.satisfied,
    )


def example_posteriors(
    placed: Placed, row: int, log_p: Float[np.ndarray, "n c"]
) -> list[Float[torch.Tensor, " _"]]:
    """log p(value) of every variable of one example."""
    found = []
    for v, kind, image, known in zip(
        placed.constraint.variables, placed.kinds, placed.rows[row], placed.known[row], strict=True
    ):
        if kind is not None and image != NOTHING:
            found.append(torch.log_softmax(torch.from_numpy(log_p[image, kind.clusters]).double(), -1))
        elif known != NOTHING:
            found.append(torch.where(torch.arange(v.size) == int(known), 0.0, -inf).double())
        else:
            found.append(torch.full((v.size,), -float(np.log(v.size)), dtype=torch.float64))
    return found


def explain_row(placed: Placed, row: int, log_p: Float[np.ndarray, "n c"], said: str, k: int) -> ExplainedExample:
    """The k most probable symbols behind an example."""
    given = example_posteriors(placed, row, log_p)
    log_probability = float(placed.constraint.log_probability([g[None] for g in given]))
    if log_probability == -inf:
        return ExplainedExample(said, None, log_probability)
    return ExplainedExample(said, placed.constraint.explain(given, k), log_probability)


def explain_all(
    placed: Placed, log_p: Float[np.ndarray, "n c"], lines: Sequence[int], ends: int
) -> list[ExplainedExample]:
    """The least and the most probable examples of a rule."""
    of_rows = placed.log_probability(torch.from_numpy(log_p[placed.images.numpy()])).numpy()
    order = np.argsort(of_rows, kind="stable")
    some = list(dict.fromkeys([*order[:ends].tolist(), *order[-ends:].tolist()]))
    return [explain_row(placed, i, log_p, said_of(placed, i, lines[i]), _WORLDS) for i in some]


def said_of(placed: Placed, row: int, line: int, names: Sequence[str] = ()) -> str:
    """An example in words."""
    parts = []
    for v, image, known in zip(placed.constraint.variables, placed.rows[row], placed.known[row], strict=True):
        if image != NOTHING:
            parts.append(f"{v.name}: {names[image] if names else f'row {image}'}")
        elif known != NOTHING:
            parts.append(f"{v.name} = {v.values[known]}")
    violated = "" if placed.examples.holds[row] else ", said to violate the rule"
    return f"line {line}: {', '.join(parts)}{violated}"


def _agreement(log_p: Float[np.ndarray, "n c"], placed: Sequence[Placed]) -> list[tuple[str, HtmlTable]]:
    """Of every kind, what the network alone says of images, against what it says given that the rule holds."""
    symbols = placed[0].symbols
    counts = np.zeros((symbols.n_clusters, symbols.n_clusters), dtype=np.int64)
    for p in placed:
        for i in range(len(p)):
            if p.examples.holds[i]:
                _count(p, i, log_p, counts)
    plain = symbols.plain_values()
    found = []
    for kind in symbols.kinds:
        inside = counts[kind.clusters, kind.clusters]
        most = max(1, int(inside.max()))
        rows = [
            [Cell(str(plain[kind.first + a]))]
            + [Cell(str(n) if n else "", _SHADE.format(0.6 * n / most) if n else "") for n in inside[a].tolist()]
            for a in range(kind.size)
        ]
        head = ["network ↓ rule →", *(str(plain[kind.first + b]) for b in range(kind.size))]
        found.append((kind.name, HtmlTable(head, rows)))
    return found


def _count(placed: Placed, row: int, log_p: Float[np.ndarray, "n c"], counts: Int64[np.ndarray, "c c"]) -> None:
    given = [g.clone().requires_grad_() for g in example_posteriors(placed, row, log_p)]
    total = placed.constraint.log_probability([g[None] for g in given]).sum()
    if float(total.detach()) == -inf:
        return
    marginals: tuple[Any, ...] = torch.autograd.grad(total, given)
    for kind, image, own, rule in zip(placed.kinds, placed.rows[row], given, marginals, strict=True):
        if kind is not None and image != NOTHING:
            counts[kind.first + int(own.argmax()), kind.first + int(rule.argmax())] += 1
