"""What a report is made from."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from gedikit.diagnosis import Diagnosis
from gedikit.evaluation import Figure
from gedikit.fitted import FittedModel


@dataclass(frozen=True)
class ReportData:
    title: str
    fitted: FittedModel
    x: NDArray[Any]  # the rows the report is about, in the units of the data
    labels: NDArray[Any] | None  # true labels, only to show agreement with them
    image_shape: tuple[int, int] | None
    history: list[dict[str, float]]
    optima: dict[str, float]
    diagnosis: Diagnosis
    figures: list[Figure]
    columns: tuple[str, ...] | None

    @property
    def names(self) -> tuple[str, ...]:
        return self.columns or tuple(f"feature {i}" for i in range(self.fitted.n_features))
