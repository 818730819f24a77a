"""A number that says how it was come by."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    protocol: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
