"""What a report is made from."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from gedikit.diagnosis import Diagnosis
from gedikit.evaluation import Metric
from gedikit.fitted import FittedModel, Predictions


@dataclass(frozen=True)
class ReportData:
    title: str
    fitted: FittedModel
    x: NDArray[Any]  # the rows the report is about, in the units of the data
    predictions: Predictions  # of these rows
    labels: NDArray[Any] | None  # true labels, only to show agreement with them
    image_shape: tuple[int, int, int] | None  # height, width, channels: rows are images flattened in that order
    history: list[dict[str, float]]
    optima: dict[str, float]
    diagnosis: Diagnosis
    metrics: list[Metric]
    columns: tuple[str, ...] | None
    names: tuple[str, ...] = ()  # of the rows
    skipped: tuple[tuple[str, str], ...] = ()  # files that could not be read, and why
    evaluations: tuple[dict[str, float], ...] = ()  # on labelled rows during the training

    @property
    def column_names(self) -> tuple[str, ...]:
        return self.columns or tuple(f"feature {i}" for i in range(self.fitted.n_features))

    def row_name(self, row: int) -> str:
        return self.names[row] if self.names else f"row {row}"
