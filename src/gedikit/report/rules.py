"""What the page shows of a fit that learned from rules: names, how far they hold, and examples explained."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from gedikit.fitted import FittedModel
from gedikit.report.tables import Cell, HtmlTable
from gedikit.symbolic import Names, Placed
from gedikit.symbolic.examples import NOTHING
from gedikit.symbolic.expectations import marginals_of
from gedikit.symbolic.explained import ExplainedExample, explained, log_possible
from gedikit.symbolic.wording import Wording, told

_EXPLAINED = 6  # examples of either end
_WORLDS = 3
_LEAST = -30.0  # log-probability below which a posterior is as good as zero
_SHADE = "rgba(11, 122, 85, {:.2f})"


@dataclass(frozen=True)
class RuleSections:
    """Tables of the page."""

    names: HtmlTable
    left_open: tuple[str, ...]
    agreement: tuple[tuple[str, HtmlTable], ...] = ()
    explained: HtmlTable | None = None
    satisfied: str = ""


def names_section(fitted: FittedModel) -> RuleSections | None:
    """The names of clusters, where a fit has any."""
    if "names" not in fitted.info:
        return None
    names = Names.from_tree(fitted.info["names"])
    several = len({name.kind for name in names.names}) > 1
    head = [
        "cluster",
        *(["kind"] if several else []),
        "stands for",
        "probability",
        "could also stand for",
        "left open by",
    ]
    rows = [
        [
            Cell(str(name.cluster)),
            *([Cell(name.kind)] if several else []),
            Cell(str(name.value) if name.decided else f"{name.value}?"),
            Cell(f"{name.probability:.3f}"),
            Cell(", ".join(map(str, name.others)) or ("" if name.decided else "any other")),
            Cell("" if name.decided else "the rules" if name.open_by_rule else "the fit"),
        ]
        for name in names.names
    ]
    good = names.n_examples - names.violated
    satisfied = f"{good} of {names.n_examples} examples satisfy their rule as clusters are named"
    return RuleSections(HtmlTable(head, rows), tuple(names.left_open()), satisfied=satisfied)


def rule_sections(
    fitted: FittedModel, posterior: Float[np.ndarray, "n c"], placed: Sequence[Placed], words: Wording
) -> RuleSections | None:
    """The names, what rows show by the network and by the rule, and the surest and the strangest examples."""
    found = names_section(fitted)
    if found is None:
        return None
    log_p = log_posterior(posterior)
    rows = [line for which, p in enumerate(placed) for line in _ends(p, which, log_p, words)]
    return RuleSections(
        found.names,
        found.left_open,
        tuple(_agreement(log_p, placed)),
        HtmlTable(["example", "log P", "most probable symbols"], rows),
        found.satisfied,
    )


def log_posterior(posterior: Float[np.ndarray, "n c"]) -> Float[torch.Tensor, "n c"]:
    """Its logarithm, which is finite: a network is never quite sure."""
    return torch.from_numpy(np.log(np.maximum(posterior.astype(np.float64), np.exp(_LEAST))))


def _ends(placed: Placed, which: int, log_p: Float[torch.Tensor, "n c"], words: Wording) -> list[list[Cell]]:
    """The least and the most probable examples of a rule, explained."""
    order = np.argsort(log_possible(placed, log_p), kind="stable")
    has_gap = ((placed.rows == NOTHING) & (placed.known == NOTHING)).any(1)
    whole = order[~has_gap[order]]  # where much is unknown, to be probable says little
    best = order if len(whole) < _EXPLAINED else whole
    lines = []
    for row in dict.fromkeys([*order[:_EXPLAINED].tolist(), *best[-_EXPLAINED:].tolist()]):
        found = explained(placed, row, log_p, _WORLDS)
        said = f"{words.example(which, row)}: {told(placed, which, row, words)}"
        lines.append([Cell(said), Cell(f"{found.log_probability:.3g}"), Cell(_worlds(found, which, words))])
    return lines


def _worlds(found: ExplainedExample, which: int, words: Wording) -> str:
    if not found.worlds:
        return "impossible as clusters are named"
    return "; ".join(
        f"{w.probability:.2f}: {', '.join(f'{words.variable(which, n)} = {v}' for n, v in w.values.items())}"
        for w in found.worlds
    )


def _agreement(log_p: Float[torch.Tensor, "n c"], placed: Sequence[Placed]) -> list[tuple[str, HtmlTable]]:
    """Of every kind, what the network alone says of images, against what it says given their examples."""
    symbols = placed[0].symbols
    counts = np.zeros((symbols.n_clusters, symbols.n_clusters), dtype=np.int64)
    for p in placed:
        for group, part, by_variable, possible in marginals_of(p, log_p):
            for kind, rows, given in zip(group.kinds, group.rows[part].T, by_variable, strict=True):
                if kind is None:
                    continue
                shown = (rows != NOTHING) & possible.numpy()
                own = log_p[rows[shown], kind.clusters].argmax(-1).numpy()
                np.add.at(counts, (kind.first + own, kind.first + given[shown].argmax(-1).numpy()), 1)
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
        head = ["network ↓ example →", *(str(plain[kind.first + b]) for b in range(kind.size))]
        found.append((kind.name, HtmlTable(head, rows)))
    return found
