"""How else the rows could be divided: the evidence for the number of groups, and the partition that came second."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int64
from sklearn.metrics import adjusted_rand_score

from gedikit.starts import Start


@dataclass(frozen=True)
class NumberEvidence:
    """Why there are so many groups: how deep the graph dips where one more group is parted."""

    chosen: int
    runner_up: int
    threshold: float  # a number counts as long as its dip is deeper
    curve: dict[int, float]  # depth of the dip that makes k groups of k − 1, for k from 2


@dataclass(frozen=True)
class SecondPartition:
    """The best partition that is another finding than the one the training started from."""

    name: str
    agreement: float  # expected ARI with a candidate drawn by how little it cuts the graph
    likeness: float  # ARI with the chosen partition
    table: tuple[tuple[int, ...], ...]  # rows in each group of the chosen one (lines) and of this one (columns)
    some_labels: tuple[int, ...]  # of the rows that a model keeps for reference


@dataclass(frozen=True)
class Rivals:
    """What a fit started from, and what it could have started from instead."""

    name: str  # of the method that found the chosen partition
    agreement: float
    n_candidates: int
    second: SecondPartition | None
    number: NumberEvidence | None  # where the number of groups was looked for

    @classmethod
    def of(cls, start: Start, some: Int64[np.ndarray, " r"]) -> "Rivals":
        """Of the partition a fit starts from; `some` are rows that a model keeps."""
        choice, number = start.choice, start.number
        second, evidence = choice.runner_up, None
        rival = None
        if second is not None:
            table = np.zeros((len(choice.chosen.shares), len(second.shares)), dtype=np.int64)
            np.add.at(table, (choice.chosen.labels, second.labels), 1)
            rival = SecondPartition(
                second.name,
                second.agreement,
                float(adjusted_rand_score(choice.chosen.labels, second.labels)),
                tuple(map(tuple, table.tolist())),
                tuple(second.labels[start.places(some)].tolist()),
            )
        if number is not None:
            evidence = NumberEvidence(number.n_clusters, number.runner_up, number.threshold, dict(number.curve))
        return cls(choice.chosen.name, choice.chosen.agreement, len(choice.candidates), rival, evidence)

    def tree(self) -> dict[str, Any]:
        """As JSON has it."""
        second, number = self.second, self.number
        lists = (
            {} if second is None else {"table": [*map(list, second.table)], "some_labels": [*second.some_labels]}
        )
        curve = [] if number is None else [[k, depth] for k, depth in number.curve.items()]
        return {
            "name": self.name,
            "agreement": self.agreement,
            "n_candidates": self.n_candidates,
            "second": None if second is None else {**vars(second), **lists},
            "number": None if number is None else {**vars(number), "curve": curve},
        }

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> "Rivals":
        second, number = tree["second"], tree["number"]
        if second is not None:
            tables = {"table": tuple(map(tuple, second["table"])), "some_labels": tuple(second["some_labels"])}
            second = SecondPartition(**{**second, **tables})
        if number is not None:
            number = NumberEvidence(**{**number, "curve": {int(k): depth for k, depth in number["curve"]}})
        return cls(tree["name"], tree["agreement"], tree["n_candidates"], second, number)
