"""How examples, rules, variables and images are called in sentences: by numbers, or as a file has them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gedikit.symbolic.examples import NOTHING, Placed


class Wording(Protocol):
    """Names for who reads a sentence; `which` is the number of a rule and `row` that of an example of it."""

    def example(self, which: int, row: int) -> str: ...

    def rule(self, which: int) -> str: ...

    def variable(self, which: int, name: str) -> str: ...

    def image(self, number: int) -> str: ...


@dataclass(frozen=True)
class Numbered:
    """Examples and images by their numbers, rules and variables as they were stated."""

    placed: Sequence[Placed]

    def example(self, which: int, row: int) -> str:
        return f"row {row} of {self.rule(which)}" if len(self.placed) > 1 else f"row {row} of examples"

    def rule(self, which: int) -> str:
        return self.placed[which].constraint.name

    def variable(self, which: int, name: str) -> str:  # noqa: ARG002
        return name

    def image(self, number: int) -> str:
        return f"row {number}"


def told(placed: Placed, which: int, row: int, words: Wording) -> str:
    """What an example says."""
    entries = []
    for v, image, known in zip(placed.constraint.variables, placed.rows[row], placed.known[row], strict=True):
        name = words.variable(which, v.name)
        if image != NOTHING:
            entries.append(f"{name} is {words.image(int(image))}")
        else:
            entries.append(f"{name} = {v.values[known]}" if known != NOTHING else f"{name} unknown")
    violated = "" if placed.examples.holds[row] else ", said to violate the rule"
    return f"{', '.join(entries)}{violated}"
