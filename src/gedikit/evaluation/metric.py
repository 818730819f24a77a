"""A measured value with the protocol that gave it."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Metric:
    """Name, value and protocol (definition, split, number of rows, …)."""

    name: str
    value: float
    protocol: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
