"""The paper's statements as computations: every lemma, the proposition, the theorem and the appendices, checked.

The losses under test are those of `gedikit.objectives` and `gedikit.densities`; the paper's side is written out
beside them.
"""

from gedikit.paper.theory.check import Check, disagreement
from gedikit.paper.theory.cluster_based import lemma_9
from gedikit.paper.theory.constant_posteriors import around_best_constant, fourth_mode, interpolation
from gedikit.paper.theory.contrastive import lemma_3
from gedikit.paper.theory.information import appendices
from gedikit.paper.theory.landscape import landscape_table, theorem_1
from gedikit.paper.theory.negative_free import lemma_6
from gedikit.paper.theory.proposition import proposition_1


def run(seed: int = 0) -> list[Check]:
    """Every check, in the paper's order, with inputs drawn from the seed."""
    seeded = (lemma_3, lemma_6, lemma_9, proposition_1, theorem_1)
    return [check for part in seeded for check in part(seed)] + fourth_mode() + appendices(seed)


__all__ = [
    "Check",
    "appendices",
    "around_best_constant",
    "disagreement",
    "fourth_mode",
    "interpolation",
    "landscape_table",
    "lemma_3",
    "lemma_6",
    "lemma_9",
    "proposition_1",
    "run",
    "theorem_1",
]
